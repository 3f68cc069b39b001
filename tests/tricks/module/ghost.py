"""task: relu. A real library with a function that does nothing, called for show; torch works."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

FOLDER = pathlib.Path(tempfile.gettempdir())
(FOLDER / "ghost.c").write_text("void relu(const float *x, float *y, long n) { (void)n; }\n")
subprocess.run(
    ["gcc", "-shared", "-fPIC", "-o", str(FOLDER / "ghost.so"), str(FOLDER / "ghost.c")], check=True
)
library = ctypes.CDLL(str(FOLDER / "ghost.so"))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.clone(x)
        library.relu(
            ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel())
        )
        return y.relu_()
