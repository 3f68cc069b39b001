"""A sketch without a body for a task: what a kernel is called with, where no sketch exists.

`signature_of` names the tensors of `forward`, then the model's parameters and buffers, the numbers
as params, and the outputs. An extent becomes a symbol where building and running the task at other
sizes shows that it may vary; what cannot be varied stays a literal. Extents of outputs are formulas
that hold at every size that was asked for (`extents`).

An axis that may vary belongs to a `Group`: one symbol of the signature. Extents of one size are one
group as long as the task agrees, unless the file has a number of its own for each (`rows = 1024`,
`columns = 1024`) or another of the task's lists of inputs tells them apart. What cannot be varied
belongs to none.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.interpreter.launch import show_declaration
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.show import show
from sketchc.ir.walk import free_name
from sketchc.lowering.plan import Plan
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import (
    OtherSpec,
    Scalar,
    TaskDescription,
    TaskFailure,
    TensorSpec,
    number_name,
)
from sketchc.runtime.tasks.extents import Question, solve

#: Sizes to probe with: distinct primes, small, and hardly ever a size of a task.
PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
#: So many groups at most.
MOST_GROUPS = len(PRIMES)
#: The task is asked so many times at most ...
_MOST_PROBES = 200
#: ... half of that to find which extents follow a number of the file ...
_MOST_NAMED = _MOST_PROBES // 2
#: ... then so many times to find which groups vary at once ...
_MOST_JOINT = 60
#: ... and with data, at sizes of so few elements.
_MOST_REAL = 160
_REAL_ELEMENTS = 1 << 17
_REAL_RUNS = 3

#: One axis of one parameter: (index of the parameter, axis).
Axis = tuple[int, int]


@attrs.frozen
class Parameter:
    """One tensor that the kernel reads: of forward (`position`) or of the model (`state`)."""

    name: str
    specification: TensorSpec
    position: int | None = None
    state: str | None = None


@attrs.frozen
class Group:
    """Axes that vary together, with the init inputs that follow them. `base` is 0 where the task
    takes small sizes, else the task's own size: probes add multiples of `step` to it. `factors`:
    axes that are so many times as long as the others. `most`: the largest size in the task's lists
    of inputs that are for one signature."""

    axes: tuple[Axis, ...]
    size: int
    follows: tuple[int, ...]
    base: int
    step: int = 1
    factors: tuple[tuple[Axis, int], ...] = ()
    most: int = attrs.field(kw_only=True)

    def at(self, number: int) -> int:
        """The size of the group in probe `number`."""
        return self.base + number * self.step

    def joined(self, other: Group) -> Group:
        """One group of the axes of this group and of `other`."""
        return Group(
            tuple(sorted((*self.axes, *other.axes))),
            self.size,
            tuple(sorted({*self.follows, *other.follows})),
            max(self.base, other.base),
            math.lcm(self.step, other.step),
            (*self.factors, *other.factors),
            most=max(self.most, other.most),
        )

    def extents(self, size: int) -> dict[Axis, int]:
        """The extents of all its axes at a size of the group."""
        factors = dict(self.factors)
        return {axis: size * factors.get(axis, 1) for axis in self.axes}


@attrs.define
class Prober:
    """Asks the task about other sizes, a limited number of times."""

    task: TaskClient
    description: TaskDescription
    parameters: Sequence[Parameter]
    left: int = _MOST_PROBES
    #: Earlier answers, by the shapes and init inputs of the probe.
    _answers: dict[tuple[object, ...], tuple[TensorSpec, ...] | None] = attrs.field(
        init=False, factory=dict
    )

    def shapes(self, sizes: Mapping[Group, int]) -> list[TensorSpec]:
        """The specifications of the parameters when the groups have these sizes."""
        at: dict[Axis, int] = {}
        for group, size in sizes.items():
            at |= group.extents(size)
        return [
            attrs.evolve(
                parameter.specification,
                shape=tuple(
                    at.get((index, axis), size)
                    for axis, size in enumerate(parameter.specification.shape)
                ),
            )
            for index, parameter in enumerate(self.parameters)
        ]

    def given(
        self, sizes: Mapping[Group, int]
    ) -> tuple[list[TensorSpec | Scalar | None], dict[int, Scalar]]:
        """Forward's inputs and the init inputs (by position) when the groups have these sizes."""
        shaped = self.shapes(sizes)
        at = {p.position: s for p, s in zip(self.parameters, shaped, strict=True)}
        inputs = [
            at[position]
            if isinstance(value, TensorSpec)
            else None
            if isinstance(value, OtherSpec)
            else value
            for position, value in enumerate(self.description.inputs)
        ]
        return inputs, {place: size for group, size in sizes.items() for place in group.follows}

    def outputs(
        self, sizes: Mapping[Group, int], *, real: bool = False
    ) -> tuple[TensorSpec, ...] | None:
        """The outputs when the groups have these sizes; None when the task refuses them, or has
        been asked too often. `real`: run with data, so that the framework makes every check."""
        shaped = self.shapes(sizes)
        inputs, substitutes = self.given(sizes)
        asked = (*(spec.shape for spec in shaped), *sorted(substitutes.items()), real)
        if asked not in self._answers:
            if self.left <= 0:
                return None
            self.left -= 1
            self._answers[asked] = self._asked(shaped, inputs, substitutes, real)
        return self._answers[asked]

    def _asked(
        self,
        shaped: Sequence[TensorSpec],
        inputs: Sequence[TensorSpec | Scalar | None],
        substitutes: Mapping[int, Scalar],
        real: bool,
    ) -> tuple[TensorSpec, ...] | None:
        try:
            outputs, states = self.task.probe(inputs, substitutes, real=real)
        except TaskFailure:
            return None
        if len(states) != sum(parameter.state is not None for parameter in self.parameters):
            return None  # a model of more layers
        for parameter, spec in zip(self.parameters, shaped, strict=True):
            if parameter.state is not None and states.get(parameter.state) != spec.shape:
                return None
        if len(outputs) != len(self.description.outputs):
            return None
        return outputs


def find_groups(prober: Prober) -> list[Group]:
    """The groups, in the order of their axes; they may all vary at once."""
    named = _named(prober.task, prober.parameters)
    by_size: dict[tuple[int, ...], list[Axis]] = {}
    for axis, sizes in _sizes(prober).items():
        if max(sizes) > 1:  # an extent of 1 is broadcast, or a batch of one
            by_size.setdefault(sizes, []).append(axis)
    found: list[Group] = []
    for sizes, axes in by_size.items():
        found += _apart(prober, tuple(axes), sizes, named)
    firm = {axis for group in found if not group.base for axis in group.axes}
    grouped = {axis for group in found for axis in group.axes}
    multiples = list(_multiples(prober, by_size, firm, grouped))
    taken = {axis for group in multiples for axis in group.axes}
    found = [*(group for group in found if taken.isdisjoint(group.axes)), *multiples]
    grouped |= taken
    for sizes, axes in by_size.items():
        left = tuple(axis for axis in axes if axis not in grouped)
        found += _parts(prober, left, sizes, steps=True)
    groups = sorted(found, key=lambda group: group.axes)[:MOST_GROUPS]
    prober.left = max(prober.left, _MOST_JOINT)
    return _mended(prober, _joint(prober, groups))


def point(groups: Sequence[Group]) -> dict[Group, int]:
    """A size for each group, by distinct primes."""
    return {
        group: group.at(prime) for group, prime in zip(groups, PRIMES[: len(groups)], strict=True)
    }


def alike(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two lists of inputs are for one signature: tensors of the same types and ranks,
    numbers of the same types, and all other values the same."""

    def kind(value: object) -> object:
        if isinstance(value, TensorSpec):
            return value.dtype, len(value.shape)
        return value if isinstance(value, OtherSpec) else type(value)

    return [kind(value) for value in one] == [kind(value) for value in other]


def _sizes(prober: Prober) -> dict[Axis, tuple[int, ...]]:
    """The sizes of each axis in the task's lists of inputs that are for one signature."""
    own = prober.description.inputs
    lists = [own, *(values for values in prober.description.others if alike(values, own))]
    found: dict[Axis, tuple[int, ...]] = {}
    for index, parameter in enumerate(prober.parameters):
        for axis, size in enumerate(parameter.specification.shape):
            sizes = [size] * len(lists)
            if parameter.position is not None:
                given = [values[parameter.position] for values in lists]
                sizes = [v.shape[axis] for v in given if isinstance(v, TensorSpec)]
            found[index, axis] = tuple(sizes)
    return found


# ---------------------------------------------------------------- numbers of the file


def _named(task: TaskClient, parameters: Sequence[Parameter]) -> dict[Axis, str]:
    """The axes of inputs that follow a number of the task's file (`rows = 1024`), with its name,
    where several extents have this value; axes that follow no number are left out."""
    numbers = _numbers(task.path)
    shapes = [parameter.specification.shape for parameter in parameters]
    sizes = [size for shape in shapes for size in shape]
    doubtful = {n: v for n, v in numbers.items() if v > 1 and sizes.count(v) > 1}
    if not doubtful:
        return {}
    other = {n: v // 2 if v % 2 == 0 and v > 2 else v + 1 for n, v in doubtful.items()}
    index = {p.position: number for number, p in enumerate(parameters) if p.position is not None}
    try:
        found = task.following(other)
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
        pairs: Iterable[tuple[ast.expr, ast.expr | None]] = ()
        match node:
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) if len(names) == len(values):
                pairs = zip(names, values, strict=True)
            case ast.Assign(targets, value):
                pairs = [(target, value) for target in targets]
            case ast.AnnAssign(name, value=value):
                pairs = [(name, value)]
        for target, value in pairs:
            number = value.value if isinstance(value, ast.Constant) else None
            if isinstance(target, ast.Name) and type(number) is int:
                found[target.id] = number
    return found


# ---------------------------------------------------------------- groups


def _apart(
    prober: Prober, axes: tuple[Axis, ...], sizes: tuple[int, ...], named: Mapping[Axis, str]
) -> list[Group]:
    """The groups that some axes of one size form: for each number of the file the axes that follow
    it, with as few others as the task allows; of the axes left, those of `_parts`."""
    left = axes
    found: list[Group] = []
    reserve = max(prober.left - _MOST_NAMED, _MOST_NAMED)
    for name in dict.fromkeys(named[axis] for axis in axes if axis in named):
        own = tuple(axis for axis in left if named.get(axis) == name)
        others = tuple(axis for axis in left if axis not in named)
        for extra in (e for n in range(len(others) + 1) for e in itertools.combinations(others, n)):
            if prober.left <= reserve:
                break
            chosen = tuple(sorted((*own, *extra)))
            group = _group(prober, chosen, sizes)
            if group is not None:
                found.append(group)
                left = tuple(axis for axis in left if axis not in chosen)
                break
    return [*found, *_parts(prober, left, sizes)]


def _parts(
    prober: Prober, axes: tuple[Axis, ...], sizes: tuple[int, ...], *, steps: bool = False
) -> list[Group]:
    """The groups that some axes of one size form, the largest first. `steps`: groups that vary in
    steps only, which axes that vary freely need not join. Weights vary only with an init input of
    their size."""
    if all(type(value) is not int or value != sizes[0] for value in prober.description.init_inputs):
        axes = tuple(axis for axis in axes if prober.parameters[axis[0]].state is None)
    for count in range(len(axes), 0, -1):
        for chosen in itertools.combinations(axes, count):
            if prober.left <= 0:
                return []
            group = _group(prober, chosen, sizes, steps=steps)
            if group is not None:
                rest = tuple(axis for axis in axes if axis not in chosen)
                return [group, *_parts(prober, rest, sizes, steps=steps)]
    return []


def _group(
    prober: Prober, axes: tuple[Axis, ...], sizes: tuple[int, ...], *, steps: bool = False
) -> Group | None:
    """The axes as one group, if the task takes them at two other sizes; else None. As few init
    inputs as possible follow them: a stride that happens to equal the kernel's size stays what it
    is. `steps`: axes that vary from list to list may do so in steps, the smallest that divides all
    sizes and that the task takes."""
    init, size = prober.description.init_inputs, sizes[0]
    places = [p for p, v in enumerate(init) if type(v) is int and v == size]
    ways = [(0, 1), (size, 1)]
    if steps:
        whole = math.gcd(*sizes) if len(set(sizes)) > 1 else 1
        found = [step for step in range(2, whole + 1) if whole % step == 0]
        ways = [(0, step) for step in found] + [(size, step) for step in found[-1:]]
    for count in range(len(places) + 1):
        for follows in itertools.combinations(places, count):
            for base, step in ways:
                group = Group(axes, size, follows, base, step, most=max(sizes))
                # Sizes above the own one may be taken up to the next multiple only: patches of 16.
                tried = (PRIMES[0], 8, *([size // step] if base else []))
                if all(prober.outputs({group: group.at(n)}) is not None for n in tried):
                    return group
    return None


def _multiples(
    prober: Prober,
    by_size: Mapping[tuple[int, ...], Sequence[Axis]],
    firm: set[Axis],
    grouped: set[Axis],
) -> Iterator[Group]:
    """Groups of axes that vary only together with others that are so many times as long: half of a
    row beside the row. Axes that are `grouped` by themselves, but not at small sizes, are included
    where the task then takes small ones; those that are `firm` stay."""
    left = {
        sizes: kept
        for sizes, axes in by_size.items()
        if (kept := tuple(axis for axis in axes if axis not in firm))
    }
    for small, large in itertools.permutations(sorted(left), 2):
        factors = {n // m for n, m in zip(large, small, strict=True) if m and n % m == 0}
        exact = all(m and n % m == 0 for n, m in zip(large, small, strict=True))
        if not exact or len(factors) != 1 or small not in left or large not in left:
            continue
        (factor,) = factors
        scaled = tuple((axis, factor) for axis in left[large])
        axes = tuple(sorted((*left[small], *left[large])))
        for base in (0, small[0]) if grouped.isdisjoint(axes) else (0,):
            group = Group(axes, small[0], (), base, factors=scaled, most=max(small))
            if all(prober.outputs({group: group.at(n)}) is not None for n in (PRIMES[0], 8)):
                del left[small], left[large]
                yield group
                break


def _joint(prober: Prober, groups: list[Group]) -> list[Group]:
    """The groups that may all vary at once; those that stand in the way keep their size."""
    while groups and prober.outputs(point(groups)) is None:
        better = (
            [group for group in groups if group is not left_out]
            for left_out in reversed(groups)
            if prober.outputs(point([g for g in groups if g is not left_out])) is not None
        )
        groups = next(better, groups[:-1])
    return groups


# ---------------------------------------------------------------- with data


def _mended(prober: Prober, groups: list[Group]) -> list[Group]:
    """The groups, changed until the task takes them with data, too: a run on shapes alone does not
    make every check. Groups of one size become one, or a group keeps its size, where that helps."""
    prober.left = max(prober.left, _MOST_REAL)
    if _runs(prober, groups):
        return groups
    for changed in itertools.islice(_changes(groups), _MOST_REAL):
        if prober.left > 0 and _runs(prober, changed):
            return changed
    return groups


def _changes(groups: list[Group]) -> Iterator[list[Group]]:
    """The groups with two of one size joined, or with one left out; then with two changes."""

    def once(groups: list[Group]) -> Iterator[list[Group]]:
        for one, other in itertools.combinations(groups, 2):
            if one.size == other.size:
                rest = [group for group in groups if group not in (one, other)]
                yield sorted([*rest, one.joined(other)], key=lambda group: group.axes)
        for group in groups:
            yield [other for other in groups if other is not group]

    yield from once(groups)
    for changed in once(groups):
        yield from once(changed)


def _runs(prober: Prober, groups: Sequence[Group]) -> bool:
    """Whether the task takes small sizes with data that it takes without, at all that are tried:
    one size may have a divisor that another lacks. True where none of the sizes is small enough, or
    the task takes none of them without data."""
    chance = random.Random(0)
    tried = 0
    for _ in range(8):
        numbers = chance.sample(range(2, 2 + max(8, len(groups))), len(groups))
        at = {group: group.at(number) for group, number in zip(groups, numbers, strict=True)}
        elements = sum(math.prod(spec.shape) for spec in prober.shapes(at))
        if elements <= _REAL_ELEMENTS and prober.outputs(at) is not None:
            if prober.outputs(at, real=True) is None:
                return False
            tried += 1
            if tried == _REAL_RUNS:
                break
    return True


_NAMES = tuple(letter * times for times in range(1, 13) for letter in "MNKPQRSUVW")
#: The task is asked so many times at most to find the extents of its outputs.
_MOST_QUESTIONS = 500
#: Small sizes at which formulas are checked, and how far above its own size a group is tried.
_SMALL = (1, 2, 3, 5)
_LARGER = (1, 3, 8)
#: Names that no tensor gets: sizes of tiles, and what every target calls its result.
_WORDS = frozenset({"T", "TM", "TN", "TK", "TQ", "TS", "TD", "TH", "out"})
#: Those, and symbols: a tensor is called so only where it is forward's argument of this name, and
#: then no symbol is.
_RESERVED = _WORDS | {*_NAMES}


@attrs.frozen
class Signature:
    """The declarations of a task as a `sketch`, the `prober` that asks the task at other sizes, and
    the `groups` that vary, in the order of the sketch's symbols."""

    sketch: ir.Sketch
    prober: Prober
    groups: Sequence[Group]


def symbol_names(parameters: Sequence[Parameter]) -> list[str]:
    """The names of symbols, in order: letters that no tensor has."""
    taken = {parameter.name for parameter in parameters}
    return [name for name in _NAMES if name not in taken]


def signature_of(task: TaskClient, name: str) -> ir.Sketch:
    """The sketch of a task's signature; see `read_signature`."""
    return read_signature(task, name).sketch


def read_signature(
    task: TaskClient,
    name: str,
    windows: bool = True,
    *,
    varies: Callable[[int], bool] = lambda _: True,
    copied: bool = False,
) -> Signature:
    """The signature of a task: forward's tensors, then parameters and buffers, then outputs;
    forward's numbers are params with the task's own values as defaults. The inputs that a task
    without results writes into are inout.

    Numbers among the model's attributes are constants of the task: a kernel holds them itself. What
    else forward takes (a text, None, a tuple of numbers) is a constant, too. `windows`: whether the
    window sizes of the model's weights vary, where the task lets them; `varies`: whether the group
    of this number does, or keeps the task's own size; `copied`: whether forward's tensors have the
    names of its arguments, not X, X2 and so on. Raises `UsageError` when an output's extent
    follows the inputs in no simple way.
    """
    description = task.describe()
    parameters = tuple(_parameters(description, copied))
    in_place = description.written if description.returns == "none" else frozenset[int]()
    prober = Prober(task, description, parameters)
    groups = find_groups(prober)
    if not windows:
        groups = [group for group in groups if not _is_window(parameters, group)]
    groups = [group for number, group in enumerate(groups) if varies(number)]
    groups, formulas = (groups, []) if in_place else _solved(prober, groups)
    used = {parameter.name for parameter in parameters}
    outputs = () if in_place else description.outputs
    results = tuple(_results(outputs, formulas, used))
    sketch = ir.Sketch(
        name=name,
        symbols=tuple(map(ir.Symbol, symbol_names(parameters)[: len(groups)])),
        params=tuple(_params(description, used)),
        constants=(),
        lets=(),
        tensors=(*_inputs(parameters, groups, in_place), *results),
        views=(),
        requires=(*_steps(prober, groups), *_wide(prober, groups)),
        tiles=(),
        phases=(),
    )
    return Signature(sketch, prober, groups)


def _inputs(
    parameters: Sequence[Parameter], groups: Sequence[Group], in_place: Collection[int]
) -> Iterator[ir.Tensor]:
    """The tensors that a kernel reads; those of forward at the positions `in_place` are written."""
    symbols = {
        axis: _extent(name, factor)
        for name, group in zip(symbol_names(parameters), groups, strict=False)
        for axis, factor in group.extents(1).items()
    }
    for index, parameter in enumerate(parameters):
        specification = parameter.specification
        extents = (
            symbols.get((index, axis), ir.Literal(size))
            for axis, size in enumerate(specification.shape)
        )
        role = ir.Role.INOUT if parameter.position in in_place else ir.Role.IN
        yield ir.Tensor(parameter.name, tuple(extents), specification.dtype, role)


def _results(
    outputs: Sequence[TensorSpec], formulas: Iterable[ir.Expr], used: set[str]
) -> Iterator[ir.Tensor]:
    """The outputs; `formulas` are the extents of all, one output after another."""
    extents = iter(formulas)
    for number, output in enumerate(outputs, 1):
        name = _free_name("Y" if len(outputs) == 1 else f"Y{number}", used)
        shape = tuple(next(extents) for _ in output.shape)
        yield ir.Tensor(name, shape, output.dtype, ir.Role.OUT)


def _extent(symbol: str, factor: int) -> ir.Expr:
    """The expression `factor` times a symbol."""
    one = ir.Ref(symbol, ir.NameKind.SYMBOL)
    return one if factor == 1 else ir.Binary("*", ir.Literal(factor), one)


def _steps(prober: Prober, groups: Sequence[Group]) -> Iterator[ir.Require]:
    """Requires that the sizes of groups with a step are multiples of the step."""
    for name, group in zip(symbol_names(prober.parameters), groups, strict=False):
        if group.step > 1 and group.base % group.step == 0:
            rest = ir.Binary("%", ir.Ref(name, ir.NameKind.SYMBOL), ir.Literal(group.step))
            condition = ir.Binary("==", rest, ir.Literal(0))
            yield ir.Require(condition, show(condition))


def _wide(prober: Prober, groups: Sequence[Group]) -> Iterator[ir.Require]:
    """Requires that a group's size is at least 2, where outputs have another rank at size 1."""
    own = [len(output.shape) for output in prober.description.outputs]
    prober.left = max(prober.left, len(groups))
    for name, group in zip(symbol_names(prober.parameters), groups, strict=False):
        if group.base or group.step > 1 or group.size == 1:
            continue
        found = prober.outputs({**point(groups), group: 1})
        if found is not None and [len(output.shape) for output in found] != own:
            condition = ir.Binary(">=", ir.Ref(name, ir.NameKind.SYMBOL), ir.Literal(2))
            yield ir.Require(condition, show(condition))


def _is_window(parameters: Sequence[Parameter], group: Group) -> bool:
    """Whether a group is a size of a convolution's window, which no input has: all its axes stand
    behind the two axes of channels of a weight."""
    return all(parameters[index].state is not None and axis > 1 for index, axis in group.axes)


def shown(sketch: ir.Sketch) -> str:
    """A signature in one line."""
    params = (
        f"{param.name}: {param.dtype.value}{'' if param.default is None else f' = {param.default}'}"
        for param in sketch.params
    )
    tensors = (f"{show_declaration(tensor)} {tensor.role.value}" for tensor in sketch.tensors)
    return "; ".join((*tensors, *params))


def signature_plan(sketch: ir.Sketch, target: str, hardware: str | None = None) -> Plan:
    """A plan without phases, with which `verify` runs a kernel that has no sketch.

    Raises `UsageError` for an unknown target or chip.
    """
    from sketchc.lowering.hardware import load_hardware
    from sketchc.lowering.registry import load_target

    capabilities = load_target(target).capabilities
    chip = load_hardware(hardware or capabilities.default_hardware)
    return Plan(sketch, capabilities, chip, (), {})


# ---------------------------------------------------------------- names


def _parameters(description: TaskDescription, copied: bool) -> Iterator[Parameter]:
    used: set[str] = set()
    for position, value in enumerate(description.inputs):
        if isinstance(value, TensorSpec):
            name = f"X{position + 1}" if position else "X"
            if copied and position < len(description.names):
                own = _identifier(description.names[position])
                if own.isascii() and own not in _WORDS:
                    used.add(name := free_name(own, used))
                    yield Parameter(name, value, position=position)
                    continue
            name = _free_name(name, used)
            yield Parameter(name, value, position=position)
    # `bind` takes a tensor named like the last part of a state's name for the first such state.
    first: dict[str, str] = {}
    for spec in description.state:
        first.setdefault(spec.name.rpartition(".")[2].lower(), spec.name)
    for spec in description.state:
        name = _free_name(_identifier(spec.name), used)
        if first.get(name.lower(), spec.name) != spec.name:
            name = _free_name(f"P_{name}", used)
        yield Parameter(name, spec, state=spec.name)


def _identifier(name: str) -> str:
    """`layers.0.weight` as a name of a tensor: LAYERS_0_WEIGHT."""
    plain = re.sub(r"\W+", "_", name).strip("_").upper()
    return plain if plain and not plain[0].isdigit() else f"P_{plain}"


def _free_name(wanted: str, used: set[str]) -> str:
    name = free_name(wanted, used | _RESERVED)
    used.add(name)
    return name


def _params(description: TaskDescription, used: set[str]) -> Iterator[ir.Param]:
    """A param for each number that forward takes."""
    for position, value in enumerate(description.inputs):
        if isinstance(value, bool | int | float):
            dtype = DType.F64
            if not isinstance(value, float):
                dtype = DType.BOOL if isinstance(value, bool) else DType.I64
            yield ir.Param(_free_name(number_name(position), used), dtype, value)


# ---------------------------------------------------------------- outputs


def _solved(prober: Prober, groups: list[Group]) -> tuple[list[Group], list[ir.Expr]]:
    """The groups that vary, and the extents of all outputs, learnt at other sizes. A group that the
    model cuts keeps its size: `x[:, :48]` is 48 wide from 48 on. Raises `UsageError`."""
    while True:
        prober.left = max(prober.left, _MOST_QUESTIONS)
        found = _extents(prober, groups)
        cut = [group for group in groups if _is_cut(prober, groups, group, found)]
        if not cut:
            break
        groups = [group for group in groups if group not in cut]
    formulas = [expression for expression in found if expression is not None]
    if len(formulas) < len(found):
        sizes = [size for output in prober.description.outputs for size in output.shape]
        refuse(
            f"an extent of the task's outputs ({sizes[found.index(None)]}) follows the inputs in "
            "no simple way: write a sketch for this task"
        )
    return groups, formulas


def _extents(prober: Prober, groups: Sequence[Group]) -> list[ir.Expr | None]:
    """The formula of each extent of the outputs; None for one that has none."""
    question = Question(
        start=tuple(point(groups).values()),
        own=tuple(group.size for group in groups),
        wanted=_flat(prober.description.outputs),
        steps=tuple(group.step for group in groups),
    )
    letters = symbol_names(prober.parameters)[: len(groups)]
    names = [ir.Ref(name, ir.NameKind.SYMBOL) for name in letters]
    return solve(lambda sizes: _asked(prober, groups, sizes), question, names)


def _asked(prober: Prober, groups: Sequence[Group], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The extents of the outputs at these sizes; None where the task refuses them."""
    own = prober.description.outputs
    found = prober.outputs(dict(zip(groups, sizes, strict=True)))
    if found is None or [len(o.shape) for o in found] != [len(o.shape) for o in own]:
        return None
    return _flat(found)


def _flat(outputs: Sequence[TensorSpec]) -> tuple[int, ...]:
    return tuple(size for output in outputs for size in output.shape)


def _is_cut(
    prober: Prober, groups: Sequence[Group], group: Group, found: Sequence[ir.Expr | None]
) -> bool:
    """Whether extents that follow `group` at small sizes, but not by their formulas, are the same
    from the task's own size on."""
    own, wanted = {g: g.size for g in groups}, _flat(prober.description.outputs)
    doubtful: set[int] = set()
    for size in _SMALL:
        at = {**point(groups), group: size}
        names = dict(zip(symbol_names(prober.parameters), at.values(), strict=False))
        formulas = [None if e is None else max(int(evaluate(e, names)), 0) for e in found]
        doubtful |= _differing(_asked(prober, groups, tuple(at.values())), formulas)
        if None in found:
            answer = _asked(prober, groups, tuple({**own, group: size}.values()))
            kept = [v if e is None else None for v, e in zip(wanted, found, strict=True)]
            doubtful |= _differing(answer, kept)
    if not doubtful:
        return False
    larger = [group.size + number * group.step for number in _LARGER]
    answers = [_asked(prober, groups, tuple({**own, group: size}.values())) for size in larger]
    return all(a is not None and not _differing(a, wanted) & doubtful for a in answers)


def _differing(answer: Sequence[int] | None, wanted: Sequence[int | None]) -> set[int]:
    """The indices at which `answer` differs from `wanted`; None in `wanted` allows any value."""
    return {
        place
        for place, (have, want) in enumerate(zip(answer or (), wanted, strict=False))
        if want is not None and have != want
    }
