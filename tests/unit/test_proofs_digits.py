"""Digits of sizes: flattened grids, channels in groups, tied sizes, rolls, carries. The right forms
are proved, no wrong one is, and no proof is broken by a run."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proof_cases import check_against_runs

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.checker.facts import ONE, Atoms, Fact, Linear, refuted
from sketchc.ir import nodes as ir

# ---------------------------------------------------------------- the rule, against enumeration

NAMES = ("a", "b", "c", "n")
#: Sizes are at least 0, the others have any sign.
RANGES = {"a": range(-3, 4), "b": range(-3, 4), "c": range(5), "n": range(5)}
TERMS = (("a",), ("b",), ("c",), ("n",), ("a", "n"), ("b", "n"), ("c", "n"), ())


@st.composite
def systems(draw: st.DrawFn) -> list[tuple[dict[tuple[str, ...], int], bool]]:
    count = draw(st.integers(2, 5))
    coefficient = st.integers(-2, 2)
    return [
        (
            {
                term: value
                for term in draw(st.lists(st.sampled_from(TERMS), min_size=1, max_size=4))
                if (value := draw(coefficient))
            },
            draw(st.integers(0, 4)) == 0,
        )
        for _ in range(count)
    ]


@settings(max_examples=600)
@given(systems())
def test_what_is_impossible_has_no_point(
    system: list[tuple[dict[tuple[str, ...], int], bool]],
) -> None:
    atoms = Atoms()
    numbers = {name: atoms.variable(name, non_negative=name in "cn") for name in NAMES}

    def form(terms: dict[tuple[str, ...], int]) -> Linear:
        total: dict[int, int] = {}
        for term, value in terms.items():
            product_of: Linear = {ONE: value}
            for name in term:
                product_of = atoms.multiply(product_of, {numbers[name]: 1})
            total = {k: total.get(k, 0) + product_of.get(k, 0) for k in {*total, *product_of}}
        return {atom: value for atom, value in total.items() if value}

    facts = [Fact(form(terms), equality) for terms, equality in system]
    if not refuted(atoms, tuple(facts[1:]), (facts[0],), thorough=True):
        return
    for values in product(*RANGES.values()):
        point = dict(zip(NAMES, values, strict=True))
        assert not all(_holds(terms, equality, point) for terms, equality in system), point


def _holds(terms: dict[tuple[str, ...], int], equality: bool, point: dict[str, int]) -> bool:
    total = 0
    for term, value in terms.items():
        for name in term:
            value *= point[name]
        total += value
    return total == 0 if equality else total >= 0


# ---------------------------------------------------------------- flattened grids


def flat(m: str = "p//GN", n: str = "p % GN", count: str = "GM*GN", gn: str = "ceil(N, 2)") -> str:
    return f"""sketch flat {{
    symbols: M, N;
    tensors: A[M, N]: in f32; C[M, N]: out f32;
    let: GM = ceil(M, 3); GN = {gn};

    @llm_hint("parallel", "grididx")
    for p in range({count}):
        m = {m}
        n = {n}
        a = alloc([3, 2])
        load(A[m*3:(m+1)*3, n*2:(n+1)*2] -> a)
        store(a -> C[m*3:(m+1)*3, n*2:(n+1)*2])
}}
"""


def all_proved(found: dict[str, ir.Tier]) -> bool:
    return set(found.values()) <= {ir.Tier.PROVED, ir.Tier.CHECKED_AT_LAUNCH}


@pytest.mark.parametrize(
    "text",
    [
        flat(),
        flat("p % GM", "p//GM"),
        flat("GM - 1 - p//GN"),
        flat("p//ceil(N, 2)", "p % ceil(N, 2)", "ceil(M, 3)*ceil(N, 2)"),
        flat("p//GN", "p - p//GN*GN"),
    ],
)
def test_a_flattened_grid_is_proved(text: str) -> None:
    assert all_proved(check_against_runs(text, (0, 1, 2, 3, 7)))


@pytest.mark.parametrize(
    "text",
    [
        flat("p//GM"),
        flat(n="p % GM"),
        flat(n="p % (GN + 1)"),
        flat("p//(GN + 1)"),
        flat(count="GM*GN - 1"),
        flat(count="GM*GM"),
        flat(count="1, GM*GN"),
        flat("p//GN + 1"),
        flat(n="p % GN + 1"),
        flat(gn="N//2 + 0*M"),
        flat("p % GN", "p % GN"),
        flat("p//GN", "p//GN"),
    ],
)
def test_a_wrong_flattened_grid_is_not(text: str) -> None:
    found = check_against_runs(text, (0, 1, 2, 3, 7))
    assert ir.Tier.PROVED is not found["covered C"] or ir.Tier.PROVED is not found["independent C"]


# ---------------------------------------------------------------- tiles in groups of rows


@pytest.mark.parametrize(
    ("gm", "code"),
    [
        ("min(GM - first, 2)", None),
        ("min(2, GM - p//(2*GN)*2)", None),
        ("max(GM - first - 1, 1)", "SK0510"),
        ("min(GM - first - 1, 2)", "SK0314"),
        ("min(GM - first, p)", "SK0314"),
        ("GM - first - p", "SK0314"),
        ("2", "SK0510"),
    ],
)
def test_a_divisor_that_loops_decide_is_at_least_1(gm: str, code: str | None) -> None:
    """Triton's order of tiles: groups of two rows of tiles, column by column in each. That this
    order reaches every tile is left to runs."""
    text = flat("first + (p % (2*GN)) % gm", "(p % (2*GN))//gm").replace(
        "        m =", f"        first = p//(2*GN)*2\n        gm = {gm}\n        m ="
    )
    codes = [found.code for found in check(Source("test", text)).diagnostics]
    assert codes == [] if code is None else code in codes
    if code is None:
        assert not {ir.Tier.REFUTED} & set(check_against_runs(text, (1, 2, 3, 7)).values())


# ---------------------------------------------------------------- channels in groups


def grouped(index: str, outer: str = "G", inner: str = "C", extent: str = "C*G") -> str:
    return f"""sketch grouped {{
    symbols: C, G;
    tensors: X[C, G]: in f32; Y[{extent}]: out f32;

    @llm_hint("parallel", "grididx")
    for g in range({outer}):
        @llm_hint("parallel", "grididx")
        for c in range({inner}):
            x = alloc([1], f32, init=1)
            store(x -> Y[{index}])
}}
"""


@pytest.mark.parametrize("index", ["c*G + g", "g*C + c", "(C - 1 - c)*G + g"])
def test_channels_in_groups_are_proved(index: str) -> None:
    assert all_proved(check_against_runs(grouped(index)))


PARTS = [
    "c*G",
    "g*C",
    "c*C",
    "g*G",
    "c",
    "g",
    "c*2",
    "g*2",
    "1",
    "0",
    "G",
    "c*(G + 1)",
    "g*(C - 1)",
]


@settings(max_examples=120)
@given(
    st.sampled_from(PARTS),
    st.sampled_from(PARTS),
    st.sampled_from(["G", "G", "G - 1", "1, G", "C"]),
    st.sampled_from(["C", "C", "C - 1", "C + 1", "G"]),
    st.sampled_from(["C*G", "C*G", "C*C", "C*G + 1", "C*G*2"]),
)
def test_no_sum_of_digits_is_proved_that_a_run_breaks(
    one: str, two: str, outer: str, inner: str, extent: str
) -> None:
    check_against_runs(grouped(f"{one} + {two}", outer, inner, extent), (0, 1, 2, 3))


# ---------------------------------------------------------------- rolls, bounds, carries, ties


def roll(index: str, bound: str = "N") -> str:
    return f"""sketch roll {{
    symbols: N;
    params: shift: i64 = 1;
    tensors: X[N]: in f32; Y[N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(0, N, 4):
        x = alloc([4])
        load(X[i:i+4] -> x)
        store(x -> Y[{index.replace("i4", f"iota(4, i, {bound})")}])
}}
"""


SHIFTS = tuple({"shift": shift} for shift in (-7, -1, 0, 1, 2, 5))


def test_a_roll_meets_no_element_twice() -> None:
    """That it covers is left to runs: the lane that writes an element is a remainder of it."""
    found = check_against_runs(roll("(i4 + shift) % N"), params=SHIFTS)
    assert found["independent Y"] is ir.Tier.PROVED
    assert found["covered Y"] in (ir.Tier.PROVED, ir.Tier.UNPROVED)


@pytest.mark.parametrize("index", ["(2*i4 + shift) % N", "(i4 + shift) % (N + 1)", "(i4*i4) % N"])
def test_a_wrong_roll_is_not_proved(index: str) -> None:
    found = check_against_runs(roll(index), params=SHIFTS)
    assert not {found["independent Y"], found["covered Y"]} <= {ir.Tier.PROVED}


def transposed(low: str = "max(i + P - K + S, 0)//S", high: str = "min((i + P)//S + 1, O)") -> str:
    """A transposed convolution, gathered: the first output that reaches an input."""
    return f"""sketch transposed {{
    symbols: N, K;
    params: S: i64 = 2; P: i64 = 1;
    let: O = (N + 2*P - K)//S + 1;
    require: S >= 1 and P >= 0 and K >= 1 and N + 2*P >= K;
    tensors: X[N]: in f32; W[K]: in f32; G[O]: in f32; D[N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(N):
        d = alloc([1], f32, init=0)
        for o in range({low}, {high}):
            g = alloc([1])
            w = alloc([1])
            load(G[o] -> g)
            load(W[i + P - o*S] -> w)
            fma(g, w, d, d)
        store(d -> D[i])
}}
"""


STRIDES = tuple({"S": s, "P": p} for s, p in product((1, 2, 3), (0, 1, 2)))


def test_a_quotient_of_a_maximum_is_in_bounds() -> None:
    assert all_proved(check_against_runs(transposed(), (1, 2, 3, 5), STRIDES))


@pytest.mark.parametrize(
    "text",
    [
        transposed(low="max(i + P - K, 0)//S"),
        transposed(low="(i + P - K + S)//S"),
        transposed(high="min((i + P)//S + 2, O)"),
        transposed(high="(i + P)//S + 1"),
    ],
)
def test_a_window_that_is_too_wide_is_not(text: str) -> None:
    found = check_against_runs(text, (1, 2, 3, 5), STRIDES)
    assert {found["in-bounds G"], found["in-bounds W"]} != {ir.Tier.PROVED}


def carried(index: str = "s - 1", condition: str = "s > 0", written: str = "S") -> str:
    return f"""sketch carried {{
    symbols: S;
    tensors: X[S]: in f32; Y[S]: out f32;
    workspace: CARRY[S]: f32;

    @llm_hint("parallel", "grididx")
    for s in range({written}):
        x = alloc([1])
        load(X[s] -> x)
        store(x -> CARRY[s])
    @llm_hint("parallel", "grididx")
    for s in range(S):
        c = alloc([1], f32, init=0)
        if {condition}:
            load(CARRY[{index}] -> c)
        store(c -> Y[s])
}}
"""


@pytest.mark.parametrize("written", ["S", "S - 1"])
def test_a_carry_is_loaded_where_there_is_one(written: str) -> None:
    assert all_proved(check_against_runs(carried(written=written)))


@pytest.mark.parametrize(
    "text", [carried(written="S - 2"), carried(written="1, S"), carried("s", written="S - 1")]
)
def test_a_carry_that_nobody_wrote_is_refuted(text: str) -> None:
    assert check_against_runs(text)["initialised CARRY"] is ir.Tier.REFUTED


def heads(require: str = "D == DH*H and DK == DH*G and H == G*R", head: str = "h//R") -> str:
    """Heads of queries share those of keys: two sizes tied to the same others."""
    sizes = "; ".join(f"{name}_{name}[{name}]: in f32" for name in ("DH", "H", "G", "R"))
    return f"""sketch heads {{
    symbols: L, D, DK, DH, H, G, R;
    require: {require};
    tensors: Q[L, D]: in f32; K[L, DK]: in f32; O[L, D]: out f32; {sizes};

    @llm_hint("parallel", "grididx")
    for h in range(H):
        g = {head}
        for i in range(L):
            for d in range(DH):
                q = alloc([1])
                k = alloc([1])
                load(Q[i, h*DH + d] -> q)
                load(K[i, g*DH + d] -> k)
                add(q, k, q)
                store(q -> O[i, h*DH + d])
}}
"""


def test_tied_sizes_are_their_products() -> None:
    assert all_proved(check_against_runs(heads(), (1, 2, 4)))


@pytest.mark.parametrize(
    "text",
    [
        heads("D == DH*H and H == G*R"),
        heads("D == DH*H and DK == DH*G"),
        heads("D == DH*H and DK == DH*G and H == G*R", "h//G"),
        heads("D >= DH*H and DK == DH*G and H == G*R"),
        heads("D <= DH*H and DK == DH*G and H == G*R"),
    ],
)
def test_sizes_that_are_not_tied_are_not(text: str) -> None:
    found = check_against_runs(text, (1, 2, 4))
    open_claims = {found["in-bounds K"], found["in-bounds Q"], found["covered O"]}
    assert open_claims != {ir.Tier.PROVED}


# ---------------------------------------------------------------- digits by names

PADDED = """sketch padded {
    symbols: M, K, P;
    let: H = K + 2; W = P + 2; HO = K//2 + 1; WO = P//2 + 1;
    tensors: X[M, K, P]: in f32; Y[M, HO, WO]: out f32;
    workspace: PART[M, H, W]: f32;
    constexpr: T = 32 in [32, 64];

    @llm_hint("parallel", "grididx")
    for a_tile in range(ceil(M*(H*W), T)):
        a = iota(T, a_tile*T, M*(H*W))
        x = alloc([T])
        load(X[a//(H*W), a//W % H - 1, a % W - 1] -> x, pad=0)
        store(x -> PART[a//(H*W), a//W % H, a % W])
    @llm_hint("parallel", "grididx")
    for i in range(M):
        for k in range(HO):
            for l_tile in range(ceil(WO, T)):
                most = alloc([T], init=-inf)
                for r in range(2):
                    for s in range(2):
                        part = alloc([T])
                        load(PART[i, 2*k+r, 2*l_tile*T+s:min(2*(l_tile+1)*T+s, 2*WO+s):2] -> part)
                        max(most, part, most)
                store(most -> Y[i, k, l_tile*T:(l_tile+1)*T])
}
"""


def test_a_sum_that_is_positive_is_so_by_its_name() -> None:
    """A grid is divided by `H*W`, which is more than 0 since their values are."""
    (sketch,) = check(Source("padded", PADDED)).sketches
    tiers = {(proof.claim, proof.subject): proof.tier for proof in sketch.proofs}
    assert tiers["initialised", "PART"] is ir.Tier.PROVED
