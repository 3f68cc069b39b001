"""The idioms of the language prompt: complete sketches that check and compute what they are for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from prompt_probes import PROMPT, checked, codes
from prompt_sketches import HOST_LOOP, IDIOMS

from sketchc.base.diagnostics import Source
from sketchc.checker.selfcheck import self_check
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import TARGETS, load_target

Arrays = dict[str, np.ndarray]


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", IDIOMS)
def test_idioms_are_printed_and_check(name: str) -> None:
    idiom = IDIOMS[name]
    for code in idiom.printed:
        assert squeezed(code) in squeezed(PROMPT)
        assert squeezed(code) in squeezed(idiom.text)
    assert codes(idiom.text) == set()
    assert self_check(Source(name, idiom.text)) == ()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", IDIOMS)
def test_idioms_lower_to_every_target(name: str, target: str) -> None:
    tree = checked(IDIOMS[name].text).tree
    assert tree is not None
    planned = build_plan(tree.sketches[0], target)
    assert load_target(target).emit(planned.plan).source


def _outputs(text: str, inputs: Arrays, params: dict[str, int] | None = None) -> list[np.ndarray]:
    (result,) = checked(text).sketches
    return list(interpret(result.sketch, inputs, params=params).outputs.values())


def _windows(x: np.ndarray, size: int, stride: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, size)[::stride]


def _stencil(v: Arrays) -> list[np.ndarray]:
    size = len(v["K"])
    return [np.lib.stride_tricks.sliding_window_view(v["X"], size, axis=1) @ v["K"]]


def _window(v: Arrays) -> list[np.ndarray]:
    zeros, lowest = np.pad(v["X"], 1), np.pad(v["X"], 1, constant_values=-np.inf)
    return [_windows(zeros, 3, 2).sum(1), _windows(lowest, 3, 2).max(1)]


def _convolution(v: Arrays) -> list[np.ndarray]:
    height, width = v["K"].shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(v["X"], (height, width), axis=(2, 3))
    return [np.einsum("nchwij,ocij->nohw", windows, v["K"])]


def _largest(v: Arrays) -> list[np.ndarray]:
    order = np.argsort(-v["X"], axis=1, kind="stable")[:, :3]
    return [np.take_along_axis(v["X"], order, 1), order]


MEANINGS: dict[str, Callable[[Arrays], list[np.ndarray]]] = {
    "stencil": _stencil,
    "window": _window,
    "convolution": _convolution,
    "scan": lambda v: [v["X"].cumsum(1)],
    "columns": lambda v: [v["X"].cumsum(0)],
    "largest": _largest,
    "one_number": lambda v: [v["X"].sum()],
    "causal": lambda v: [np.tril(v["X"]).sum(1)],
}


@pytest.mark.parametrize("name", IDIOMS)
@pytest.mark.parametrize("sizes", [(3, 4, 7, 6, 2, 3, 2), (2, 5, 70, 5, 4, 1, 3)])
def test_idioms_mean_what_they_are_for(name: str, sizes: tuple[int, ...]) -> None:
    """Every extent of an input is drawn by name, so that tiles are ragged and longer than rows."""
    named = dict(zip(("N", "C", "H", "W", "O", "KH", "KW"), sizes, strict=True))
    named |= {"M": sizes[1], "L": sizes[2], "N": sizes[0] if name == "convolution" else sizes[2]}
    (result,) = checked(IDIOMS[name].text).sketches
    random = np.random.default_rng(sum(sizes))
    inputs = {
        tensor.name: random.standard_normal([named[e.name] for e in tensor.extents]).astype("f4")
        for tensor in result.sketch.tensors
        if tensor.role is ir.Role.IN
    }
    wide = {key: value.astype(np.float64) for key, value in inputs.items()}
    actual = _outputs(IDIOMS[name].text, inputs)
    for found, wanted in zip(actual, MEANINGS[name](wide), strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_loops_and_branches_around_nests_run_on_the_host() -> None:
    assert "A sequential `for` or an `if` around parallel nests runs on the host" in PROMPT
    assert codes(HOST_LOOP) == set()
    (result,) = checked(HOST_LOOP).sketches
    steps = [type(step) for step in result.sketch.steps]
    assert ir.HostFor in steps
    assert ir.HostIf in steps
    x = np.arange(100, dtype=np.float32)
    inputs = {"STEPS": np.array(3), "X": x}
    for more in (0, 2):
        (actual,) = _outputs(HOST_LOOP, inputs, {"more": more})
        np.testing.assert_array_equal(actual, x / 8 + more)
