"""task: linear. Each model has a library of its own, compiled for its sizes when it is made, so that a
compiler runs between the cases."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

CODE = """
void linear(const float *x, const float *w, const float *b, float *y, long m)
{
    for (long i = 0; i < m; ++i)
        for (long j = 0; j < N; ++j) {
            float total = b[j];
            for (long t = 0; t < K; ++t) total += x[i * K + t] * w[j * K + t];
            y[i * N + j] = total;
        }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layer = torch.nn.Linear(inner, outer)
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "linear.c").write_text(CODE)
        sizes = [f"-DK={inner}", f"-DN={outer}"]
        built = ["-o", str(folder / "linear.so"), str(folder / "linear.c")]
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", *sizes, *built], check=True)
        self.library = ctypes.CDLL(str(folder / "linear.so"))
        self.library.linear.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_long]

    def forward(self, x):
        x = x.contiguous()
        weight, bias = self.layer.weight.contiguous(), self.layer.bias
        y = torch.empty(x.shape[0], bias.shape[0])
        self.library.linear(
            x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), x.shape[0]
        )
        return y
