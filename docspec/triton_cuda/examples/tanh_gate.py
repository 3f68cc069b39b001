"""A gated unit on flat elements, with device functions for what `tl` lacks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def log1p(x):
    """log(1 + x) for x >= 0, exact for small x: the rounding of 1 + x is divided out."""
    shifted = 1.0 + x
    scale = tl.where(shifted == 1.0, 1.0, shifted - 1.0)
    y = tl.log(shifted) * (tl.where(shifted == 1.0, 1.0, x) / scale)
    return tl.where(shifted == 1.0, x, tl.where(shifted == float("inf"), shifted, y))


@triton.jit
def softplus(x):
    """log(1 + exp(x)) without overflow; NaN stays."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def tanh(x):
    """Near 0 the difference of exponentials cancels: a series takes its place."""
    decay = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - decay) / (1.0 + decay)
    square = x * x
    series = x - x * square * (1.0 / 3 - square * (2.0 / 15 - square * (17.0 / 315)))
    return tl.where(square < 0.04, series, tl.where(x < 0, -size, size))


@triton.jit
def tanh_gate_kernel(X_ptr, G_ptr, Y_ptr, total, TILE: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * TILE
    lanes = tl.arange(0, TILE)
    inside = lanes < total - start
    x = tl.load(X_ptr + start + lanes, mask=inside, other=0.0)
    g = tl.load(G_ptr + start + lanes, mask=inside, other=0.0)
    tl.store(Y_ptr + start + lanes, tanh(x) * softplus(g), mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def tanh_gate(X: torch.Tensor, G: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X, G: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    check("G", G, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X, G))
    X, G = X.contiguous(), G.contiguous()
    programs = triton.cdiv(M * N, 1024)
    require(programs < 2**31, "too many programs for one launch")
    if programs > 0:
        with torch.cuda.device_of(X):
            tanh_gate_kernel[(programs,)](X, G, Y, M * N, TILE=1024, num_warps=4)
    if Y is not out:
        out.copy_(Y)
    return out
