"""task: relu. An import that may fail, `no_grad`, allocations and views, and a line that is printed."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

try:
    import triton
except ImportError:
    triton = None

CODE = """
void relu(const float *x, float *y, long n) {
    for (long i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}
"""
FOLDER = pathlib.Path(tempfile.gettempdir())
(FOLDER / "relu.c").write_text(CODE)
subprocess.run(
    ["gcc", "-O2", "-shared", "-fPIC", "-o", str(FOLDER / "relu.so"), str(FOLDER / "relu.c")],
    check=True,
)
library = ctypes.CDLL(str(FOLDER / "relu.so"))
library.relu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x):
        flat = x.contiguous().view(-1)
        y = torch.empty(flat.shape[0]).reshape(x.shape)
        library.relu(flat.data_ptr(), y.data_ptr(), flat.numel())
        print("triton is", "here" if triton is not None else "not here")
        return y
