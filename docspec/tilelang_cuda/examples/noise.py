"""Random numbers: Philox, a lane a number."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


def uniform(seed, offset):
    """A number in [0, 1): Philox4x32-10 with the seed as key and the offset as counter."""
    low, high = T.cast(seed, "uint32"), T.cast(seed >> 32, "uint32")
    first, second = T.cast(offset, "uint32"), T.cast(offset >> 32, "uint32")
    third = fourth = T.uint32(0)
    for _ in range(10):
        a = T.uint64(0xD2511F53) * T.cast(first, "uint64")
        b = T.uint64(0xCD9E8D57) * T.cast(third, "uint64")
        first, second, third, fourth = (
            T.cast(b >> T.uint64(32), "uint32") ^ second ^ low,
            T.cast(b, "uint32"),
            T.cast(a >> T.uint64(32), "uint32") ^ fourth ^ high,
            T.cast(a, "uint32"),
        )
        low, high = low + T.uint32(0x9E3779B9), high + T.uint32(0xBB67AE85)
    return T.cast(first >> T.uint32(8), "float32") * T.float32(2.0**-24)


@tilelang.jit
def noise_kernel(TILE):
    N = T.dynamic("N", "int64")

    @T.prim_func
    def kernel(
        X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), seed: T.int64, scale: T.float32
    ):
        with T.Kernel(T.cast(T.ceildiv(N, TILE), "int32"), threads=128) as block:
            for lane in T.Parallel(TILE):
                n = T.cast(block, "int64") * TILE + lane
                if n < N:
                    Y[n] = X[n] + scale * uniform(seed, n)

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def noise(
    X: torch.Tensor, *, seed: int = 1, scale: float = 0.5, out: torch.Tensor | None = None
) -> torch.Tensor:
    """X: [N] f32. Returns Y: [N] f32."""
    require(X.dim() == 1, "X has 1 axis, [N]")
    check("X", X, torch.float32, tuple(X.shape), X.device)
    out, Y = result(out, torch.float32, tuple(X.shape), (X,))
    TILE = 512
    require(X.numel() < 2**31 * TILE, "too many elements for one launch")
    if X.numel() > 0:
        noise_kernel(TILE)(X.contiguous(), Y, seed, scale)
    if Y is not out:
        out.copy_(Y)
    return out
