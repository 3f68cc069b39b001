"""Coverage and independence of every form of access: index tiles, strides, conditions, atomics,
promises, and launches in loops of the host (LANGUAGE R7, R8, section 6)."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Severity, Source
from sketchc.checker.api import check_sketch
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse


def judged(text: str) -> tuple[dict[str, set[str]], dict[str, str]]:
    """The tiers of each claim, and the errors' labels by code."""
    tree, found = parse(Source("test", text))
    assert tree is not None, found
    checked, found = check_sketch(tree.sketches[0])
    tiers: dict[str, set[str]] = {}
    for proof in () if checked is None else checked.proofs:
        tiers.setdefault(proof.claim, set()).add(proof.tier.value)
    errors = {d.code: d.label for d in found if d.severity is Severity.ERROR}
    return tiers, errors


def tiles(store: str, output: str = "Y[N]: out f32", extra: str = "", loop: str = "") -> str:
    """A copy of X in tiles of 64, which `store` writes."""
    lines = "".join(f"        {line}\n" for line in (extra, *store.split("\n")) if line)
    return f"""sketch copied {{
    symbols: N;
    tensors: X[N]: in f32; {output};
    constexpr: T = 64;

    @llm_hint("parallel")
    for i in range({loop or "ceil(N, T)"}):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
{lines}}}
"""


POINT = "p = iota(T, i*T, N)"


@pytest.mark.parametrize(
    "text",
    [
        tiles("store(x -> Y[N-1-i*T:N-1-(i+1)*T:-1])"),
        tiles(
            "store(x -> Y[2*i*T:2*(i+1)*T:2])\nstore(x -> Y[2*i*T+1:2*(i+1)*T+1:2])",
            "Y[2*N]: out f32",
        ),
        tiles("store(x -> Y[p])", extra=POINT),
        tiles("store(x -> Y[N-1-p])", extra=POINT),
        tiles("store(x -> Y[p // 8, p % 8])", "Y[N // 8 + 1, 8]: out f32 = 0", POINT),
        tiles(
            "store(x -> Y[i*T:(i+1)*T], where=p % 3 != 0)\n"
            "store(x -> Y[i*T:(i+1)*T], where=p % 3 == 0)",
            extra="p = i*T + iota(T)",
        ),
        tiles("store(x -> Y[i*T:(i+1)*T], where=p < N)", extra="p = i*T + iota(T)"),
    ],
    ids=["reversed", "interleaved", "lanes", "lanes-reversed", "digits", "guards", "bound"],
)
def test_every_form_of_store_is_proved(text: str) -> None:
    tiers, errors = judged(text)
    assert not errors
    assert tiers["independent"] == {"proved"}
    assert tiers.get("covered", {"proved"}) == {"proved"}


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            tiles("store(x -> Y[2*i*T:2*(i+1)*T:2])", "Y[2*N]: out f32"),
            "SK0510",
            "for N = 1, no iteration writes Y[1]",
        ),
        (
            tiles("store(x -> Y[i*T:(i+1)*T], where=p % 3 != 0)", extra="p = i*T + iota(T)"),
            "SK0510",
            "for N = 1, no iteration writes Y[0]",
        ),
        (
            tiles("store(x -> Y[p // 2])", "Y[N]: out f32 = 0", POINT),
            "SK0526",
            "for N = 2, in iteration i = 0 lanes 0 and 1 both write Y[0]",
        ),
        (
            tiles("store(x -> Y[i+T-1:i-1:-1])", "Y[N+T]: out f32 = 0"),
            "SK0520",
            "iterations i = 0 and i = 1 both write Y[",
        ),
        (
            tiles("store(x -> Y[i:i+T], unique=True)", "Y[N]: out f32 = 0"),
            "SK0525",
            "for N = 65, iterations i = 0 and i = 1 both write Y[1]",
        ),
        (
            tiles("store(x -> Y[i*T:(i+1)*T], covers=True)", loop="N // T"),
            "SK0514",
            "for N = 1, no iteration writes Y[0]",
        ),
        (
            tiles("reduce_sum(x, 0, s)\nstore(s -> Y[])", "Y[]: out f32 = 0", "s = alloc([1])"),
            "SK0520",
            "for N = 65, iterations i = 0 and i = 1 both write Y[]",
        ),
    ],
    ids=["stride", "guard", "lanes", "reversed", "unique", "covers", "rank-0"],
)
def test_every_form_of_store_is_refuted_in_words(text: str, code: str, words: str) -> None:
    _, errors = judged(text)
    assert code in errors, errors
    assert words in errors[code]


RADIX = """sketch radix {{
    symbols: A, B, C;
    tensors: X[A, B, C]: in f32; Y[A, B, C]: out f32;
    views: XF[A*B*C] = X;
    constexpr: T = 64;

    @llm_hint("parallel")
    for i in range(ceil(A*B*C, T)):
        x = alloc([T])
        load(XF[i*T:(i+1)*T] -> x)
        p = {point}
        store(x -> Y[p // (B*C), (p // C) % B, {last}])
}}
"""


@pytest.mark.parametrize("point", ["iota(T, i*T, A*B*C)", "i*T + iota(T)"])
def test_digits_of_lanes_cover_and_are_independent(point: str) -> None:
    """The mixed-radix lemma, with a tile that ends anywhere in a row."""
    tiers, errors = judged(RADIX.format(point=point, last="p % C"))
    assert not errors
    assert tiers["covered"] == tiers["independent"] == {"proved"}


def test_a_forgotten_digit_of_lanes_is_refuted() -> None:
    _, errors = judged(RADIX.format(point="iota(T, i*T, A*B*C)", last="0"))
    assert {"SK0510", "SK0520"} <= set(errors)


def rows(body: str, output: str = "Y[M, N]: out f32", params: str = "") -> str:
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    return f"""sketch rows {{
    symbols: M, N <= 512;
    {params}
    tensors: X[M, N]: in f32; L[M]: in i64; {output};

    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N])
        load(X[i, 0:N] -> x)
{lines}}}
"""


def test_branches_that_together_cover() -> None:
    either = "if flip:\n    neg(x, x)\n    store(x -> Y[i, 0:N])\nelse:\n    store(x -> Y[i, 0:N])"
    tiers, errors = judged(rows(either, params="params: flip: bool = False;"))
    assert not errors
    assert tiers["covered"] == {"proved"}
    turned = "if i == 0:\n    store(x -> Y[M-1, 0:N])\nif i != 0:\n    store(x -> Y[i-1, 0:N])"
    tiers, errors = judged(rows(turned))
    assert not errors
    assert tiers["covered"] == tiers["independent"] == {"proved"}


def test_a_store_in_a_branch_covers_only_there() -> None:
    _, errors = judged(rows("if i > 0:\n    store(x -> Y[i, 0:N])"))
    assert "no iteration writes Y[0, 0]" in errors["SK0510"]


def test_equal_atomics_meet_and_others_do_not() -> None:
    tiers, errors = judged(rows("atomic_add(x -> Y[0, 0:N])", "Y[1, N]: out f32 = 0"))
    assert not errors
    assert tiers["independent"] == {"proved"}
    mixed = "atomic_add(x -> Y[0, 0:N])\natomic_max(x -> Y[0, 0:N])"
    _, errors = judged(rows(mixed, "Y[1, N]: out f32 = 0"))
    assert "iterations i = 0 and i = 1 both write Y[0, 0]" in errors["SK0524"]


SCATTER = "to = alloc([T])\n        load(TO[i*T:(i+1)*T] -> to)"


@pytest.mark.parametrize(
    ("initial", "promises", "codes", "tiers"),
    [
        ("", "", {"SK0513", "SK0523"}, set()),
        (" = 0", "", {"SK0523"}, set()),
        (" = 0", ", unique=True", set(), {"assumed"}),
        ("", ", unique=True, covers=True", set(), {"assumed"}),
    ],
)
def test_stores_through_loaded_indices_rest_on_promises(
    initial: str, promises: str, codes: set[str], tiers: set[str]
) -> None:
    outputs = f"TO[N]: in i64; Y[N]: out f32{initial}"
    found, errors = judged(tiles(f"store(x -> Y[to]{promises})", outputs, SCATTER))
    assert set(errors) == codes
    assert found.get("independent", set()) == tiers
    assert found.get("covered", tiers) == tiers


STEPS = """sketch steps {{
    symbols: N;
    params: steps: i64 = 3;
    tensors: X[N]: in f32; Y[N]: {role};
    workspace: W[N]: f32;
    constexpr: T = 64;

    for t in range({count}):
        @llm_hint("parallel")
        for i in range(ceil(N, T)):
            x = alloc([T])
            load(X[i*T:(i+1)*T] -> x)
            {store}
        @llm_hint("parallel")
        for k in range(ceil(N, T)):
            y = alloc([T])
            load(W[k*T:(k+1)*T] -> y)
            store(y -> Y[k*T:(k+1)*T])
}}
"""
STORE = "store(x -> W[i*T:(i+1)*T])"


def test_an_earlier_launch_of_a_host_loop_covers() -> None:
    tiers, errors = judged(STEPS.format(role="out f32 = 0", count="steps", store=STORE))
    assert not errors
    assert tiers["initialised"] == {"proved"}


def test_an_earlier_iteration_of_a_host_loop_does_not_cover_the_first() -> None:
    late = f"if t > 0:\n                {STORE}"
    _, errors = judged(STEPS.format(role="out f32 = 0", count="steps", store=late))
    assert "which no earlier phase has written" in errors["SK0530"]
    first = f"if t == 0:\n                {STORE}"
    tiers, errors = judged(STEPS.format(role="out f32 = 0", count="steps", store=first))
    assert not errors
    assert tiers["initialised"] == {"proved"}


def test_a_host_loop_that_may_not_run_covers_nothing() -> None:
    _, errors = judged(STEPS.format(role="out f32", count="steps", store=STORE))
    assert errors["SK0510"] == "for N = 1, steps = 0, no iteration writes Y[0]"
    tiers, errors = judged(STEPS.format(role="out f32", count="max(steps, 1)", store=STORE))
    assert not errors
    assert tiers["covered"] == {"proved"}


# ---------------------------------------------------------------- what the interpreter decides

SQUARES = """sketch squares {{
    symbols: M, N <= 64;
    tensors: X[M, N]: in f32; Y[M*M+1, N]: out f32 = 0;
    {require}

    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N])
        load(X[i, 0:N] -> x)
        store(x -> Y[{index}, 0:N])
}}
"""


def test_what_no_proof_decides_is_tested() -> None:
    tiers, errors = judged(SQUARES.format(index="i*i", require=""))
    assert not errors
    assert tiers["independent"] == {"tested"}


def test_what_no_proof_decides_and_no_size_reaches_stays_unproved() -> None:
    _, errors = judged(SQUARES.format(index="i*i", require="require: M >= 1000000;"))
    assert {"SK0522"} <= set(errors)


def test_a_claim_about_squares_is_refuted_by_small_sizes() -> None:
    """1 and 4 leave the same remainder."""
    _, errors = judged(SQUARES.format(index="i*i % 5", require=""))
    assert errors["SK0520"].startswith("for M = 5, ")
    assert errors["SK0520"].endswith(" both write Y[1, 0]")


def test_sizes_that_the_user_gives_are_enough_for_a_proof_and_checked_at_launch() -> None:
    text = SQUARES.format(index="i*i", require="require: M >= 100;")
    tree, _ = parse(Source("test", text))
    assert tree is not None
    checked, found = check_sketch(tree.sketches[0], shapes={"M": 120, "N": 3})
    assert checked is not None, found
    tiers = {proof.claim: proof.tier for proof in checked.proofs if proof.subject == "Y"}
    assert tiers["independent"] is ir.Tier.PROVED_FOR_SHAPES
    generated = [require.text for require in checked.sketch.requires if require.generated]
    assert generated == ["M == 120", "N == 3"]
    wrong = SQUARES.format(index="i*i % 1009", require="require: M >= 900;")
    tree, _ = parse(Source("test", wrong))
    assert tree is not None
    checked, found = check_sketch(tree.sketches[0], shapes={"M": 900, "N": 1})
    assert checked is None
    assert "for M = 900, N = 1, " in next(d.label for d in found if d.code == "SK0520")


def test_tiers_are_ordered_from_best_to_worst() -> None:
    """The order that the worst verdict of a claim is chosen by."""
    assert [tier.value for tier in ir.Tier] == [
        "proved",
        "proved for these shapes",
        "checked at launch",
        "tested",
        "assumed",
        "unproved",
        "refuted",
    ]


def test_a_quotient_known_not_negative_in_one_branch_may_be_so_in_the_other() -> None:
    _, errors = judged("""sketch shifted {
    symbols: N;
    params: D: i64; K: i64;
    tensors: X[N]: in f32; Y[N]: out f32 = 0;
    require: D >= 1;
    @llm_hint("parallel")
    for i in range(N):
        if i >= K:
            x = alloc([1])
            if (i-K)//D < N:
                load(X[(i-K)//D] -> x)
                store(x -> Y[i])
        else:
            y = alloc([1])
            load(X[(i-K)//D] -> y)
            store(y -> Y[i])
}
""")
    assert errors["SK0501"] == "for N = 1, X[-1] is out of range: axis 0 has 1 elements"


def test_what_grows_and_then_falls_has_its_largest_value_at_neither_end() -> None:
    """No launch check over the last iteration would do."""
    tiers, errors = judged("""sketch arch {
    symbols: N, M;
    params: D: i64;
    tensors: X[M]: in f32; Y[N]: inout f32;
    require: D >= 1;
    @llm_hint("parallel")
    for i in range(N):
        x = alloc([1])
        load(X[i*((N-i)//D)] -> x)
        store(x -> Y[i])
}
""")
    assert errors["SK0501"].endswith("iteration i = 2 reads X[6], but axis 0 of `X` has extent 5")
    assert tiers == {}


def test_a_loaded_index_does_not_say_which_lane_writes_an_element() -> None:
    """Lane e + 3 - v would write element e, if its own v were that one."""
    _, errors = judged("""sketch near {
    tensors: X[16]: in f32; V[16]: in i64; Y[13]: out f32;
    x = alloc([16])
    v = alloc([16], i64)
    load(X[0:16] -> x)
    load(V[0:16] -> v)
    store(x -> Y[iota(16) + v % 4 - 3], unique=True)
}
""")
    assert set(errors) == {"SK0513"}


def test_a_snapshot_is_not_what_its_tile_holds_later() -> None:
    lines = """v = alloc([T], i64)
        load(V[i*T:(i+1)*T] -> v)
        p = v + 0
        load(V[N-1-i*T:N-1-(i+1)*T:-1] -> v)"""
    text = tiles("store(x -> Y[i*T + iota(T) + p - v])", "V[N]: in i64; Y[N]: out f32", lines)
    _, errors = judged(text)
    assert set(errors) == {"SK0513", "SK0523"}


BRANCHED = """sketch branched {{
    symbols: N;
    params: alpha: f32 = 1.0;
    tensors: X[N]: in f32; B[N]: in f32?; Y[N]: out f32;
    @llm_hint("parallel")
    for i in range(N):
        x = alloc([1])
        load(X[i] -> x)
        if {condition}:
            store(x -> Y[i])
}}
"""


def test_optional_tensors_are_absent_from_every_second_run() -> None:
    _, errors = judged(BRANCHED.format(condition="present(B)"))
    assert errors["SK0510"] == "for N = 2, without `B`, Y[0] is never written"


@pytest.mark.parametrize("condition", ["present(B)", "alpha > 0.5"])
def test_sizes_alone_do_not_decide_what_a_param_or_an_absent_tensor_does(condition: str) -> None:
    tree, _ = parse(Source("test", BRANCHED.format(condition=condition)))
    assert tree is not None
    checked, _ = check_sketch(tree.sketches[0], shapes={"N": 9})
    tiers = () if checked is None else {proof.tier for proof in checked.proofs}
    assert ir.Tier.PROVED_FOR_SHAPES not in tiers


STRIDE = """sketch stride {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: K: i64 = 1000;
    require: {require};

    @llm_hint("parallel")
    for i in range(N):
        x = alloc([1])
        load(X[i] -> x)
        store(x -> Y[{index}])
}}
"""


@pytest.mark.parametrize(
    ("index", "require", "size"),
    [
        ("97*i % N", "N >= 0", 97),
        ("97*i % N", "N != 97", 194),
        ("i*K % N", "(N % 2 != 0 and N % 5 != 0) or N > 900", 1000),
    ],
)
def test_sizes_around_the_numbers_of_a_sketch_are_tried(index: str, require: str, size: int):
    _, errors = judged(STRIDE.format(index=index, require=require))
    assert {told.split(",")[0] for told in errors.values()} == {f"for N = {size}"}
