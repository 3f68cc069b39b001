"""The first stage of the built-in Designer: the operations of a task, with extents as formulas.

The task is traced at several sizes of all its symbols at once. The traces must have the same
operations in the same order; a number in which they differ is a formula over the symbols that gives
what each trace holds.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from sketchc.agents.autosketch.rolling import live, rolled
from sketchc.base import records
from sketchc.base.diagnostics import UsageError, refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.evaluate import evaluate
from sketchc.ir.show import show
from sketchc.ir.walk import declared_names, free_name, names, parts
from sketchc.runtime.tasks.description import TaskFailure, TensorSpec
from sketchc.runtime.tasks.signature import PRIMES, Group, Signature

#: The task is traced at so many consecutive sizes of a symbol, so that each divisor meets each
#: remainder, and at two sizes far away.
_IN_A_ROW = 8
#: The largest constant argument, such as a stride, for which more sizes are traced.
_LARGEST_STEP = 64
#: So many more sizes are traced where several strides divide an extent one after the other: each
#: of these divisions shall meet all remainders.
_SCATTERED = 12
#: The first size of the smallest symbol, and the distance between those of the symbols.
_FIRST, _APART = 11, 24
#: A size that a model is built with moves by two and three times this, not far away.
_NEAR = 8
#: At most so many symbols are added up, or multiplied, in a formula.
_MOST_TERMS = 4
#: At most so many extents are tried as factors of a product.
_MOST_FACTORS = 16
#: Divisors that formulas of one symbol are tried with; offsets are as large.
_DIVISORS = tuple(range(2, _IN_A_ROW + 1))


#: Exponents of the powers of a number that are tried, and the number in terms of its power.
_ROOTS: Mapping[int, Callable[[ir.Expr], ir.Expr]] = {
    2: lambda power: ir.Function("sqrt", (power,)),
    -2: lambda power: ir.Function("rsqrt", (power,)),
    -1: lambda power: ir.Function("pow", (power, ir.Literal(-1.0))),
    4: lambda power: ir.Function("pow", (power, ir.Literal(0.25))),
    -4: lambda power: ir.Function("pow", (power, ir.Literal(-0.25))),
}
#: The largest constant that a whole number from the sizes is divided by: a resized axis's length.
_LARGEST_DIVISOR = 4096
#: A slope is rounded to so many decimals, if the rounded one gives the numbers as well.
_SHORT = 10
#: What is added to an extent in a power or a logarithm.
_SHIFTS = (1, -1, 2, -2)
#: Loops of a fixed number of iterations stay unrolled in traces of at most `_LONG` operations, and
#: where rolling them does not leave `_LESS` times fewer.
_LONG, _LESS = 250, 3
#: The relative tolerance within which two floats are equal.
_EXACT = 1e-12
#: The type of what an operation without a result gives.
_NO_RESULT = "NoneType"


class DiffersError(UsageError):
    """The task runs other operations, or has other arguments, at other sizes. `symbols`: the
    numbers of the symbols whose sizes alone change that, where they are known."""

    def __init__(self, what: str, symbols: Collection[int] = ()) -> None:
        super().__init__(f"the task runs otherwise at other sizes, in no way that is known: {what}")
        self.symbols = symbols


#: torch's spelling -> the element type.
_DTYPES = {dtype.numpy_name: dtype for dtype in DType}


@attrs.frozen
class Specification:
    """Type and extents of a tensor."""

    dtype: DType
    shape: tuple[ir.Expr, ...]


@attrs.frozen
class Made:
    """A tensor that the task makes for itself, with its values in row-major order."""

    specification: Specification
    values: tuple[int | float | bool, ...]


@attrs.frozen
class Use:
    """A tensor: result `of` of node number `node`, or the parameter of this name."""

    node: int = -1
    of: int = 0
    parameter: str = ""


@attrs.frozen
class Node:
    """One operation: "prims::add", or "convolution" of ATen. Arguments are by their schema's names:
    `Use`, `Made`, formulas (`ir.Expr`), other numbers, texts, types, None, and lists of these."""

    operation: str
    arguments: Mapping[str, Any]
    results: tuple[Specification, ...]


@attrs.frozen
class Graph:
    """The nodes in order and what is returned; `declared` are the task's tensors and symbols."""

    declared: ir.Sketch
    nodes: tuple[Node, ...]
    returned: tuple[Use | Made, ...]

    def param(self, use: Use) -> ir.Param | None:
        """The param (a number that forward takes) that `use` refers to, if it is one."""
        return next((p for p in self.declared.params if p.name == use.parameter), None)

    def specification(self, use: Use | Made) -> Specification:
        """Type and extents of a tensor of the graph."""
        if isinstance(use, Made):
            return use.specification
        if param := self.param(use):
            return Specification(param.dtype, ())
        if use.parameter:
            tensor = self.declared.tensor(use.parameter)
            return Specification(tensor.dtype, tensor.extents)
        return self.nodes[use.node].results[use.of]

    def lines(self) -> Iterator[str]:
        """The graph as text, a node a line."""
        for number, node in enumerate(self.nodes):
            given = ", ".join(f"{name}={_text(v)}" for name, v in node.arguments.items())
            results = ", ".join(_shape(result) for result in node.results)
            yield f"%{number} = {node.operation}({given})  # {results}"
        yield f"return {', '.join(map(_text, self.returned))}"


def _shape(specification: Specification) -> str:
    return f"{specification.dtype.value}[{', '.join(map(show, specification.shape))}]"


def _text(value: Any) -> str:
    match value:
        case Use():
            part = f".{value.of}" if value.of else ""
            return value.parameter or f"%{value.node}{part}"
        case Made():
            return f"made {_shape(value.specification)}"
        case list():
            return f"[{', '.join(map(_text, value))}]"
        case DType():
            return value.value
        case ir.Literal() | ir.Ref() | ir.Binary() | ir.Function():
            return show(value)
        case _:
            return str(value)


@attrs.frozen
class Traces:
    """Traces of a task (`each`) at several sizes: enough that `divisors` meet each remainder."""

    signature: Signature
    points: Sequence[tuple[int, ...]]
    each: Sequence[Mapping[str, Any]]
    divisors: Sequence[int]
    #: forward's numbers that are params, by position
    params: Mapping[int, ir.Param]

    def graph(self, extents: Sequence[ir.Expr] = ()) -> Graph:
        """The traces as one graph; `extents` get names of their own, as those of outputs do.

        Raises `UsageError` where the task runs other operations at other sizes, or a number follows
        the sizes in no simple way.
        """
        return _Merged(self, extents).graph()

    def steps(self) -> list[int]:
        """Integer arguments, such as strides and factors of shapes, that may divide an extent and
        are too large for the number of sizes that were traced."""
        found: set[int] = set()
        for node in self.each[0]["nodes"]:
            for value in node["arguments"].values():
                found |= {n for n in _integers(value) if _IN_A_ROW < n <= _LARGEST_STEP}
        return sorted(found)

    def divided_by(self) -> int:
        """The product of all strides: what they divide an extent by, one after the other."""
        strides = (node["arguments"].get("stride") for node in self.each[0]["nodes"])
        return math.prod(max(_integers(value), default=1) for value in strides)


def _uses_in(values: Sequence[Any]) -> Iterator[Use]:
    for value in values:
        if isinstance(value, list):
            yield from _uses_in(value)
        elif isinstance(value, Use):
            yield value


def _integers(value: object) -> list[int]:
    """The integers in an argument, which may be a list."""
    return [n for n in (value if isinstance(value, list) else [value]) if type(n) is int]


def read_traces(signature: Signature, *, numbers: bool = False) -> Traces:
    """Trace the task; with `numbers`, forward's numbers are params where the task can be traced for
    any value. Raises `TaskFailure` where it cannot be traced."""
    traced = _Traced(signature)
    if numbers:
        traced.open_numbers()
    found = traced.at_sizes()
    scattered = _SCATTERED if found.divided_by() > _IN_A_ROW else 0
    if scattered:
        found = traced.at_sizes((), scattered)
    if steps := found.steps():
        try:
            found.graph()
        except DiffersError:
            return traced.at_sizes(steps, scattered)
    return found


#: Names that params do not get: those that sketches use for loops and for what these add up or
#: choose, words of the language, and a target's name for its result.
_LETTERS = "ijklmnpqrstuvwxyz"
_SUMS = "total|product|largest|smallest|running|place|best"
_TAKEN = re.compile(rf"(?:[{_LETTERS}]|step|once|{_SUMS})(?:_?\d+|_tile|_lane)?|out|inf|nan")


def params_of(signature: Signature) -> list[tuple[int, ir.Param]]:
    """The positions of forward's numbers, and their params, which have the names of the arguments
    where a sketch has no other use for those names."""
    description, sketch = signature.prober.description, signature.sketch
    used = {*declared_names(sketch)}
    inputs = enumerate(description.inputs)
    positions = [place for place, value in inputs if isinstance(value, bool | int | float)]
    found = []
    for position, param in zip(positions, sketch.params, strict=True):
        name = description.names[position].lower() if position < len(description.names) else ""
        if name.isidentifier() and name.isascii() and not _TAKEN.fullmatch(name):
            param = records.evolve(param, name=free_name(name, used))
        used.add(param.name)
        found.append((position, param))
    return found


class _Traced:
    """The traces of a task, which is traced once at each of the sizes asked for."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.found: dict[tuple[int, ...], Any] = {}
        #: forward's numbers that are params, by position
        self.open: dict[int, ir.Param] = {}

    def at(self, point: tuple[int, ...]) -> Any:
        if point not in self.found:
            self.found[point] = self._traced(point, self.open)
        return self.found[point]

    def _traced(self, point: tuple[int, ...], opened: Mapping[int, ir.Param]) -> Any:
        prober = self.signature.prober
        sizes = dict(zip(self.signature.groups, point, strict=True))
        inputs, substitutes = prober.given(sizes)
        inputs = [
            TensorSpec("", opened[position].dtype, ()) if position in opened else value
            for position, value in enumerate(inputs)
        ]
        return prober.task.trace(inputs, substitutes)

    def open_numbers(self) -> None:
        """Make params of the numbers of which the task takes any value: a 0-d tensor stands for
        each in the traces, so that a task fails that looks at the value or needs a number."""
        point = next(_points(self.signature.groups, _IN_A_ROW, 0))
        for position, param in params_of(self.signature):
            if param.dtype is DType.BOOL:
                continue
            with suppress(TaskFailure):
                self._traced(point, {**self.open, position: param})
                self.open[position] = param

    def alike(self, first: tuple[int, ...], second: tuple[int, ...]) -> None:
        """Raises `DiffersError` where the traces at two sizes differ in length even with their
        loops rolled: before the task is traced at many others."""

        def count(point: tuple[int, ...]) -> int:
            return len(rolled(self.at(point))["nodes"])

        counts = [count(first), count(second)]
        if counts[0] != counts[1]:
            moved = ((*first[:n], second[n], *first[n + 1 :]) for n in range(len(first)))
            alone = [n for n, point in enumerate(moved) if count(point) != counts[0]]
            raise DiffersError(_operations(counts), alone)

    def at_sizes(self, steps: Sequence[int] = (), scattered: int = 0) -> Traces:
        """The traces at `_points` for the divisors `steps`, with loops rolled where lengths differ
        or are much shorter so."""
        groups = self.signature.groups
        row = max((_IN_A_ROW, *steps))
        points = list(_points(groups, row, scattered))
        loops = len({len(self.at(point)["nodes"]) for point in points[:2]}) > 1
        if loops:
            # Steps of a loop are traced one by one: sizes are smaller.
            points = list(_points(groups, row, scattered, apart=row + 1))
            self.alike(*points[:2])
        each = [self.at(point) for point in points]
        if loops or len({len(trace["nodes"]) for trace in each}) > 1:
            each = [rolled(trace) for trace in each]
            counts = [len(trace["nodes"]) for trace in each]
            if len(set(counts)) > 1:
                raise DiffersError(_operations(counts))
        else:
            each = _shorter([live(trace) for trace in each])
        return Traces(self.signature, points, each, (*_DIVISORS, *steps), self.open)


def _shorter(traces: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The traces; long ones with their loops rolled, where all are much shorter so."""
    long = len(traces[0]["nodes"])
    if long <= _LONG:
        return traces
    first = rolled(traces[0])
    short = len(first["nodes"])
    if short * _LESS > long:
        return traces
    found = [first, *map(rolled, traces[1:])]
    return found if all(len(trace["nodes"]) == short for trace in found) else traces


def _operations(counts: Sequence[int]) -> str:
    return f"{min(counts)} and {max(counts)} operations"


def _points(
    groups: Sequence[Group], row: int, scattered: int, apart: int | None = None
) -> Iterator[tuple[int, ...]]:
    """Sizes of all groups at once: first `row` consecutive ones, each group in an order of its own
    and at a distance (`apart`) from the others; then two far away, and `scattered` more. A group
    that is larger in the task is larger here: a window fits its image."""
    if not groups:
        yield ()
        return
    order = sorted(range(len(groups)), key=lambda number: groups[number].size)
    ranks = {number: rank for rank, number in enumerate(order)}
    near = apart is not None
    apart = apart or max(_APART, 2 * row)
    first = [max(_FIRST, row) + apart * ranks[n] for n in range(len(groups))]
    generators = [random.Random(n) for n in range(len(groups))]
    rows = [generator.sample(range(row), row) for generator in generators]
    for turn in range(row):
        yield tuple(group.at(first[n] + rows[n][turn]) for n, group in enumerate(groups))
    for turn in range(2, 4 + scattered):
        moved = [
            rows[n][turn] if turn < 4 else generator.randrange(_FIRST)
            for n, generator in enumerate(generators)
        ]
        # What the model is built with also sizes its weights, which are real: not as far.
        yield tuple(
            group.at(first[n] + (2 + turn % 2) * _NEAR + moved[n])
            if group.follows or near
            else group.at(turn * first[n] + ranks[n] * PRIMES[n % len(PRIMES)] + moved[n])
            for n, group in enumerate(groups)
        )


def step_name(operations: Sequence[str], counter: int) -> str:
    """The name of the step of the loop whose counter is node number `counter`."""
    number = operations[:counter].count("steps::counter")
    return f"step_{number + 1}" if number else "step"


def needs_name(extent: ir.Expr) -> bool:
    """Whether an extent has a quotient or a constant term: divided by such an extent, an index is
    easier to read, and proofs about it are easier, where the extent has a name."""
    quotient = any(isinstance(e, ir.Binary) and e.operator == "//" for e in parts(extent))
    return quotient or (bool(names(extent)) and () in symbolic.normalize(extent))


def _with_lets(declared: ir.Sketch, extents: Sequence[ir.Expr]) -> ir.Sketch:
    """The sketch with names for extents of outputs, and for `extents`, where they need one."""
    lets: dict[ir.Expr, ir.Let] = {}
    used = {symbol.name for symbol in declared.symbols} | {t.name for t in declared.tensors}

    def named(extent: ir.Expr, ending: str = "OUT") -> ir.Expr:
        if not needs_name(extent):
            return extent
        if extent not in lets:
            first = next(s.name for s in declared.symbols if s.name in names(extent))
            name = free_name(f"{first}_{ending}", used)
            used.add(name)
            lets[extent] = ir.Let(name, DType.I64, extent)
        return ir.Ref(lets[extent].name, ir.NameKind.LET)

    tensors = tuple(
        records.evolve(t, extents=tuple(map(named, t.extents))) if t.role is ir.Role.OUT else t
        for t in declared.tensors
    )
    for extent in extents:
        named(extent, "MID")
    return records.evolve(declared, tensors=tensors, lets=(*declared.lets, *lets.values()))


def foreign_types(node: Mapping[str, Any]) -> set[str]:
    """The types of a traced node's results that sketches do not have."""
    return {each["dtype"] for each in node["tensors"]} - {*_DTYPES, _NO_RESULT}


class _Merged:
    """Merges traces into one graph, with formulas for the numbers in which they differ."""

    def __init__(self, traces: Traces, extents: Sequence[ir.Expr]) -> None:
        signature = traces.signature
        declared = records.evolve(signature.sketch, params=tuple(traces.params.values()))
        self.declared = _with_lets(declared, extents)
        self.symbols = [ir.Ref(s.name, ir.NameKind.SYMBOL) for s in signature.sketch.symbols]
        self.points = traces.points
        self.divisors = traces.divisors
        self.traces = traces.each
        self.operations = [node["operation"] for node in traces.each[0]["nodes"]]
        parameters = signature.prober.parameters
        self.inputs = {p.position: p.name for p in parameters if p.position is not None}
        self.inputs |= {position: param.name for position, param in traces.params.items()}
        self.states = {p.state: p.name for p in parameters if p.state is not None}
        #: types that sketches do not have, with the operations that give them
        self.foreign: dict[str, set[str]] = {}
        #: formulas by their values in the traces; the extents that are declared go first
        self.solved: dict[tuple[int, ...], ir.Expr] = {}
        for tensor in self.declared.tensors:
            for extent in tensor.extents:
                self.solved.setdefault(self.values(extent), extent)
        for let in self.declared.lets:
            self.solved.setdefault(self.values(let.value), ir.Ref(let.name, ir.NameKind.LET))

    def values(self, extent: ir.Expr) -> tuple[int, ...]:
        """The value of an extent in each trace."""
        found = []
        for point in self.points:
            known = dict(zip((symbol.name for symbol in self.symbols), point, strict=True))
            known |= {let.name: int(evaluate(let.value, known)) for let in self.declared.lets}
            found.append(int(evaluate(extent, known)))
        return tuple(found)

    def graph(self) -> Graph:
        nodes = tuple(
            self.node(list(each))
            for each in zip(*(trace["nodes"] for trace in self.traces), strict=True)
        )
        if self.foreign:
            listed = (f"{t} ({', '.join(sorted(ops))})" for t, ops in sorted(self.foreign.items()))
            refuse(f"the task computes in {', '.join(listed)}, which sketches do not have")
        returned = self.value([trace["returned"] for trace in self.traces])
        return Graph(self._with_types(nodes), nodes, tuple(returned))

    def _with_types(self, nodes: Sequence[Node]) -> ir.Sketch:
        """The declarations; a param gets the type in which all operations use it, if it is one."""
        graph = Graph(self.declared, tuple(nodes), ())
        wanted: dict[str, set[DType]] = {param.name: set() for param in self.declared.params}
        for node in nodes:
            uses = list(_uses_in(list(node.arguments.values())))
            taken = [graph.specification(u).dtype for u in uses if graph.param(u) is None]
            types = [each for each in (node.results[0].dtype, *taken) if each is not DType.BOOL]
            types.sort(key=lambda each: not each.is_float)
            for param in filter(None, map(graph.param, uses)):
                wanted[param.name].add(types[0] if types else param.dtype)
        params = []
        for param in self.declared.params:
            dtype, *others = wanted[param.name] or {param.dtype}
            if not others:
                number = float if dtype.is_float else int
                param = records.evolve(param, dtype=dtype, default=number(param.default or 0))
            params.append(param)
        return records.evolve(self.declared, params=tuple(params))

    def node(self, each: list[Mapping[str, Any]]) -> Node:
        names = {node["operation"] for node in each}
        if len(names) > 1:
            raise DiffersError(" and ".join(sorted(names)))
        arguments = {
            n: self.value([node["arguments"][n] for node in each]) for n in each[0]["arguments"]
        }
        # A split may have more parts at some sizes: nothing uses these.
        results = zip(*(node["tensors"] for node in each), strict=False)
        name = names.pop()
        return Node(name, arguments, tuple(self.result(name, list(r)) for r in results))

    def result(self, operation: str, each: list[Mapping[str, Any]]) -> Specification:
        """The specification of a result; one of a type that sketches lack is noted, and stands for
        a scalar, so that all operations with such results are known."""
        dtype = each[0]["dtype"]
        if dtype in _DTYPES:
            return self.specification(each)
        if dtype != _NO_RESULT:
            self.foreign.setdefault(dtype, set()).add(operation.split("::")[-1])
        return Specification(DType.BOOL, ())

    def specification(self, each: list[Mapping[str, Any]]) -> Specification:
        dtype = _DTYPES.get(each[0]["dtype"])
        if dtype is None:
            refuse(f"the task computes in {each[0]['dtype']}, which sketches do not have")
        return Specification(dtype, tuple(self.value([one["shape"] for one in each], sizes=True)))

    def value(self, each: list[Any], *, sizes: bool = False) -> Any:
        """One argument from its values in the traces; `sizes`: numbers in it are extents."""
        first = each[0]
        match first:
            case list():
                if len({len(one) for one in each}) > 1:
                    raise DiffersError("lists of several lengths")
                return [self.value(list(one), sizes=sizes) for one in zip(*each, strict=True)]
            case {"made": made}:
                if any(one != first for one in each):
                    raise DiffersError("a tensor of its own")
                return Made(self.specification([made] * len(each)), tuple(made["values"]))
            case {"dtype": name}:
                return _DTYPES.get(name, name)
            case {"input": _} | {"state": _} | {"node": _} if any(one != first for one in each):
                raise DiffersError("results of other operations")
            case {"input": position}:
                return Use(parameter=self.inputs[position])
            case {"state": name}:
                return Use(parameter=self.states[name])
            case {"node": number}:
                return Use(number, first["of"])
            case {"step": counter}:
                factor, shift = (self.value([one[n] for one in each]) for n in ("factor", "shift"))
                step = ir.Ref(step_name(self.operations, counter), ir.NameKind.LOOP)
                return symbolic.simplify(ir.Binary("+", ir.Binary("*", factor, step), shift))
            case bool() | str() | None:
                if any(one != first for one in each):
                    raise DiffersError(f"{first} and others")
                return first
            case int():
                return (
                    self.formula(tuple(each)) if sizes or len(set(each)) > 1 else ir.Literal(first)
                )
            case float():
                return self.number(each)
            case _:
                return first

    def number(self, each: Sequence[float]) -> Any:
        """A float: a constant, if all traces have the same; else a formula: a whole number, a root
        of one, the reciprocal of these, a whole number over a constant, or a `curve`."""
        if len({repr(one) for one in each}) == 1:
            return each[0]
        if all(one.is_integer() for one in each):
            return self.formula(tuple(map(int, each)))
        for exponent, rule in _ROOTS.items():
            powers = [one**exponent if one else math.inf for one in each]
            whole = tuple(round(one) if math.isfinite(one) else 0 for one in powers)
            if all(math.isclose(a, b, rel_tol=_EXACT) for a, b in zip(powers, whole, strict=True)):
                return rule(self.formula(whole))
        if all(map(math.isfinite, each)):
            near = [Fraction(one).limit_denominator(_LARGEST_DIVISOR) for one in each]
            divisor = math.lcm(*(one.denominator for one in near))
            pairs = zip(each, near, strict=True)
            exact = all(math.isclose(a, b, rel_tol=_EXACT) for a, b in pairs)
            if exact and divisor <= _LARGEST_DIVISOR:
                whole = tuple(int(one * divisor) for one in near)
                with suppress(DiffersError):
                    return ir.Binary("*", self.formula(whole), ir.Literal(1.0 / divisor))
            if (found := self.curve(each)) is not None:
                return found
        raise DiffersError(f"the number {each[0]}")

    def curve(self, each: Sequence[float]) -> ir.Expr | None:
        """A formula that gives these numbers: a quotient of two extents, or a linear function of an
        extent, a shifted one or a product of two, or of a power or the logarithm of these."""
        columns = list(zip(*self.points, strict=True))
        bases: dict[tuple[int, ...], ir.Expr] = dict(zip(columns, self.symbols, strict=True))
        for values, known in self.solved.items():
            bases.setdefault(values, known)
        own = list(bases.items())[:_MOST_FACTORS]
        for (one, left), (other, right) in itertools.permutations(own, 2):
            if all(
                math.isclose(a, e * b, rel_tol=_EXACT)
                for a, b, e in zip(one, other, each, strict=True)
            ):
                return ir.Binary("*", left, _ROOTS[-1](right))
            product = tuple(a * b for a, b in zip(one, other, strict=True))
            bases.setdefault(product, symbolic.product([left, right]))
        for (values, known), shift in itertools.product(own, _SHIFTS):
            moved = symbolic.simplify(ir.Binary("+", known, ir.Literal(shift)))
            bases.setdefault(tuple(v + shift for v in values), moved)
        for values, known in bases.items():
            if len(set(values)) > 1 and min(values) > 0:
                logs = tuple(map(math.log, values))
                if (line := _line(each, values)) is not None:
                    return _on_line(known, *line)
                if (line := _line(each, logs)) is not None:
                    return _on_line(ir.Function("log", (known,)), *line)
                if min(each) > 0 and (line := _line(tuple(map(math.log, each)), logs)) is not None:
                    power = ir.Function("pow", (known, ir.Literal(line[0])))
                    return _on_line(power, math.exp(line[1]), 0.0)
        return None

    def formula(self, each: tuple[int, ...]) -> ir.Expr:
        """A formula that gives these numbers at the sizes of the traces."""
        if each not in self.solved:
            found = next(self._formulas(each), None)
            if found is None:
                raise DiffersError(f"the number {each[0]}")
            self.solved[each] = symbolic.simplify(found)
        return self.solved[each]

    def sums(self, each: Sequence[int], columns: Sequence[tuple[int, ...]]) -> Iterator[ir.Expr]:
        """Sums of multiples of symbols and a constant that give these numbers."""
        for count in range(1, min(len(columns), _MOST_TERMS) + 1):
            for chosen in itertools.combinations(range(len(columns)), count):
                matrix = np.array([*(columns[n] for n in chosen), (1,) * len(each)], float).T
                solved, *_ = np.linalg.lstsq(matrix, np.array(each, float), rcond=None)
                factors = [round(one) for one in solved]
                if all(factors[:-1]) and (matrix @ factors == each).all():
                    total: ir.Expr = ir.Literal(factors.pop())
                    for factor, number in zip(factors, chosen, strict=True):
                        term = ir.Binary("*", ir.Literal(factor), self.symbols[number])
                        total = ir.Binary("+", total, term)
                    yield total

    def _formulas(self, each: tuple[int, ...]) -> Iterator[ir.Expr]:
        if len(set(each)) == 1:
            yield ir.Literal(each[0])
        columns = list(zip(*self.points, strict=True))
        yield from self.sums(each, columns)
        for count in range(1, min(len(columns), _MOST_TERMS) + 1):
            for chosen in itertools.combinations(range(len(columns)), count):
                products = [math.prod(columns[n][t] for n in chosen) for t in range(len(each))]
                whole = symbolic.product([self.symbols[n] for n in chosen])
                yield from _lines(each, products, whole, self.divisors)
        for one, other in itertools.permutations(range(len(columns)), 2):
            for sign in (1, -1):
                sums = [columns[one][t] + sign * columns[other][t] for t in range(len(each))]
                total = ir.Binary("+" if sign > 0 else "-", self.symbols[one], self.symbols[other])
                yield from _lines(each, sums, total, self.divisors)
        yield from self.chains(each)
        yield from self.products(each)

    def chains(self, each: Sequence[int]) -> Iterator[ir.Expr]:
        """Quotients of known quotients that give these numbers, as one quotient:
        (n // a + b) // c is (n + a*b) // (a*c)."""
        quotients = [*self._known_quotients()]
        # The smaller a divisor, the more of its remainders are met.
        for divisor, (values, numerator, first, shift) in itertools.product(
            self.divisors, reversed(quotients)
        ):
            for _, offset, rest in _quotients(each, values, (divisor,)):
                moved = ir.Binary("+", numerator, ir.Literal(first * (shift + offset)))
                total = ir.Binary("//", moved, ir.Literal(first * divisor))
                yield ir.Binary("+", total, ir.Literal(rest))

    def _known_quotients(self) -> Iterator[tuple[tuple[int, ...], ir.Expr, int, int]]:
        """The values of extents n // d + c, with n, d and c."""
        lets = {let.name: let.value for let in self.declared.lets}
        for values, known in self.solved.items():
            extent = lets.get(known.name, known) if isinstance(known, ir.Ref) else known
            terms = symbolic.normalize(extent)
            match symbolic.rebuild({term: factor for term, factor in terms.items() if term}):
                case ir.Binary("//", numerator, ir.Literal(int() as divisor)):
                    yield values, numerator, divisor, terms.get((), 0)

    def products(self, each: Sequence[int]) -> Iterator[ir.Expr]:
        """Products of known extents, times a constant, that give these numbers."""
        dividing = [
            (values, known)
            for values, known in self.solved.items()
            if len(set(values)) > 1
            and all(v > 1 and not e % v for v, e in zip(values, each, strict=True))
        ][:_MOST_FACTORS]
        for count in range(2, _MOST_TERMS + 1):
            for chosen in itertools.combinations_with_replacement(dividing, count):
                columns = zip(*(values for values, _ in chosen), strict=True)
                rests = {divmod(e, math.prod(v)) for e, v in zip(each, columns, strict=True)}
                if len(rests) == 1 and (rest := rests.pop())[1] == 0:
                    extents = symbolic.product([known for _, known in chosen])
                    yield ir.Binary("*", ir.Literal(rest[0]), extents)


def _line(each: Sequence[float], values: Sequence[float]) -> tuple[float, float] | None:
    """Slope and shift of the line slope*v + shift that gives `each` for `values`; else None."""
    low, high = values.index(min(values)), values.index(max(values))
    measured = (each[high] - each[low]) / (values[high] - values[low])
    scale = max(map(abs, each))
    for slope in (round(measured, _SHORT), measured):
        shift = each[low] - slope * values[low]
        if abs(shift) <= _EXACT * scale:
            shift = 0.0
        ends = (abs(slope * v + shift - e) for v, e in zip(values, each, strict=True))
        if slope and all(off <= _EXACT * scale for off in ends):
            return slope, shift
    return None


def _on_line(expression: ir.Expr, slope: float, shift: float) -> ir.Expr:
    scaled = ir.Binary("*", expression, ir.Literal(slope))
    return ir.Binary("+", scaled, ir.Literal(shift)) if shift else scaled


def _lines(
    each: Sequence[int], values: Sequence[int], expression: ir.Expr, divisors: Sequence[int]
) -> Iterator[ir.Expr]:
    """Formulas a*v + b and (v + b) // d + c that give `each`, for `expression` v with `values`."""
    if len(set(values)) < 2:
        return
    one, other = next(
        (a, b) for a, b in itertools.combinations(range(len(values)), 2) if values[a] != values[b]
    )
    slope, rest = divmod(each[other] - each[one], values[other] - values[one])
    shift = each[one] - slope * values[one]
    if (
        not rest
        and slope
        and all(slope * v + shift == e for v, e in zip(values, each, strict=True))
    ):
        scaled = ir.Binary("*", ir.Literal(slope), expression)
        yield ir.Binary("+", scaled, ir.Literal(shift))
    for divisor, offset, added in _quotients(each, values, divisors):
        moved = symbolic.simplify(ir.Binary("+", expression, ir.Literal(offset)))
        quotient = ir.Binary("//", moved, ir.Literal(divisor))
        yield ir.Binary("+", quotient, ir.Literal(added))


def _quotients(
    each: Sequence[int], values: Sequence[int], divisors: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    """Numbers d, b and c for which (v + b) // d + c gives `each` for the v in `values`."""
    reach = max(divisors)
    offsets = sorted(range(-reach, reach + 1), key=abs)
    for divisor, offset in itertools.product(divisors, offsets):
        rests = {e - (v + offset) // divisor for v, e in zip(values, each, strict=True)}
        if len(rests) == 1:
            yield divisor, offset, rests.pop()
