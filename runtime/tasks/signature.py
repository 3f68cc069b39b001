"""A sketch without a body for a task: what a kernel is called with, where no sketch exists.

`signature_of` names the tensors of `forward`, then the model's parameters and buffers, the numbers
as params, and the outputs. An extent becomes a symbol where building and running the task at other
sizes shows that it may vary (`varying`); what cannot be varied stays a literal. Extents of outputs
are formulas that hold at every size that was asked for (`extents`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import DType
from sketchc.interpreter.launch import show_declaration
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.lowering.plan import Plan
from sketchc.runtime.tasks.client import WorkerTask
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec
from sketchc.runtime.tasks.extents import Question, solve
from sketchc.runtime.tasks.varying import Group, Parameter, Prober, find_groups, point

_NAMES = ("M", "N", "K", "P", "Q", "R", "S", "T", "U", "V", "W", "A", "B", "C", "D", "E")
#: The task is asked so many times at most to find the extents of its outputs.
_MOST_QUESTIONS = 500
#: Small sizes at which formulas are looked at, and how far above its own size a group is tried.
_SMALL = (1, 2, 3, 5)
_LARGER = (1, 3, 8)
_RESERVED = frozenset({*_NAMES, "out"})


def signature_of(task: WorkerTask, name: str, seed: int = 0) -> ir.Sketch:
    """The signature of a task: forward's tensors, then parameters and buffers, then outputs;
    forward's numbers are params with the task's own values as defaults. What a task that returns
    nothing writes into is inout.

    Numbers among the model's attributes are constants of the task: a kernel holds them itself.
    What else forward takes (a text, None, a tuple of numbers) is a constant, too. Raises
    `UsageError` when an output's extent follows the inputs in no simple way.
    """
    description = task.describe(seed)
    parameters = tuple(_parameters(description))
    in_place = description.written if description.returns == "none" else frozenset[int]()
    prober = Prober(task, description, parameters)
    groups = find_groups(prober, seed)
    groups, formulas = (groups, []) if in_place else _solved(prober, groups)
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
    extents = iter(formulas)
    results = [
        ir.Tensor(
            _free_name(_output_name(number, description), used),
            tuple(next(extents) for _ in output.shape),
            output.dtype,
            ir.Role.OUT,
        )
        for number, output in enumerate(() if in_place else description.outputs)
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


def _parameters(description: TaskDescription) -> Iterator[Parameter]:
    used: set[str] = set()
    for position, value in enumerate(description.inputs):
        if isinstance(value, TensorSpec):
            name = _free_name(f"X{position + 1}" if position else "X", used)
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


# ---------------------------------------------------------------- outputs


def _solved(prober: Prober, groups: list[Group]) -> tuple[list[Group], list[ir.Expr]]:
    """The groups, and the extents of all outputs in order, learnt at other sizes. What the model
    cuts keeps its size: `x[:, :48]` is 48 wide from 48 on, and no formula says what it is below."""
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
        msg = (
            f"an extent of the task's outputs ({sizes[found.index(None)]}) follows the inputs in "
            "no simple way: write a sketch for this task"
        )
        raise UsageError(msg)
    return groups, formulas


def _extents(prober: Prober, groups: Sequence[Group]) -> list[ir.Expr | None]:
    """The formula of each extent; None where there is none."""
    question = Question(
        start=tuple(point(groups).values()),
        own=tuple(group.size for group in groups),
        wanted=_flat(prober.description.outputs),
        steps=tuple(group.step for group in groups),
    )
    names = [ir.Ref(name, ir.NameKind.SYMBOL) for name in _NAMES[: len(groups)]]
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
    """Whether extents that follow a group at small sizes, and not as their formulas say, are the
    same from the task's own size on."""
    own, wanted = {g: g.size for g in groups}, _flat(prober.description.outputs)
    doubtful: set[int] = set()
    for size in _SMALL:
        at = {**point(groups), group: size}
        names = dict(zip(_NAMES, at.values(), strict=False))
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
    """The extents that an answer has otherwise; those of which nothing is wanted do not count."""
    return {
        place
        for place, (have, want) in enumerate(zip(answer or (), wanted, strict=False))
        if want is not None and have != want
    }
