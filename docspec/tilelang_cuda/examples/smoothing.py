"""Steps of smoothing: launches in a loop, neighbours with padding, a workspace."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def smoothing_kernel(TILE):
    N = T.dynamic("N", "int64")

    @T.prim_func
    def kernel(X: T.Tensor((N,), "float32"), NEXT: T.Tensor((N,), "float32")):
        with T.Kernel(T.cast(T.ceildiv(N, TILE), "int32"), threads=128) as block:
            for lane in T.Parallel(TILE):
                n = T.cast(block, "int64") * TILE + lane
                if n < N:
                    # A neighbour outside the tensor is never read, 0 stands for it.
                    left = T.if_then_else(n > 0, X[n - 1], 0.0)
                    right = T.if_then_else(n + 1 < N, X[n + 1], 0.0)
                    NEXT[n] = (X[n] + left + right) / 3.0

    return kernel


from sketchc.docspec.shared.launch import check, require


def smoothing(X: torch.Tensor, *, steps: int = 3) -> torch.Tensor:
    """X: [N] f32, updated in place and returned."""
    require(X.dim() == 1, "X has 1 axis, [N]")
    require(steps >= 0, f"steps must be at least 0, not {steps}")
    N = X.shape[0]
    check("X", X, torch.float32, (N,), X.device)
    TILE = 1024
    require(N < 2**31 * TILE, "too many elements for one launch")
    now, after = X.contiguous(), torch.empty(N, dtype=torch.float32, device=X.device)
    if N > 0:
        kernel = smoothing_kernel(TILE)
        for _ in range(steps):
            kernel(now, after)
            now, after = after, now
    if now is not X:
        X.copy_(now)
    return X
