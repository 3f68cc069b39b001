"""Which numbers of a task fill which params of a sketch, and what the params that are left take.

A number fills the param of its argument's name, or `number_3` if it is the third input, else the
params that are left, in order. A number that the sketch has no param for keeps the task's own
value.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import attrs

from sketchc.base.diagnostics import UsageError, refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.runtime.tasks.description import (
    Scalar,
    TaskDescription,
    TensorSpec,
    number_name,
)

#: A position of forward's inputs and its value.
Number = tuple[int, Scalar]


@attrs.frozen
class Params:
    """`values` of all params; which of forward's inputs fill which (`positions`); the inputs that
    fill none (`left_out`); and notes."""

    values: Mapping[str, Scalar]
    positions: Mapping[int, str]
    left_out: frozenset[int]
    notes: tuple[str, ...]


def numbers_of(sketch: ir.Sketch, task: TaskDescription) -> list[Number]:
    """The inputs that are numbers: tensors without axes, too, where the sketch's tensor at that
    place has axes, or there is none."""
    wanted = [t for t in sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
    found: list[Number] = []
    place = 0
    for position, value in enumerate(task.inputs):
        if isinstance(value, bool | int | float):
            found.append((position, value))
        elif isinstance(value, TensorSpec) and value.value is not None:
            if place < len(wanted) and not wanted[place].extents:
                place += 1
            else:
                found.append((position, value.value))
        elif isinstance(value, TensorSpec) or value.is_none:
            place += 1
    return found


def bind_params(
    sketch: ir.Sketch,
    task: TaskDescription,
    settings: Mapping[str, Scalar],
    numbers: Sequence[Number],
) -> Params:
    """The values of the sketch's params. Raises `UsageError` for a param without a value, and where
    it is not clear which numbers the sketch takes."""
    taken = _named(sketch, task, numbers)
    taken |= _in_order(sketch, task, settings, numbers, taken)
    values: dict[str, Scalar] = {}
    notes: list[str] = []
    given = dict(numbers)
    names = {name: position for position, name in taken.items()}
    for param in sketch.params:
        if param.name in names:
            values[param.name] = given[names[param.name]]
            if settings.get(param.name, values[param.name]) != values[param.name]:
                notes.append(
                    f"{param.name} = {values[param.name]!r}, "
                    f"{task.name_of(names[param.name])} of the task: --set does not change it"
                )
            continue
        values[param.name], note = _otherwise(sketch, param, task, settings)
        notes += [note] if note else []
    left_out = frozenset(position for position, _ in numbers if position not in taken)
    notes += [
        f"{task.name_of(position)} of the task fills no param: it is {given[position]!r} in all "
        "runs"
        for position in sorted(left_out)
    ]
    return Params(values, taken, left_out, tuple(notes))


def _named(sketch: ir.Sketch, task: TaskDescription, numbers: Sequence[Number]) -> dict[int, str]:
    """The positions of numbers whose argument has a param's name, with that name."""
    params = {param.name.lower(): param for param in sketch.params}
    found = {}
    for position, value in numbers:
        name = task.names[position].lower() if position < len(task.names) else ""
        for known in (name, number_name(position)):
            if position not in found and known in params and suits(value, params[known]):
                found[position] = params.pop(known).name
    return found


def _in_order(
    sketch: ir.Sketch,
    task: TaskDescription,
    settings: Mapping[str, Scalar],
    numbers: Sequence[Number],
    taken: Mapping[int, str],
) -> dict[int, str]:
    """The params left over for the numbers left over, in order, by position. Where there are more
    numbers than params, their types must tell which are meant. Raises `UsageError` where they do
    not."""
    left = [number for number in numbers if number[0] not in taken]
    params = [param for param in sketch.params if param.name not in taken.values()]
    if len(left) <= len(params):
        pairs = list(zip(left, params, strict=False))
        if all(suits(value, param) for (_, value), param in pairs):
            return {position: param.name for (position, _), param in pairs}
    needed = [
        param
        for param in params
        if param.default is None and param.name not in settings and param.name not in task.scalars
    ]
    for wanted in (params, needed):
        ways = [
            chosen
            for chosen in itertools.combinations(left, len(wanted))
            if all(suits(n[1], param) for n, param in zip(chosen, wanted, strict=True))
        ]
        if len(ways) == 1:
            return {n[0]: param.name for n, param in zip(ways[0], wanted, strict=True)}
        if ways:
            listed = ", ".join(f"{task.name_of(p)} = {value!r}" for p, value in left)
            refuse(
                f"the task takes the numbers {listed}, and it is not clear which of them the "
                f"sketch {sketch.name} takes: give its params the names of the task's arguments"
            )
    return {}


def suits(value: Scalar, param: ir.Param) -> bool:
    """Whether a number of the type of `value` may fill `param`."""
    if isinstance(value, bool) or param.dtype is DType.BOOL:
        return isinstance(value, bool) and param.dtype is DType.BOOL
    return param.dtype.is_float or isinstance(value, int)


def _otherwise(
    sketch: ir.Sketch, param: ir.Param, task: TaskDescription, settings: Mapping[str, Scalar]
) -> tuple[Scalar, str]:
    """The value of a param that no input fills, and a note ("" for none). Raises `UsageError`."""
    name = param.name
    if name in settings:
        own = task.scalars.get(name, settings[name])
        if own == settings[name]:
            return settings[name], ""
        return settings[name], f"{name} = {settings[name]!r} by --set; the model has {own!r}"
    if name in task.scalars:
        return task.scalars[name], f"{name} = {task.scalars[name]!r}, the model's attribute"
    if param.default is not None:
        note = f"{name} = {param.default!r}, the sketch's default: the task gives no {name}"
        found = task.constants.items()
        parts = [f"{key} = {text}" for key, text in found if key.endswith(f".{name}")]
        return param.default, f"{note} ({', '.join(parts)})" if parts else note
    msg = (
        f"the sketch {sketch.name} needs a value for {name}, which the task does not "
        f"give; say --set {name}=..."
    )
    raise UsageError(msg)
