"""RMSNorm of f16 rows: f16 in memory, f32 in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def half_rms_norm_kernel(X_ptr, WEIGHT_ptr, Y_ptr, N, eps, N_BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * N
    lanes = tl.arange(0, N_BLOCK)
    inside = lanes < N
    # Widened at once: tl.sum of f16 would add in f16.
    x = tl.load(X_ptr + first + lanes, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / tl.cast(N, tl.float32) + eps)
    weight = tl.load(WEIGHT_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
    y = x * scale * weight
    tl.store(Y_ptr + first + lanes, y.to(tl.float16), mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def half_rms_norm(
    X: torch.Tensor, WEIGHT: torch.Tensor, *, eps: float = 1e-6, out: torch.Tensor | None = None
) -> torch.Tensor:
    """X: [M, N] f16; WEIGHT: [N] f16. Returns Y: [M, N] f16."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    require(N <= 8192, f"N must be at most 8192, not {N}")
    check("X", X, torch.float16, (M, N), X.device)
    check("WEIGHT", WEIGHT, torch.float16, (N,), X.device)
    out, Y = result(out, torch.float16, (M, N), (X, WEIGHT))
    X, WEIGHT = X.contiguous(), WEIGHT.contiguous()
    require(M < 2**31, "too many rows for one launch")
    if M * N > 0:
        N_BLOCK = triton.next_power_of_2(N)
        with torch.cuda.device_of(X):
            half_rms_norm_kernel[(M,)](
                X, WEIGHT, Y, N, eps, N_BLOCK=N_BLOCK, num_warps=min(max(N_BLOCK // 256, 1), 16)
            )
    if Y is not out:
        out.copy_(Y)
    return out
