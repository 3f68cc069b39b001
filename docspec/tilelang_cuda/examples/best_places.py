"""The four largest of every row with their places, and the place of the smallest."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


def key(value):
    """An integer that orders as floats do, NaN above all, and is the same for 0 and -0."""
    bits = T.reinterpret(T.if_then_else(value == 0.0, 0.0, value), "int32")
    turned = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return T.if_then_else(T.isnan(value), 0x7FFFFFFF, turned)


def placed(order, lane):
    """A value's key above its place, the first place highest: one maximum finds both."""
    return (T.cast(order, "int64") << T.int64(32)) | T.cast(0x7FFFFFFF - lane, "int64")


@tilelang.jit
def best_places_kernel(WIDTH):
    M, N = T.dynamic("M, N", "int64")

    @T.prim_func
    def kernel(
        X: T.Tensor((M, N), "float32"),
        VALUES: T.Tensor((M, 4), "float32"),
        PLACES: T.Tensor((M, 4), "int64"),
        LEAST: T.Tensor((M,), "int64"),
    ):
        with T.Kernel(T.cast(M, "int32"), threads=128) as i:
            row = T.alloc_fragment((WIDTH,), "int64")
            best = T.alloc_fragment((1,), "int64")
            # The smallest value has the largest key of -x; NaN wins here, too.
            for lane in T.Parallel(WIDTH):
                row[lane] = T.int64(-(2**63))
                if lane < N:
                    row[lane] = placed(key(-X[i, lane]), lane)
            T.reduce_max(row, best)
            for one in T.Parallel(1):
                LEAST[i + one] = 0x7FFFFFFF - (best[one] & T.int64(0xFFFFFFFF))
            for lane in T.Parallel(WIDTH):
                row[lane] = T.int64(-(2**63))
                if lane < N:
                    row[lane] = placed(key(X[i, lane]), lane)
            for k in T.serial(4):
                T.reduce_max(row, best)
                for one in T.Parallel(1):
                    place = 0x7FFFFFFF - (best[one] & T.int64(0xFFFFFFFF))
                    VALUES[i, k + one] = X[i, place]
                    PLACES[i, k + one] = place
                for lane in T.Parallel(WIDTH):
                    if row[lane] == best[0]:
                        row[lane] = T.int64(-(2**63))

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def best_places(
    X: torch.Tensor,
    *,
    out: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """X: [M, N] f32, 4 <= N <= 1024. Returns VALUES: [M, 4] f32, PLACES: [M, 4] i64 and LEAST:
    [M] i64."""
    require(X.dim() == 2, "X has 2 axes, [M, N]")
    M, N = X.shape
    require(4 <= N <= 1024, f"N must be in 4 ... 1024, not {N}")
    check("X", X, torch.float32, (M, N), X.device)
    given = out or (None, None, None)
    wanted = ((torch.float32, (M, 4)), (torch.int64, (M, 4)), (torch.int64, (M,)))
    made = [result(each, *kind, (X,)) for each, kind in zip(given, wanted, strict=True)]
    require(M < 2**31, "too many rows for one launch")
    if M > 0:
        width = max(1 << (N - 1).bit_length(), 128)
        best_places_kernel(width)(X.contiguous(), *(dense for _, dense in made))
    for each, dense in made:
        if dense is not each:
            each.copy_(dense)
    return tuple(each for each, _ in made)
