"""What the interpreter lets pass, the compiler may not: every feature and operation as a cubin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import test_triton_operations as operations
from toolchains import require
from triton_cases import compile_all, lower
from triton_sketches import SKETCHES

from sketchc.lowering.kernel import Kernel

require("triton_cuda")


#: Lane operations go through different code for words of 32 and 64 bits, floats and integers; the
#: many merges of topk take the compiler long.
LANE_TYPES = ("f32", "f64", "i64", "u8")
TOP_TYPES = ("f32", "i64")


def _features() -> dict[str, Kernel]:
    return {name: lower(text)[1] for name, (text, _, _) in SKETCHES.items()}


def _operations() -> dict[str, Kernel]:
    cases = {dtype: operations.float_case(dtype) for dtype in operations.FLOATS}
    cases |= {dtype: operations.integer_case(dtype) for dtype in operations.INTEGERS}
    cases["cast"] = operations.cast_case()
    for name in operations.CONVERSIONS:
        cases[name] = operations.conversion_case(name.removeprefix("from-"))
    cases |= {name: operations.product_case(name) for name in operations.PRODUCTS}
    return {name: case.kernel for name, case in cases.items()}


def _lanes() -> dict[str, Kernel]:
    return {
        name: lower(text)[1]
        for name, (dtype, text) in operations.LANES.items()
        if dtype in (TOP_TYPES if "tops" in name else LANE_TYPES)
    }


@pytest.mark.sweep
@pytest.mark.parametrize("group", [_features, _operations, _lanes])
def test_every_feature_and_operation_compiles(
    group: Callable[[], dict[str, Kernel]], tmp_path: Path
) -> None:
    kernels = group()
    built = compile_all(list(kernels.values()), tmp_path, (90,))
    for name, variants in zip(kernels, built, strict=True):
        assert variants, name
        for variant in variants:
            assert variant["registers"] <= 255, name
            assert Path(variant["cubin"]).stat().st_size > 0, name
