"""Lanes valid only by `pad=` meet no others, whatever they went through (LANGUAGE R5)."""

from __future__ import annotations

import pytest
from test_domains_accesses import codes, inferred

PADDED = "load(X[j:j+4] -> t, pad=7)"
BOUNDED = "load(X[j:min(j+4, N)] -> t, pad=7)"


def summing(*lines: str) -> str:
    """Statements on tiles of 4 lanes, for j in 0, 4, ..., before the sum of them is stored."""
    body = "".join(f"        {line}\n" for line in lines)
    return f"""sketch summing {{
    symbols: N;
    tensors: X[N]: in i64; Z[N]: in i64; R[N, 4]: in i64; Y[N]: out i64 = 0;
    for j in range(0, N, 4):
        t = alloc([4], i64)
        d = alloc([4], i64)
        z = alloc([4], i64)
        rows = alloc([4, 4], i64)
        kept = alloc([4, 4], i64)
        order = alloc([4, 4], i64)
        whole = alloc([1, 1], i64)
        s = alloc([1], i64)
        copy(j, s)
        load(Z[j:j+4] -> d)
{body}        store(s -> Y[j:j+1])
}}
"""


def narrow(*lines: str) -> str:
    """`summing` with integers of 32 bits, whose least one can be written down."""
    text = summing("BODY").replace("i64", "i32").replace("copy(j, s)", "fill(0, s)")
    return text.replace("BODY", "\n        ".join(lines))


#: Cross-lane operations with what counts as nothing in them, for i32.
IDENTITIES = [
    ("reduce_sum(t, 0, s)", 0),
    ("reduce_prod(t, 0, s)", 1),
    ("reduce_max(t, 0, s)", "-2147483648"),
    ("reduce_min(t, 0, s)", 2147483647),
    ("cumsum(t, 0, d)", 0),
    ("cumprod(t, 0, d, reverse=True)", 1),
    ("cumsum(t, 0, d, exclusive=True)", 0),
]


@pytest.mark.parametrize(("call", "identity"), IDENTITIES)
def test_padding_with_the_identity_counts_as_nothing(call: str, identity: object) -> None:
    def found(*lines: str) -> set[str]:
        return codes(inferred(narrow(*lines))[1])

    for value in (0, 1, 7, *(one for _, one in IDENTITIES)):
        load = f"load(X[j:j+4] -> t, pad={value})"
        assert ("SK0428" not in found(load, call)) == (str(value) == str(identity))
    load = f"load(X[j:j+4] -> t, pad={identity})"
    assert "SK0428" not in found(load, "copy(t, z)", "copy(z, t)", call)
    assert "SK0428" in found(load, "add(t, 1, t)", call)  # no longer what it was
    assert "SK0428" in found(load, "load(Z[t] -> t)", call)
    other = "load(X[j:j+4] -> t, pad=7)"
    assert "SK0428" in found("if N > 4:", f"    {load}", "else:", f"    {other}", call)
    assert "SK0428" not in found("if N > 4:", f"    {load}", "else:", f"    {load}", call)


def test_an_extremum_keeps_no_padding() -> None:
    """The index of an extremum has no identity: padding of the same value could win."""
    load = "load(X[j:j+4] -> t, pad=-2147483648)"
    text = narrow("rank = alloc([1], i64)", load, "argmax(t, 0, rank)")
    assert "SK0428" in codes(inferred(text)[1])


@pytest.mark.parametrize(
    "lines",
    [
        ("reduce_sum(t, 0, s)",),
        ("reduce_sum(t + 1, 0, s)",),
        ("m = t + 1", "reduce_sum(m, 0, s)"),
        ("m = t + 1", "k = 2*m", "reduce_sum(k - j, 0, s)"),
        ("m = t + 1", "add(m, 1, d)", "reduce_sum(d, 0, s)"),
        ("m = t + 1", "cumsum(m, 0, d)"),
        ("m = t + 1", "load(X[j:min(j+4, N)] -> t, pad=7)", "reduce_sum(m, 0, s)"),
        ("load(Z[t] -> z)", "reduce_sum(z, 0, s)"),
        ("m = t + 1", "load(Z[m] -> z)", "neg(z, z)", "reduce_sum(z, 0, s)"),
        ("load(R[t, 0:4] -> rows)", "reduce_sum(rows, [0, 1], whole)"),
        ("load(R[t, 0:4] -> rows)", "reduce_sum(rows, 0, z)", "reduce_sum(z, 0, s)"),
        ("load(R[t[:, None], iota(4)] -> rows)", "reduce_sum(rows, 0, z)"),
        ("load(R[0, t[:, None] + iota(4)] -> rows)", "reduce_sum(rows, [0, 1], whole)"),
        ("sort(t + 1, iota(4), 0, z, d)",),
        ("load(R[0:4, 0:4] -> rows)", "sort(rows, t, 1, kept, order)"),
    ],
)
def test_padding_counts_through_indices(lines: tuple[str, ...]) -> None:
    _, found = inferred(summing(PADDED, *lines))
    assert codes(found) == {"SK0428"}, found
    _, found = inferred(summing(BOUNDED, *lines))
    assert "SK0428" not in codes(found), found


@pytest.mark.parametrize(
    "lines",
    [
        ("m = t + 1", PADDED, "reduce_sum(m, 0, s)"),  # a snapshot from before
        (PADDED, "load(R[t, 0:4] -> rows)", "reduce_sum(rows, 1, z)"),
        (PADDED, "load(R[t[:, None], iota(4)] -> rows)", "reduce_sum(rows, 1, z)"),
        (PADDED, "load(Z[t] -> z)", "load(Z[j:min(j+4, N)] -> z)", "reduce_sum(z, 0, s)"),
        (PADDED, "load(Z[j:j+4] -> z, where=t > 3, pad=0)", "add(t, z, z)"),
    ],
)
def test_axes_without_padding_may_be_reduced(lines: tuple[str, ...]) -> None:
    _, found = inferred(summing("load(X[j:min(j+4, N)] -> t)", *lines))
    assert codes(found) == set(), found


def test_padding_comes_around_a_loop() -> None:
    text = """sketch around {
    symbols: N;
    tensors: X[N]: in i64; Z[N]: in i64; Y[N]: out i64 = 0;
    t = alloc([4], i64, init=0)
    for j in range(0, N, 4):
        s = alloc([1], i64)
        z = alloc([4], i64)
        m = t + 1
        reduce_sum(m, 0, s)
        store(s -> Y[j:j+1])
        load(X[j:j+4] -> z, pad=7)
        add(t, z, t)
}
"""
    _, found = inferred(text)
    assert codes(found) == {"SK0428"}, found
    _, found = inferred(text.replace("load(X[j:j+4] -> z, pad=7)", "fill(j, z)"))
    assert codes(found) == set(), found


@pytest.mark.parametrize(("axis", "refused"), [(0, False), (1, True)])
def test_indices_of_lower_rank_stand_on_the_right(axis: int, refused: bool) -> None:
    """`sort` needs its indices from lane 0 on only along the axis that it sorts."""
    lines = ("load(R[0:4, 0:4] -> rows)", "load(Z[iota(4) - j] -> z)")
    sort = f"sort(rows, z, {axis}, kept, order)"
    _, found = inferred(summing(*lines, sort))
    assert codes(found) == ({"SK0426"} if refused else set()), found
