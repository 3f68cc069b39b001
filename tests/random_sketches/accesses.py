"""How tiles get in and out: every form of access, for the axes that a frame offers.

An `Axis` says what one extent of a tile means in the frame: which extent a tensor has there, and
which slice of it belongs to the tile.
"""

from __future__ import annotations

import attrs

from random_sketches.draft import Draft, Tile
from random_sketches.operations import INTEGERS
from sketchc.base.types import DType

ALL = (
    DType.F32,
    DType.F32,
    DType.F32,
    DType.F16,
    DType.BF16,
    DType.F64,
    DType.BOOL,
    *INTEGERS,
)
INPUTS = (
    "slice",
    "strided",
    "reversed",
    "lane",
    "lane_halved",
    "padded",
    "where",
    "where_padded",
    "gather",
    "gather_sum",
    "mixed",
    "mixed_gather",
    "non_separable",
    "broadcast",
    "scalar",
    "fetch",
    "view",
    "optional",
)
OUTPUTS = (
    "slice",
    "strided",
    "reversed",
    "lane",
    "where",
    "scatter",
    "covering_scatter",
    "atomic_add",
    "atomic_max",
    "atomic_min",
)


@attrs.frozen
class Axis:
    """One extent of tiles: tensors have `whole` there, the tile holds `lower:lower+extent`.
    `start` is the lane-0 index. `fixed`: the tile holds the whole axis."""

    extent: str
    whole: str
    start: str
    fixed: bool = False

    @property
    def slice(self) -> str:
        if self.fixed:
            return f"0:{self.extent}"
        return f"{self.start}:{self.start} + {self.extent}"


@attrs.define
class Accesses:
    """Loads and stores of one place in the sketch. `before` are scalar subscripts of every tensor:
    (extent, index)."""

    draft: Draft
    axes: dict[str, Axis]
    before: tuple[tuple[str, str], ...] = ()

    def axis(self, extent: str) -> Axis:
        """The meaning of an extent; numbers are whole axes of that length."""
        return self.axes.get(extent) or Axis(extent, extent, "0", True)

    def _tensor(self, wholes: list[str]) -> str:
        return ", ".join([*(extent for extent, _ in self.before), *wholes])

    def _access(self, parts: list[str]) -> str:
        return ", ".join([*(index for _, index in self.before), *parts])

    # ------------------------------------------------------------ loads

    def load(self, extents: tuple[str, ...], form: str, dtype: DType) -> Tile | None:
        """A tile of this shape loaded in this way, or None where the form does not apply."""
        method = getattr(self, f"_load_{form}")
        made: Tile | None = method(extents, dtype)
        if made is not None:
            self.draft.use(f"load:{form}", f"dtype:{dtype.value}")
        return made

    def _plain(self, extents: tuple[str, ...]) -> tuple[list[str], list[str]]:
        axes = [self.axis(extent) for extent in extents]
        return [axis.whole for axis in axes], [axis.slice for axis in axes]

    def _emit(
        self,
        extents: tuple[str, ...],
        dtype: DType,
        wholes: list[str],
        parts: list[str],
        more: str = "",
        hold: str = "any",
    ) -> Tile:
        source = self.draft.input(self._tensor(wholes), dtype, hold)
        name = self.draft.alloc(extents, dtype)
        self.draft.line(f"load({source}[{self._access(parts)}] -> {name}{more})")
        return Tile(name, extents, dtype)

    def _load_slice(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        return self._emit(extents, dtype, *self._plain(extents))

    def _load_strided(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        wholes, parts = self._plain(extents)
        axis, step = self.axis(extents[-1]), self.draft.rng.choice("23")
        begin = self.draft.rng.choice(["", f"{step} - 1 + "])
        wholes[-1] = f"{step}*{axis.whole}"
        parts[-1] = f"{begin}{step}*({axis.start}):{step}*({axis.start} + {axis.extent}):{step}"
        return self._emit(extents, dtype, wholes, parts)

    def _load_reversed(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        wholes, parts = self._plain(extents)
        axis = self.axis(extents[-1])
        last = f"{axis.whole} - 1 - ({axis.start})"
        parts[-1] = f"{last}:{last} - {axis.extent}:-1"
        return self._emit(extents, dtype, wholes, parts)

    def _lanes(self, extents: tuple[str, ...]) -> list[str]:
        """For each axis an index tile of its elements, laid out for pointwise broadcasting."""
        found = []
        for position, extent in enumerate(extents):
            axis = self.axis(extent)
            name = self.draft.name("p")
            start = "" if axis.start == "0" else f"{axis.start} + "
            self.draft.line(f"{name} = {start}iota({extent})")
            marks = [":" if other == position else "None" for other in range(len(extents))]
            found.append(name if len(extents) == 1 else f"{name}[{', '.join(marks)}]")
        return found

    def _load_lane(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        wholes, _ = self._plain(extents)
        return self._emit(extents, dtype, wholes, self._lanes(extents))

    def _load_lane_halved(self, extents: tuple[str, ...], dtype: DType) -> Tile | None:
        """Each element twice: X[p // 2]."""
        axis = self.axis(extents[-1])
        if axis.fixed:
            return None
        wholes, _ = self._plain(extents)
        lanes = self._lanes(extents)
        half = self.draft.name("H")
        self.draft.lets.append(f"{half} = ({axis.whole} + 1)//2")
        # The lanes that exist are said, since p // 2 < H does not separate p < whole by itself.
        lanes[-1] = f"{lanes[-1]} // 2"
        wholes[-1] = half
        tile = self._emit(extents, dtype, wholes, lanes, ", pad=0")
        return attrs.evolve(tile, padded=True)

    def _load_padded(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        """A neighbourhood: lanes before the first element hold the pad."""
        wholes, parts = self._plain(extents)
        axis = self.axis(extents[-1])
        shift = self.draft.rng.choice("12")
        parts[-1] = f"{axis.start} - {shift}:{axis.start} - {shift} + {axis.extent}"
        pad = "True" if dtype is DType.BOOL else self.draft.rng.choice(["0", "1", "3"])
        tile = self._emit(extents, dtype, wholes, parts, f", pad={pad}")
        return attrs.evolve(tile, padded=True)

    def _load_where(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        """A mask that separates by axis: the lanes left out are void."""
        lanes = self._lanes(extents)
        bound = self.draft.rng.choice(["2", "3"])
        test = self.draft.rng.choice([f"{lanes[-1]} >= {bound}", f"{lanes[-1]} < {bound} + 4"])
        tile = self._emit(extents, dtype, *self._plain(extents), f", where={test}")
        return attrs.evolve(tile, partial=True)

    def _load_where_padded(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        lanes = self._lanes(extents)
        test = f"({' + '.join(lanes)}) % 3 != 1"
        pad = "False" if dtype is DType.BOOL else "2"
        more = f", where={test}, pad={pad}"
        tile = self._emit(extents, dtype, *self._plain(extents), more)
        return attrs.evolve(tile, padded=True)

    def _indices(self, extents: tuple[str, ...], bound: str, dtype: DType) -> str:
        """The name of an integer tile loaded from memory, with 0 <= value < bound."""
        wholes, parts = self._plain(extents)
        return self._emit(extents, dtype, wholes, parts, hold=f"index:{bound}").name

    def _load_gather(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        kind = self.draft.rng.choice((DType.I64, DType.I32))
        indices = self._indices(extents, "V", kind)
        self.draft.symbols.setdefault("V", "")
        source = self.draft.input("V", dtype)
        name = self.draft.alloc(extents, dtype)
        self.draft.line(f"load({source}[{indices}] -> {name})")
        return Tile(name, extents, dtype)

    def _load_gather_sum(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        """Arithmetic on loaded indices."""
        indices = self._indices(extents, "V", DType.I32)
        self.draft.symbols.setdefault("V", "")
        source = self.draft.input("V", dtype)
        name = self.draft.alloc(extents, dtype)
        self.draft.line(f"load({source}[V - 1 - {indices}] -> {name})")
        return Tile(name, extents, dtype)

    def _load_mixed(self, extents: tuple[str, ...], dtype: DType) -> Tile | None:
        """A slice beside an index tile made of lanes."""
        if len(extents) != 2:
            return None
        wholes, parts = self._plain(extents)
        axis = self.axis(extents[0])
        name = self.draft.name("p")
        start = "" if axis.start == "0" else f"{axis.start} + "
        self.draft.line(f"{name} = {start}iota({axis.extent})")
        parts[0] = name
        return self._emit(extents, dtype, wholes, parts)

    def _load_mixed_gather(self, extents: tuple[str, ...], dtype: DType) -> Tile | None:
        if len(extents) != 2:
            return None
        indices = self._indices(extents[:1], "V", DType.I64)
        self.draft.symbols.setdefault("V", "")
        wholes, parts = self._plain(extents)
        wholes[0], parts[0] = "V", indices
        source = self.draft.input(self._tensor(wholes), dtype)
        name = self.draft.alloc(extents, dtype)
        self.draft.line(f"load({source}[{self._access(parts)}] -> {name})")
        return Tile(name, extents, dtype)

    def _load_non_separable(self, extents: tuple[str, ...], dtype: DType) -> Tile | None:
        """Diagonals: X[p + q - 1], in part outside."""
        if len(extents) != 2:
            return None
        first, second = (self.axis(extent) for extent in extents)
        lanes = self._lanes(extents)
        source = self.draft.input(f"{first.whole} + {second.whole}", dtype)
        name = self.draft.alloc(extents, dtype)
        pad = "False" if dtype is DType.BOOL else "1"
        self.draft.line(f"load({source}[{lanes[0]} + {lanes[1]} - 1] -> {name}, pad={pad})")
        return Tile(name, extents, dtype, padded=True)

    def _load_broadcast(self, extents: tuple[str, ...], dtype: DType) -> Tile | None:
        """An axis of the tensor that may have extent 1."""
        wholes, parts = self._plain(extents)
        if not wholes[0].isidentifier() or self.axis(extents[0]).fixed:
            return None
        wholes[0] += "|1"
        return self._emit(extents, dtype, wholes, parts)

    def _load_scalar(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        """One element for each row of the frame, in a tile of extent 1."""
        name = self.draft.input(self._tensor(["3"]), dtype)
        shape = ("1",) * len(extents)
        tile = self.draft.alloc(shape, dtype)
        self.draft.line(f"load({name}[{self._access(['2'])}] -> {tile})")
        return Tile(tile, shape, dtype)

    def _load_fetch(self, extents: tuple[str, ...], dtype: DType) -> Tile | None:
        """A scalar read by itself, added to a loaded tile."""
        if dtype is not DType.F32:
            return None
        source = self.draft.input(self._tensor(["2"]), DType.I32, "shift")
        number = self.draft.name("n")
        self.draft.line(f"{number} = fetch({source}[{self._access(['1'])}])")
        tile = self._load_slice(extents, dtype)
        name = self.draft.alloc(extents, dtype)
        self.draft.line(f"max({tile.name}, {number}, {name})")
        return attrs.evolve(tile, name=name)

    def _load_view(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        """The same elements under other extents."""
        wholes, parts = self._plain(extents)
        shape = [*(extent for extent, _ in self.before), *wholes]
        symbols = [w for w in shape if w.isidentifier()]
        base = self.draft.input(", ".join(["2", *shape]), dtype)
        view = self.draft.name("V")
        del symbols
        self.draft.views.append(f"{view}[{', '.join([*shape[:-1], shape[-1], '2'])}] = {base}")
        name = self.draft.alloc(extents, dtype)
        self.draft.line(f"load({view}[{self._access([*parts, '1'])}] -> {name})")
        return Tile(name, extents, dtype)

    def _load_optional(self, extents: tuple[str, ...], dtype: DType) -> Tile:
        """A tile replaced where a further input is given."""
        tile = self._load_slice(extents, dtype)
        wholes, parts = self._plain(extents)
        source = self.draft.name("X")
        self.draft.tensors.append(f"{source}[{self._tensor(wholes)}]: in {dtype.value}?")
        self.draft.holds[source] = "optional"
        self.draft.loop(f"if present({source}):")
        self.draft.line(f"load({source}[{self._access(parts)}] -> {tile.name})")
        self.draft.close()
        self.draft.use("statement:if")
        return tile

    # ------------------------------------------------------------ stores

    def store(self, tile: Tile, form: str) -> bool:
        """Write a tile to an output of its own in this way; False where the form does not apply."""
        if (tile.partial or tile.padded) and form not in ("slice", "where"):
            return False
        method = getattr(self, f"_store_{form}")
        done: bool = method(tile)
        if done:
            self.draft.use(f"store:{form}", f"out:{tile.dtype.value}")
        return done

    def _initial(self, tile: Tile) -> str:
        return " = False" if tile.dtype is DType.BOOL else " = 0"

    def _write(
        self, tile: Tile, wholes: list[str], parts: list[str], initial: str, more: str = ""
    ) -> bool:
        target = self.draft.output(self._tensor(wholes), tile, initial)
        self.draft.line(f"store({tile.name} -> {target}[{self._access(parts)}]{more})")
        return True

    def _store_slice(self, tile: Tile) -> bool:
        initial = self._initial(tile) if tile.partial else ""
        return self._write(tile, *self._plain(tile.extents), initial)

    def _store_strided(self, tile: Tile) -> bool:
        wholes, parts = self._plain(tile.extents)
        axis = self.axis(tile.extents[-1])
        wholes[-1] = f"2*{axis.whole}"
        parts[-1] = f"2*({axis.start}):2*({axis.start} + {axis.extent}):2"
        return self._write(tile, wholes, parts, self._initial(tile))

    def _store_reversed(self, tile: Tile) -> bool:
        wholes, parts = self._plain(tile.extents)
        axis = self.axis(tile.extents[-1])
        last = f"{axis.whole} - 1 - ({axis.start})"
        parts[-1] = f"{last}:{last} - {axis.extent}:-1"
        return self._write(tile, wholes, parts, "")

    def _store_lane(self, tile: Tile) -> bool:
        wholes, _ = self._plain(tile.extents)
        return self._write(tile, wholes, self._lanes(tile.extents), "")

    def _store_where(self, tile: Tile) -> bool:
        lanes = self._lanes(tile.extents)
        test = f"({' + '.join(lanes)}) % 2 == 0"
        return self._write(tile, *self._plain(tile.extents), self._initial(tile), f", where={test}")

    def _permuted(self, tile: Tile) -> tuple[list[str], list[str]] | None:
        """The last axis through a permutation that comes from memory; the others as they are."""
        axis = self.axis(tile.extents[-1])
        if len(tile.extents) != 1 or axis.fixed or not axis.whole.isidentifier():
            return None
        source = self.draft.input(axis.whole, DType.I64, "permutation")
        name = self.draft.alloc(tile.extents, DType.I64)
        self.draft.line(f"load({source}[{axis.slice}] -> {name})")
        return [axis.whole], [name]

    def _store_scatter(self, tile: Tile) -> bool:
        found = self._permuted(tile)
        if found is None:
            return False
        return self._write(tile, *found, self._initial(tile), ", unique=True")

    def _store_covering_scatter(self, tile: Tile) -> bool:
        found = self._permuted(tile)
        if found is None:
            return False
        return self._write(tile, *found, "", ", unique=True, covers=True")

    def _atomic(self, tile: Tile, operation: str) -> bool:
        if tile.dtype not in (DType.F32, DType.I32) or not tile.exact:
            return False
        indices = self._indices(tile.extents, "7", DType.I32)
        rounded = attrs.evolve(tile, exact=tile.dtype is DType.I32 or operation != "add")
        target = self.draft.output("7", rounded, " = 0")
        self.draft.line(f"atomic_{operation}({tile.name} -> {target}[{indices}])")
        return True

    def _store_atomic_add(self, tile: Tile) -> bool:
        return self._atomic(tile, "add")

    def _store_atomic_max(self, tile: Tile) -> bool:
        return self._atomic(tile, "max")

    def _store_atomic_min(self, tile: Tile) -> bool:
        return self._atomic(tile, "min")
