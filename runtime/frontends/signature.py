"""A sketch without a body for a task: what a kernel is called with, where no sketch exists.

`signature_of` names the tensors of `forward`, then the model's parameters and buffers, the numbers
as params, and the outputs. An extent becomes a symbol where building and running the task at other
sizes shows that it may vary; extents of one size are one symbol as long as the task agrees, unless
the file has a number of its own for each (`rows = 1024`, `columns = 1024`). What cannot be varied
stays a literal.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from sketchc import ir
from sketchc.diagnostics import UsageError
from sketchc.lowering.plan import Plan
from sketchc.runtime.frontends.description import (
    OtherSpec,
    TaskDescription,
    TaskFailure,
    TensorSpec,
)
from sketchc.runtime.frontends.worker_task import WorkerTask
from sketchc.types import DType

#: Sizes to probe with: distinct primes, small, and hardly ever a size of a task.
_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
_NAMES = ("M", "N", "K", "P", "Q", "R", "S", "T", "U", "V", "W", "A", "B", "C", "D", "E")
#: The task is asked so many times at most.
_MOST_PROBES = 200
#: Half of that at most finds which extents follow a number of the file.
_MOST_NAMED = _MOST_PROBES // 2
_RESERVED = frozenset({*_NAMES, "out"})

#: One axis of one parameter: (index of the parameter, axis).
Axis = tuple[int, int]


@attrs.frozen
class _Parameter:
    """One tensor that the kernel reads: of forward (`position`) or of the model (`state`)."""

    name: str
    specification: TensorSpec
    position: int | None = None
    state: str | None = None


@attrs.frozen
class _Group:
    """Axes that vary together, with the init inputs that follow them. `base` is 0 where small sizes
    do, else the task's own size: probes add primes to it."""

    axes: tuple[Axis, ...]
    size: int
    follows: tuple[int, ...]
    base: int


def signature_of(task: WorkerTask, name: str, seed: int = 0) -> ir.Sketch:
    """The signature of a task: forward's tensors, then parameters and buffers, then outputs;
    forward's numbers are params with the task's own values as defaults. What a task that returns
    nothing writes into is inout.

    Numbers among the model's attributes are constants of the task: a kernel holds them itself.
    Raises `UsageError` when forward takes something that is neither a tensor nor a number, or when
    an output's extent follows the inputs in no simple way.
    """
    description = task.describe(seed)
    parameters = tuple(_parameters(description))
    in_place = description.written if description.returns == "none" else frozenset[int]()
    prober = _Prober(task, description, parameters, _MOST_PROBES)
    groups = _joint(prober, _groups(prober, _named(task, parameters, seed)))
    symbols = {
        axis: (group, _NAMES[number]) for number, group in enumerate(groups) for axis in group.axes
    }
    inputs = [
        ir.Tensor(
            parameter.name,
            tuple(
                ir.Ref(symbols[index, axis][1], ir.NameKind.SYMBOL)
                if (index, axis) in symbols
                else ir.Literal(size)
                for axis, size in enumerate(parameter.specification.shape)
            ),
            parameter.specification.dtype,
            ir.Role.INOUT if parameter.position in in_place else ir.Role.IN,
        )
        for index, parameter in enumerate(parameters)
    ]
    used = {parameter.name for parameter in parameters}
    results = [
        ir.Tensor(_free_name(_output_name(number, description), used), extents, dtype, ir.Role.OUT)
        for number, (extents, dtype) in enumerate([] if in_place else _outputs(prober, groups))
    ]
    return ir.Sketch(
        name=name,
        symbols=tuple(ir.Symbol(_NAMES[number]) for number in range(len(groups))),
        params=tuple(_params(description, used)),
        constants=(),
        lets=(),
        tensors=(*inputs, *results),
        views=(),
        requires=(),
        tiles=(),
        phases=(),
    )


def signature_plan(sketch: ir.Sketch, target: str, hardware: str | None = None) -> Plan:
    """A plan without phases, with which `verify` runs a kernel that has no sketch.

    Raises `UsageError` for an unknown target or chip.
    """
    from sketchc.lowering.hardware import load_hardware
    from sketchc.lowering.registry import TARGETS, target_module

    if target not in TARGETS:
        msg = f"unknown target {target!r}; known: {', '.join(TARGETS)}"
        raise UsageError(msg)
    capabilities = target_module(target).CAPABILITIES
    chip = load_hardware(hardware or capabilities.default_hardware)
    return Plan(sketch, capabilities, chip, (), {})


# ---------------------------------------------------------------- names


def _parameters(description: TaskDescription) -> Iterator[_Parameter]:
    used: set[str] = set()
    for position, value in enumerate(description.inputs):
        if isinstance(value, OtherSpec):
            msg = (
                f"input {position + 1} of the task is of type {value.type}; "
                "a kernel takes tensors and numbers"
            )
            raise UsageError(msg)
        if isinstance(value, TensorSpec):
            name = _free_name(f"X{position + 1}" if position else "X", used)
            yield _Parameter(name, value, position=position)
    # `bind` takes a tensor named like the last part of a state's name for the first such state.
    first: dict[str, str] = {}
    for spec in description.state:
        first.setdefault(spec.name.rpartition(".")[2].lower(), spec.name)
    for spec in description.state:
        name = _free_name(_identifier(spec.name), used)
        if first.get(name.lower(), spec.name) != spec.name:
            name = _free_name(f"P_{name}", used)
        yield _Parameter(name, spec, state=spec.name)


def _identifier(name: str) -> str:
    """`layers.0.weight` as a name of a tensor: LAYERS_0_WEIGHT."""
    plain = re.sub(r"\W+", "_", name).strip("_").upper()
    return plain if plain and not plain[0].isdigit() else f"P_{plain}"


def _free_name(wanted: str, used: set[str]) -> str:
    name, number = wanted, 2
    while name in used or name in _RESERVED:
        name, number = f"{wanted}_{number}", number + 1
    used.add(name)
    return name


def _output_name(number: int, description: TaskDescription) -> str:
    return "Y" if len(description.outputs) == 1 else f"Y{number + 1}"


def _params(description: TaskDescription, used: set[str]) -> Iterator[ir.Param]:
    """Forward's numbers."""
    for position, value in enumerate(description.inputs):
        if isinstance(value, bool | int | float):
            dtype = DType.F64
            if not isinstance(value, float):
                dtype = DType.BOOL if isinstance(value, bool) else DType.I64
            yield ir.Param(_free_name(f"number_{position + 1}", used), dtype, value)


# ---------------------------------------------------------------- what varies


@attrs.define
class _Prober:
    """Asks the task about other sizes, a limited number of times."""

    task: WorkerTask
    description: TaskDescription
    parameters: Sequence[_Parameter]
    left: int

    def outputs(self, sizes: Mapping[_Group, int]) -> tuple[TensorSpec, ...] | None:
        """The outputs when the groups have these sizes; None when the task refuses them."""
        if self.left <= 0:
            return None
        self.left -= 1
        at = {axis: size for group, size in sizes.items() for axis in group.axes}
        shaped = [
            attrs.evolve(
                parameter.specification,
                shape=tuple(
                    at.get((index, axis), size)
                    for axis, size in enumerate(parameter.specification.shape)
                ),
            )
            for index, parameter in enumerate(self.parameters)
        ]
        given = {p.position: s for p, s in zip(self.parameters, shaped, strict=True)}
        inputs = [
            given[position] if isinstance(value, TensorSpec) else value
            for position, value in enumerate(self.description.inputs)
            if not isinstance(value, OtherSpec)
        ]
        substitutes = {place: size for group, size in sizes.items() for place in group.follows}
        try:
            outputs, states = self.task.probe(inputs, substitutes)
        except TaskFailure:
            return None
        for parameter, spec in zip(self.parameters, shaped, strict=True):
            if parameter.state is not None and states.get(parameter.state) != spec.shape:
                return None
        if len(outputs) != len(self.description.outputs):
            return None
        return outputs


def _named(task: WorkerTask, parameters: Sequence[_Parameter], seed: int) -> dict[Axis, str]:
    """The axes of inputs that follow a number of the task's file (`rows = 1024`), where another one
    has the same value, or a literal could: those that follow no number are left out."""
    numbers = _numbers(task.path)
    shapes = [parameter.specification.shape for parameter in parameters]
    sizes = [size for shape in shapes for size in shape]
    doubtful = {n: v for n, v in numbers.items() if v > 1 and sizes.count(v) > 1}
    if not doubtful:
        return {}
    other = {n: v // 2 if v % 2 == 0 and v > 2 else v + 1 for n, v in doubtful.items()}
    index = {p.position: number for number, p in enumerate(parameters) if p.position is not None}
    try:
        found = task.following(other, seed)
    except TaskFailure:
        return {}
    return {
        (index[position], axis): name
        for name, axes in found.items()
        for position, axis in axes
        if position in index
    }


def _numbers(path: Path) -> dict[str, int]:
    """The whole numbers that a file gives names at its top level."""
    found: dict[str, int] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        pairs: list[tuple[ast.expr, ast.expr | None]] = []
        match node:
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) if len(names) == len(values):
                pairs = list(zip(names, values, strict=True))
            case ast.Assign(targets, value):
                pairs = [(target, value) for target in targets]
            case ast.AnnAssign(name, value=value):
                pairs = [(name, value)]
            case _:
                pass
        for pair in pairs:
            match pair:
                case ast.Name(text), ast.Constant(int(number)) if not isinstance(number, bool):
                    found[text] = number
                case _:
                    pass
    return found


def _groups(prober: _Prober, named: Mapping[Axis, str]) -> list[_Group]:
    """Axes of one size as one group where the task agrees; else smaller groups; else none. Axes
    that follow different numbers of the file are different groups where the task agrees."""
    by_size: dict[int, list[Axis]] = {}
    for index, parameter in enumerate(prober.parameters):
        for axis, size in enumerate(parameter.specification.shape):
            if size > 1:  # an extent of 1 is there to be repeated, or a batch of one
                by_size.setdefault(size, []).append((index, axis))
    found: list[_Group] = []
    for size, axes in by_size.items():
        found += _apart(prober, tuple(axes), size, named)
    return sorted(found, key=lambda group: group.axes)[: len(_NAMES)]


def _apart(
    prober: _Prober, axes: tuple[Axis, ...], size: int, named: Mapping[Axis, str]
) -> list[_Group]:
    """The groups that some axes of one size form: those that follow one number of the file, each
    with as few others as the task lets it have; what is left as `_parts` says."""
    left = axes
    found: list[_Group] = []
    reserve = max(prober.left - _MOST_NAMED, _MOST_NAMED)
    for name in dict.fromkeys(named[axis] for axis in axes if axis in named):
        own = tuple(axis for axis in left if named.get(axis) == name)
        others = tuple(axis for axis in left if axis not in named)
        for extra in (e for n in range(len(others) + 1) for e in itertools.combinations(others, n)):
            if prober.left <= reserve:
                break
            chosen = tuple(sorted((*own, *extra)))
            group = _group(prober, chosen, size)
            if group is not None:
                found.append(group)
                left = tuple(axis for axis in left if axis not in chosen)
                break
    return [*found, *_parts(prober, left, size)]


def _parts(prober: _Prober, axes: tuple[Axis, ...], size: int) -> list[_Group]:
    """The groups that some axes of one size form: the largest first."""
    for count in range(len(axes), 0, -1):
        for chosen in itertools.combinations(axes, count):
            if prober.left <= 0:
                return []
            group = _group(prober, chosen, size)
            if group is not None:
                rest = tuple(axis for axis in axes if axis not in chosen)
                return [group, *_parts(prober, rest, size)]
    return []


def _group(prober: _Prober, axes: tuple[Axis, ...], size: int) -> _Group | None:
    """The axes as one group, if the task takes them at two other sizes."""
    init = prober.description.init_inputs
    places = [p for p, v in enumerate(init) if type(v) is int and v == size]
    followed = [
        chosen
        for count in range(len(places), -1, -1)
        for chosen in itertools.combinations(places, count)
    ]
    for follows, base in itertools.product(followed, (0, size)):
        group = _Group(axes, size, follows, base)
        if all(prober.outputs({group: base + step}) is not None for step in (_PRIMES[0], 8)):
            return group
    return None


def _joint(prober: _Prober, groups: list[_Group]) -> list[_Group]:
    """The groups that may all vary at once; those that stand in the way keep their size."""
    while groups and prober.outputs(_point(groups, 0)) is None:
        better = (
            [group for group in groups if group is not left_out]
            for left_out in reversed(groups)
            if prober.outputs(_point([g for g in groups if g is not left_out], 0)) is not None
        )
        groups = next(better, groups[:-1])
    return groups


def _point(groups: Sequence[_Group], number: int) -> dict[_Group, int]:
    """Distinct sizes for all groups; another set for each number."""
    return {
        group: group.base + _PRIMES[(place + 3 * number) % len(_PRIMES)]
        for place, group in enumerate(groups)
    }


# ---------------------------------------------------------------- outputs


def _outputs(
    prober: _Prober, groups: Sequence[_Group]
) -> Iterator[tuple[tuple[ir.Expr, ...], DType]]:
    """The extents and types of the outputs, learnt at three sets of sizes."""
    prober.left = max(prober.left, 3)
    points = [_point(groups, number) for number in range(3)] if groups else []
    runs = [prober.outputs(point) for point in points]
    for number, output in enumerate(prober.description.outputs):
        extents = []
        for axis, own in enumerate(output.shape):
            values = [run[number].shape[axis] for run in runs if run is not None]
            extents.append(_fitted(own, values, points, groups))
        yield tuple(extents), output.dtype


def _fitted(
    own: int,
    values: Sequence[int],
    points: Sequence[Mapping[_Group, int]],
    groups: Sequence[_Group],
) -> ir.Expr:
    """The expression that is `own` at the task's sizes and `values` at the points."""
    wanted = [*values, own]
    if len(set(wanted)) == 1:
        return ir.Literal(own)
    at = [*points[: len(values)], {group: group.size for group in groups}]
    named = [
        (ir.Ref(_NAMES[place], ir.NameKind.SYMBOL), [point[group] for point in at])
        for place, group in enumerate(groups)
    ]
    for symbol, sizes in named:
        for expression, results in _of_one(symbol, sizes, wanted):
            if results == wanted:
                return expression
    for (left, first), (right, second) in itertools.combinations(named, 2):
        pairs = list(zip(first, second, strict=True))
        if [a * b for a, b in pairs] == wanted:
            return ir.Binary("*", left, right)
        if [a + b for a, b in pairs] == wanted:
            return ir.Binary("+", left, right)
    msg = (
        f"an extent of the task's outputs ({own}) follows the inputs in no simple way: "
        "write a sketch for this task"
    )
    raise UsageError(msg)


def _of_one(
    symbol: ir.Ref, sizes: Sequence[int], wanted: Sequence[int]
) -> Iterator[tuple[ir.Expr, list[int]]]:
    """Expressions in one symbol n with their values: a*n + b, and (n + b)//s + 1."""
    yield symbol, list(sizes)
    step = sizes[1] - sizes[0]
    if step and (wanted[1] - wanted[0]) % step == 0:
        factor = (wanted[1] - wanted[0]) // step
        shift = wanted[0] - factor * sizes[0]
        scaled = symbol if factor == 1 else ir.Binary("*", ir.Literal(factor), symbol)
        yield _plus(scaled, shift), [factor * size + shift for size in sizes]
    for stride in (2, 3, 4, 5, 6, 7, 8, 16, 32):
        for shift in range(-32, 33):
            results = [(size + shift) // stride + 1 for size in sizes]
            if results == list(wanted):
                whole = ir.Binary("//", _plus(symbol, shift), ir.Literal(stride))
                yield _plus(whole, 1), results


def _plus(expression: ir.Expr, shift: int) -> ir.Expr:
    if shift == 0:
        return expression
    return ir.Binary("+" if shift > 0 else "-", expression, ir.Literal(abs(shift)))
