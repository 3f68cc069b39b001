"""Every construct of the language, on every target, against the interpreter.

One small sketch per construct stands in `features/`. Each passes the checker with every claim
proved or checked at launch, executes under R6b's self-check, and gives the same results in the
interpreter (shuffled, padded) and on all targets, at ragged sizes and at 0, on signed inputs of
mixed scale.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from cpp_cases import inputs
from feature_cases import CASES, Feature, Sizes, on
from toolchains import ready, require
from triton_cases import Case, assert_close, run_cases

from sketchc.base.diagnostics import DiagnosticError, Severity, Source
from sketchc.checker.api import check
from sketchc.checker.context.context import identifier
from sketchc.checker.selfcheck import self_check
from sketchc.interpreter.api import Options, interpret
from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.launching import call_request
from sketchc.runtime.toolchains.triton_cuda.toolchain import (
    INTERPRETED,
    TOOLCHAIN,
    placed,
)

FEATURES = Path(__file__).parent / "features"
BATCH = Path(__file__).parent / "feature_batch.py"
Array = np.ndarray[Any, Any]
#: Features whose sketch promises something of the data that only some inputs keep.
PROMISES = ("masked_select", "scatter_unique", "store_then_gather")


def test_every_feature_has_a_case() -> None:
    assert sorted(path.stem for path in FEATURES.glob("*.sketch")) == sorted(CASES)


# ---------------------------------------------------------------- inputs and outputs


def read(name: str) -> Source:
    return Source(f"{name}.sketch", (FEATURES / f"{name}.sketch").read_text("utf-8"))


def sketches(name: str) -> tuple[syntax.Sketch, ...]:
    """The syntax trees of a feature's sketches."""
    tree, found = parse(read(name))
    assert tree is not None, found
    return tree.sketches


@attrs.frozen
class Run:
    """One execution: inputs (and nothing else), symbols, params, and what must come of it."""

    tensors: Mapping[str, Array]
    symbols: Sizes
    params: Mapping[str, Any]
    expected: Mapping[str, Array]


def runs(name: str, sketch: ir.Sketch, feature: Feature | None = None) -> list[Run]:
    """The runs of one sketch at all sizes of its feature, with the interpreter's results."""
    feature = feature or CASES[name]
    known = {param.name for param in sketch.params}
    params = {identifier(key): value for key, value in feature.params.items()}
    params = {key: value for key, value in params.items() if key in known}
    found = []
    for seed, sizes in enumerate(feature.sizes):
        symbols = {identifier(symbol): size for symbol, size in sizes.items()}
        tensors = given(sketch, symbols, params, feature.hold, seed)
        expected = interpret(sketch, tensors, symbols, params).outputs
        found.append(Run(tensors, symbols, params, expected))
    return found


def given(
    sketch: ir.Sketch,
    symbols: Sizes,
    params: Mapping[str, Any],
    hold: Mapping[str, str],
    seed: int,
) -> dict[str, Array]:
    """In and inout tensors that hold what they should."""
    rng = np.random.default_rng([seed, 77])
    found = inputs(sketch, symbols, params, seed)
    for tensor in sketch.tensors:
        if tensor.role is ir.Role.OUT or tensor.role is ir.Role.WORKSPACE:
            found.pop(tensor.name, None)
            continue
        array = found[tensor.name]
        for axis, repeats in enumerate(tensor.broadcast):
            # One axis of those that may have extent 1 does, another one from run to run.
            if repeats and (seed + axis) % 2:
                array = array[(slice(None),) * axis + (slice(0, 1),)]
        kind = hold.get(tensor.name, "")
        for name, size in symbols.items():
            kind = re.sub(rf"\b{name}$", str(size), kind)
        found[tensor.name] = np.asarray(fill(array, kind, rng).astype(array.dtype), order="C")
    for position, tensor in enumerate(t for t in sketch.tensors if t.optional):
        # All combinations of two within four runs.
        if (seed >> position) % 2:
            del found[tensor.name]
    return found


def fill(array: Array, kind: str, rng: np.random.Generator) -> Array:
    """An array like `array` that holds a kind of values (see `Feature`)."""
    match kind:
        case "":
            return array
        case "moderate" if array.dtype.kind in "ib":
            return array
        case "moderate":
            return np.clip(array.astype(np.float64), -4.0, 4.0)
        case "tails":
            # Between neighbours of bf16 and f16, halves of integers, and beyond 32 bits.
            scale = rng.choice([1e-3, 0.5, 1.0, 1e4, 2.0**40], array.shape)
            return (np.round(array.astype(np.float64) * 4) + 0.5) * scale
        case "permutation":
            return rng.permutation(array.size).reshape(array.shape)
        case "few":
            return rng.integers(0, 4, array.shape)
        case _ if kind.startswith("below "):
            return rng.integers(0, max(1, int(kind.split()[-1])), array.shape)
        case _ if kind.startswith("up to "):
            return rng.integers(0, int(kind.split()[-1]) + 1, array.shape)
        case "halves":
            return np.round(array.astype(np.float64) * 4) / 4
        case "positive":
            return np.abs(array.astype(np.float64)) + 0.5
        case "tenths":
            tenth = np.full(array.shape, 0.1, array.dtype)
            return np.nextafter(tenth, rng.choice([0.0, 0.1, 1.0], array.shape).astype(array.dtype))
        case "signs":
            return rng.choice([-2, -1, 1, 1, 1], array.shape)
        case "nonzero":
            return np.where(array == 0, 7, array)
        case "wide":
            return rng.integers(-(2**40), 2**40, array.shape)
        case "special":
            values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5])
            # Some rows have none: their results are ordinary numbers.
            rows = rng.random((*array.shape[:-1], 1)) < 0.6
            chosen = (rng.random(array.shape) < 0.15) & rows
            return np.where(chosen, rng.choice(values, array.shape), array)
    raise AssertionError(kind)


def assert_alike(
    feature: Feature, actual: Mapping[str, Array], expected: Mapping[str, Array]
) -> None:
    """Every output within the feature's tolerance, reported all together."""
    wrong = []
    for name, want in expected.items():
        # What is summed is rounded to 16 bits once, and may fall on the other side.
        half = want.dtype.itemsize == 2
        factor, terms = (min(feature.factor, 1.0), 1) if half else (feature.factor, feature.terms)
        try:
            assert_close(actual[name], want, factor * feature.loose.get(name, 1.0), terms)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- checker and interpreter


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_every_claim_is_proved(name: str) -> None:
    result = check(read(name))
    assert result.ok, result.diagnostics
    assert len(result.sketches) == len(sketches(name))
    proofs = [proof for checked in result.sketches for proof in checked.proofs]
    settled = [ir.Tier.PROVED, ir.Tier.CHECKED_AT_LAUNCH]
    if name in PROMISES:
        settled.append(ir.Tier.ASSUMED)
    # What memory holds is in range by assumption, and masked where it is not (R13).
    proofs = [p for p in proofs if (p.claim, p.tier) != ("in-bounds", ir.Tier.ASSUMED)]
    assert proofs
    assert not [proof for proof in proofs if proof.tier not in settled]


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(set(CASES) - set(PROMISES)))
def test_tile_sizes_do_not_matter(name: str) -> None:
    assert not self_check(read(name))


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_order_and_padding_do_not_matter(name: str) -> None:
    options = Options(check_domains=True, shuffle=5, padding=3)
    for tree in sketches(name):
        sketch = build_plan(tree, "cpp").plan.sketch
        for run in runs(name, sketch):
            found = interpret(sketch, run.tensors, run.symbols, run.params, options).outputs
            assert_alike(CASES[name], found, run.expected)


# ---------------------------------------------------------------- targets


#: What a target lacks: the code of its refusal, and the type that this names. Ascend has no f64 at
#: all, TileLang no atomic maxima and minima of i64.
LACKING = {"triton_ascend": ("SK0703", "f64"), "tilelang_cuda": ("SK0704", "i64")}


def lower(
    tree: syntax.Sketch, target: str, constants: Mapping[str, Any] | None = None
) -> Kernel | None:
    """The kernel, or None where the target refuses what `LACKING` says, and nothing else."""
    try:
        plan = build_plan(tree, target, None, constants or {}).plan
    except DiagnosticError as error:
        errors = [d for d in error.diagnostics if d.severity is Severity.ERROR]
        assert target in LACKING, errors
        code, dtype = LACKING[target]
        assert {d.code for d in errors} == {code}, errors
        assert dtype in errors[0].message
        return None
    return load_target(target).emit(plan)


def poisoned(run: Run) -> dict[str, Array]:
    """Inputs, and outputs full of poison."""
    found = dict(run.tensors)
    for name, array in run.expected.items():
        if name not in found:
            plain = array.dtype.kind in "iub"
            found[name] = np.full(array.shape, 1 if plain else np.nan).astype(array.dtype)
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", TARGETS)
def test_target_equals_interpreter(target: str, name: str, tmp_path: Path) -> None:
    toolchain = require(target)
    for number, tree in enumerate(sketches(name)):
        kernel = lower(tree, target)
        if kernel is None:
            assert LACKING[target][1] in read(name).text
            continue
        every = runs(name, kernel.sketch)
        if target == "triton_cuda":
            results = run_together(kernel, every, tmp_path / str(number))
        else:
            artefact = ready(kernel, tmp_path / str(number))
            with toolchain.open(artefact) as session:
                results = [session.run(poisoned(r), r.symbols, r.params) for r in every]
        for run, found in zip(every, results, strict=True):
            assert_alike(CASES[name], found, run.expected)


def test_what_puts_nan_into_one_form_before_a_launch_is_python() -> None:
    kernel = lower(sketches("atomic_kinds")[0], "tilelang_cuda")
    assert kernel is not None
    ast.parse(kernel.source)
    assert "masked_fill_" in kernel.source


def run_together(kernel: Kernel, every: list[Run], folder: Path) -> list[dict[str, Array]]:
    """All runs in one process: starting one takes longer than most of them."""
    interpreted = TOOLCHAIN.status().interpreted
    cases = [Case(kernel, poisoned(r), r.symbols, r.params, r.expected) for r in every]
    results = []
    for case, found in zip(cases, run_cases(cases, folder, interpret=interpreted), strict=True):
        assert isinstance(found, dict), (case.symbols, found)
        results.append(found)
    return results


def test_tensors_that_are_not_dense(tmp_path: Path) -> None:
    """The wrapper copies what is strided, inout tensors and outputs back."""
    require("triton_cuda")
    for name in ("flat_views", "inout", "bool_tensors", "gemm_transposed"):
        kernel = lower(sketches(name)[0], "triton_cuda")
        assert kernel is not None
        run = runs(name, kernel.sketch)[1]
        source = placed(kernel, tmp_path)
        request = call_request(kernel, source, run.symbols, run.params)
        result = run_worker(
            f"{BATCH}:run_strided",
            request,
            poisoned(run),
            environment={"TRITON_INTERPRET": "1"},
            preload=INTERPRETED,
            readable=[source],
        )
        assert result.reply is not None, result.describe() + result.traceback
        assert_alike(CASES[name], result.arrays, run.expected)


#: Constants that are not the default: other tuning points, and values of data.
SETTINGS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("accumulators", {"TM": 8}, {}),
    ("constants_as_data", {"KEEP": False, "OFFSET": 7, "SLOPE": -0.5, "eps": 0.25}, {}),
    ("gemm_transposed", {"TK": 32}, {}),
    ("masked_updates", {"T": 8}, {}),
    ("tuning_points", {"TM": 8, "TN": 32}, {}),
    ("unbounded_rows", {"TILE": 2}, {"eps": 0.5}),
    ("params", {}, {"scale": -3.0, "negate": False, "shift": 2**33, "power": -1.0, "narrow": 9}),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "constants", "params"), SETTINGS, ids=[s[0] for s in SETTINGS])
@pytest.mark.parametrize("target", TARGETS)
def test_settings(
    target: str, name: str, constants: dict[str, Any], params: dict[str, Any], tmp_path: Path
) -> None:
    toolchain = require(target)
    kernel = lower(sketches(name)[0], target, constants)
    assert kernel is not None
    bound = {constant.name: constant.value for constant in kernel.sketch.constants}
    assert {k: v for k, v in constants.items() if k in bound}.items() <= bound.items()
    artefact = ready(kernel, tmp_path)
    feature = attrs.evolve(CASES[name], params={**CASES[name].params, **constants, **params})
    run = runs(name, kernel.sketch, feature)[1]
    found = toolchain.run(artefact, poisoned(run), run.symbols, run.params)
    assert_alike(CASES[name], found, run.expected)


# ---------------------------------------------------------------- what the host refuses

#: (feature, symbols, params, the condition that does not hold, with or without its spaces)
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("requires", "M=5 N=17", {"groups": 3}, "N % 2 == 0 and groups >= 1"),
    ("requires", "M=5 N=16", {"groups": 3}, "N == width*groups or M < 2"),
    ("requires", "M=13 N=18", {"groups": 3}, "not M == 13"),
    ("indexed_by_param", "M=3 N=5", {"row": 3}, "row <= M - 1"),
    ("indexed_by_param", "M=3 N=5", {"row": -1}, "0 <= row"),
    ("lets", "C=1 H=0 W=1", {"gain": 1.0}, "H >= 1"),
    ("nested_loops", "C=1 H=1 W=5 O=1 KH=3 KW=1", {}, "H >= KH - 1"),
]


@pytest.mark.parametrize(
    ("name", "sizes", "params", "condition"), REFUSED, ids=[f"{r[0]}-{r[3]}" for r in REFUSED]
)
@pytest.mark.parametrize("target", [None, *TARGETS])
def test_launch_conditions(
    target: str | None,
    name: str,
    sizes: str,
    params: dict[str, Any],
    condition: str,
    tmp_path: Path,
) -> None:
    """Everyone refuses with the condition's text, the interpreter (None) too."""
    symbols = on(sizes)[0]
    tree = sketches(name)[0]
    if target is None:
        sketch = build_plan(tree, "cpp").plan.sketch
        with pytest.raises(DiagnosticError) as refused:
            interpret(sketch, arrays(sketch, symbols, params), symbols, params)
        assert [d.code for d in refused.value.diagnostics] == ["SK0801"]
        message = refused.value.diagnostics[0].message
    else:
        toolchain = require(target)
        kernel = lower(tree, target)
        assert kernel is not None
        artefact = ready(kernel, tmp_path)
        given = arrays(kernel.sketch, symbols, params)
        with pytest.raises(ToolchainError) as failed:
            toolchain.run(artefact, given, symbols, params)
        assert failed.value.stage == "launch"
        message = str(failed.value)
    assert condition.replace(" ", "") in message.replace(" ", "")


def arrays(sketch: ir.Sketch, symbols: Sizes, params: Mapping[str, Any]) -> dict[str, Array]:
    """Zeros for every in and inout tensor, whose extents are symbols here."""
    return {
        tensor.name: np.zeros([symbols[str(getattr(e, "name", ""))] for e in tensor.extents], "f4")
        for tensor in sketch.tensors
        if tensor.role in (ir.Role.IN, ir.Role.INOUT)
    }
