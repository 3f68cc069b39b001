"""Which axes of a task's tensors may vary, and which vary together: found by asking the task.

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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from sketchc.runtime.tasks.client import WorkerTask
from sketchc.runtime.tasks.description import OtherSpec, TaskDescription, TaskFailure, TensorSpec

#: Sizes to probe with: distinct primes, small, and hardly ever a size of a task.
_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
#: So many groups at most.
MOST_GROUPS = len(_PRIMES)
#: The task is asked so many times at most ...
_MOST_PROBES = 200
#: ... half of that to find which extents follow a number of the file ...
_MOST_NAMED = _MOST_PROBES // 2
#: ... then so many times to find which groups vary at once ...
_MOST_JOINT = 60
#: ... and with data, at sizes of so few elements.
_MOST_REAL = 40
_REAL_ELEMENTS = 1 << 17

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
    """Axes that vary together, with the init inputs that follow them. `base` is 0 where small sizes
    do, else the task's own size: probes add multiples of `step` to it."""

    axes: tuple[Axis, ...]
    size: int
    follows: tuple[int, ...]
    base: int
    step: int = 1

    def at(self, number: int) -> int:
        return self.base + number * self.step

    def joined(self, other: Group) -> Group:
        return Group(
            tuple(sorted((*self.axes, *other.axes))),
            self.size,
            tuple(sorted({*self.follows, *other.follows})),
            max(self.base, other.base),
            math.lcm(self.step, other.step),
        )


@attrs.define
class Prober:
    """Asks the task about other sizes, a limited number of times."""

    task: WorkerTask
    description: TaskDescription
    parameters: Sequence[Parameter]
    left: int = _MOST_PROBES

    def shapes(self, sizes: Mapping[Group, int]) -> list[TensorSpec]:
        """What the parameters are when the groups have these sizes."""
        at = {axis: size for group, size in sizes.items() for axis in group.axes}
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

    def outputs(
        self, sizes: Mapping[Group, int], *, real: bool = False
    ) -> tuple[TensorSpec, ...] | None:
        """The outputs when the groups have these sizes; None when the task refuses them. `real`:
        with data, which every check of the framework's sees."""
        if self.left <= 0:
            return None
        self.left -= 1
        shaped = self.shapes(sizes)
        given = {p.position: s for p, s in zip(self.parameters, shaped, strict=True)}
        inputs = [
            given[position]
            if isinstance(value, TensorSpec)
            else None
            if isinstance(value, OtherSpec)
            else value
            for position, value in enumerate(self.description.inputs)
        ]
        substitutes = {place: size for group, size in sizes.items() for place in group.follows}
        try:
            outputs, states = self.task.probe(inputs, substitutes, real=real)
        except TaskFailure:
            return None
        for parameter, spec in zip(self.parameters, shaped, strict=True):
            if parameter.state is not None and states.get(parameter.state) != spec.shape:
                return None
        if len(outputs) != len(self.description.outputs):
            return None
        return outputs


def find_groups(prober: Prober, seed: int) -> list[Group]:
    """The groups, in the order of their axes; they may all vary at once."""
    named = _named(prober.task, prober.parameters, seed)
    by_size: dict[tuple[int, ...], list[Axis]] = {}
    for axis, sizes in _sizes(prober).items():
        if max(sizes) > 1:  # an extent of 1 is there to be repeated, or a batch of one
            by_size.setdefault(sizes, []).append(axis)
    found: list[Group] = []
    for sizes, axes in by_size.items():
        found += _apart(prober, tuple(axes), sizes, named)
    groups = sorted(found, key=lambda group: group.axes)[:MOST_GROUPS]
    prober.left = max(prober.left, _MOST_JOINT)
    return _mended(prober, _joint(prober, groups))


def point(groups: Sequence[Group]) -> dict[Group, int]:
    """Distinct sizes for all groups."""
    return {
        group: group.at(prime) for group, prime in zip(groups, _PRIMES[: len(groups)], strict=True)
    }


def alike(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two lists of inputs are for one signature: tensors of the same types and ranks,
    numbers of the same types, and what else there is the same in both."""

    def kind(value: object) -> object:
        if isinstance(value, TensorSpec):
            return value.dtype, len(value.shape)
        return value if isinstance(value, OtherSpec) else type(value)

    return [kind(value) for value in one] == [kind(value) for value in other]


def _sizes(prober: Prober) -> dict[Axis, tuple[int, ...]]:
    """What each axis is in the task's lists of inputs."""
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


def _named(task: WorkerTask, parameters: Sequence[Parameter], seed: int) -> dict[Axis, str]:
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


# ---------------------------------------------------------------- groups


def _apart(
    prober: Prober, axes: tuple[Axis, ...], sizes: tuple[int, ...], named: Mapping[Axis, str]
) -> list[Group]:
    """The groups that some axes of one size form: those that follow one number of the file, each
    with as few others as the task lets it have; what is left as `_parts` says."""
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


def _parts(prober: Prober, axes: tuple[Axis, ...], sizes: tuple[int, ...]) -> list[Group]:
    """The groups that some axes of one size form: the largest first."""
    for count in range(len(axes), 0, -1):
        for chosen in itertools.combinations(axes, count):
            if prober.left <= 0:
                return []
            group = _group(prober, chosen, sizes)
            if group is not None:
                rest = tuple(axis for axis in axes if axis not in chosen)
                return [group, *_parts(prober, rest, sizes)]
    return []


def _group(prober: Prober, axes: tuple[Axis, ...], sizes: tuple[int, ...]) -> Group | None:
    """The axes as one group, if the task takes them at two other sizes. As few init inputs follow
    them as do: a stride that happens to equal the kernel's size stays what it is. Axes that vary
    from list to list may do so in steps."""
    init, size = prober.description.init_inputs, sizes[0]
    places = [p for p, v in enumerate(init) if type(v) is int and v == size]
    ways = [(0, 1), (size, 1)]
    if len(set(sizes)) > 1 and (step := math.gcd(*sizes)) > 1:
        ways += [(0, step), (size, step)]
    for count in range(len(places) + 1):
        for follows in itertools.combinations(places, count):
            for base, step in ways:
                group = Group(axes, size, follows, base, step)
                if all(prober.outputs({group: group.at(n)}) is not None for n in (_PRIMES[0], 8)):
                    return group
    return None


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
    """The groups, so that the task takes them with data, too: what knows shapes only does not make
    every check. Groups of one size become one, or a group keeps its size, where that helps."""
    prober.left = max(prober.left, _MOST_REAL)
    if _runs(prober, groups):
        return groups
    for changed in itertools.islice(_changes(groups), _MOST_REAL):
        if prober.left > 0 and _runs(prober, changed):
            return changed
    return groups


def _changes(groups: list[Group]) -> Iterator[list[Group]]:
    """The groups with two made one, and with one left out; then with two such changes."""

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
    """Whether the task takes small sizes with data that it takes without. True where none of the
    sizes that are tried is small enough, or nothing takes them."""
    chance = random.Random(0)
    for _ in range(8):
        numbers = chance.sample(range(2, 2 + max(8, len(groups))), len(groups))
        at = {group: group.at(number) for group, number in zip(groups, numbers, strict=True)}
        elements = sum(math.prod(spec.shape) for spec in prober.shapes(at))
        if elements <= _REAL_ELEMENTS and prober.outputs(at) is not None:
            return prober.outputs(at, real=True) is not None
    return True
