"""A task with several lists of inputs (`get_inputs_dyn_list`, `get_input_groups`): which of them a
kernel is timed on besides the one that leads."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.ir import nodes as ir
from sketchc.runtime.cases.binding import Binding, bind
from sketchc.runtime.cases.lists import list_name
from sketchc.runtime.tasks.client import WorkerTask
from sketchc.runtime.tasks.description import Scalar


@attrs.frozen
class OwnList:
    """One list: its `number`, what people call it, and why it is not timed ("" where it is)."""

    number: int
    name: str
    refused: str = ""


def other_lists(
    sketch: ir.Sketch, task: WorkerTask, seed: int, settings: Mapping[str, Scalar]
) -> tuple[OwnList, ...]:
    """The lists besides the one that leads now, which leads afterwards, too. Of lists with the same
    sizes and numbers the first one stands for all."""
    lead = task.lead
    task.follow(0)
    first = task.describe(seed)
    found: list[OwnList] = []
    known = set()
    try:
        for number in sorted(range(len(first.others) + 1), key=lambda number: number != lead):
            name = list_name(first, number)
            try:
                binding = bound_to(sketch, task, number, seed, settings)
            except UsageError as error:
                found.append(OwnList(number, name, str(error)))
                continue
            sizes = (*binding.symbols.values(), *binding.params.values())
            if number != lead and sizes not in known:
                found.append(OwnList(number, name, "; ".join(binding.other_types)))
            known.add(sizes)
    finally:
        task.follow(lead)
        task.describe(seed)
    return tuple(found)


def bound_to(
    sketch: ir.Sketch, task: WorkerTask, number: int, seed: int, settings: Mapping[str, Scalar]
) -> Binding:
    """The sketch bound to one list of the task, which leads from now on. Raises `UsageError`."""
    task.follow(number)
    return bind(sketch, task.describe(seed), settings)
