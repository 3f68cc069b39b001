"""Every form of access and of moving lanes where a tile has an axis of extent 1.

A tuning point may say so of any tile size, and Triton and C++ treat such axes apart. Each sketch is
run with all extents 1 and with either of them 1, at ragged sizes, 0 and 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from every_target import disagreements
from triton_cases import Array, Case, assert_close

from sketchc.lowering.registry import TARGETS

EXTENTS = ((1, 1), (1, 4), (4, 1))
SIZES = ({"M": 5, "N": 7}, {"M": 1, "N": 6}, {"M": 1, "N": 1}, {"M": 0, "N": 3})
#: Each kernel compiles by itself there, and again where a size is 1.
ASCEND_SIZES = SIZES[:1]

ROWS, COLUMNS = "i*TM:(i+1)*TM", "j*TN:(j+1)*TN"
#: Where a tile [TM, TN] is loaded from.
LOADS = {
    "slices": f"X[{ROWS}, {COLUMNS}]",
    "slice_and_index": f"X[{ROWS}, c]",
    "index_and_slice": f"X[r, {COLUMNS}]",
    "lanes": "X[r[:, None], c]",
    "computed_index": "W[2*i*TM:2*(i+1)*TM:2, 2*c]",
    "strided": "W[2*i*TM:2*(i+1)*TM:2, 2*j*TN+1:2*(j+1)*TN+1:2]",
    "padded": f"X[i*TM-1:(i+1)*TM-1, {COLUMNS}], pad=0.5",
    "padded_index": f"X[{ROWS}, c - 1], pad=0.5",
    "where_rows": f"X[{ROWS}, {COLUMNS}], where=r[:, None] >= 1",
    "where_both": f"X[{ROWS}, {COLUMNS}], where=r[:, None] >= c, pad=-1.0",
    "where_index": f"X[r, {COLUMNS}], where=c >= 1",
    "loaded_rows": f"X[ii, {COLUMNS}]",
    "loaded_columns": f"X[{ROWS}, jj]",
    "loaded_both": "X[ii[:, None], jj]",
    "first_plane": f"P[0:1, {ROWS}, c]",
    "last_plane": f"P[1, {ROWS}, {COLUMNS}]",
    "transposed_lanes": "T[c, r[:, None]]",
    "broadcast_row": f"BROW[{ROWS}, {COLUMNS}]",
}
SHAPES = {"first_plane": "1, TM, TN"}
STORES = {
    "slices": f"[{ROWS}, {COLUMNS}]",
    "slice_and_index": f"[{ROWS}, c]",
    "index_and_slice": f"[r, {COLUMNS}]",
    "lanes": "[r[:, None], c]",
}
OPERATIONS = (
    ("sum_columns", "TM", f"[{ROWS}, j]", "M, N", "f32", "reduce_sum(a, 1, {})"),
    ("sum_kept", "TM, 1", f"[{ROWS}, j:j+1]", "M, N", "f32", "reduce_sum(a, 1, {})"),
    ("max_both", "1, 1", "[i:i+1, j:j+1]", "M, N", "f32", "reduce_max(a, [0, 1], {})"),
    ("place", "TM", f"[{ROWS}, j]", "M, N", "i64", "argmax(a, 1, {})"),
    ("running", "TM, TN", f"[{ROWS}, {COLUMNS}]", "M, N", "f32", "cumsum(a, 1, dst={})"),
    ("turned", "TN, TM", f"[{COLUMNS}, {ROWS}]", "N, M", "f32", "transpose(a, {})"),
    ("permuted", "TN, TM", f"[{COLUMNS}, {ROWS}]", "N, M", "f32", "permute(a, [1, 0], {})"),
    ("row_by_tile", "TM, TN", f"[{ROWS}, {COLUMNS}]", "M, N", "f32", "mul(a, row, {})"),
    ("column_by_tile", "TM, TN", f"[{ROWS}, {COLUMNS}]", "M, N", "f32", "add(a, column, {})"),
    ("outer", "TM, TN", f"[{ROWS}, {COLUMNS}]", "M, N", "f32", "mul(column, row, {})"),
    ("repeated", "TM, TN", f"[{ROWS}, {COLUMNS}]", "M, N", "f32", "broadcast(column, {})"),
    ("numbers", "TM, TN", f"[{ROWS}, {COLUMNS}]", "M, N", "i64", "add(r[:, None], c, {})"),
    ("chosen", "TM, TN", f"[{ROWS}, {COLUMNS}]", "M, N", "f32", "where(r[:, None] > c, a, 0, {})"),
)


def head(name: str, outputs: list[str], tm: int, tn: int) -> str:
    return f"""sketch {name} {{
    symbols: M, N;
    tensors: X[M, N]: in f32; W[2*M, 2*N+1]: in f32; T[N, M]: in f32; P[2, M, N]: in f32;
        BROW[M|1, N]: in f32; I[M]: in i64; J[N]: in i64; {" ".join(outputs)}
    constexpr: TM = {tm}, TN = {tn};
    @llm_hint("parallel")
    for i in range(ceil(M, TM)):
        @llm_hint("parallel")
        for j in range(ceil(N, TN)):
            r = i*TM + iota(TM)
            c = j*TN + iota(TN)
            ii = alloc([TM], i64)
            load(I[i*TM:(i+1)*TM] -> ii)
            jj = alloc([TN], i64)
            load(J[j*TN:(j+1)*TN] -> jj)
"""


def accesses(name: str, tm: int, tn: int) -> str:
    """Every form of load, of store and of atomic."""
    outputs, body = [], []
    for form, source in LOADS.items():
        shape = SHAPES.get(form, "TM, TN")
        rank = shape.count(",")
        access, word, extra = re.split(r"(, (?:pad|where)=|$)", source, maxsplit=1)
        body += [f"l_{form} = alloc([{shape}], f32)", f"load({access} -> l_{form}{word}{extra})"]
        first = "0:1, " * (rank - 1)
        outputs.append(f"L_{form}[{'1, ' * (rank - 1)}M, N]: out f32 = 0;")
        body.append(f"store(l_{form} -> L_{form}[{first}{ROWS}, {COLUMNS}])")
    for form, place in STORES.items():
        outputs.append(f"S_{form}[M, N]: out f32 = 0;")
        body.append(f"store(l_slices -> S_{form}{place})")
        outputs.append(f"H_{form}[M, N]: out f32 = 7;")
        body.append(f"store(l_slices -> H_{form}{place}, where=r[:, None] != c)")
        outputs.append(f"A_{form}[M, N]: out f32 = 1;")
        body.append(f"atomic_add(l_slices -> A_{form}{place})")
    for form, place in (("rows", f"[ii, {COLUMNS}]"), ("both", "[ii[:, None], jj]")):
        outputs.append(f"G_{form}[M, N]: out f32 = 1;")
        body.append(f"atomic_max(l_slices -> G_{form}{place})")
    lines = "".join(f"            {line}\n" for line in body)
    return f"{head(name, outputs, tm, tn)}{lines}}}\n"


def operations(name: str, tm: int, tn: int) -> str:
    """What combines, orders and moves lanes, and a product."""
    outputs = []
    body = [
        "a = alloc([TM, TN])",
        f"load(X[{ROWS}, {COLUMNS}] -> a)",
        "row = alloc([TN])",
        f"load(X[i, {COLUMNS}] -> row)",
        "column = alloc([TM, 1])",
        f"load(T[j, {ROWS}] -> flat)",
        "reshape(flat, column)",
    ]
    body[4:4] = ["flat = alloc([TM])"]
    for operation, shape, place, extents, dtype, call in OPERATIONS:
        outputs.append(f"O_{operation}[{extents}]: out {dtype} = 0;")
        body += [f"o_{operation} = alloc([{shape}], {dtype})", call.format(f"o_{operation}")]
        body.append(f"store(o_{operation} -> O_{operation}{place})")
    outputs.append("O_product[M, M]: out f32 = 0;")
    body += ["o_product = alloc([TM, TM])", "matmul(a, o_turned, o_product)"]
    body.append(f"atomic_add(o_product -> O_product[{ROWS}, {ROWS}])")
    lines = "".join(f"            {line}\n" for line in body)
    return f"{head(name, outputs, tm, tn)}{lines}}}\n"


def inputs(symbols: dict[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(symbols["M"])
    m, n = symbols["M"], symbols["N"]
    shapes = {"X": (m, n), "W": (2 * m, 2 * n + 1), "T": (n, m), "P": (2, m, n), "BROW": (1, n)}
    made: dict[str, Array] = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    made |= {"I": rng.integers(0, max(m, 1), m), "J": rng.integers(0, max(n, 1), n)}
    return made


def same(case: Case, found: dict[str, Array]) -> str:
    wrong = []
    for name, expected in case.expected.items():
        try:
            assert_close(found[name], expected, terms=8)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    return "\n".join(wrong)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [accesses, operations])
def test_axes_of_one_element(
    target: str, make: Callable[[str, int, int], str], tmp_path: Path
) -> None:
    sizes = ASCEND_SIZES if target == "triton_ascend" else SIZES
    sketches = {}
    for tm, tn in EXTENTS:
        name = f"{make.__name__}_{tm}_{tn}"
        runs = [(symbols, inputs(symbols)) for symbols in sizes]
        sketches[name] = (make(name, tm, tn), runs)
    wrong = disagreements(target, sketches, tmp_path, same)
    assert not wrong, "\n\n".join(wrong)
