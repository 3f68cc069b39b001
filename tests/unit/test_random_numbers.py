"""Philox4x32-10 against the published vectors, and the numbers made of its words."""

from __future__ import annotations

import numpy as np
import pytest

from sketchc.ops.references import normal, philox, uniform, words

ONES = 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # "philox4x32 10" in the known-answer tests of Random123
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter, key, expected):
    assert tuple(int(word) for word in philox(np, counter, key)) == expected


def test_seeds_and_offsets_are_split_into_their_halves():
    seed, offset = 0x123456789ABCDEF0, -2
    expected = philox(np, (0xFFFFFFFE, ONES, 0, 0), (0x9ABCDEF0, 0x12345678))
    assert [int(w) for w in words(np, seed, offset)] == [int(w) for w in expected]


def test_uniform_numbers_are_the_upper_bits_exactly():
    offsets = np.arange(100_003, dtype=np.int64) - 50_000
    numbers = uniform(np, 7, offsets)
    first = words(np, 7, offsets)[0]
    assert np.array_equal(numbers * 2**24, (first >> 8).astype(np.float64))
    assert np.array_equal(numbers.astype(np.float32).astype(np.float64), numbers)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=64, range=(0, 1))
    expected = offsets.size / 64
    assert float(((counts - expected) ** 2 / expected).sum()) < 120  # chi-square, 63 degrees


def test_normal_numbers_have_the_moments_of_the_distribution():
    numbers = normal(np, 12345, np.arange(200_000, dtype=np.int64))
    assert np.isfinite(numbers).all()
    assert abs(numbers.mean()) < 0.01
    assert abs(numbers.std() - 1) < 0.01
    assert abs((numbers**3).mean()) < 0.03
    assert abs((numbers**4).mean() - 3) < 0.06


def test_different_seeds_and_offsets_give_different_numbers():
    one, two = (uniform(np, seed, np.arange(1000)) for seed in (1, 1 << 32))
    assert np.unique(np.concatenate((one, two))).size == 2000
