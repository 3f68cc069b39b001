"""The loops around a random computation: what is tiled, what runs in order, what a phase is."""

from __future__ import annotations

from collections.abc import Callable

from random_sketches.accesses import ALL, INPUTS, OUTPUTS, Accesses, Axis
from random_sketches.draft import Draft, Generated, Tile
from random_sketches.operations import Operations
from sketchc.base.types import DType

Sizes = tuple[dict[str, int], ...]
TILES = (4, 8, 16)


def _tile(draft: Draft, name: str, *, small: bool = False) -> str:
    return draft.constant(name, draft.rng.choice(TILES[:2] if small else TILES))


def _fill(
    draft: Draft,
    accesses: Accesses,
    extents: tuple[str, ...],
    *,
    across: bool = False,
    loads: int = 3,
    steps: int = 5,
) -> None:
    """Loads, operations, and a store of every tile that an operation made."""
    operations = Operations(draft, [], across)
    dtype = draft.rng.choice(ALL)
    for index in range(loads):
        if index == loads - 1 or draft.rng.random() < 0.4:
            dtype = draft.rng.choice(ALL)
        forms = list(INPUTS)
        while forms:
            best = draft.least([f"load:{form}" for form in forms]).removeprefix("load:")
            forms.remove(best)
            made = accesses.load(extents, best, dtype)
            if made is not None:
                operations.tiles.append(made)
                break
    # The same type twice, so that operations on two tiles find a partner.
    again = accesses.load(extents, "slice", operations.tiles[0].dtype)
    assert again is not None
    operations.tiles.append(again)
    first = len(operations.tiles)
    for _ in range(steps):
        if operations.step() is None:
            break
    # What varies along no tiled axis would be written by every block.
    made = [tile for tile in operations.tiles[first:] if set(accesses.axes) <= set(tile.extents)]
    for tile in made or [again]:
        _store(draft, accesses, tile)


def _store(draft: Draft, accesses: Accesses, tile: Tile) -> None:
    forms = list(OUTPUTS)
    while forms:
        best = draft.least([f"store:{form}" for form in forms]).removeprefix("store:")
        forms.remove(best)
        if accesses.store(tile, best):
            return


def flat(draft: Draft) -> Sizes:
    """Blocks of one axis."""
    draft.symbols["N"] = ""
    t = _tile(draft, "T")
    counted = draft.rng.random() < 0.5
    if counted:
        draft.loop(f"for i in range(ceil(N, {t})):", "parallel", "grididx")
        start = f"i*{t}"
    else:
        draft.loop(f"for i in range(0, N, {t}):", "parallel")
        start = "i"
    _fill(draft, Accesses(draft, {t: Axis(t, "N", start)}), (t,))
    draft.close()
    return ({"N": 1}, {"N": 13}, {"N": 16})


def rows(draft: Draft) -> Sizes:
    """Rows one by one, blocks of a row in order."""
    draft.symbols |= {"M": "", "N": ""}
    t = _tile(draft, "T")
    draft.loop("for i in range(M):", "parallel", "grididx")
    backward = draft.rng.random() < 0.3
    if backward:
        draft.use("loop:backward")
        draft.loop(f"for j in range(ceil(N, {t}) - 1, -1, -1):")
        start = f"j*{t}"
    else:
        draft.loop(f"for j in range(0, N, {t}):")
        start = "j"
    _fill(draft, Accesses(draft, {t: Axis(t, "N", start)}, (("M", "i"),)), (t,))
    draft.close(2)
    return ({"M": 3, "N": 1}, {"M": 2, "N": 19})


def blocks(draft: Draft) -> Sizes:
    """Blocks of two axes."""
    draft.symbols |= {"M": "", "N": ""}
    tm, tn = _tile(draft, "TM", small=True), _tile(draft, "TN", small=True)
    draft.loop(f"for i in range(0, M, {tm}):", "parallel", "grididx")
    draft.loop(f"for j in range(0, N, {tn}):", "parallel", "grididx")
    axes = {tm: Axis(tm, "M", "i"), tn: Axis(tn, "N", "j")}
    _fill(draft, Accesses(draft, axes), (tm, tn), steps=4)
    draft.close(2)
    return ({"M": 1, "N": 1}, {"M": 9, "N": 7})


def whole(draft: Draft) -> Sizes:
    """Blocks of rows, each tile with whole rows: what runs across lanes may use them."""
    draft.symbols["M"] = ""
    tm = _tile(draft, "TM", small=True)
    width = draft.rng.choice(["2", "4", "5", "8", "12"])
    draft.loop(f"for i in range(0, M, {tm}):", "parallel", "grididx")
    accesses = Accesses(draft, {tm: Axis(tm, "M", "i")})
    _fill(draft, accesses, (tm, width), across=True, loads=2, steps=6)
    draft.close()
    return ({"M": 1}, {"M": 11})


def bounded(draft: Draft) -> Sizes:
    """Rows one by one in tiles as wide as a bounded symbol."""
    draft.symbols |= {"M": "", "N": " <= 32"}
    draft.loop("for i in range(M):", "parallel", "grididx")
    accesses = Accesses(draft, {"N": Axis("N", "N", "0", True)}, (("M", "i"),))
    _fill(draft, accesses, ("N",), across=True, loads=2, steps=6)
    draft.close()
    return ({"M": 2, "N": 1}, {"M": 3, "N": 13}, {"M": 1, "N": 32})


def carried(draft: Draft) -> Sizes:
    """A reduction or a scan along an axis longer than a tile: what a loop carries."""
    draft.symbols |= {"M": "", "N": ""}
    t = _tile(draft, "T")
    dtype = draft.rng.choice((DType.F32, DType.F32, DType.I32, DType.F16))
    wide = DType.F32 if dtype is DType.F16 else dtype
    kind = draft.least(["op:reduce_sum", "op:reduce_max", "op:reduce_min", "op:cumsum"])
    draft.use(kind, "statement:carried")
    draft.loop("for i in range(M):", "parallel", "grididx")
    sums = kind in ("op:reduce_sum", "op:cumsum")
    initial = {"op:reduce_max": "-inf", "op:reduce_min": "inf"}.get(kind, "0")
    if not dtype.is_float and not sums:
        dtype = wide = DType.F32
    total = draft.alloc(("1",), wide, initial)
    draft.loop(f"for j in range(0, N, {t}):")
    accesses = Accesses(draft, {t: Axis(t, "N", "j")}, (("M", "i"),))
    form = draft.least([f"load:{f}" for f in ("slice", "lane", "where", "reversed")])
    x = accesses.load((t,), form.removeprefix("load:"), dtype)
    assert x is not None
    part = draft.alloc(("1",), wide)
    combine = {"op:reduce_max": "max", "op:reduce_min": "min"}.get(kind, "add")
    reduction = "reduce_sum" if sums else kind.removeprefix("op:")
    if kind == "op:cumsum":
        running = draft.alloc((t,), wide)
        draft.line(f"cumsum({x.name}, 0, {running})")
        draft.line(f"add({running}, {total}, {running})")
        made = Tile(running, (t,), wide, not wide.is_float, 1, x.partial)
        accesses.store(made, "slice")
    draft.line(f"{reduction}({x.name}, 0, {part})")
    draft.use(f"op:{reduction}", f"op:{combine}")
    draft.line(f"{combine}({total}, {part}, {total})")
    draft.close()
    outside = Accesses(draft, {}, (("M", "i"),))
    exact = not (sums and wide.is_float)
    outside.store(Tile(total, ("1",), wide, exact, 1), "slice")
    draft.close()
    return ({"M": 2, "N": 1}, {"M": 3, "N": 21}, {"M": 2, "N": 0})


def product(draft: Draft) -> Sizes:
    """A matrix product in tiles."""
    draft.symbols |= {"M": "", "N": "", "K": ""}
    tm, tn, tk = (_tile(draft, name) for name in ("TM", "TN", "TK"))
    dtype = draft.rng.choice((DType.F32, DType.F16, DType.BF16, DType.F64, DType.I8))
    kind = draft.least(["op:gemm", "op:matmul", "op:dot"])
    draft.use(kind, f"dtype:{dtype.value}", "op:add")
    trans_a, trans_b = (draft.rng.random() < 0.4 for _ in range(2))
    wide = {DType.F64: DType.F64, DType.I8: DType.I32}.get(dtype, DType.F32)
    draft.loop(f"for i in range(0, M, {tm}):", "parallel", "grididx")
    draft.loop(f"for j in range(0, N, {tn}):", "parallel", "grididx")
    total = draft.alloc((tm, tn), wide, "0")
    draft.loop(f"for k in range(0, K, {tk}):", "pipeline")
    axes = {tm: Axis(tm, "M", "i"), tn: Axis(tn, "N", "j"), tk: Axis(tk, "K", "k")}
    accesses = Accesses(draft, axes)
    left = accesses.load((tk, tm) if trans_a else (tm, tk), "slice", dtype)
    right = accesses.load((tn, tk) if trans_b else (tk, tn), "slice", dtype)
    assert left is not None
    assert right is not None
    flags = [f"{flag}=True" for flag, on in (("trans_a", trans_a), ("trans_b", trans_b)) if on]
    more = "".join(f", {flag}" for flag in flags)
    if kind == "op:gemm":
        draft.line(f"gemm({left.name}, {right.name}, {total}{more})")
    else:
        part = draft.alloc((tm, tn), wide)
        draft.line(f"{kind.removeprefix('op:')}({left.name}, {right.name}, {part}{more})")
        draft.line(f"add({total}, {part}, {total})")
    draft.close()
    made = Tile(total, (tm, tn), wide, not wide.is_float, 1)
    _store(draft, accesses, made)
    draft.close(2)
    return ({"M": 1, "N": 1, "K": 1}, {"M": 17, "N": 9, "K": 19})


def phases(draft: Draft) -> Sizes:
    """Two launches with a workspace between them, or the host's loop around one."""
    draft.symbols["N"] = ""
    t = _tile(draft, "T")
    draft.use("statement:host_loop")
    start = draft.output("N", Tile("", (t,), DType.F32, exact=True), role="inout")
    draft.holds[start] = "any"
    count = draft.rng.choice("23")
    draft.loop(f"for step in range({count}):")
    draft.loop(f"for i in range(0, N, {t}):", "parallel", "grididx")
    accesses = Accesses(draft, {t: Axis(t, "N", "i")})
    x = draft.alloc((t,), DType.F32)
    draft.line(f"load({start}[i:i + {t}] -> {x})")
    other = accesses.load((t,), "slice", DType.F32)
    assert other is not None
    draft.line(f"max({x}, {other.name}, {x})")
    draft.line(f"max({x}, step, {x})")
    draft.line(f"neg({x}, {x})")
    draft.use("op:max", "op:neg")
    draft.line(f"store({x} -> {start}[i:i + {t}])")
    draft.close(2)
    draft.loop(f"for i in range(0, N, {t}):", "parallel", "grididx")
    _fill(draft, accesses, (t,), loads=1, steps=3)
    draft.close()
    return ({"N": 1}, {"N": 13})


def branches(draft: Draft) -> Sizes:
    """Branches on loop variables, symbols and constants; triangular loops."""
    draft.symbols["N"] = ""
    draft.use("statement:if", "statement:triangular")
    t = _tile(draft, "T", small=True)
    even = draft.rng.random() < 0.5
    draft.constants["EVEN"] = str(even)
    draft.loop(f"for i in range(ceil(N, {t})):", "parallel", "grididx")
    axes = {t: Axis(t, "N", f"i*{t}")}
    accesses = Accesses(draft, axes)
    x = accesses.load((t,), "slice", DType.F32)
    assert x is not None
    draft.loop("if N % 2 == 0 and EVEN:")
    draft.line(f"neg({x.name}, {x.name})")
    draft.close()
    draft.loop("else:")
    draft.line(f"abs({x.name}, {x.name})")
    draft.close()
    draft.use("op:neg", "op:abs")
    _store(draft, accesses, x)
    # The sum of all blocks up to this one.
    total = draft.alloc((t,), DType.I32, "0")
    source = draft.input("N", DType.I32)
    draft.loop("for j in range(i + 1):")
    y = draft.alloc((t,), DType.I32)
    draft.line(f"load({source}[j*{t}:(j + 1)*{t}] -> {y}, pad=0)")
    draft.use("load:padded", "op:add")
    draft.line(f"add({total}, {y}, {total})")
    draft.close()
    # Tile sizes show in such sums: they are not stored, only whether they are equal to themselves.
    same = draft.alloc((t,), DType.BOOL)
    draft.line(f"eq({total}, {total}, {same})")
    draft.use("op:eq")
    _store(draft, accesses, Tile(same, (t,), DType.BOOL))
    draft.close()
    return ({"N": 1}, {"N": 13}, {"N": 16})


FRAMES: dict[str, tuple[Callable[[Draft], Sizes], int]] = {
    "flat": (flat, 4),
    "rows": (rows, 3),
    "blocks": (blocks, 4),
    "whole": (whole, 7),
    "bounded": (bounded, 4),
    "carried": (carried, 2),
    "product": (product, 5),
    "phases": (phases, 1),
    "branches": (branches, 1),
}


def build(draft: Draft) -> Generated:
    """One sketch in a random frame."""
    names = list(FRAMES)
    frame = draft.rng.choices(names, [FRAMES[name][1] for name in names])[0]
    draft.use(f"frame:{frame}")
    sizes = FRAMES[frame][0](draft)
    if "V" in draft.symbols:
        sizes = tuple({**size, "V": value} for size, value in zip(sizes, (1, 5, 7), strict=False))
    return draft.finished(sizes)


__all__ = ["FRAMES", "build"]
