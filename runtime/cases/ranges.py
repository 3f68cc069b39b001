"""What a task's hints mean for a sketch: the sizes of its symbols, and the values of its inputs."""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.ir import nodes as ir
from sketchc.runtime.tasks.description import TaskDescription, TaskFailure
from sketchc.runtime.tasks.hints import Domain, Hint, HintError


def value_domains(task: TaskDescription) -> dict[int, Domain]:
    """Position of an input -> what its values may be; a hint speaks of all parts of an argument."""
    return {
        position: hint.domain
        for hint in task.hints
        if hint.domain is not None
        for position in task.positions_of(hint.name)
    }


def symbol_domains(
    sketch: ir.Sketch,
    task: TaskDescription,
    axes: Mapping[tuple[int | None, int], ir.Tensor],
    symbols: Mapping[str, int],
) -> tuple[dict[str, Domain], list[str]]:
    """Symbol -> the sizes that hints allow, and notes on hints that restrict nothing here.

    `axes` maps (position of an input, axis) to the tensor that it fills. A name means the axes that
    it was found to stand for, else the sketch's symbol of that name. Raises `HintError` for a name
    that means nothing, and `TaskFailure` where the task's own sizes break a hint.
    """
    found: dict[str, Domain] = {}
    said: dict[str, Hint] = {}
    notes = []
    for hint in task.hints:
        if hint.domain is None or task.positions_of(hint.name):
            continue
        names = _meant(sketch, task, axes, hint, symbols)
        if not names:
            notes.append(f"the hint `{hint.text}` restricts no size of the sketch {sketch.name}")
        for name in names:
            where = f"{task.path}, line {hint.line}: the hint `{hint.text}`"
            if name in said:
                msg = f"{where} and `{said[name].text}` both speak of the sketch's {name}"
                raise HintError(msg)
            if not hint.domain.holds(symbols[name]):
                msg = f"{where} does not allow the task's own size {symbols[name]}"
                raise TaskFailure(msg)
            found[name], said[name] = hint.domain, hint
    return found, notes


def _meant(
    sketch: ir.Sketch,
    task: TaskDescription,
    axes: Mapping[tuple[int | None, int], ir.Tensor],
    hint: Hint,
    symbols: Mapping[str, int],
) -> list[str]:
    """The symbols that a hint's name stands for; none where its axes are no symbols."""
    found: dict[str, None] = {}
    for position, axis in task.axes.get(hint.name, ()):
        tensor = axes.get((position, axis))
        extent = tensor.extents[axis] if tensor is not None else None
        if isinstance(extent, ir.Ref) and extent.kind is ir.NameKind.SYMBOL:
            found[extent.name] = None
    if found or hint.name in task.axes:
        return list(found)
    if hint.name in symbols:
        return [hint.name]
    if any(constant.name == hint.name for constant in sketch.constants):
        return []
    msg = (
        f"{task.path}, line {hint.line}: the hint `{hint.text}` speaks of {hint.name}, which is no "
        f"argument of the task ({', '.join(task.names) or 'none'}), no size of its inputs, and no "
        f"symbol of the sketch {sketch.name} ({', '.join(symbols)})"
    )
    raise HintError(msg)
