"""Examples and random sketches, each at sizes at which all of its loops run again.

Tiles are the smallest of a sketch's own lists, so that such sizes are small enough for targets that
are interpreted. Sizes are looked for with rehearsals (`sketchc/checker/testing`): first all symbols
grow together, then each one shrinks as far as all loops still run twice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from example_sizes import Array, inputs_for, params_for
from example_targets import NAMES
from random_sketches.corpus import corpus
from random_sketches.draft import Generated
from random_sketches.running import difference
from random_sketches.running import inputs as random_inputs
from triton_cases import Case, example, lower

from sketchc.base import records
from sketchc.base.diagnostics import DiagnosticError
from sketchc.base.memo import per_sketch
from sketchc.checker.testing.goals import DATA, Goal, goals, reachable
from sketchc.checker.testing.settings import rehearse
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, host_values
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import TARGETS
from sketchc.runtime.cases.sizes import elements, nearest, tensor_shapes
from sketchc.runtime.cases.sums import INPUT, Sums
from sketchc.runtime.verify.compare import compare

#: Sizes that no tile asks for. The first ones are the smallest in turns, so that axes are told
#: apart.
_PRIMES = (3, 5, 7, 11, 19, 37, 71, 131)
_SMALLEST = 3
#: The work of one run, in lanes, is at most this.
_MOST_WORK = 1 << 36
#: How many steps sizes move to suit each condition.
_MOVES = 2000
#: What data decides is tried on so many inputs.
_SEEDS = 8
#: The code of what a target has no type for.
_NO_TYPE = "SK0703"


@attrs.frozen(eq=False)
class Subject:
    """A sketch to be compared; `generated`: how it was drawn, if it was."""

    name: str
    text: str
    generated: Generated | None = None

    def tensors(
        self, sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Value], seed: int
    ) -> dict[str, Array]:
        """The in and inout tensors."""
        if self.generated is None:
            return inputs_for(sketch, symbols, params, seed)
        drawn = attrs.evolve(self.generated, seed=self.generated.seed + 2 * seed)
        return random_inputs(drawn, sketch, symbols)


@attrs.frozen
class Launch:
    """A subject with its tiles, sizes and inputs, the interpreter's answer, and how many terms are
    added up in each output."""

    subject: Subject
    tiles: Mapping[str, Any]
    symbols: Mapping[str, int]
    params: Mapping[str, Value]
    tensors: Mapping[str, Array]
    expected: Mapping[str, Array]
    terms: Mapping[str, int]

    @property
    def title(self) -> str:
        """The subject with its tiles, sizes and params."""
        return f"{self.subject.name} in {self.tiles} at {self.symbols}, {self.params}"

    def case(self, kernel: Kernel) -> Case:
        """The run of a kernel."""
        return Case(kernel, self.tensors, self.symbols, self.params, self.expected)

    def wrong(self, sketch: ir.Sketch, found: Mapping[str, Array]) -> str:
        """What of a target's answer is not the interpreter's, with both; empty where all agree.
        Random sketches know which outputs are exact, examples follow the rule of `verify`."""
        if self.subject.generated is not None:
            return difference(self.subject.generated, sketch, self.expected, found)
        for name, wanted in self.expected.items():
            dtype = sketch.tensor(name).dtype
            wide = wanted.astype("f8") if dtype.is_float else wanted
            answer = compare(name, found[name], wide, dtype, self.terms[name])
            if not answer.passed:
                return f"{name}: {answer.reason} (first: {answer.first})"
        return ""


@functools.cache
def subjects(drawn: int) -> list[Subject]:
    """All examples, and so many random sketches spread over the corpus."""
    accepted = corpus().accepted
    spread = (accepted[place * len(accepted) // drawn][0] for place in range(drawn))
    random = [Subject(f"random_{one.seed}", one.text, one) for one in spread]
    return [*(Subject(name, example(name)) for name in NAMES), *random]


@per_sketch
def loops(sketch: ir.Sketch) -> tuple[Goal, ...]:
    """The loops of a sketch, those of the grid among them, each as a goal to run it twice; without
    those of which the checker proves that no launch does (`for i in range(1)`)."""
    every = [records.evolve(goal, trips=2) for goal in goals(sketch) if goal.side is None]
    return reachable(sketch, every)


@functools.cache
def plans(subject: Subject) -> dict[str, tuple[Plan, Kernel]]:
    """The subject on all targets that have its types, with the smallest tiles of its lists."""
    found = {}
    tiles = tiles_of(subject)
    for target in sorted(TARGETS):
        try:
            found[target] = lower(subject.text, target, tiles)
        except DiagnosticError as refused:
            if {one.code for one in refused.diagnostics} != {_NO_TYPE}:
                raise
    return found


def tiles_of(subject: Subject) -> dict[str, Any]:
    """The smallest choice for each tile size that a sketch leaves open."""
    plan, _ = lower(subject.text, "cpp")
    return {c.name: min(c.choices) for c in plan.sketch.constants if c.tunable and c.choices}


@functools.cache
def launch(subject: Subject) -> Launch:
    """The subject at sizes at which all loops run again, on all targets. Fails where there are no
    such sizes, or where the interpreter does not run a loop twice."""
    plan, _ = plans(subject)["cpp"]
    others = {_tiles(one.sketch): one.sketch for one, _ in plans(subject).values()}
    sketches = list({_tiles(plan.sketch): plan.sketch, **others}.values())
    params = params_for(plan.sketch, enough(plan.sketch))
    symbols = sizes_again(sketches, params)
    for seed in range(_SEEDS):
        tensors = subject.tensors(plan.sketch, symbols, params, seed)
        results = [interpret(one, tensors, symbols, params) for one in sketches]
        pairs = zip(sketches, results, strict=True)
        missed = [
            goal.text
            for one, result in pairs
            for goal in loops(one)
            if not goal.met([result.reached])
        ]
        if not missed:
            break
    assert not missed, f"{subject.name} at {symbols}, {params}: {missed} do not run twice"
    terms = terms_of(plan, symbols, params)
    tiles = tiles_of(subject)
    return Launch(subject, tiles, symbols, params, tensors, results[0].outputs, terms)


def _tiles(sketch: ir.Sketch) -> tuple[tuple[str, Value], ...]:
    """What tells the sketches of a subject's targets apart."""
    return tuple((constant.name, constant.value) for constant in sketch.constants)


def enough(sketch: ir.Sketch) -> dict[str, Value]:
    """Values of the integer params that alone decide how often loops run: two at least."""
    whole = {param.name: param for param in sketch.params if param.dtype.is_integer}
    alone = [goal.names & whole.keys() for goal in loops(sketch) if goal.names <= {*whole}]
    deciding = frozenset().union(*alone)
    return {name: max(int(whole[name].default or 0), 2) for name in deciding}


def terms_of(plan: Plan, symbols: Mapping[str, int], params: Mapping[str, Value]) -> dict[str, int]:
    """How many terms are added up in an element of each tensor, at most."""
    host = _host(plan.sketch, symbols, params)
    most = float(elements(tensor_shapes(plan.sketch, symbols, params)))
    amounts = Sums(plan, most).run(host)
    return {
        tensor.name: max(1, math.ceil(amounts.get(tensor.name, INPUT).total))
        for tensor in plan.sketch.tensors
    }


def sizes_again(sketches: Sequence[ir.Sketch], params: Mapping[str, Value]) -> dict[str, int]:
    """Sizes, about the smallest, at which all loops of these sketches run twice that data does not
    decide. They differ in their tiles alone. Fails where there are none."""
    sketch, pool = sketches[0], _pool(sketches)
    starts = _costed(sketches, params, _starts(sketch, pool))
    found, best = next(starts, ({}, 0))
    assert best, f"at no sizes do all loops of {sketch.name} run twice"
    for place, symbol in enumerate(sketch.symbols):
        small = _PRIMES[place % _SMALLEST]
        sizes = (small, *(size for size in pool if small < size < found[symbol.name]))
        smaller = _costed(sketches, params, ({**found, symbol.name: size} for size in sizes))
        found, best = next((one for one in smaller if one[1] < best), (found, best))
    return found


def _starts(sketch: ir.Sketch, pool: Sequence[int]) -> Iterator[dict[str, int]]:
    """All symbols of one size, then the same with one of them small, which may divide others, or
    with the last ones small, which may be those of a window."""
    names = [symbol.name for symbol in sketch.symbols]
    for size in pool:
        every = dict.fromkeys(names, size)
        yield every
        yield from ({**every, name: 2} for name in names)
        yield from ({**every, **dict.fromkeys(names[k:], 2)} for k in range(len(names) - 2, 0, -1))


def _pool(sketches: Sequence[ir.Sketch]) -> list[int]:
    """Sizes to look at: primes, those half a tile behind some tiles, and those behind as many tiles
    as another tile has elements."""
    tiles = {int(c.value) for one in sketches for c in one.constants if c.dtype.is_integer}
    pairs = ((one, other) for one in tiles for other in (1, 2, 4, *tiles))
    return sorted({*_PRIMES, *(one * n + one // 2 + 1 for one, n in pairs)})


def _costed(
    sketches: Sequence[ir.Sketch], params: Mapping[str, Value], wished: Iterable[dict[str, int]]
) -> Iterator[tuple[dict[str, int], int]]:
    """Those of the sizes that are allowed, or the nearest ones, at which all loops run twice, with
    the work of a run."""
    bounds = {symbol.name: symbol.upper_bound for symbol in sketches[0].symbols}
    for sizes in wished:
        within = {n: min(size, bounds[n] or size) for n, size in sizes.items()}
        found = nearest(sketches[0], within, params, least=1, steps=_MOVES)
        work = 0 if found is None else _work(sketches, found, params)
        if found is not None and work:
            yield found, work


def _host(
    sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Value]
) -> dict[str, Value]:
    optional = {tensor.name: True for tensor in sketch.tensors if tensor.optional}
    return {**host_values(sketch, symbols, params), **optional}


def _work(
    sketches: Sequence[ir.Sketch], symbols: Mapping[str, int], params: Mapping[str, Value]
) -> int:
    """The work of runs of all sketches; 0 where a loop does not run twice, or for too much work."""
    total = 0
    for sketch in sketches:
        ran = rehearse(sketch, _host(sketch, symbols, params), _MOST_WORK)
        wanted = (goal for goal in loops(sketch) if DATA not in goal.names)
        if ran is None or not all(goal.met([ran.reached]) for goal in wanted):
            return 0
        total += ran.total
    return total
