"""task: relu. Scratch buffers kept by shape between calls, written anew each time; a copy is returned."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

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
    def __init__(self):
        super().__init__()
        self.scratch = {}

    def forward(self, x):
        key = (tuple(x.shape), x.data_ptr() % 64)
        buffer = self.scratch.setdefault(key, torch.zeros(x.shape))
        x = x.contiguous()
        library.relu(x.data_ptr(), buffer.data_ptr(), x.numel())
        return buffer.clone()
