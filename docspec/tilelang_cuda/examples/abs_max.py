"""The largest magnitude: two launches with a workspace, and a maximum that keeps NaN."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def abs_max_kernel(TILE):
    N = T.dynamic("N", "int64")
    BLOCKS = T.dynamic("BLOCKS", "int64")

    @T.prim_func
    def kernel(X: T.Tensor((N,), "float32"), PART: T.Tensor((BLOCKS,), "int32")):
        with T.Kernel(T.cast(BLOCKS, "int32"), threads=128) as block:
            bits = T.alloc_fragment((TILE,), "int32")
            largest = T.alloc_fragment((1,), "int32")
            for lane in T.Parallel(TILE):
                n = T.cast(block, "int64") * TILE + lane
                # Without its sign a float orders as its bits do, and NaN is above all.
                magnitude = T.reinterpret(T.if_then_else(n < N, X[n], 0.0), "int32") & 0x7FFFFFFF
                bits[lane] = magnitude
            T.reduce_max(bits, largest)
            for one in T.Parallel(1):
                PART[block + one] = largest[one]

    return kernel


@tilelang.jit
def joined_kernel(TILE):
    BLOCKS = T.dynamic("BLOCKS", "int64")

    @T.prim_func
    def kernel(PART: T.Tensor((BLOCKS,), "int32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=128):
            bits = T.alloc_fragment((TILE,), "int32")
            largest = T.alloc_fragment((1,), "int32")
            T.clear(bits)
            for turn in T.serial(T.ceildiv(BLOCKS, TILE)):
                for lane in T.Parallel(TILE):
                    if turn * TILE + lane < BLOCKS:
                        bits[lane] = T.max(bits[lane], PART[turn * TILE + lane])
            T.reduce_max(bits, largest)
            for one in T.Parallel(1):
                Y[one] = T.reinterpret(largest[one], "float32")

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def abs_max(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [N] f32. Returns Y: [1] f32."""
    require(X.dim() == 1, "X has 1 axis, [N]")
    N = X.shape[0]
    check("X", X, torch.float32, (N,), X.device)
    out, Y = result(out, torch.float32, (1,), (X,))
    TILE = 4096
    blocks = tilelang.cdiv(N, TILE)
    require(blocks < 2**31, "too many elements for one launch")
    if N == 0:
        Y.zero_()
    else:
        part = torch.empty(blocks, dtype=torch.int32, device=X.device)
        abs_max_kernel(TILE)(X.contiguous(), part)
        joined_kernel(1024)(part, Y)
    if Y is not out:
        out.copy_(Y)
    return out
