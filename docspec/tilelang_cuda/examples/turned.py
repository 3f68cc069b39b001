"""The matrices of a batch, transposed through a tile in shared memory."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def turned_kernel(TILE):
    B, M, N = T.dynamic("B, M, N", "int64")

    @T.prim_func
    def kernel(X: T.Tensor((B, M, N), "float32"), Y: T.Tensor((B, N, M), "float32")):
        blocks = T.cast(B * T.ceildiv(M, TILE) * T.ceildiv(N, TILE), "int32")
        with T.Kernel(blocks, threads=256) as block:
            # One more column a row: threads that read a column are in different banks.
            kept = T.alloc_shared((TILE, TILE + 1), "float32")
            j = block % T.ceildiv(N, TILE)
            i = block // T.ceildiv(N, TILE) % T.ceildiv(M, TILE)
            b = block // (T.ceildiv(N, TILE) * T.ceildiv(M, TILE))
            for row, lane in T.Parallel(TILE, TILE):
                if i * TILE + row < M and j * TILE + lane < N:
                    kept[row, lane] = X[b, i * TILE + row, j * TILE + lane]
            for row, lane in T.Parallel(TILE, TILE):
                if j * TILE + row < N and i * TILE + lane < M:
                    Y[b, j * TILE + row, i * TILE + lane] = kept[lane, row]

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def turned(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [B, M, N] f32. Returns Y: [B, N, M] f32."""
    require(X.dim() == 3, "X has 3 axes, [B, M, N]")
    B, M, N = X.shape
    check("X", X, torch.float32, (B, M, N), X.device)
    out, Y = result(out, torch.float32, (B, N, M), (X,))
    TILE = 32
    programs = B * tilelang.cdiv(M, TILE) * tilelang.cdiv(N, TILE)
    require(programs < 2**31, "too large for one launch")
    if X.numel() > 0:
        turned_kernel(TILE)(X.contiguous(), Y)
    if Y is not out:
        out.copy_(Y)
    return out
