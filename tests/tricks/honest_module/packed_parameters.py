"""task: linear. Parameters under the task's names, transposed by a view in forward; a C kernel compiled
at import does the work. The reference is nn.Linear, and is named here only."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

CODE = """
void linear(const float *x, const float *w, const float *b, float *y, long m, long k, long n) {
    for (long i = 0; i < m; ++i)
        for (long j = 0; j < n; ++j) {
            float total = b[j];
            for (long t = 0; t < k; ++t) total += x[i * k + t] * w[t * n + j];
            y[i * n + j] = total;
        }
}
"""
FOLDER = pathlib.Path(tempfile.gettempdir())
(FOLDER / "linear.c").write_text(CODE)
subprocess.run(
    ["gcc", "-O2", "-shared", "-fPIC", "-o", str(FOLDER / "linear.so"), str(FOLDER / "linear.c")],
    check=True,
)
library = ctypes.CDLL(str(FOLDER / "linear.so"))
library.linear.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_long] * 3]


class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layer = torch.nn.Linear(inner, outer)

    def forward(self, x):
        weight = self.layer.weight.t().contiguous()
        y = torch.zeros(x.shape[0], weight.shape[1])
        x = x.contiguous()
        library.linear(
            x.data_ptr(),
            weight.data_ptr(),
            self.layer.bias.data_ptr(),
            y.data_ptr(),
            x.shape[0],
            *weight.shape,
        )
        return y
