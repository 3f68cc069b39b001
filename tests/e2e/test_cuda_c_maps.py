"""CUDA-C: products of operands that the copy engine brings (TMA), in every form in which a tile
lies in a tensor, equal the interpreter; where more than the tile would come, threads copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cpp_cases import assert_equal, inputs, reference
from cuda_c_products import BROUGHT, CHAIN, COPIED
from test_cuda_c import TOOLCHAIN, lowered


def test_both_ways_in_one_kernel(tmp_path: Path) -> None:
    source = lowered(CHAIN, {}).source
    assert "multiply_mapped<sketch::by_groups<" in source
    assert "multiply_along<sketch::by_groups<" in source
    check(CHAIN, True, tmp_path)


def check(text: str, mapped: bool, folder: Path) -> None:
    kernel = lowered(text, {})
    assert ("multiply_mapped<" in kernel.source) is mapped
    artefact = TOOLCHAIN.compile(kernel, folder)
    assert artefact.details["warnings"] == ""
    with TOOLCHAIN.open(artefact) as session:
        for seed, (m, n, k) in enumerate([(64, 64, 128), (65, 72, 200), (63, 65, 67), (8, 8, 8)]):
            symbols = {"M": m, "N": n, "K": k}
            tensors = inputs(kernel.sketch, symbols, {}, seed)
            expected = reference(kernel.sketch, tensors, symbols, {})
            found = session.run(tensors, symbols, {})
            assert_equal(kernel.sketch, found, expected, 16.0)


@pytest.mark.parametrize("name", list(BROUGHT))
def test_tiles_that_the_copy_engine_brings(name: str, tmp_path: Path) -> None:
    check(BROUGHT[name], True, tmp_path)


@pytest.mark.parametrize("name", list(COPIED))
def test_tiles_that_threads_copy(name: str, tmp_path: Path) -> None:
    check(COPIED[name], False, tmp_path)


def test_nothing_beyond_a_tile_is_multiplied(tmp_path: Path) -> None:
    """Not even by zero."""
    kernel, symbols = lowered(COPIED["of some of the depth"], {}), {"M": 64, "N": 64, "K": 72}
    tensors = inputs(kernel.sketch, symbols, {}, 0)
    for tensor in ("A", "B"):
        deep = tensors[tensor] if tensor == "B" else tensors[tensor].T
        deep[symbols["K"] :] = np.nan
    expected = reference(kernel.sketch, tensors, symbols, {})
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        found = session.run(tensors, symbols, {})
    assert np.isfinite(found["C"].astype(np.float32)).all()
    assert_equal(kernel.sketch, found, expected, 16.0)
