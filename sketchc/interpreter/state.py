"""The state of one execution: values in scope, tiles, tensors, and checks of each access."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
import numpy as np

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType
from sketchc.interpreter.expressions import IndexCompiler, Values, compile_domain
from sketchc.interpreter.lanes import Outcome
from sketchc.interpreter.memory import (
    Memory,
    Path,
    Places,
    Shadow,
    Site,
    Window,
    parallel_values,
    runs_in_parallel,
)
from sketchc.interpreter.options import Options
from sketchc.interpreter.run_coverage import RunCoverage
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
    same_lanes,
    tile_dtype,
    to_tile,
)
from sketchc.interpreter.violations import Violation, Violations, show_values
from sketchc.ir import nodes as ir
from sketchc.ir.walk import references
from sketchc.launch.index_width import loaded_scalars

Action: TypeAlias = Callable[[], None]


@attrs.define
class State:
    """What the statements of one execution read and change."""

    sketch: ir.Sketch
    options: Options
    values: Values
    memories: dict[str, Memory]
    windows: dict[str, Window]
    violations: Violations
    tiles: dict[str, TileValue] = attrs.field(factory=dict)
    declared: dict[str, ir.Tile] = attrs.field(init=False)
    shadow: Shadow = attrs.field(init=False)
    indices: IndexCompiler = attrs.field(init=False)
    order: np.random.Generator = attrs.field(init=False)
    loops: tuple[str, ...] = ()
    loop_count: int = 0
    parallel_depth: int = 0
    alloc_depth: dict[str, int] = attrs.field(factory=dict)
    tile_writers: dict[str, Path] = attrs.field(factory=dict)
    reached: RunCoverage = attrs.field(factory=RunCoverage)
    places: list[Places] = attrs.field(factory=list)
    from_memory: set[str] = attrs.field(factory=set)  # scalars that a fetch has part in

    def __attrs_post_init__(self) -> None:
        self.declared = {tile.name: tile for tile in self.sketch.tiles}
        self.shadow = Shadow(self.violations, self.values)
        self.indices = IndexCompiler(
            self._read_lanes, self.options.padding, loaded_scalars(self.sketch)
        )
        self.order = np.random.default_rng(self.options.shuffle)

    def is_from_memory(self, value: ir.Expr) -> bool:
        """Whether a fetched scalar has part in a value."""
        return any(reference.name in self.from_memory for reference in references(value))

    def read(self, tile: TileValue, site: Site) -> Box:
        """The valid lanes; reading what nobody assigned is a violation."""
        if tile.box is None:
            name = self.declared[tile.name].source_name
            text = f"tile {name} is read before anything is assigned to it"
            where = (site.iteration(self.values),)
            element = (0,) * len(tile.extents)
            self.violations.add(Violation("initialised", name, element, where, text, site.span))
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
        """What a write that broke a rule leaves: no value, in the lanes that it would have made
        valid. So what comes after it is as the checker expects it."""
        pattern = poison(tile.dtype, self.options.poison)
        tile.array = np.full(tile.array.shape, pattern, tile_dtype(tile.dtype))
        tile.box = box if tile.fixed is None else tile.fixed

    def rounded(self, values: Array, dtype: DType) -> Array:
        if not self.options.rounding and dtype.is_float:
            dtype = DType.F64
        return to_tile(values, dtype)

    def noted_write(self, name: str, site: Site) -> Action:
        """A check that no tile from outside a parallel loop is written inside it (R7)."""
        if self.alloc_depth.get(name, 0) >= self.parallel_depth:
            return lambda: None

        def note() -> None:
            here = self.shadow.paths[self.shadow.current]
            there = self.tile_writers.setdefault(name, here)
            if not runs_in_parallel(there, here):
                return
            left, right = parallel_values(there), parallel_values(here)
            tile = self.declared[name].source_name
            text = (
                f"parallel iterations ({show_values(left)}) and ({show_values(right)}) both "
                f"write the tile {tile}, which is allocated outside their loop"
            )
            element = (0,) * len(self.tiles[name].extents)
            violation = Violation("independent", tile, element, (left, right), text, site.span)
            self.violations.add(violation)

        return note

    def expected(
        self, domain: ir.Domain, site: Site, what: str
    ) -> Callable[[Box | None, Extents], None]:
        """The comparison of a static domain with the lanes found; nothing to do unless asked."""
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
                    f"valid region {box}, iteration {show_values(site.iteration(self.values))}"
                )
                raise InternalError(msg)

        return expect


def relative(box: Box, origin: Box) -> Box:
    """`box` in the coordinates of an array that starts where `origin` does."""
    return tuple(
        (start - base, stop - base) for (start, stop), (base, _) in zip(box, origin, strict=True)
    )
