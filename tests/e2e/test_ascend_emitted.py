"""Every operation and every feature sketch, emitted for Ascend, on the real front end."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import test_triton_operations as operations
import tile_operations
from toolchains import require
from triton_cases import Array, Case, assert_close, lower, make_case
from triton_sketches import SKETCHES

from sketchc.base.diagnostics import DiagnosticError
from sketchc.runtime.toolchains.base import Artefact

for_ascend = functools.partial(lower, target="triton_ascend")


@pytest.fixture(scope="module")
def toolchain() -> Any:
    return require("triton_ascend")


def run(toolchain: Any, case: Case, folder: Path) -> dict[str, Array]:
    toolchain.place(case.kernel, folder)
    artefact = Artefact(case.kernel, folder)
    results: dict[str, Array] = toolchain.run(artefact, case.tensors, case.symbols, case.params)
    return results


#: What the NPU's front end refuses: f64.
CONVERSIONS = [name for name in operations.CONVERSIONS if name != "from-f64"]
PRODUCTS = [name for name in operations.PRODUCTS if "f64" not in name]
#: The merges of topk take the CPU's compiler long; they differ by the words that hold a type.
TOP_TYPES = ("f32", "i64")
LANES = [
    name
    for name, (dtype, _) in operations.LANES.items()
    if dtype != "f64" and ("tops" not in name or dtype in TOP_TYPES[: 2 - name.startswith("many")])
]
#: One specialisation of a kernel serves all of these.
SIZES = [symbols for symbols in tile_operations.SIZES if 1 not in symbols.values()]


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name",
    ["f32", "f16", "bf16", *operations.INTEGERS, "cast", *CONVERSIONS, *PRODUCTS],
)
def test_operations_match_the_interpreter(
    toolchain: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "lower", for_ascend)
    if name in CONVERSIONS:
        case = operations.conversion_case(name.removeprefix("from-"), wide=False)
    elif name in PRODUCTS:
        case = operations.product_case(name)
    elif name in operations.INTEGERS:
        case = operations.integer_case(name)
    else:
        case = operations.cast_case(wide=False) if name == "cast" else operations.float_case(name)
    results = run(toolchain, case, tmp_path)
    assert not (wrong := operations.differences(case, results, name)), wrong


@pytest.mark.sweep
@pytest.mark.parametrize("name", LANES)
def test_lane_operations_match_the_interpreter(
    toolchain: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "lower", for_ascend)
    for case in operations.lane_cases(name, SIZES):
        results = run(toolchain, case, tmp_path)
        wrong = operations.differences(case, results, name)
        assert not wrong, f"{case.symbols}: {wrong}"


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(SKETCHES))
def test_features_match_the_interpreter(toolchain: Any, name: str, tmp_path: Path) -> None:
    text, sizes, params = SKETCHES[name]
    if "f64" in text:  # the NPU has none, and the plan says so
        with pytest.raises(DiagnosticError, match="SK07"):
            for_ascend(text)
        return
    kernel = for_ascend(text)[1]
    for symbols in sizes:
        case = make_case(kernel, symbols, params)
        results = run(toolchain, case, tmp_path)
        for tensor, expected in case.expected.items():
            assert_close(results[tensor], expected, terms=64)
