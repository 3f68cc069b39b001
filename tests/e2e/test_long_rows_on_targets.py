"""Rows longer than a tile on every target: carried scans and counted places agree with the
interpreter, on values with NaN, infinities and ties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from every_target import agreement, disagreements
from long_rows import SIZES, T, scans, sorts
from triton_cases import Array, dtype_of

from sketchc.base.types import DType
from sketchc.lowering.registry import TARGETS

#: On the Ascend path each kernel compiles by itself: so many of them, at so many sizes.
ASCEND_KERNELS, ASCEND_SIZES = 5, 2


def runs(
    dtype: str, axis: int, sizes: tuple[int, ...]
) -> list[tuple[dict[str, int], dict[str, Array]]]:
    made = []
    for size in sizes:
        generator = np.random.default_rng(size)
        x = generator.integers(-2, 3, (3, size)).astype(np.float64)
        if not dtype.startswith("i") and size > T:
            x[0, T], x[1, 2], x[1, T] = np.nan, np.inf, -np.inf
        made.append(
            ({"N": size}, {"X": (x if axis else x.T.copy()).astype(dtype_of(DType(dtype)))})
        )
    return made


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "wide"), [("f32", "f32"), ("f16", "f32"), ("i32", "i32")])
def test_long_rows(target: str, dtype: str, wide: str, tmp_path: Path) -> None:
    texts = [(text, axis) for text, _, axis, _ in scans(dtype, wide)]
    texts += [(text, axis) for text, axis, _ in sorts(dtype)]
    sizes = SIZES
    if target == "triton_ascend":
        texts, sizes = texts[:: len(texts) // ASCEND_KERNELS], SIZES[-ASCEND_SIZES:]
    sketches = {text: (text, runs(dtype, axis, sizes)) for text, axis in texts}
    wrong = disagreements(
        target, sketches, tmp_path, lambda case, found: agreement(case, found, 13)
    )
    assert wrong == []
