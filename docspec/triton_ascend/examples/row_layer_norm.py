"""Layer normalisation of rows that fit one tile, with weight and bias."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def row_layer_norm_kernel(X_ptr, WEIGHT_ptr, BIAS_ptr, Y_ptr, M, N, eps, N_BLOCK: tl.constexpr):
    lanes = tl.arange(0, N_BLOCK)
    inside = lanes < N
    count = tl.cast(N, tl.float32)
    # For selects of data: a comparison of integers would run lane by lane.
    real = tl.cast(lanes, tl.float32) < count
    # Loaded once per core, not once per row.
    weight = tl.load(WEIGHT_ptr + lanes, mask=inside, other=0.0)
    bias = tl.load(BIAS_ptr + lanes, mask=inside, other=0.0)
    for i in range(tl.program_id(0), M, tl.num_programs(0)):
        first = tl.cast(i, tl.int64) * N
        x = tl.load(X_ptr + first + lanes, mask=inside, other=0.0)
        # Lanes past the row hold -mean after this: they must not enter the sum of squares.
        x = x - tl.sum(x, axis=0) / count
        variance = tl.sum(tl.where(real, x * x, 0.0), axis=0) / count
        x = x * tl.rsqrt(variance + eps)
        tl.store(Y_ptr + first + lanes, x * weight + bias, mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def row_layer_norm(
    X: torch.Tensor,
    WEIGHT: torch.Tensor,
    BIAS: torch.Tensor,
    *,
    eps: float = 1e-5,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """X: [M, N] f32; WEIGHT, BIAS: [N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    require(N <= 4096, f"N must be at most 4096, not {N}")
    check("X", X, torch.float32, (M, N), X.device)
    check("WEIGHT", WEIGHT, torch.float32, (N,), X.device)
    check("BIAS", BIAS, torch.float32, (N,), X.device)
    out, Y = result(out, torch.float32, (M, N), (X, WEIGHT, BIAS))
    X, WEIGHT, BIAS = X.contiguous(), WEIGHT.contiguous(), BIAS.contiguous()
    require(M < 2**30, "too many rows for one launch")
    if M * N > 0:
        N_BLOCK = triton.next_power_of_2(N)
        row_layer_norm_kernel[(min(M, 40),)](X, WEIGHT, BIAS, Y, M, N, eps, N_BLOCK=N_BLOCK)
    if Y is not out:
        out.copy_(Y)
    return out
