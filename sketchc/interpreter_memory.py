"""Tensors in the interpreter: data, what was written, and shadow memory for R7.

Shadow memory keeps, for each element and phase, the last iteration that wrote it and one iteration
that read it. Parallel loops fork and join, so the executions form a series-parallel graph, and one
reader per element is enough when iterations run one after another (Feng and Leiserson, "Efficient
detection of determinacy races in Cilk programs", 1997).
"""

from __future__ import annotations

from typing import TypeAlias

import attrs
import numpy as np

from sketchc import ir
from sketchc.interpreter_expressions import Values
from sketchc.interpreter_tiles import Array
from sketchc.interpreter_violations import Violation, Violations, show_element, show_values
from sketchc.source import Span

#: One level of a position: the loop (by number), its variable and value, and whether its
#: iterations may run in parallel.
Level: TypeAlias = tuple[int, str, int, bool]
Path: TypeAlias = tuple[Level, ...]
Index: TypeAlias = tuple[int | slice, ...]


def runs_in_parallel(left: Path, right: Path) -> bool:
    """Whether nothing orders two positions: they part at different iterations of a parallel loop.

    Parting at a sequential loop, at different loops, or where one position ends, is program order.
    """
    for (loop, _, value, parallel), (other_loop, _, other_value, _) in zip(
        left, right, strict=False
    ):
        if loop != other_loop:
            return False
        if value != other_value:
            return parallel
    return False


def parallel_values(path: Path) -> dict[str, int]:
    """The parallel loop variables of a position."""
    return {variable: value for _, variable, value, parallel in path if parallel}


@attrs.define
class Memory:
    """One tensor. `data` and the maps have the actual shape; `written` is None where every element
    has a value from the start. `writer` and `reader` number the iterations of this phase (0: none)
    and are None where this phase cannot conflict."""

    tensor: ir.Tensor
    data: Array
    written: Array | None = None
    writer: Array | None = None
    reader: Array | None = None

    def begin_phase(self, loaded: bool, stored: bool) -> None:
        """Forget the accesses of the phase before."""
        shape = self.data.shape
        self.writer = np.zeros(shape, np.int32) if stored else None
        self.reader = np.zeros(shape, np.int32) if stored and loaded else None


@attrs.frozen
class Window:
    """A tensor or a view of it under its own extents; all arrays share storage with `Memory`'s."""

    name: str
    memory: Memory
    shape: tuple[int, ...]
    broadcast: bool = False

    def of(self, array: Array) -> Array:
        """An array of the base tensor (data or map), seen through this window."""
        if self.broadcast:
            return np.broadcast_to(array, self.shape)
        return array.reshape(self.shape)


@attrs.frozen
class Site:
    """Where a statement stands: its span and the loop variables around it."""

    span: Span
    loops: tuple[str, ...]

    def iteration(self, values: Values) -> dict[str, int]:
        """The loop variables' values now."""
        return {name: int(values[name]) for name in self.loops}  # type: ignore[arg-type]


@attrs.define
class Shadow:
    """The iteration that runs now, and the checks of each access."""

    violations: Violations
    values: Values
    paths: list[Path] = attrs.field(factory=lambda: [()])
    current: int = 0

    def enter(self, path: Path) -> int:
        """Start an iteration; returns the one that was running."""
        before = self.current
        self.paths.append(path)
        self.current = len(self.paths) - 1
        return before

    def read(self, window: Window, index: Index, site: Site) -> None:
        """Check and note a read of `window[index]`."""
        memory = window.memory
        if memory.written is not None:
            part = window.of(memory.written)[index]
            if not part.all():
                element = first_element(~part, index)
                text = f"{show_element(window.name, element)} is read before anything wrote it"
                where = (site.iteration(self.values),)
                self._add("initialised", window.name, element, where, text, site)
        if memory.writer is not None:
            self._check(window, memory.writer, index, site, "writes", "reads")
        if memory.reader is not None:
            readers = window.of(memory.reader)
            there = readers[index]
            # A reader that is ordered before this one is replaced, a parallel one is kept.
            readers[index] = np.where(self._parallel(there), there, self.current)

    def write(self, window: Window, index: Index, site: Site) -> None:
        """Check and note a write of `window[index]`."""
        memory = window.memory
        if memory.written is not None:
            window.of(memory.written)[index] = True
        if memory.writer is None:
            return
        self._check(window, memory.writer, index, site, "writes", "writes")
        if memory.reader is not None:
            self._check(window, memory.reader, index, site, "reads", "writes")
        window.of(memory.writer)[index] = self.current

    def _parallel(self, others: Array) -> Array:
        """Which of the iterations `others` run in parallel with the current one."""
        result: Array = np.logical_and(others != 0, others != self.current)
        if not result.any():
            return result
        here = self.paths[self.current]
        for other in np.unique(others[result]):
            if not runs_in_parallel(self.paths[int(other)], here):
                result = np.logical_and(result, others != other)
        return result

    def _check(
        self, window: Window, shadow: Array, index: Index, site: Site, there: str, here: str
    ) -> None:
        others = np.asarray(window.of(shadow)[index])
        conflict = self._parallel(others)
        if not conflict.any():
            return
        element = first_element(conflict, index)
        other = self.paths[int(others[conflict].flat[0])]
        mine = self.paths[self.current]
        left, right = parallel_values(other), parallel_values(mine)
        if there == here:
            text = (
                f"parallel iterations ({show_values(left)}) and ({show_values(right)}) "
                f"both write {show_element(window.name, element)}"
            )
        else:
            text = (
                f"parallel iteration ({show_values(left)}) {there} "
                f"{show_element(window.name, element)}, which iteration ({show_values(right)}) "
                f"{here}"
            )
        self._add("independent", window.name, element, (left, right), text, site)

    def _add(
        self,
        kind: str,
        tensor: str,
        element: tuple[int, ...],
        iterations: tuple[dict[str, int], ...],
        text: str,
        site: Site,
    ) -> None:
        self.violations.add(Violation(kind, tensor, element, iterations, text, site.span))


def first_element(mask: Array, index: Index) -> tuple[int, ...]:
    """The tensor element at the first True of `mask`, which lies over `tensor[index]`."""
    position = iter(np.argwhere(np.asarray(mask))[0].tolist()) if np.ndim(mask) else iter(())
    return tuple(
        (part.start or 0) + next(position) if isinstance(part, slice) else part for part in index
    )
