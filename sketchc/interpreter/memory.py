"""Tensors in the interpreter: data, maps of the written elements, and shadow memory for R7.

Shadow memory keeps, for each element and phase, the last iteration that wrote it and one iteration
that read it. Parallel loops fork and join, so the executions form a series-parallel graph, and one
reader per element is enough when iterations run one after another (Feng and Leiserson, "Efficient
detection of determinacy races in Cilk programs", 1997).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

import numpy as np

from sketchc.base import records
from sketchc.base.diagnostics import InternalError, Span
from sketchc.base.types import DType
from sketchc.interpreter.expressions import IndexCompiler, Values, compile_domain
from sketchc.interpreter.operations import Outcome
from sketchc.interpreter.tiles import (
    Array,
    Box,
    Extents,
    TileValue,
    box_shape,
    full_box,
    intersect,
    lanes,
    poison,
    relative,
    same_lanes,
    tile_dtype,
    to_tile,
)
from sketchc.interpreter.violations import Options, RunCoverage, Violation, Violations
from sketchc.ir import nodes as ir
from sketchc.ir.show import assignments, element_text
from sketchc.ir.walk import references
from sketchc.launch.index_width import loaded_scalars

#: One level of a position: the loop (by number), its variable and value, and whether its
#: iterations may run in parallel.
Level: TypeAlias = tuple[int, str, int, bool]
Path: TypeAlias = tuple[Level, ...]
#: Elements of a tensor: a basic index of its window, or positions in its storage.
Index: TypeAlias = tuple[int | slice, ...] | Array


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


@records.define
class Memory:
    """One tensor. `data` and the maps have the actual shape; `written` is None where every element
    has a value from the start. `writer`, `reader` and, for each atomic operation, `updaters`
    number the iterations of this phase (0: none); they are absent where this phase cannot conflict.
    `wide` holds the float64 sums of this phase's atomic additions before rounding, so that their
    order does not show. `present` is False for an optional tensor that was not given."""

    tensor: ir.Tensor
    data: Array
    written: Array | None = None
    writer: Array | None = None
    reader: Array | None = None
    updaters: dict[str, Array] = records.field(factory=dict)
    wide: Array | None = None
    present: bool = True

    def begin_phase(self, uses: Collection[str]) -> None:
        """Forget the accesses of the phase before. `uses` are the kinds of access in the next one:
        "load", "store", and the operations of atomics."""
        shape, atomics = self.data.shape, sorted({*uses} - {"load", "store"})
        self.updaters = {name: np.zeros(shape, np.int32) for name in atomics}
        changed = "store" in uses or bool(atomics)
        self.writer = np.zeros(shape, np.int32) if "store" in uses else None
        self.reader = np.zeros(shape, np.int32) if changed and "load" in uses else None
        sums = "add" in self.updaters and self.tensor.dtype.is_float
        self.wide = self.data.astype(np.float64) if sums else None


@records.frozen
class Window:
    """A tensor, or a view of one, under its own extents; arrays share the storage of `memory`."""

    name: str
    memory: Memory
    shape: tuple[int, ...]
    broadcast: bool = False

    def of(self, array: Array) -> Array:
        """An array of the base tensor (data or map), seen through this window."""
        if self.broadcast:
            return np.broadcast_to(array, self.shape)
        return array.reshape(self.shape)

    def part(self, array: Array, index: Index) -> Array:
        """The elements at `index` of an array of the base tensor."""
        if isinstance(index, tuple):
            return np.asarray(self.of(array)[index])
        return np.asarray(array.reshape(-1)[index])

    def put(self, array: Array, index: Index, values: Array | int | bool) -> None:
        """Write the elements at `index` of an array of the base tensor."""
        if isinstance(index, tuple):
            self.of(array)[index] = values
        else:
            array.reshape(-1)[index] = values

    def steps(self) -> tuple[int, ...]:
        """The stride of each axis, in elements of the storage; 0 for an axis of size 1."""
        actual = self.memory.data.shape if self.broadcast else self.shape
        result = []
        step = 1
        for size in reversed(actual):
            result.append(step if size != 1 else 0)
            step *= size
        return tuple(reversed(result))

    def element(self, position: int) -> tuple[int, ...]:
        """The subscripts of a position in storage."""
        shape = self.memory.data.shape if self.broadcast else self.shape
        return tuple(int(part) for part in np.unravel_index(position, shape)) if shape else ()


#: Lanes without a place: masked ones, and those whose index from memory leaves the tensor.
MASKED, STRAY = -1, -2


@records.frozen
class Places:
    """Where one store with a promise wrote, in one iteration: for each lane a position in the
    storage of `tensor`, which has `size` elements, else `MASKED` or `STRAY`. `launch` counts
    launches. For other accesses through indices from memory, lanes are only `STRAY` or `MASKED`."""

    launch: int
    tensor: str
    size: int
    unique: bool
    positions: Array


@records.frozen
class Site:
    """Where a statement stands: its span and the loop variables around it."""

    span: Span
    loops: tuple[str, ...]

    def iteration(self, values: Values) -> dict[str, int]:
        """The loop variables' values now."""
        return {name: int(values[name]) for name in self.loops}  # type: ignore[arg-type]


@records.define
class Shadow:
    """The paths of all iterations of a launch, the current one, and the checks of each access."""

    violations: Violations
    values: Values
    paths: list[Path] = records.field(factory=lambda: [()])
    current: int = 0
    launches: int = 0

    def restart(self) -> None:
        """Begin a new launch: it runs in parallel with nothing that ran before."""
        self.launches += 1
        self.paths[:] = [(), ()]
        self.current = 1

    def enter(self, path: Path) -> int:
        """Start an iteration; returns the one that was running."""
        before = self.current
        self.paths.append(path)
        self.current = len(self.paths) - 1
        return before

    def read(self, window: Window, index: Index, site: Site) -> None:
        """Check and note a read of `window[index]`."""
        memory = window.memory
        self._defined(window, index, site)
        self._check(window, memory.writer, index, site, ("writes", "reads"))
        for updaters in memory.updaters.values():
            self._check(window, updaters, index, site, ("updates", "reads"))
        if memory.reader is not None:
            self._note(window, memory.reader, index)

    def write(self, window: Window, index: Index, site: Site, unique: bool = False) -> None:
        """Check and note a write of `window[index]`; `unique`: the store promises `unique=True`."""
        memory = window.memory
        if memory.written is not None:
            window.put(memory.written, index, True)
        if memory.writer is None:
            return
        promise = ", against the promise unique=True" if unique else ""
        self._check(window, memory.writer, index, site, ("writes", "writes"), promise)
        self._check(window, memory.reader, index, site, ("reads", "writes"))
        for updaters in memory.updaters.values():
            self._check(window, updaters, index, site, ("updates", "writes"))
        window.put(memory.writer, index, self.current)

    def update(self, window: Window, index: Index, site: Site, operation: str) -> None:
        """Check and note an atomic update: updates by the same operation do not conflict."""
        memory = window.memory
        self._defined(window, index, site)
        self._check(window, memory.writer, index, site, ("writes", "updates"))
        self._check(window, memory.reader, index, site, ("reads", "updates"))
        for other, updaters in memory.updaters.items():
            if other != operation:
                self._check(window, updaters, index, site, (f"{other}s to", f"{operation}s to"))
        self._note(window, memory.updaters[operation], index)

    def write_lanes(self, window: Window, positions: Array, site: Site, unique: bool) -> None:
        """Check that no two lanes of one store hit one element."""
        found, counts = np.unique(positions, return_counts=True)
        if found.size == positions.size:
            return
        position = int(found[np.argmax(counts > 1)])
        element = window.element(position)
        promise = ", against the promise unique=True" if unique else ""
        text = f"two lanes of one store write {element_text(window.name, element)}{promise}"
        here = site.iteration(self.values)
        self.told(
            "independent",
            window.name,
            element,
            text,
            site,
            promised=unique,
            iterations=(here, here),
        )

    def _defined(self, window: Window, index: Index, site: Site) -> None:
        written = window.memory.written
        if written is None:
            return
        part = window.part(written, index)
        if not part.all():
            element = first_element(~part, index, window)
            text = f"{element_text(window.name, element)} is read before anything wrote it"
            self.told("initialised", window.name, element, text, site)

    def _note(self, window: Window, shadow: Array, index: Index) -> None:
        """Note this iteration in a shadow map; parallel iterations noted there before stay."""
        there = window.part(shadow, index)
        window.put(shadow, index, np.where(self._parallel(there), there, self.current))

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
        self,
        window: Window,
        shadow: Array | None,
        index: Index,
        site: Site,
        verbs: tuple[str, str],
        promise: str = "",
    ) -> None:
        """Report an element that a parallel iteration accessed; `verbs` name that access and the
        current one. `shadow` is None where this phase has no accesses of the kind."""
        if shadow is None:
            return
        others = window.part(shadow, index)
        conflict = self._parallel(others)
        if not conflict.any():
            return
        element = first_element(conflict, index, window)
        other = self.paths[int(others[conflict].flat[0])]
        mine = self.paths[self.current]
        left, right = parallel_values(other), parallel_values(mine)
        there, here = verbs
        what = element_text(window.name, element)
        first, second = assignments(left), assignments(right)
        text = f"parallel iteration ({first}) {there} {what}, which iteration ({second}) {here}"
        if there == here:
            text = f"parallel iterations ({first}) and ({second}) both write {what}{promise}"
        self.told(
            "independent",
            window.name,
            element,
            text,
            site,
            promised=bool(promise),
            iterations=(left, right),
        )

    def told(
        self,
        kind: str,
        subject: str,
        element: tuple[int, ...],
        text: str,
        site: Site,
        *,
        promised: bool = False,
        iterations: tuple[dict[str, int], ...] = (),
    ) -> None:
        """Note a broken rule, in the current iteration unless `iterations` are given; raises
        `DiagnosticError` unless violations are collected."""
        where = iterations or (site.iteration(self.values),)
        violation = Violation(kind, subject, element, where, text, site.span, promised)
        self.violations.add(violation)


def first_element(mask: Array, index: Index, window: Window) -> tuple[int, ...]:
    """The tensor element at the first True of `mask`, which lies over `window[index]`."""
    if not isinstance(index, tuple):
        return window.element(int(index[int(np.argmax(mask))]))
    position = iter(np.argwhere(np.asarray(mask))[0].tolist()) if np.ndim(mask) else iter(())
    return tuple(
        (part.start or 0) + next(position) if isinstance(part, slice) else part for part in index
    )


Action: TypeAlias = Callable[[], None]


@records.define
class State:
    """The state of one execution, which its statements read and change."""

    sketch: ir.Sketch
    options: Options
    values: Values
    memories: dict[str, Memory]
    windows: dict[str, Window]
    violations: Violations
    tiles: dict[str, TileValue] = records.field(factory=dict)
    declared: dict[str, ir.Tile] = records.field(init=False)
    shadow: Shadow = records.field(init=False)
    indices: IndexCompiler = records.field(init=False)
    order: np.random.Generator = records.field(init=False)
    loops: tuple[str, ...] = ()
    loop_count: int = 0
    parallel_depth: int = 0
    alloc_depth: dict[str, int] = records.field(factory=dict)
    tile_writers: dict[str, Path] = records.field(factory=dict)
    reached: RunCoverage = records.field(factory=RunCoverage)
    places: list[Places] = records.field(factory=list)
    from_memory: set[str] = records.field(factory=set)  # scalars that depend on a fetch

    def __attrs_post_init__(self) -> None:
        self.declared = {tile.name: tile for tile in self.sketch.tiles}
        self.shadow = Shadow(self.violations, self.values)
        self.indices = IndexCompiler(
            self._read_lanes, self.options.padding, loaded_scalars(self.sketch)
        )
        self.order = np.random.default_rng(self.options.shuffle)

    def is_from_memory(self, value: ir.Expr) -> bool:
        """Whether an expression uses a scalar that depends on a fetch."""
        return any(reference.name in self.from_memory for reference in references(value))

    def read(self, tile: TileValue, site: Site) -> Box:
        """The valid lanes of a tile that is read; it is a violation if nothing was assigned."""
        if tile.box is None:
            name = self.declared[tile.name].source_name
            text = f"tile {name} is read before anything is assigned to it"
            self.shadow.told("initialised", name, (0,) * len(tile.extents), text, site)
            tile.box = full_box(tile.extents)
        return tile.box

    def _read_lanes(self, lanes_of: ir.TileLanes) -> Callable[[], TileValue]:
        """A closure that reads a tile whose lanes are indices or a predicate."""
        site = Site(lanes_of.span, self.loops)
        expect = self.expected(lanes_of.domain, site, f"read of {lanes_of.tile}")

        def read() -> TileValue:
            tile = self.tiles[lanes_of.tile]
            expect(self.read(tile, site), tile.extents)
            return tile

        return read

    def assign(self, tile: TileValue, outcome: Outcome) -> None:
        """Write a result: replaces a plain tile, updates the valid lanes of an `init=` one (R2).

        Arrays are never changed in place, so tiles may share them.
        """
        box, values = outcome.box, outcome.values
        if tile.fixed is not None:
            box = intersect(box, tile.fixed)
            values = values[lanes(relative(box, outcome.box))]
            array = tile.array.copy()
            tile.box = tile.fixed
        elif box_shape(box) == tile.array.shape:
            tile.array, tile.box = values, box
            return
        else:
            pattern = poison(tile.dtype, self.options.poison)
            array = np.full(tile.array.shape, pattern, tile_dtype(tile.dtype))
            tile.box = box
        array[lanes(box)] = values
        tile.array = array

    def poisoned(self, tile: TileValue, box: Box) -> None:
        """Poison a tile instead of a write that broke a rule; `box` are the lanes that the write
        would have made valid. Later statements so find the valid lanes that the checker expects."""
        pattern = poison(tile.dtype, self.options.poison)
        tile.array = np.full(tile.array.shape, pattern, tile_dtype(tile.dtype))
        tile.box = box if tile.fixed is None else tile.fixed

    def rounded(self, values: Array, dtype: DType) -> Array:
        """`values` rounded to what a tile of the type `dtype` keeps; with `Options.rounding` off,
        floats keep all of float64."""
        if not self.options.rounding and dtype.is_float:
            dtype = DType.F64
        return to_tile(values, dtype)

    def noted_write(self, name: str, site: Site) -> Action:
        """A closure that reports a tile from outside a parallel loop that two parallel iterations
        write (R7)."""
        if self.alloc_depth.get(name, 0) >= self.parallel_depth:
            return lambda: None

        def note() -> None:
            here = self.shadow.paths[self.shadow.current]
            # The last writer stands for those before it: whoever runs in parallel to one of them
            # and not to it was in conflict with it already.
            there = self.tile_writers.get(name, here)
            self.tile_writers[name] = here
            if not runs_in_parallel(there, here):
                return
            left, right = parallel_values(there), parallel_values(here)
            tile = self.declared[name].source_name
            text = (
                f"parallel iterations ({assignments(left)}) and ({assignments(right)}) both "
                f"write the tile {tile}, which is allocated outside their loop"
            )
            element = (0,) * len(self.tiles[name].extents)
            self.shadow.told("independent", tile, element, text, site, iterations=(left, right))

        return note

    def expected(
        self, domain: ir.Domain, site: Site, what: str
    ) -> Callable[[Box | None, Extents], None]:
        """A closure that compares a static domain with the valid lanes found; it does nothing
        unless `Options.check_domains`."""
        if not self.options.check_domains or not domain:
            return lambda box, extents: None
        domain_of = compile_domain(domain)

        def expect(box: Box | None, extents: Extents) -> None:
            if len(extents) != len(domain) or box is None:
                return
            static = domain_of(self.values, extents)
            if not same_lanes(static, box):
                msg = (
                    f"{what} at line {site.span.line}: the static domain {static} is not the "
                    f"valid region {box}, iteration {assignments(site.iteration(self.values))}"
                )
                raise InternalError(msg)

        return expect
