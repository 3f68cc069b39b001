"""Sums by loaded indices: atomics, a tensor that may be absent, an initial value."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def weighted_counts_kernel(TILE, weighted):
    N, C = T.dynamic("N, C", "int64")

    @T.prim_func
    def kernel(
        CLASS: T.Tensor((N,), "int64"),
        SEEN: T.Tensor((C,), "float32"),
        WEIGHT: T.Tensor((C,), "float32"),
        Y: T.Tensor((C,), "float32"),
    ):
        with T.Kernel(T.cast(T.ceildiv(N, TILE), "int32"), threads=128) as block:
            first = T.cast(block, "int64") * TILE
            for lane in T.Parallel(TILE):
                if first + lane < N:
                    c = CLASS[first + lane]
                    # A loaded index out of range: its lane neither reads nor writes.
                    if T.And(c >= 0, c < C):
                        if weighted:
                            T.atomic_add(Y[c], SEEN[c] * WEIGHT[c])
                        else:
                            T.atomic_add(Y[c], SEEN[c])

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def weighted_counts(
    CLASS: torch.Tensor,
    SEEN: torch.Tensor,
    WEIGHT: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """CLASS: [N] i64; SEEN, WEIGHT: [C] f32. Returns Y: [C] f32."""
    require(CLASS.dim() == 1 and SEEN.dim() == 1, "CLASS and SEEN have 1 axis")
    N, C = CLASS.shape[0], SEEN.shape[0]
    check("CLASS", CLASS, torch.int64, (N,), SEEN.device)
    check("SEEN", SEEN, torch.float32, (C,), SEEN.device)
    inputs = (CLASS, SEEN) if WEIGHT is None else (CLASS, SEEN, WEIGHT)
    if WEIGHT is not None:
        check("WEIGHT", WEIGHT, torch.float32, (C,), SEEN.device)
    out, Y = result(out, torch.float32, (C,), inputs)
    TILE = 1024
    require(N < 2**31 * TILE, "too many elements for one launch")
    Y.zero_()
    if N * C > 0:
        # A parameter takes some tensor, also where the kernel does not read it.
        weight = SEEN if WEIGHT is None else WEIGHT
        kernel = weighted_counts_kernel(TILE, WEIGHT is not None)
        kernel(CLASS.contiguous(), SEEN.contiguous(), weight.contiguous(), Y)
    if Y is not out:
        out.copy_(Y)
    return out
