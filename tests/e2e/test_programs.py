"""A program means its calls, one after the other: in the interpreter, and on every target."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toolchains import require
from triton_cases import Array, mixed

from sketchc.base.diagnostics import Source
from sketchc.checker.api import elaborate
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.parsing import syntax
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse
from sketchc.parsing.unparse import expression_text

from every_target import agreement, disagreements  # isort: skip

ROOT = Path(__file__).parents[2]
FORMS = (ROOT / "tests" / "e2e" / "programs" / "forms.sketch").read_text("utf-8")
EXAMPLE = (ROOT / "examples" / "programs" / "residual_mlp.sketch").read_text("utf-8")
#: A program's text, the sizes at which it runs, and params.
#: Constants that depend on others, given by some calls; lets that depend on lets, on params and on
#: the turn of a loop; names of sketches that are those of others, or of the program; typed numbers.
NAMES = """
sketch first {
    symbols: N;
    params: k: i64 = 1; exact: f32 = 0.1; small: u8 = 3; on: bool = True;
    let: h = k + 1; g = 2*h;
    tensors: X[N]: in f32; Y[N]: out f32 = 4;
    constexpr: T = 32 in [32, 64], A = 2, B = 3*A, C = B + A, K: f32 = 0.25;

    @llm_hint("parallel")
    for i in range(0, N, T):
        initial = alloc([T])
        load(X[i:i+T] -> initial)
        mul(initial, B, initial)
        add(initial, C + g, initial)
        mul(initial, exact, initial)
        add(initial, small, initial)
        if on:
            mul(initial, K, initial)
        store(initial -> Y[i:i+T])
}

sketch second {
    symbols: N;
    let: initial = N//2; x = 3;
    tensors: X[N]: in f32; Y[N]: out f32;
    workspace: i[N]: f32;
    constexpr: T = 32, row = 2;

    @llm_hint("parallel")
    for first in range(0, N, T):
        turn = alloc([T])
        load(X[first:first+T] -> turn)
        add(turn, initial*row, turn)
        store(turn -> i[first:first+T])
    @llm_hint("parallel")
    for first in range(0, N, T):
        turn = alloc([T])
        load(i[first:first+T] -> turn)
        mul(turn, x, turn)
        store(turn -> Y[first:first+T])
}

program names {
    symbols: N;
    params: exact: f32 = 0.3; i: i64 = 2;
    let: T = 2*i;
    tensors: X[N]: in f32; Y[N]: out f32;
    buffers: A[N]: f32; B[N]: f32;

    first(X -> A)
    first(A -> B, A=5, k=T)
    for turn in range(3):
        second(B -> A)
        first(A -> B, k=turn, exact=exact, on=turn > 1, small=200)
        first(B -> A, k=turn + i, B=7, exact=i, K=0.1)
        second(A -> B)
    first(B -> Y, exact=T, k=-1, C=1)
}
"""
RUNS = {
    "names": (NAMES, {"N": (1, 31, 33, 70)}),
    "forms": (FORMS, {"P": (1, 3, 33), "Q": (2, 31, 65, 130)}),
    "example": (EXAMPLE, {"M": (1, 17), "D": (1, 33), "H": (2, 32, 37), "L": (0, 1, 3)}),
}


def file(text: str) -> syntax.File:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    return tree


def lowered(tree: syntax.Sketch) -> ir.Sketch:
    sketch, found = elaborate(tree, {})
    assert sketch is not None, found
    return sketch


class Calls:
    """Runs a program as it is written: every call runs its sketch, on the arrays it is given."""

    def __init__(self, tree: syntax.File) -> None:
        self.units = {sketch.name: sketch for sketch in tree.sketches}

    def run(self, name: str, arrays: dict[str, Array], numbers: dict[str, Any]) -> None:
        """Run a unit; outputs are written into `arrays`."""
        unit = self.units[name]
        if unit.program is None:
            sketch = lowered(unit)
            symbols = {s.name: numbers[s.name] for s in sketch.symbols}
            params = {p.name: numbers[p.name] for p in sketch.params if p.name in numbers}
            given = {
                t.name: arrays[t.name]
                for t in sketch.tensors
                if t.role in (ir.Role.IN, ir.Role.INOUT) and t.name in arrays
            }
            constants = {c.name: numbers[c.name] for c in sketch.constants if c.name in numbers}
            if constants:
                sketch, found = elaborate(unit, constants)
                assert sketch is not None, found
            for out, value in interpret(sketch, given, symbols, params).outputs.items():
                arrays[out][...] = value
            return
        for tensor in syntax.declared(unit.program, "buffers"):
            shape = [self.number(extent.value, numbers) for extent in tensor.extents]
            arrays[tensor.name] = np.full(shape, np.nan, np.float32)
        for view in syntax.declared(unit.program, "views"):
            shape = [self.number(extent.value, numbers) for extent in view.extents]
            arrays[view.name] = arrays[view.base].reshape(shape)
        for param in syntax.declared(unit.program, "params"):
            if param.default is not None:
                numbers.setdefault(param.name, self.number(param.default, numbers))
        for let in syntax.declared(unit.program, "let"):
            numbers[let.name] = self.number(let.value, numbers)
        self.block(unit.program.body, arrays, numbers)

    def number(self, node: syntax.Expression, numbers: Mapping[str, Any]) -> Any:
        return eval(expression_text(node), {}, dict(numbers))

    def block(
        self, body: tuple[syntax.Statement, ...], arrays: dict[str, Array], numbers: dict[str, Any]
    ) -> None:
        for node in body:
            match node:
                case syntax.For():
                    for turn in range(*(self.number(a, numbers) for a in node.arguments)):
                        self.block(node.body, arrays, {**numbers, node.variable.id: turn})
                case syntax.If():
                    taken = node.body if self.number(node.condition, numbers) else node.orelse
                    self.block(taken, arrays, numbers)
                case syntax.Invoke():
                    self.call(node, arrays, numbers)

    def array(
        self, node: syntax.Expression, arrays: dict[str, Array], numbers: Mapping[str, Any]
    ) -> Array | None:
        if isinstance(node, syntax.Name):
            return arrays.get(node.id)
        assert isinstance(node, syntax.Subscript)
        found = self.array(node.base, arrays, numbers)
        assert found is not None
        for index in node.subscripts:
            found = found[self.number(index, numbers)]  # type: ignore[arg-type]
        return found

    def call(self, node: syntax.Invoke, arrays: dict[str, Array], numbers: dict[str, Any]) -> None:
        callee = self.units[node.sketch]
        tensors = list(syntax.declared(callee.program or callee, "tensors"))
        given = {}
        for nodes, written in ((node.inputs, False), (node.outputs, True)):
            side = [t for t in tensors if (t.role in ("out", "inout")) == written]
            if node.sketch == "serial":
                side = [tensors[written]]
            given |= {t.name: each for t, each in zip(side, nodes, strict=False)}
        names = {tensor.name for tensor in tensors}
        keywords = {keyword.name: keyword.value for keyword in node.keywords}
        given |= {name: value for name, value in keywords.items() if name in names}
        bound = {name: self.array(value, arrays, numbers) for name, value in given.items()}
        own = {name: array for name, array in bound.items() if array is not None}
        values: dict[str, Any] = {}
        for tensor in tensors:
            for axis, extent in enumerate(tensor.extents):
                if isinstance(extent.value, syntax.Name) and tensor.name in own:
                    values.setdefault(extent.value.id, own[tensor.name].shape[axis])
        for name, value in keywords.items():
            if name not in names:
                values[name] = self.number(value, numbers)
        self.run(node.sketch, own, values)


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_program_means_its_calls_one_after_the_other(name: str) -> None:
    text, sizes = RUNS[name]
    tree = file(text)
    (entry,) = tree.entries
    sketch = lowered(entry)
    rng = np.random.default_rng(5)
    for values in itertools.product(*sizes.values()):
        symbols = dict(zip(sizes, values, strict=True))
        for turns in (0, 1, 3) if name == "forms" else (None,):
            params = {} if turns is None else {"turns": turns}
            host = host_values(sketch, symbols, params)
            arrays: dict[str, Array] = {}
            for tensor in sketch.tensors:
                shape = tuple(int(evaluate(extent, host)) for extent in tensor.extents)
                if tensor.role is ir.Role.IN:
                    arrays[tensor.name] = mixed(rng, shape, tensor.dtype)
                elif tensor.role is ir.Role.OUT:
                    arrays[tensor.name] = np.full(shape, np.nan, np.float32)
            given = {t.name: arrays[t.name] for t in sketch.tensors if t.role is ir.Role.IN}
            found = interpret(sketch, given, symbols, params).outputs
            Calls(tree).run(entry.name, arrays, {**symbols, **params})
            for out, array in found.items():
                # Constants are shared among calls: sums may run over other tiles.
                np.testing.assert_allclose(array, arrays[out], rtol=2e-5, atol=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["cpp", "triton_cuda", "triton_ascend"])
def test_a_program_is_one_module_on_every_target(target: str, tmp_path: Path) -> None:
    require(target)
    sketches = {}
    for name, (text, sizes) in RUNS.items():
        runs: list[tuple[dict[str, int], dict[str, Array]]] = []
        for place in range(1 if target == "triton_ascend" else 3):
            runs.append(({s: several[place % len(several)] for s, several in sizes.items()}, {}))
        sketches[name] = (text, runs)
    wrong = disagreements(target, sketches, tmp_path, partial(agreement, terms=200))
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("text", [FORMS, EXAMPLE])
def test_programs_are_printed_as_they_are_written(text: str) -> None:
    tree = file(text)
    printed = format_file(tree, Source("test.sketch", text))
    assert printed == text
    assert file(printed) == tree


def test_a_sketch_that_is_called_may_be_asked_for_by_name() -> None:
    from sketchc.api.sketches import the_sketch

    assert the_sketch(Source("test", EXAMPLE)).name == "residual_mlp"
    assert the_sketch(Source("test", EXAMPLE), "linear").name == "linear"
