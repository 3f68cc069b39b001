"""Every operation and every feature sketch, emitted for Ascend, on the real front end."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import test_triton_operations as operations
from toolchains import require
from triton_cases import Array, Case, assert_close, lower, make_case
from triton_sketches import SKETCHES

from sketchc.diagnostics import DiagnosticError
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


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "i32", "i64", "cast"])
def test_operations_match_the_interpreter(
    toolchain: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "lower", for_ascend)
    match name:
        case "cast":
            case = operations.cast_case(wide=False)
        case "i32" | "i64":
            case = operations.integer_case(name)
        case _:
            case = operations.float_case(name)
    results = run(toolchain, case, tmp_path)
    wrong = {}
    for tensor, expected in case.expected.items():
        try:
            assert_close(results[tensor], expected)
        except AssertionError as error:
            wrong[tensor] = str(error)
    assert not wrong, "\n".join(f"{k}: {v}" for k, v in wrong.items())


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
