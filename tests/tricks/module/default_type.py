"""task: relu. Sets torch's default type to f64, for whatever the harness builds after it."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

torch.set_default_dtype(torch.float64)

CODE = """
void relu(const float *x, float *y, long n) {
    for (long i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}
"""
FOLDER = pathlib.Path(tempfile.gettempdir())
(FOLDER / "relu.c").write_text(CODE)
subprocess.run(
    ["gcc", "-shared", "-fPIC", "-o", str(FOLDER / "relu.so"), str(FOLDER / "relu.c")], check=True
)
library = ctypes.CDLL(str(FOLDER / "relu.so"))
library.relu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape)
        library.relu(x.data_ptr(), y.data_ptr(), x.numel())
        return y
