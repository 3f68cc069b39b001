"""A sketch and a task with several lists of inputs: the first list that fits leads.

The lists of `get_inputs_dyn_list` and `get_input_groups` may differ in sizes, types and ranks. A
kernel is verified on those of its own signature; a note of the binding says which it does not
serve. `list_groups` says which lists one sketch can serve.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.ir import nodes as ir
from sketchc.runtime.cases.binding import Binding, bind
from sketchc.runtime.cases.marks import with_marks
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import InputSpec, Scalar, TaskDescription, TensorSpec
from sketchc.runtime.tasks.signature import signature_of
from sketchc.runtime.tasks.task import Task


def bind_task(
    sketch: ir.Sketch, task: Task, seed: int, settings: Mapping[str, Scalar] | None = None
) -> Binding:
    """The sketch bound to the first of the task's lists of inputs that it fits; from then on, this
    list stands for the task's own inputs.

    Raises `UsageError` with what is wrong with the first list where none fits. A list of other
    types of elements than the sketch's leads only where no other fits.
    """
    if not isinstance(task, TaskClient):
        return bind(sketch, task.describe(seed), settings)
    return with_marks(_leading(sketch, task, seed, settings), task, seed)


def _leading(
    sketch: ir.Sketch, task: TaskClient, seed: int, settings: Mapping[str, Scalar] | None
) -> Binding:
    """The sketch bound to the first list that it fits. Raises `UsageError`."""
    task.follow(0)
    first = task.describe(seed)
    found: Binding | UsageError
    try:
        found = bind(sketch, first, settings)
        if not found.other_types:
            return found
        why = "; ".join(found.other_types)
    except UsageError as error:
        found, why = error, str(error)
    for number in range(1, len(first.others) + 1):
        try:
            other = bound_to(sketch, task, number, seed, settings)
        except UsageError:  # the sketch does not fit it, or the task cannot run it
            continue
        if not other.other_types:
            leads = other.description.lists[0]
            note = f"{leads} leads, since {sketch.name} does not fit {first.lists[0]}: {why}"
            return attrs.evolve(other, notes=(note, *other.notes))
    task.follow(0)
    if isinstance(found, UsageError):
        raise found
    return found


def not_served(binding: Binding) -> Iterator[tuple[str, str]]:
    """The names of the lists that the sketch does not fit, and why."""
    description = binding.description
    for number, values in enumerate(description.others, 1):
        if why := _unfit(binding, values):
            yield list_name(description, number), why


def list_name(description: TaskDescription, number: int) -> str:
    """The title of list `number` of a task, by the order of its description."""
    if number < len(description.lists):
        return description.lists[number]
    return f"list {number + 1}"


@attrs.frozen
class OwnList:
    """One list of inputs: its `number`, its title, and why it is not timed ("" where it is)."""

    number: int
    name: str
    refused: str = ""


def other_lists(
    sketch: ir.Sketch, task: TaskClient, seed: int, settings: Mapping[str, Scalar]
) -> tuple[OwnList, ...]:
    """The lists of inputs besides the one that leads, which leads again afterwards. Of lists with
    the same sizes and numbers, only the first one is included."""
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
    sketch: ir.Sketch,
    task: TaskClient,
    number: int,
    seed: int,
    settings: Mapping[str, Scalar] | None,
) -> Binding:
    """The sketch bound to list `number`, which leads from now on. Raises `UsageError`."""
    task.follow(number)
    return bind(sketch, task.describe(seed), settings)


@attrs.frozen
class Group:
    """Lists of inputs of one signature and with the same constants: their titles, and the inputs of
    each."""

    titles: tuple[str, ...]
    inputs: tuple[tuple[InputSpec, ...], ...]


def list_groups(
    task: TaskClient, followed: Callable[[TaskClient], Collection[int]]
) -> tuple[Group, ...]:
    """The task's lists of inputs, in order, grouped by the sketch that each needs. `followed` says
    which of forward's numbers, by position, one sketch takes with any value; it is called where
    numbers differ. Raises `UsageError` where no signature can be read off the task."""
    task.follow(0)
    first = task.describe()
    values = (first.inputs, *first.others)
    left = list(range(len(values)))
    found: list[Group] = []
    try:
        while left:
            lead = left[0]
            task.follow(lead)
            binding = bind(signature_of(task, "f"), task.describe())
            alike = [n for n in left if n == lead or not _unfit(binding, values[n])]
            differ = any(_constants(values[n]) != _constants(values[lead]) for n in alike)
            open_ = followed(task) if differ else ()
            own = _constants(values[lead], open_)
            fitting = [number for number in alike if _constants(values[number], open_) == own]
            titles = (list_name(first, number) for number in fitting)
            found.append(Group(tuple(titles), tuple(values[number] for number in fitting)))
            left = [number for number in left if number not in fitting]
    finally:
        task.follow(0)
    return tuple(found)


def _unfit(binding: Binding, values: tuple[InputSpec, ...]) -> str:
    """Why the sketch does not fit a list of inputs; "" where it does."""
    try:
        binding.symbols_of(values)
    except UsageError as error:
        return str(error)
    return ""


def _constants(values: tuple[InputSpec, ...], but: Collection[int] = ()) -> dict[int, InputSpec]:
    """The values that are no tensors, by position, without those at the positions in `but`."""
    return {
        number: value
        for number, value in enumerate(values)
        if not isinstance(value, TensorSpec) and number not in but
    }
