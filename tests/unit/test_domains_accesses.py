"""Domains of every access form: exactly the lanes that the rules name (LANGUAGE R1, R5, R13).

The static answer (intervals and guards) is compared with all lanes tried one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_values import lanes_of, selected

from sketchc.base.diagnostics import Diagnostic, Source, has_errors
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.domains.messages import describe
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import host_values
from sketchc.ir.show import show
from sketchc.parsing.parser import parse

SIZES = (0, 1, 2, 5, 9)
QUICK = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)


def inferred(text: str) -> tuple[ir.Sketch | None, tuple[Diagnostic, ...]]:
    tree, found = parse(Source("test", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    if sketch is None:
        return None, found
    assert not has_errors(found), found
    return infer_domains(sketch)


def accepted(text: str) -> ir.Sketch:
    sketch, found = inferred(text)
    assert sketch is not None
    assert not has_errors(found), found
    return sketch


def statements(sketch: ir.Sketch) -> list[ir.Statement]:
    return list(walk.in_phases(sketch.phases))


def the_load(sketch: ir.Sketch) -> ir.Load:
    return next(s for s in statements(sketch) if isinstance(s, ir.Load))


def the_store(sketch: ir.Sketch) -> ir.Store:
    return next(s for s in statements(sketch) if isinstance(s, ir.Store))


def codes(found: tuple[Diagnostic, ...]) -> set[str]:
    return {diagnostic.code for diagnostic in found}


# ---------------------------------------------------------------- one axis


def copying(access: str, arguments: str, head: str = "") -> str:
    """A load of `X[access]` into a tile of 5 lanes, in a loop over `i` in 0..2."""
    return f"""sketch copying {{
    symbols: N;
    tensors: X[N]: in f32; Y[3, 5]: out f32 = 0;
    for i in range(3):
        {head}
        x = alloc([5], f32)
        load(X[{access}] -> x{arguments})
        store(x -> Y[i, 0:5])
}}
"""


def sampled(sketch: ir.Sketch) -> Iterator[dict[str, Any]]:
    """Values of all names at `x`'s load, for sizes and iterations."""
    binds = [s for s in statements(sketch) if isinstance(s, ir.Bind)]
    for size in SIZES:
        for other in SIZES if len(sketch.symbols) > 1 else (0,):
            symbols = dict(zip((s.name for s in sketch.symbols), (size, other), strict=False))
            for i in range(3):
                names: dict[str, Any] = {**host_values(sketch, symbols), "i": i}
                for bind in binds:
                    names[bind.name] = lanes_of(bind.value, names)
                yield names


slices = st.tuples(
    st.integers(-3, 8),
    st.integers(-4, 4),
    st.integers(0, 5),
    st.sampled_from((-3, -2, -1, 1, 2, 3)),
)


@given(slices, st.booleans())
@QUICK
def test_lanes_of_strided_slices(parts: tuple[int, int, int, int], pad: bool) -> None:
    start, factor, length, step = parts
    lower = f"{start} + {factor}*i"
    upper = f"{start + step * length} + {factor}*i"
    sketch = accepted(copying(f"{lower}:{upper}:{step}", ", pad=7" if pad else ""))
    load = the_load(sketch)
    for names in sampled(sketch):
        element = start + factor * names["i"] + step * np.arange(5)
        inside = np.arange(5) < length
        real = inside & (element >= 0) & (element < names["N"])
        assert (selected(load.domain, (), (5,), names) == (inside if pad else real)).all()
        assert (selected(load.read, load.guards, (5,), names) == real).all()


@given(st.integers(0, 9), st.integers(1, 4), st.sampled_from(("S", "-S")), st.integers(0, 9))
@QUICK
def test_lanes_of_slices_with_a_symbolic_step(low: int, s: int, step: str, high: int) -> None:
    text = copying(f"{low}:{high}:{step}", ", pad=0").replace(
        "symbols: N;", "symbols: N; params: S: i64 = 1; require: S >= 1;"
    )
    sketch = accepted(text)
    load = the_load(sketch)
    for names in sampled(sketch):
        names["S"] = s
        stride = s if step == "S" else -s
        element = low + stride * np.arange(5)
        inside = (element < high) if stride > 0 else (element > high)
        real = inside & (element >= 0) & (element < names["N"])
        assert (selected(load.domain, (), (5,), names) == inside).all()
        assert (selected(load.read, load.guards, (5,), names) == real).all()


@st.composite
def index_tiles(draw: st.DrawFn, lane: str = "iota(5)") -> str:
    """An index expression of one axis."""
    a, b, c = draw(st.integers(-3, 3)), draw(st.integers(-4, 8)), draw(st.integers(-2, 4))
    inner = f"{a}*{lane} + {b} + {c}*i"
    q = draw(st.integers(1, 4))
    return draw(
        st.sampled_from(
            (
                inner,
                f"({inner})//{q}",
                f"2*(({inner})//{q}) + 1",
                f"({inner})%{q}",
                f"min({inner}, N - 1)",
                f"max(min({inner}, N - 1), 0)",
                f"N - 1 - ({inner})",
            )
        )
    )


@st.composite
def conditions(draw: st.DrawFn) -> str:
    operators = ("<", "<=", ">", ">=", "==", "!=")

    def one() -> str:
        left = draw(index_tiles())
        right = draw(st.sampled_from(("N", "3", "i", "N//2 - i", "min(N, 4)")))
        text = f"{left} {draw(st.sampled_from(operators))} {right}"
        return f"not ({text})" if draw(st.booleans()) else text

    joint = draw(st.sampled_from(("and", "or", "")))
    return f"({one()}) {joint} ({one()})" if joint else one()


@given(index_tiles(), st.one_of(st.none(), conditions()), st.booleans())
@QUICK
def test_lanes_of_index_tiles(index: str, where: str | None, pad: bool) -> None:
    arguments = (", pad=0" if pad else "") + (f", where={where}" if where else "")
    head = f"e = {index}" + (f"\n        w = {where}" if where else "")
    sketch, found = inferred(copying("e", arguments, head))
    assert sketch is not None, found
    load = the_load(sketch)
    if has_errors(found):
        assert codes(found) == {"SK0425"}
        assert not pad
        return
    for names in sampled(sketch):
        element = np.broadcast_to(names["e"], 5)
        chosen = np.broadcast_to(names["w"], 5) if where else np.ones(5, dtype=bool)
        real = chosen & (element >= 0) & (element < names["N"])
        domain = selected(load.domain, (), (5,), names)
        assert (domain == (np.ones(5, dtype=bool) if pad else real)).all(), describe(load.domain)
        assert (selected(load.read, load.guards, (5,), names) == real).all()
        if not pad:
            assert (load.read, load.guards) == (load.domain, ())


@given(st.integers(-2, 4), st.integers(0, 6), st.booleans())
@QUICK
def test_bounded_iota_is_void_from_its_bound_on(low: int, high: int, pad: bool) -> None:
    sketch = accepted(copying(f"iota(5, {low} + i, {high})*2", ", pad=0" if pad else ""))
    load = the_load(sketch)
    for names in sampled(sketch):
        value = low + names["i"] + np.arange(5)
        inside = value < high
        real = inside & (value >= 0) & (2 * value < names["N"])
        assert (selected(load.domain, (), (5,), names) == (inside if pad else real)).all()
        assert (selected(load.read, load.guards, (5,), names) == real).all()


@given(index_tiles(), st.one_of(st.none(), conditions()))
@QUICK
def test_lanes_that_a_store_writes(index: str, where: str | None) -> None:
    text = f"""sketch storing {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32 = 0;
    for i in range(3):
        e = {index}
        w = {where or "i < 9"}
        x = alloc([5], f32)
        load(X[i:i+5] -> x)
        store(x -> Y[e], unique=True{", where=w" if where else ""})
}}
"""
    sketch = accepted(text)
    store = the_store(sketch)
    for names in sampled(sketch):
        element, lane = np.broadcast_to(names["e"], 5), np.arange(5)
        chosen = np.broadcast_to(names["w"], 5) if where else np.ones(5, dtype=bool)
        real = chosen & (element >= 0) & (element < names["N"]) & (lane + names["i"] < names["N"])
        assert (selected(store.domain, store.guards, (5,), names) == real).all()


# ---------------------------------------------------------------- two axes


@st.composite
def planes(draw: st.DrawFn) -> tuple[str, str]:
    """Two index expressions over a row and a column of lanes."""
    rows, columns = "m[:, None]", "k[None, :]"

    def one() -> str:
        a, b, c = (draw(st.integers(-2, 3)) for _ in range(3))
        inner = f"{a}*{rows} + {b}*{columns} + {c}"
        q = draw(st.integers(1, 3))
        return draw(st.sampled_from((inner, f"({inner})//{q}", f"({inner})%{q}", rows, columns)))

    return one(), one()


@given(planes(), st.integers(0, 2), st.booleans())
@QUICK
def test_lanes_of_planes(pair: tuple[str, str], start: int, padded: bool) -> None:
    text = f"""sketch planes {{
    symbols: N, M;
    tensors: X[N, M]: in f32; Y[3, 3, 4]: out f32 = 0;
    for i in range(3):
        m = iota(3, {start}*i, N)
        k = iota(4)
        a = {pair[0]}
        b = {pair[1]}
        x = alloc([3, 4], f32)
        load(X[a, b] -> x{", pad=0" if padded else ""})
        store(x -> Y[i, 0:3, 0:4])
}}
"""
    sketch, found = inferred(text)
    if sketch is None:  # neither has both axes
        assert codes(found) & {"SK0304", "SK0305", "SK0320", "SK0321", "SK0322"}, found
        return
    load = the_load(sketch)
    if has_errors(found):
        assert codes(found) == {"SK0425"}
        assert not padded
        return
    rows = any("m[" in part for part in pair)
    for names in sampled(sketch):
        a, b = (np.broadcast_to(names[name], (3, 4)) for name in ("a", "b"))
        valid = np.ones((3, 4), dtype=bool)
        if rows:
            valid &= (start * names["i"] + np.arange(3) < names["N"])[:, None]
        real = valid & (a >= 0) & (a < names["N"]) & (b >= 0) & (b < names["M"])
        expected = valid if padded else real
        assert (selected(load.domain, (), (3, 4), names) == expected).all()
        assert (selected(load.read, load.guards, (3, 4), names) == real).all()


# ---------------------------------------------------------------- what is said, and what is refused


def test_indices_from_memory_are_guarded_and_need_no_padding() -> None:
    sketch = accepted("""sketch embedding {
    symbols: V, D <= 64, N;
    tensors: TABLE[V, D]: in f32; IDX[N]: in i64; Y[N, D]: out f32;
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        idx = alloc([T], i64)
        x = alloc([T, D], f32)
        load(IDX[i*T:(i+1)*T] -> idx)
        load(TABLE[idx, :] -> x)
        store(x -> Y[i*T:(i+1)*T, :])
}
""")
    table = [s for s in statements(sketch) if isinstance(s, ir.Load)][1]
    assert describe(table.domain) == "[lane < N - i*T, all]"
    assert [show(guard) for guard in table.guards] == ["0 <= idx[:, None]", "idx[:, None] < V"]
    lanes = table.access.subscripts[0]
    assert isinstance(lanes, ir.IndexSubscript)
    assert isinstance(lanes.value, ir.TileLanes)
    assert describe(lanes.value.domain) == "[lane < N - i*T]"
    assert describe(the_store(sketch).domain) == "[lane < N - i*T, all]"


def test_a_byte_is_an_index_that_needs_no_guard() -> None:
    sketch = accepted("""sketch table {
    symbols: N;
    tensors: TABLE[256]: in f32; X[N]: in u8; Y[N]: out f32;
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        code = alloc([T], u8)
        y = alloc([T], f32)
        load(X[i*T:(i+1)*T] -> code)
        load(TABLE[code] -> y)
        store(y -> Y[i*T:(i+1)*T])
}
""")
    assert all(not s.guards for s in statements(sketch) if isinstance(s, ir.Load))


CONVOLUTION = """sketch conv {
    symbols: N, C, H, W, CO;
    constexpr: KH = 3, KW = 2, TM = 4, TN = 4, TK = 4;
    params: S: i64 = 2; P: i64 = 1;
    require: S >= 1 and P >= 0;
    let: OH = (H + 2*P - KH)//S + 1; OW = (W + 2*P - KW)//S + 1;
    tensors: X[N, C, H, W]: in f32; F[CO, C, KH, KW]: in f32; Y[N, CO, OH, OW]: out f32 = 0;
    views: FF[CO, C*KH*KW] = F; YF[N*CO*OH*OW] = Y;

    @llm_hint("parallel")
    for i in range(ceil(N*OH*OW, TM)):
        @llm_hint("parallel")
        for j in range(ceil(CO, TN)):
            acc = alloc([TM, TN], f32, init=0)
            m = ROWS
            n = m // (OH*OW)
            oh = (m // OW) % OH
            ow = m % OW
            for k0 in range(0, C*KH*KW, TK):
                k = iota(TK, k0, C*KH*KW)
                c = k // (KH*KW)
                kh = (k // KW) % KH
                kw = k % KW
                x = alloc([TM, TK])
                f = alloc([TN, TK])
                load(X[n[:, None], c[None, :], oh[:, None]*S + kh[None, :] - P,
                       ow[:, None]*S + kw[None, :] - P] -> x, pad=0)
                load(FF[j*TN:(j+1)*TN, k0:k0+TK] -> f)
                gemm(x, f, acc, trans_b=True)
            co = iota(TN, j*TN, CO)
            STORE
}
"""
STORES = (
    "store(acc -> Y[n[:, None], co[None, :], oh[:, None], ow[:, None]])",
    "store(acc -> YF[((n[:, None]*CO + co[None, :])*OH + oh[:, None])*OW + ow[:, None]])",
)


@pytest.mark.parametrize(
    ("rows", "store"),
    [
        ("iota(TM, i*TM, N*OH*OW)", STORES[0]),
        ("iota(TM, i*TM, N*OH*OW)", STORES[1]),
        ("i*TM + iota(TM)", STORES[0]),  # a flat output would be overshot by whole rows
    ],
)
def test_a_convolution_as_a_matrix_product_guards_the_image_alone(rows: str, store: str) -> None:
    sketch = accepted(CONVOLUTION.replace("ROWS", rows).replace("STORE", store))
    load = the_load(sketch)
    assert [show(guard) for guard in load.guards] == [
        "0 <= oh[:, None]*S + kh[None, :] - P",
        "oh[:, None]*S + kh[None, :] - P < H",
        "0 <= ow[:, None]*S + kw[None, :] - P",
        "ow[:, None]*S + kw[None, :] - P < W",
    ]
    last = "i*TM" if "N*OH*OW" in rows else "TM*i"
    assert describe(load.read) == f"[lane < N*OH*OW - {last}, lane < C*KH*KW - k0]"
    stored = the_store(sketch)
    assert not stored.guards
    assert describe(stored.domain) == f"[lane < N*OH*OW - {last}, lane < CO - j*TN]"


def reducing(load: str, operation: str, head: str = "") -> str:
    return f"""sketch reducing {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32 = 0;
    @llm_hint("parallel")
    for i in range(M):
        y = alloc([1], f32, init=0)
        for j in range(0, N, 4):
            x = alloc([4], f32)
            s = alloc([1], f32)
            {head}
            load({load})
            {operation}
            reduce_sum(x, 0, s)
            add(y, s, y)
        store(y -> Y[i:i+1])
}}
"""


@pytest.mark.parametrize(
    ("load", "operation", "refused"),
    [
        ("X[i, j:j+4] -> x, pad=1", "", True),
        ("X[i, j:j+4] -> x, pad=0", "exp(x, x)", True),
        ("X[i, j:j+4] -> x", "", False),
        ("X[i, j:min(j+4, N)] -> x, pad=0", "", False),
        ("X[i, iota(4, j, N)] -> x, pad=0", "", False),
        ("X[i, j:j+4] -> x, pad=0", "", False),
        ("X[i, j + iota(4)] -> x, pad=1", "", True),
        ("X[i, j + iota(4)] -> x, pad=0", "", False),
        ("X[i, j + iota(4)] -> x", "", False),
        ("X[i, iota(4, j, N)] -> x, pad=0, where=iota(4) % 2 == 0", "", False),
    ],
)
def test_lanes_valid_only_by_padding_do_not_meet_others(
    load: str, operation: str, refused: bool
) -> None:
    _, found = inferred(reducing(load, operation))
    assert ("SK0428" in codes(found)) == refused, found


@pytest.mark.parametrize(
    ("load", "refused"),
    [
        ("X[i, (j + iota(4)) % 3] -> x", True),
        ("X[i, j + iota(4)] -> x, where=(j + iota(4)) % 2 == 0", True),
        ("X[i, j + iota(4)] -> x, where=iota(4) < 2 or j > 3", True),
        ("X[i, j + iota(4)] -> x, where=iota(4) < 2 and j + iota(4) >= 1", False),
        ("X[i, (j + iota(4))//2] -> x, where=not (iota(4) >= M)", False),
        ("X[i, min(j + iota(4), N - 1)] -> x", False),
    ],
)
def test_bounds_that_do_not_separate_need_padding(load: str, refused: bool) -> None:
    _, found = inferred(reducing(load, ""))
    assert ("SK0425" in codes(found)) == refused, found


def test_a_scalar_subscript_under_padding_is_a_guard() -> None:
    sketch = accepted("""sketch shifted {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    @llm_hint("parallel")
    for i in range(M):
        for j in range(0, N, 4):
            x = alloc([4], f32)
            load(X[i - 1, j:min(j+4, N)] -> x, pad=0)
            store(x -> Y[i, j:j+4])
}
""")
    assert [show(guard) for guard in the_load(sketch).guards] == ["0 <= i - 1"]
