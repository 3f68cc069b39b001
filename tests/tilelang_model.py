"""Files with a `ModelNew` around a TileLang kernel, right and broken, for the task of
`verified_files`; what verification must find in each."""

from verified_files import edited

IN_TILELANG = """import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit
def biased_kernel(WIDTH):
    M, N = T.dynamic("M, N")

    @T.prim_func
    def kernel(
        X: T.Tensor((M, N), "float32"),
        BIAS: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(M, threads=128) as i:
            for lane in T.Parallel(WIDTH):
                if lane < N:
                    Y[i, lane] = T.max(X[i, lane] + BIAS[lane], 0.0) * 2.0

    return kernel


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        width = max(128, 1 << (x.shape[1] - 1).bit_length())
        biased_kernel(width)(x, self.bias, y)
        return y
"""

_START, _END = IN_TILELANG.index("            for lane"), IN_TILELANG.index("    return kernel")
_BODY = IN_TILELANG[_START:_END]
_IN_PARTS = """            for part in T.serial(T.ceildiv(N, WIDTH)):
                for lane in T.Parallel(WIDTH):
                    if part * WIDTH + lane < N:
                        column = part * WIDTH + lane
                        Y[i, column] = T.max(X[i, column] + BIAS[column], 0.0) * 2.0

"""
_WIDTH = "        width = max(128, 1 << (x.shape[1] - 1).bit_length())\n"
_LAUNCH = "        biased_kernel(width)(x, self.bias, y)\n"
SOURCES = {
    "right.py": IN_TILELANG,
    # One kernel for all widths, made with the model.
    "made_before.py": edited(
        IN_TILELANG,
        ("(width))\n", "(width))\n        self.kernel = biased_kernel(WIDTH=128)\n"),
        (_BODY, _IN_PARTS),
        (_WIDTH, ""),
        ("biased_kernel(width)(", "self.kernel("),
    ),
    "wrong.py": edited(IN_TILELANG, ("BIAS[lane], 0.0)", "BIAS[lane], 0.25)")),
    "last_column.py": edited(IN_TILELANG, ("if lane < N:", "if lane < N - 1:")),
    "torch_computes.py": edited(IN_TILELANG, (_LAUNCH, f"{_LAUNCH}        y = y + 0\n")),
    "no_launch.py": edited(IN_TILELANG, (_LAUNCH, "        biased_kernel(width)\n")),
    "misused.py": edited(IN_TILELANG, ("T.max(", "T.maximal(")),
    "allocating.py": edited(IN_TILELANG, ("@tilelang.jit\n", "@tilelang.jit(out_idx=[-1])\n")),
}
EXPECTED = {
    "right.py": "",
    "made_before.py": "",
    "wrong.py": "numerical",
    "last_column.py": "numerical",
    "torch_computes.py": "policy",
    "no_launch.py": "policy",
    "misused.py": "api_misuse",
    "allocating.py": "api_misuse",
}
