"""Layer normalisation of rows that fit one tile, with weight and bias."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def row_layer_norm_kernel(X_ptr, WEIGHT_ptr, BIAS_ptr, Y_ptr, N, eps, N_BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * N
    lanes = tl.arange(0, N_BLOCK)
    inside = lanes < N
    x = tl.load(X_ptr + first + lanes, mask=inside, other=0.0)
    count = tl.cast(N, tl.float32)
    x = x - tl.sum(x, axis=0) / count
    # Lanes past the row now hold -mean: they must not enter the sum of squares.
    variance = tl.sum(tl.where(inside, x * x, 0.0), axis=0) / count
    x = x * tl.rsqrt(variance + eps)
    weight = tl.load(WEIGHT_ptr + lanes, mask=inside, other=0.0)
    bias = tl.load(BIAS_ptr + lanes, mask=inside, other=0.0)
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
    require(N <= 8192, f"N must be at most 8192, not {N}")
    check("X", X, torch.float32, (M, N), X.device)
    check("WEIGHT", WEIGHT, torch.float32, (N,), X.device)
    check("BIAS", BIAS, torch.float32, (N,), X.device)
    out, Y = result(out, torch.float32, (M, N), (X, WEIGHT, BIAS))
    X, WEIGHT, BIAS = X.contiguous(), WEIGHT.contiguous(), BIAS.contiguous()
    require(M < 2**31, "too many rows for one launch")
    if M * N > 0:
        N_BLOCK = triton.next_power_of_2(N)
        with torch.cuda.device_of(X):
            row_layer_norm_kernel[(M,)](
                X,
                WEIGHT,
                BIAS,
                Y,
                N,
                eps,
                N_BLOCK=N_BLOCK,
                num_warps=min(max(N_BLOCK // 256, 1), 16),
            )
    if Y is not out:
        out.copy_(Y)
    return out
