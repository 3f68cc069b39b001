"""What the host checks at launch is known to every proof: types of params, generated checks, and
conditions with several cases."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proof_cases import broken, check_against_runs, elaborated, proved

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.checker.api import check
from sketchc.ir import nodes as ir

NARROW = [dtype for dtype in DType if dtype.is_integer and dtype is not DType.I64]


def picked(params: str, index: str, extent: str = "N", require: str = "", inside: str = "") -> str:
    """Adds one element of Z to all of X; stores where `inside` holds."""
    store = "store(x -> Y[i:i+4])"
    if inside:
        store = f"if {inside}:\n            {store}"
    return f"""sketch picked {{
    symbols: M, N;
    params: {params};
    tensors: X[M]: in f32; Z[N]: in f32; V[{extent}]: inout f32; Y[M]: out f32;
    {f"require: {require};" if require else ""}

    @llm_hint("parallel", "grididx")
    for i in range(0, M, 4):
        x = alloc([4])
        z = alloc([1])
        load(X[i:i+4] -> x)
        load(V[{index}] -> z)
        add(x, z, x)
        {store}
}}
"""


# ---------------------------------------------------------------- types of params


@pytest.mark.parametrize("dtype", NARROW)
def test_a_param_has_a_value_of_its_type(dtype: DType) -> None:
    """No counter-example lies outside of the type, and a launch refuses what does."""
    low, high = dtype.limits or (0, 0)
    text = picked(f"k: {dtype.value}", "0", "1", inside=f"k >= {low} and k <= {high}")
    params = tuple({"k": k} for k in (low, 0, high))
    assert check_against_runs(text, (1, 5), params)["covered Y"] is ir.Tier.PROVED
    sketch = elaborated(text)
    for outside in (low - 1, high + 1):
        assert broken(sketch, {"M": 3, "N": 3}, {"k": outside}) is None
    for inside in (f"k >= {low + 1}", f"k <= {high - 1}"):
        text = picked(f"k: {dtype.value}", "0", "1", inside=inside)
        assert proved(text)[1]["covered", "Y"].tier is ir.Tier.REFUTED


@pytest.mark.parametrize(
    ("dtype", "index", "extent", "checks"),
    [
        ("u8", "k", "256", 0),
        ("u8", "k", "255", 1),
        ("u8", "k - 1", "256", 1),
        ("i8", "k + 128", "256", 0),
        ("i8", "k + 127", "256", 1),
        ("i8", "k", "N", 2),
        ("i16", "k + 32768", "65536", 0),
    ],
)
def test_the_range_of_a_type_bounds_subscripts(
    dtype: str, index: str, extent: str, checks: int
) -> None:
    text = picked(f"k: {dtype}", index, extent)
    sketch, _ = proved(text)
    assert len(sketch.requires) - len(elaborated(text).requires) == checks
    params = tuple({"k": k} for k in (-128, -1, 0, 1, 127, 255))
    check_against_runs(text, (1, 5), params)


# ---------------------------------------------------------------- checks that were generated


@pytest.mark.parametrize("inside", ["k >= 1", "k <= N", "N >= 1", "k <= 2*N", "k >= 1 and N >= k"])
def test_a_generated_check_is_known_to_other_claims(inside: str) -> None:
    """`V[k - 1]` needs 1 <= k <= N, which a launch checks."""
    text = picked("k: i64", "k - 1", inside=inside)
    params = tuple({"k": k} for k in (-1, 0, 1, 2, 6))
    found = check_against_runs(text, (0, 1, 5), params)
    assert found["in-bounds V"] is ir.Tier.CHECKED_AT_LAUNCH
    assert found["covered Y"] is ir.Tier.PROVED


@pytest.mark.parametrize("inside", ["k >= 2", "k < N", "N >= 2", "M <= k"])
def test_a_generated_check_says_no_more_than_it_does(inside: str) -> None:
    params = tuple({"k": k} for k in (0, 1, 2, 6))
    found = check_against_runs(picked("k: i64", "k - 1", inside=inside), (0, 1, 5), params)
    assert found["covered Y"] is ir.Tier.REFUTED


def test_a_check_of_one_access_is_known_to_another() -> None:
    """What one subscript has the host check, a slice elsewhere may rely on."""
    text = (
        picked("k: i64", "k - 1")
        .replace("V[k - 1]", "V[k - 1]")
        .replace(
            "        add(x, z, x)",
            "        w = alloc([8])\n        load(V[0:k] -> w)\n        load(V[9 - k] -> z)\n"
            "        add(x, z, x)",
        )
    )
    found = check_against_runs(text, (1, 5, 8, 9), tuple({"k": k} for k in (0, 1, 2, 8, 9, 10)))
    assert ir.Tier.REFUTED not in found.values()


# ---------------------------------------------------------------- conditions with several cases


def test_either_of_two_values_is_in_range() -> None:
    text = picked("A: i64", "A - 1", "1024", "A == 1 or A == 1024")
    assert set(check_against_runs(text, (1, 5), ({"A": 1}, {"A": 1024})).values()) == {
        ir.Tier.PROVED
    }


CONDITIONS = ["A == 1", "A == N", "A <= 2", "A >= 1", "N >= 2", "A == 3", "A < N", "N == 2*A"]


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(CONDITIONS), min_size=2, max_size=3, unique=True),
    st.sampled_from(CONDITIONS),
    st.sampled_from(["or", "and"]),
    st.sampled_from(["A - 1", "A", "N - A", "A//2", "2 - A"]),
    st.sampled_from(["", *CONDITIONS]),
)
def test_cases_prove_nothing_that_a_run_breaks(
    either: list[str], other: str, how: str, index: str, inside: str
) -> None:
    require = f"({' or '.join(either)}) {how} {other}"
    text = picked("A: i64", index, require=require, inside=inside)
    check_against_runs(text, (0, 2, 5), tuple({"A": a} for a in range(-1, 6)))


GROUPS = """sketch groups {{
    symbols: C;
    params: G: i64; H: i64;
    require: {require};
    tensors: X[C]: in f32; Y[C]: out f32;

    @llm_hint("parallel", "grididx")
    for g in range(G):
        for h in range(H):
            x = alloc([1])
            load(X[g*H + h] -> x)
            store(x -> Y[g*H + h])
}}
"""


@pytest.mark.parametrize(
    ("require", "tier"),
    [
        ("G*H == C and G >= 0 and (H == 1 or H == C)", ir.Tier.PROVED),
        ("(G == 1 and H == C) or (H == 1 and G == C)", ir.Tier.PROVED),
        ("(G == 1 and H == C) or (H == 1 and G == C - 1)", ir.Tier.REFUTED),
        ("(G == 1 and H == C) or G == C", ir.Tier.REFUTED),
    ],
)
def test_a_claim_that_holds_in_each_case_is_proved(require: str, tier: ir.Tier) -> None:
    params = tuple({"G": g, "H": h} for g, h in product((0, 1, 2, 3, 5), repeat=2))
    text = GROUPS.format(require=require)
    found = check_against_runs(text, (0, 1, 2, 5), params)
    if tier is ir.Tier.PROVED:
        assert found["covered Y"] is tier
    else:
        assert found["covered Y"] is not ir.Tier.PROVED
        codes = [one.code for one in check(Source("test", text)).diagnostics]
        assert codes
