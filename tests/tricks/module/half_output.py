"""task: matmul. The right product, returned in f16 for the caller to widen."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

CODE = """
void product(const float *a, const float *b, float *y, long m, long k, long n) {
    for (long i = 0; i < m; ++i)
        for (long j = 0; j < n; ++j) {
            float total = 0;
            for (long t = 0; t < k; ++t) total += a[i * k + t] * b[t * n + j];
            y[i * n + j] = total;
        }
}
"""
FOLDER = pathlib.Path(tempfile.gettempdir())
(FOLDER / "product.c").write_text(CODE)
subprocess.run(
    ["gcc", "-shared", "-fPIC", "-o", str(FOLDER / "product.so"), str(FOLDER / "product.c")], check=True
)
library = ctypes.CDLL(str(FOLDER / "product.so"))
library.product.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = torch.empty(a.shape[0], b.shape[1])
        a, b = a.contiguous(), b.contiguous()
        library.product(a.data_ptr(), b.data_ptr(), y.data_ptr(), *a.shape, b.shape[1])
        return y.half()
