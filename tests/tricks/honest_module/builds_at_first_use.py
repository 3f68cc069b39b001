"""task: relu. Starts a compiler in the first forward, when it knows that there is work to do."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

CODE = """
void relu(const float *x, float *y, long count)
{
    for (long i = 0; i < count; ++i) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""


class ModelNew(torch.nn.Module):
    library = None

    def forward(self, x):
        if ModelNew.library is None:
            folder = pathlib.Path(tempfile.mkdtemp())
            (folder / "relu.c").write_text(CODE)
            target = str(folder / "relu.so")
            command = ["gcc", "-O2", "-shared", "-fPIC", "-o", target, str(folder / "relu.c")]
            subprocess.run(command, check=True)
            ModelNew.library = ctypes.CDLL(target)
            ModelNew.library.relu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        x = x.contiguous()
        y = torch.empty_like(x)
        ModelNew.library.relu(x.data_ptr(), y.data_ptr(), x.numel())
        return y
