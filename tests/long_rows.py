"""Sketches that scan and sort rows longer than a tile, for the interpreter and for every target."""

from __future__ import annotations

import itertools

#: Lanes of a tile; rows have fewer, as many, and more.
T = 4
SIZES = (0, 1, T - 1, T, T + 1, 13)


def scan(
    name: str, operation: str, axis: int, dtype: str, wide: str, flags: str, dropped: bool
) -> str:
    """A scan along `axis` of X, tile by tile, three rows side by side. `wide` is the type of the
    carry and of the result; `dropped`: the carry has no axis for the scanned one."""
    reverse = "reverse=True" in flags
    tiles = f"ceil(N, {T}) - 1, -1, -1" if reverse else f"ceil(N, {T})"
    along = f"j*{T}:(j+1)*{T}"
    shape, tile, access, carry = (
        ("3, N", f"3, {T}", f"0:3, {along}", "3, 1")
        if axis
        else ("N, 3", f"{T}, 3", f"{along}, 0:3", "1, 3")
    )
    init = int(operation == "cumprod")
    carry, last = ("3", "0:3") if dropped else (carry, "0:3, 0:1" if axis else "0:1, 0:3")
    return f"""sketch {name} {{
    symbols: N;
    tensors: X[{shape}]: in {dtype}; Y[{shape}]: out {wide}; LAST[{carry}]: out {wide};
    @llm_hint("parallel")
    for once in range(1):
        so_far = alloc([{carry}], {wide}, init={init})
        for j in range({tiles}):
            x = alloc([{tile}], {dtype})
            y = alloc([{tile}], {wide})
            load(X[{access}] -> x)
            {operation}(x, {axis}, y, carry=so_far{flags})
            store(y -> Y[{access}])
        store(so_far -> LAST[{last}])
}}
"""


def scans(dtype: str, wide: str) -> list[tuple[str, str, int, str]]:
    """(text, operation, axis, flags) of all forms of scans of a type."""
    found = []
    for number, (operation, axis, reverse, exclusive) in enumerate(
        itertools.product(("cumsum", "cumprod"), (0, 1), (False, True), (False, True))
    ):
        flags = ", reverse=True" * reverse + ", exclusive=True" * exclusive
        name = f"scan_{dtype}_{number}"
        text = scan(name, operation, axis, dtype, wide, flags, dropped=number % 3 == 0)
        found.append((text, operation, axis, flags))
    return found


def sort(name: str, axis: int, dtype: str, descending: bool, others: int) -> str:
    """A sort along `axis` of X by counted places, three rows side by side; the tiles that are
    counted have `others` lanes."""
    here, there = f"iota({T}, j*{T}, N)", f"iota({others}, k*{others}, N)"
    along, beside = f"j*{T}:(j+1)*{T}", f"k*{others}:(k+1)*{others}"
    if axis:
        shape, tile, other = "3, N", f"3, {T}", f"3, {others}"
        access, also = f"0:3, {along}", f"0:3, {beside}"
        goal = "iota(3)[:, None], place"
    else:
        shape, tile, other = "N, 3", f"{T}, 3", f"{others}, 3"
        access, also = f"{along}, 0:3", f"{beside}, 0:3"
        here, there = f"{here}[:, None]", f"{there}[:, None]"
        goal = "place, iota(3)[None, :]"
    flags = ", descending=True" if descending else ""
    return f"""sketch {name} {{
    symbols: N;
    tensors: X[{shape}]: in {dtype}; VALUES[{shape}]: out {dtype}; PLACES[{shape}]: out i64;
    @llm_hint("parallel")
    for j in range(ceil(N, {T})):
        x = alloc([{tile}], {dtype})
        load(X[{access}] -> x)
        place = alloc([{tile}], i64, init=0)
        for k in range(ceil(N, {others})):
            other = alloc([{other}], {dtype})
            load(X[{also}] -> other)
            rank(x, {here}, other, {there}, {axis}, place{flags})
        number = alloc([{tile}], i64)
        copy({here}, number)
        store(x -> VALUES[{goal}], unique=True, covers=True)
        store(number -> PLACES[{goal}], unique=True, covers=True)
}}
"""


def sorts(dtype: str) -> list[tuple[str, int, bool]]:
    """(text, axis, descending) of all forms of sorts of a type."""
    found = []
    for number, (axis, descending, others) in enumerate(
        itertools.product((0, 1), (False, True), (3, 8))
    ):
        text = sort(f"sort_{dtype}_{number}", axis, dtype, descending, others)
        found.append((text, axis, descending))
    return found
