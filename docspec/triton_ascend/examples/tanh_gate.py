"""A gated unit on flat elements; tanh and log1p come from `tl.math`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def softplus(x):
    """log(1 + exp(x)) without overflow; NaN stays."""
    positive = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return positive + tl.math.log1p(tl.exp(-tl.abs(x)))


@triton.jit
def tanh_gate_kernel(X_ptr, G_ptr, Y_ptr, total, tiles, TILE: tl.constexpr):
    lanes = tl.arange(0, TILE)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        start = tl.cast(tile, tl.int64) * TILE
        inside = lanes < total - start
        x = tl.load(X_ptr + start + lanes, mask=inside, other=0.0)
        g = tl.load(G_ptr + start + lanes, mask=inside, other=0.0)
        tl.store(Y_ptr + start + lanes, tl.math.tanh(x) * softplus(g), mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def tanh_gate(X: torch.Tensor, G: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X, G: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    check("G", G, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X, G))
    X, G = X.contiguous(), G.contiguous()
    tiles = triton.cdiv(M * N, 4096)
    require(tiles < 2**30, "too many tiles for one launch")
    if tiles > 0:
        tanh_gate_kernel[(min(tiles, 40),)](X, G, Y, M * N, tiles, TILE=4096)
    if Y is not out:
        out.copy_(Y)
    return out
