"""Sketches of the operations that order, scan, move or make lanes, with inputs, for every target.

Extents are ragged against tiles that are no powers of two, so that padding, partly valid axes and
blocks without a valid lane all occur.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
from triton_cases import Array, dtype_of

from sketchc.base.types import DType

#: Rows and columns of every tile, and the symbols' values.
ROWS, COLUMNS = 3, 13
SIZES = ({"A": 5, "B": 11}, {"A": 3, "B": 13}, {"A": 4, "B": 1}, {"A": 0, "B": 7})
ORDERED = ("f32", "f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u8", "u32", "bool")
LOWEST = {"i64": "-9223372036854775807", "i32": "-2147483648", "i16": "-32768", "i8": "-128"}
HIGHEST = {
    "i64": "9223372036854775807",
    "i32": "2147483647",
    "i16": "32767",
    "i8": "127",
    "u8": "255",
    "u32": "4294967295",
    "bool": "True",
}


@attrs.define
class Body:
    """Lines of a sketch's loop, and the outputs that they store."""

    lines: list[str] = attrs.field(factory=list)
    outputs: list[str] = attrs.field(factory=list)

    def tile(self, name: str, extents: str, dtype: str, initial: str = "") -> None:
        init = f", init={initial}" if initial else ""
        self.lines.append(f"{name} = alloc([{extents}], {dtype}{init})")

    def line(self, text: str) -> None:
        self.lines.append(text)

    def store(self, name: str, dtype: str, columns: str, full: bool = False) -> None:
        """Store a tile of `ROWS` rows into an output of its own."""
        tensor = f"Y_{name}"
        self.outputs.append(f"{tensor}[A, {columns}]: out {dtype};")
        inside = ":" if full else f"0:{columns}"
        rows = f"i*{ROWS}:(i+1)*{ROWS}"
        axes = [rows, *([inside] * len(columns.split(",")))]
        self.line(f"store({name} -> {tensor}[{', '.join(axes)}])")

    def sketch(self, inputs: str, params: str = "") -> str:
        body = "\n".join(f"        {line}" for line in self.lines)
        declared = f"    params: {params};\n" if params else ""
        return (
            f"sketch lanes {{\n    symbols: A, B <= {COLUMNS};\n{declared}"
            f"    tensors: {inputs} {' '.join(self.outputs)}\n"
            f'    @llm_hint("parallel")\n    for i in range(ceil(A, {ROWS})):\n{body}\n}}\n'
        )


def _loaded(body: Body) -> None:
    body.line(f"x = alloc([{ROWS}, {COLUMNS}])")
    body.line(f"load(X[i*{ROWS}:(i+1)*{ROWS}, 0:B] -> x)")


def scans(dtype: str) -> str:
    """Running sums and products, both ways, with and without each lane's own value."""
    body = Body()
    _loaded(body)
    wide = {"f16": "f32", "bf16": "f32"}.get(dtype, dtype)
    for operation in ("cumsum", "cumprod"):
        for name, flags in (
            (operation, "reverse=False"),
            (f"{operation}_back", "reverse=True"),
            (f"{operation}_before", "exclusive=True"),
            (f"{operation}_behind", "reverse=True, exclusive=True"),
        ):
            body.tile(name, f"{ROWS}, {COLUMNS}", wide)
            body.line(f"{operation}(x, 1, {flags}, dst={name})")
            body.store(name, wide, "B")
    return body.sketch(f"X[A, B]: in {dtype};")


def extrema(dtype: str) -> str:
    """argmax and argmin along the columns, with and without the reduced axis."""
    body = Body()
    _loaded(body)
    for operation in ("argmax", "argmin"):
        body.tile(operation, f"{ROWS}, 1", "i64")
        body.line(f"{operation}(x, 1, {operation})")
        body.store(operation, "i64", "1", full=True)
    body.tile("flat", f"{ROWS}", "i64")
    body.line("argmax(x, 1, flat)")
    body.outputs.append("Y_flat[A]: out i64;")
    body.line(f"store(flat -> Y_flat[i*{ROWS}:(i+1)*{ROWS}])")
    return body.sketch(f"X[A, B]: in {dtype};")


def sorts(dtype: str) -> str:
    """Stable sorts, both ways, with the lanes' numbers and with loaded indices."""
    body = Body()
    _loaded(body)
    body.line(f"given = alloc([{ROWS}, {COLUMNS}])")
    body.line(f"load(I[i*{ROWS}:(i+1)*{ROWS}, 0:B] -> given)")
    for name, indices, descending in (
        ("up", f"iota({COLUMNS}, 0, B)", "False"),
        ("down", "given", "True"),
    ):
        body.tile(name, f"{ROWS}, {COLUMNS}", dtype)
        body.tile(f"{name}_index", f"{ROWS}, {COLUMNS}", "i64")
        body.line(f"sort(x, {indices}, 1, {name}, {name}_index, descending={descending})")
        body.store(name, dtype, "B")
        body.store(f"{name}_index", "i64", "B")
    return body.sketch(f"X[A, B]: in {dtype}; I[A, B]: in i64;")


def tops(dtype: str) -> str:
    """The best one and the best few, merged from two tiles each."""
    return _tops(dtype, (1, 4), merges=2)


def many_tops(dtype: str) -> str:
    """More results than are taken one by one."""
    return _tops(dtype, (20,), merges=1)


def _tops(dtype: str, counts: tuple[int, ...], merges: int) -> str:
    body = Body()
    _loaded(body)
    floating = DType(dtype).is_float
    ends = ("-inf", "inf") if floating else (LOWEST.get(dtype, "0"), HIGHEST[dtype])
    if dtype == "bool":
        ends = ("False", "True")
    for count in counts:
        for name, initial, largest in (
            (f"most_{count}", ends[0], "True"),
            (f"least_{count}", ends[1], "False"),
        ):
            body.tile(name, f"{ROWS}, {count}", dtype, initial)
            body.tile(f"{name}_index", f"{ROWS}, {count}", "i64", "-1")
            for first in range(0, 100 * merges, 100):
                indices = f"{first} + iota({COLUMNS}, 0, B)"
                body.line(f"topk(x, {indices}, 1, {name}, {name}_index, largest={largest})")
            body.store(name, dtype, str(count), full=True)
            body.store(f"{name}_index", "i64", str(count), full=True)
    return body.sketch(f"X[A, B]: in {dtype};")


def moves(dtype: str) -> str:
    """permute, transpose, reshape and concat of tiles whose extents are no powers of two."""
    body = Body()
    body.line(f"w = alloc([{ROWS}, 5, 6])")
    body.line(f"load(W[i*{ROWS}:(i+1)*{ROWS}, :, :] -> w)")
    _loaded(body)
    for name, shape, call in (
        ("exchanged", "6, 5", "permute(w, [0, 2, 1], exchanged)"),
        ("turned", "6, 5", "transpose(w, turned)"),
        ("merged", "30", "reshape(w, merged)"),
        ("split", "5, 2, 3", "reshape(w, split)"),
        ("regrouped", "3, 10", "reshape(w, regrouped)"),
    ):
        body.tile(name, f"{ROWS}, {shape}", dtype)
        body.line(call)
        body.store(name, dtype, shape, full=True)
    body.tile("joined", f"{ROWS}, {30 + COLUMNS}", dtype)
    body.line("concat(merged, x, 1, joined)")
    nothing = "False" if dtype == "bool" else "0"
    body.outputs.append(f"Y_joined[A, {30 + COLUMNS}]: out {dtype} = {nothing};")
    body.line(f"store(joined -> Y_joined[i*{ROWS}:(i+1)*{ROWS}, 0:30+B])")
    body.tile("rolled", f"6, {ROWS}, 5", dtype)
    body.line("permute(w, [2, 0, 1], rolled)")
    body.outputs.append(f"Y_rolled[6, A, 5]: out {dtype};")
    body.line(f"store(rolled -> Y_rolled[:, i*{ROWS}:(i+1)*{ROWS}, :])")
    return body.sketch(f"W[A, 5, 6]: in {dtype}; X[A, B]: in {dtype};")


def numbers() -> str:
    """Uniform and normal numbers, from a small and from a wide seed and offset."""
    body = Body()
    body.line(f"rows = i*{ROWS} + iota({ROWS})")
    for name, call, dtype in (
        ("even", f"rand(seed, rows[:, None]*B + iota({COLUMNS}), even)", "f32"),
        ("bell", f"randn(seed, rows[:, None]*B + iota({COLUMNS}), bell)", "f32"),
        ("wide", f"rand(0 - seed, shift + rows[:, None]*B + iota({COLUMNS}), wide)", "f32"),
        ("half", f"rand(seed, iota({COLUMNS}), half)", "f16"),
        ("one", "rand(7, i, one)", "f32"),
    ):
        body.tile(name, f"{ROWS}, {COLUMNS}", dtype)
        body.line(call)
        body.store(name, dtype, "B")
    return body.sketch("X[A, B]: in f32;", "seed: i64 = 12345678901; shift: i64 = 99999999999")


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0, -1.0]


def inputs(symbols: dict[str, int], dtype: str) -> dict[str, Array]:
    """Few different values, for ties; the ends of the type; NaN, infinities and both zeros."""
    rng = np.random.default_rng(3)
    rows, columns = symbols["A"], symbols["B"]
    kind, made = DType(dtype), {}
    for name, shape in (("X", (rows, columns)), ("W", (rows, 5, 6))):
        values = rng.integers(-3, 4, shape)
        if kind.is_float:
            array = values.astype(dtype_of(kind))
            specials = rng.choice(np.array(SPECIAL), shape).astype(array.dtype)
            array = np.where(rng.random(shape) < 0.3, specials, array)
        elif kind is DType.BOOL:
            array = values > 0
        else:
            limits = np.iinfo(dtype_of(kind))
            ends = rng.choice(np.array([limits.min, limits.max], dtype_of(kind)), shape)
            array = np.where(rng.random(shape) < 0.3, ends, values.astype(dtype_of(kind)))
        made[name] = array
    made["I"] = rng.integers(-(2**40), 2**40, (rows, columns))
    return made


def all_sketches(dtypes: tuple[str, ...] = ORDERED) -> Iterator[tuple[str, str, str]]:
    """(name, dtype, text) of every sketch above in every type that it takes."""
    for dtype in dtypes:
        for make in (scans, extrema, sorts, tops, many_tops, moves):
            if not (dtype == "bool" and make is scans):
                yield f"{make.__name__}-{dtype}", dtype, make(dtype)
    yield "numbers", "f32", numbers()
