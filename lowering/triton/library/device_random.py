"""Device functions of rand and randn; `library` reads this file as text.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in 64-bit
integers that hold 32-bit words, so that products and words are exact on every target.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def random_words(seed, offset):
    """The first two output words for the key `seed` and the counter `offset`, both i64."""
    key = seed & 0xFFFFFFFF
    next_key = (seed >> 32) & 0xFFFFFFFF
    first = offset & 0xFFFFFFFF
    second = (offset >> 32) & 0xFFFFFFFF
    third = offset * 0
    fourth = offset * 0
    for _ in tl.static_range(10):
        product = first * 0xD2511F53
        other = third * 0xCD9E8D57
        first = ((other >> 32) & 0xFFFFFFFF) ^ second ^ key
        second = other & 0xFFFFFFFF
        third = ((product >> 32) & 0xFFFFFFFF) ^ fourth ^ next_key
        fourth = product & 0xFFFFFFFF
        key = (key + 0x9E3779B9) & 0xFFFFFFFF
        next_key = (next_key + 0xBB67AE85) & 0xFFFFFFFF
    return first, second


@triton.jit
def uniform(seed, offset):
    """Uniform in [0, 1): the upper 24 bits of the first word."""
    word, _ = random_words(seed, offset)
    return (word >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def normal(seed, offset):
    """Standard normal: sqrt(-2 ln u1) cos(2 pi u2), u1 in (0, 1] from the first word.

    The angle is reduced to an eighth of a turn on the integers, where it is exact.
    """
    word, turn = random_words(seed, offset)
    size = ((word >> 8) + 1).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08
    radius = tl.sqrt(-2.0 * tl.log(size))
    steps = (turn >> 8).to(tl.int32)
    quarter = (steps + 2097152) >> 22
    angle = (steps - (quarter << 22)).to(tl.float32) * 3.7450702829239286e-07
    odd = (quarter & 1) == 1
    cosine = tl.where(odd, tl.sin(angle), tl.cos(angle))
    negative = (quarter == 1) | (quarter == 2)
    return radius * tl.where(negative, -cosine, cosine)
