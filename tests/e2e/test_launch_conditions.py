"""A launch that breaks what a proof relied on is refused by everybody who launches, before anything
is written: one list of conditions, one small sketch for each kind of them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launch_cases
import numpy as np
import pytest
from cpp_cases import load_module
from cpp_cases import lower as lower_cpp
from every_target import quick, unit
from guarded_launches import COLUMN, GUARDED
from launch_cases import (
    BOUND,
    LIMITS,
    MODULE_SAYS,
    NO_ARRAYS,
    TOGETHER,
    Launch,
    Refusal,
)
from toolchains import ready, require
from triton_cases import Case, lower, run_cases

from sketchc.base.diagnostics import DiagnosticError, UsageError
from sketchc.interpreter.api import interpret
from sketchc.interpreter.launch import bind_values
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.launch.conditions import Kind, launch_conditions
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import TARGETS
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN
from sketchc.runtime.toolchains.native.compiler import build

Array = np.ndarray[Any, Any]
TRITON = ("triton_cuda", "triton_ascend")

REFUSALS = [*launch_cases.REFUSALS, *GUARDED]
KEPT = [(r, launch) for r in REFUSALS for launch in r.keep]
BROKEN = [(r, launch) for r in REFUSALS for launch in r.broken]


def named(value: object) -> str:
    if isinstance(value, Refusal):
        return value.name
    assert isinstance(value, Launch)
    told = {**value.symbols, **value.params, **value.contents, **value.shapes}
    told |= dict.fromkeys(value.absent, "absent")
    return ",".join(f"{name}={given}" for name, given in told.items())


def test_every_kind_has_a_sketch() -> None:
    assert {refusal.kind for refusal in REFUSALS} == set(Kind)
    for refusal in REFUSALS:
        found = launch_conditions(lower_cpp(refusal.text)[1].sketch)
        assert refusal.kind in (*LIMITS, *(condition.kind for condition in found)), refusal.name
        numbers = [condition.number for condition in found]
        assert len(set(numbers)) == len(numbers)
        assert 0 not in numbers


def arrays(sketch: ir.Sketch, launch: Launch) -> dict[str, Array]:
    """Inputs of the launch's shapes; where an extent has no value, none is needed."""
    rng = np.random.default_rng(7)
    found = {}
    for tensor in sketch.tensors:
        if tensor.role is not ir.Role.IN or tensor.name in launch.absent:
            continue
        values = {**launch.symbols, **launch.params}
        shape = launch.shapes.get(
            tensor.name, tuple(max(0, int(evaluate(e, values))) for e in tensor.extents)
        )
        if max(shape, default=0) > 10_000_000:
            shape = (0,)
        data = rng.standard_normal(shape)
        if tensor.dtype.is_integer:
            data = np.full(shape, launch.contents[tensor.name])
        found[tensor.name] = data.astype(tensor.dtype.numpy_name)
    return found


def has_no_shape(refusal: Refusal, launch: Launch) -> bool:
    return refusal.kind in NO_ARRAYS and not launch.shapes


def expected(sketch: ir.Sketch, launch: Launch) -> dict[str, Array]:
    given = arrays(sketch, launch)
    return interpret(sketch, given, launch.symbols, launch.params).outputs


# ---------------------------------------------------------------- the interpreter


@pytest.mark.parametrize(("refusal", "launch"), BROKEN, ids=named)
def test_the_interpreter_refuses(refusal: Refusal, launch: Launch) -> None:
    if refusal.kind in LIMITS:
        pytest.skip("a limit of targets")
    sketch = lower_cpp(refusal.text)[1].sketch
    given = arrays(sketch, launch)
    if refusal.kind is Kind.REPEAT:
        with pytest.raises(UsageError, match="has shape"):
            interpret(sketch, given, launch.symbols, launch.params)
        return
    if refusal.kind in NO_ARRAYS:
        with pytest.raises(DiagnosticError) as refused:
            bind_values(sketch, launch.symbols, launch.params)
    else:
        with pytest.raises(DiagnosticError) as refused:
            interpret(sketch, given, launch.symbols, launch.params)
    (diagnostic,) = refused.value.diagnostics
    if refusal.kind is Kind.FETCH:
        assert diagnostic.code == "SK0802"
    else:
        assert diagnostic.code == "SK0801"
        assert launch.text.replace(" ", "") in diagnostic.message.replace(" ", "")


# ---------------------------------------------------------------- the bare C function


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, dict[str, Kernel]]:
    """All C functions in one library."""
    require("cpp")
    folder = tmp_path_factory.mktemp("functions")
    kernels = {refusal.name: lower_cpp(refusal.text)[1] for refusal in REFUSALS}
    source, library = folder / "unit.cpp", folder / "unit.so"
    source.write_text(unit(list(kernels.values())), "utf-8")
    warnings, _ = build([source], quick(), library)
    assert warnings == ""
    return ctypes.CDLL(str(library)), kernels


#: Bytes around every buffer, and what they hold.
ZONE, PATTERN = 4096, 0xA5


class Guarded:
    """An array between zones that nobody may write."""

    def __init__(self, content: Array) -> None:
        size = content.nbytes
        self.content = content
        self.memory = np.full(size + 2 * ZONE, PATTERN, np.uint8)
        self.memory[ZONE : ZONE + size] = content.reshape(-1).view(np.uint8)
        self.before = self.memory.copy()
        self.pointer = ctypes.c_void_p(self.memory.ctypes.data + ZONE)

    def result(self) -> Array:
        inside = self.memory[ZONE : self.memory.size - ZONE]
        return inside.view(self.content.dtype).reshape(self.content.shape)

    def zones_are_whole(self) -> bool:
        return bool(
            (self.memory[:ZONE] == PATTERN).all() and (self.memory[-ZONE:] == PATTERN).all()
        )

    def untouched(self) -> bool:
        return bool((self.memory == self.before).all())


def call(
    library: ctypes.CDLL, kernel: Kernel, launch: Launch, outputs: dict[str, Array]
) -> tuple[int, dict[str, Guarded]]:
    """Call the C function with what the launch says, checked by nobody."""
    sketch, given = kernel.sketch, arrays(kernel.sketch, launch)
    names = [tensor.name for tensor in parameters(sketch)]
    buffers = {
        name: Guarded(given.get(name, outputs.get(name)))
        for name in names
        if name not in launch.absent
    }
    arguments: list[Any] = [
        buffers[name].pointer if name in buffers else ctypes.c_void_p() for name in names
    ]
    arguments += [ctypes.c_int64(launch.symbols[symbol.name]) for symbol in sketch.symbols]
    for param in sketch.params:
        value = launch.params.get(param.name, param.default)
        kind = ctypes.c_double if param.dtype.is_float else ctypes.c_int64
        arguments.append(kind(value))
    for tensor in sketch.tensors:
        for axis, repeats in enumerate(tensor.broadcast):
            if repeats:
                arguments.append(ctypes.c_int64(given[tensor.name].shape[axis]))
    function = getattr(library, kernel.entry)
    function.restype = ctypes.c_int64
    return int(function(*arguments)), buffers


def parameters(sketch: ir.Sketch) -> Iterator[ir.Tensor]:
    return (tensor for tensor in sketch.tensors if tensor.role is not ir.Role.WORKSPACE)


@pytest.mark.parametrize(("refusal", "launch"), KEPT, ids=named)
def test_the_c_function_agrees(compiled: Any, refusal: Refusal, launch: Launch) -> None:
    library, kernels = compiled
    kernel = kernels[refusal.name]
    wanted = expected(kernel.sketch, launch)
    outputs = {name: np.full_like(array, 77) for name, array in wanted.items()}
    status, buffers = call(library, kernel, launch, outputs)
    assert status == 0
    for name, want in wanted.items():
        np.testing.assert_allclose(buffers[name].result(), want, rtol=1e-6)
    assert all(buffer.zones_are_whole() for buffer in buffers.values())


@pytest.mark.parametrize(("refusal", "launch"), BROKEN, ids=named)
def test_the_c_function_refuses_and_writes_nothing(
    compiled: Any, refusal: Refusal, launch: Launch
) -> None:
    if refusal.kind in LIMITS:
        pytest.skip("a limit of other targets")
    library, kernels = compiled
    kernel = kernels[refusal.name]
    outputs = {t.name: np.full(64, 77, t.dtype.numpy_name) for t in parameters(kernel.sketch)}
    status, buffers = call(library, kernel, launch, outputs)
    broken = {c.number: c for c in launch_conditions(kernel.sketch)}[status]
    assert broken.kind is refusal.kind
    assert launch.text.replace(" ", "") in broken.text.replace(" ", "")
    assert all(buffer.untouched() for buffer in buffers.values())
    listed = re.search(rf"^// +{status}  (\S+)", kernel.source, re.MULTILINE)
    assert listed is not None
    assert listed[1] == broken.text.split()[0]


# ---------------------------------------------------------------- Triton's wrappers


@pytest.fixture(scope="module", params=TRITON)
def replies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Any]:
    """What the wrapper of one target gives for each launch, all in one process. The host's code is
    that of the target; its kernels run in Triton's interpreter."""
    require("triton_cuda")
    cases, keys = [], []
    for refusal, launch in [*KEPT, *BROKEN]:
        if launch in refusal.broken and has_no_shape(refusal, launch):
            continue
        kernel = lower(refusal.text, request.param)[1]
        wanted = expected(kernel.sketch, launch) if launch in refusal.keep else {}
        tensors = arrays(kernel.sketch, launch)
        cases.append(Case(kernel, tensors, launch.symbols, launch.params, wanted))
        keys.append((refusal.name, named(launch)))
    found = run_cases(cases, tmp_path_factory.mktemp(str(request.param)))
    return {key: (case, reply) for key, case, reply in zip(keys, cases, found, strict=True)}


@pytest.mark.sweep
@pytest.mark.parametrize(("refusal", "launch"), KEPT, ids=named)
def test_the_wrappers_agree(replies: Any, refusal: Refusal, launch: Launch) -> None:
    case, reply = replies[refusal.name, named(launch)]
    assert not isinstance(reply, str), reply
    for name, want in case.expected.items():
        np.testing.assert_allclose(reply[name], want, rtol=1e-6)


@pytest.mark.parametrize(("refusal", "launch"), BROKEN, ids=named)
def test_the_wrappers_refuse(replies: Any, refusal: Refusal, launch: Launch) -> None:
    if has_no_shape(refusal, launch):
        pytest.skip("no array has such a size")
    _, reply = replies[refusal.name, named(launch)]
    text = "X has shape" if refusal.kind is Kind.REPEAT else launch.text
    assert isinstance(reply, str)
    assert "LaunchError" in reply
    assert text.replace(" ", "") in reply.replace(" ", "")


# ---------------------------------------------------------------- the Python module, toolchains


def test_the_module_refuses(tmp_path: Path) -> None:
    require("cpp")
    _, kernel = lower_cpp(TOGETHER)
    module = load_module(TOOLCHAIN.build_module(kernel, tmp_path), "together_module")

    def run(n: int, p: int, index: int, params: dict[str, Any]) -> Array:
        x, chosen = np.arange(n, dtype=np.float32), np.full(p, index, np.int64)
        result: Array = module.together(chosen, np.ones(n, np.int64), x, **params)
        return result

    np.testing.assert_array_equal(run(17, 1, 16, {"a": 9.0}), 6 * np.arange(17))
    np.testing.assert_array_equal(run(64, 1, 0, {"s": 2, "k": -128}), 2 * np.arange(64))
    for arguments, words in MODULE_SAYS:
        with pytest.raises(ValueError, match=re.escape(words)):
            run(*arguments)


def test_the_module_takes_what_is_absent(tmp_path: Path) -> None:
    require("cpp")
    _, kernel = lower_cpp(COLUMN)
    module = load_module(TOOLCHAIN.build_module(kernel, tmp_path), "guarded_column_module")
    x, column = np.arange(17, dtype=np.float32), np.ones((17, 3), np.float16)
    np.testing.assert_array_equal(module.guarded_column(x, None), 2 * x)
    np.testing.assert_array_equal(module.guarded_column(x, column), x + 1)
    with pytest.raises(ValueError, match=re.escape("the sketch needs not present(S) or 0 < H")):
        module.guarded_column(x, column[:, :0])


@pytest.mark.parametrize("target", TARGETS)
def test_every_toolchain_says_the_same(target: str, tmp_path: Path) -> None:
    toolchain: Any = require(target)
    kernel = lower(BOUND, target)[1]
    artefact = ready(kernel, tmp_path)
    with pytest.raises(ToolchainError) as refused:
        toolchain.run(artefact, {"A": np.ones(17, np.float32)}, {"N": 17}, {})
    assert refused.value.stage == "launch"
    assert "the sketch needs N <= 16 (N = 17)" in str(refused.value)
