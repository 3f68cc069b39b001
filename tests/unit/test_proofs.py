"""Verdicts against brute force, and the shape of what a proof says (LANGUAGE section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.base.diagnostics import Diagnostic, Severity, Source, has_errors
from sketchc.checker.api import check_sketch
from sketchc.checker.claims.proofs import prove
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.parsing.parser import parse


def elaborated(text: str) -> ir.Sketch:
    tree, found = parse(Source("test", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert sketch is not None, found
    assert not has_errors(found), found
    sketch, found = infer_domains(sketch)
    assert not has_errors(found), found
    return sketch


def verdicts(text: str) -> tuple[ir.Sketch, dict[str, ir.Proof], tuple[Diagnostic, ...]]:
    """The worst proof of each claim."""
    order = list(ir.Tier)
    sketch, proofs, found = prove(elaborated(text))
    worst: dict[str, ir.Proof] = {}
    for proof in proofs:
        known = worst.get(proof.claim)
        if known is None or order.index(proof.tier) > order.index(known.tier):
            worst[proof.claim] = proof
    return sketch, worst, found


# ---------------------------------------------------------------- against brute force


@st.composite
def sketches(draw: st.DrawFn) -> str:
    """A parallel loop over rows around a loop over column blocks, copying X to Y."""
    rows = draw(st.sampled_from(("M", "M - 1", "M + 1", "M // 2", "1, M", "0, M, 2")))
    row = draw(st.sampled_from(("i", "i", "i // 2", "M - 1 - i", "i + 1", "2*i", "0", "i % 2")))
    columns = draw(st.sampled_from(("ceil(N, 2)", "N // 2", "ceil(N, 2) - 1", "0, N, 2", "N")))
    column = draw(
        st.sampled_from(("j*2:(j+1)*2", "j:j+2", "j*2:j*2 + 1", "j:j+1", "j*2 + 1:j*2 + 3"))
    )
    inner = draw(st.sampled_from(('@llm_hint("parallel")', "")))
    require = draw(
        st.sampled_from(("", "require: N % 2 == 0;", "require: M == 1;", "require: M <= N;"))
    )
    return f"""sketch random {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    {require}

    @llm_hint("parallel")
    for i in range({rows}):
        {inner}
        for j in range({columns}):
            x = alloc([2])
            load(X[i, {column}] -> x)
            store(x -> Y[{row}, {column}])
}}
"""


def runs(
    body: tuple[ir.Statement, ...], values: dict[str, Any], path: tuple[Any, ...]
) -> Iterator[Any]:
    """(statement, values, ((loop, value), ...)) for every load and store of every iteration."""
    for statement in body:
        if isinstance(statement, ir.For):
            bounds = (
                evaluate(e, values) for e in (statement.start, statement.stop, statement.step)
            )
            for value in range(*(int(bound) for bound in bounds)):
                inner = {**values, statement.variable: value}
                yield from runs(statement.body, inner, (*path, (statement, value)))
        elif isinstance(statement, ir.Load | ir.Store):
            yield statement, values, path


def touched(
    statement: ir.Load | ir.Store, values: dict[str, Any], width: int
) -> Iterator[tuple[int, int]]:
    """Elements of an access by R1, without looking at its domain."""
    row, columns = statement.access.subscripts
    assert isinstance(row, ir.ScalarSubscript)
    assert isinstance(columns, ir.SliceSubscript)
    lower, upper = int(evaluate(columns.lower, values)), int(evaluate(columns.upper, values))
    for column in range(lower, min(lower + 2, upper)):
        if 0 <= column < width:
            yield int(evaluate(row.index, values)), column


def conflict(one: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    """The first loop in which two iterations differ is parallel."""
    for (loop, value), (_, other) in zip(one, two, strict=True):
        if value != other:
            return bool(loop.parallel)
    return False


def broken(sketch: ir.Sketch, symbols: dict[str, int]) -> set[str]:
    """The claims that fail at these sizes. A load's lanes that lie outside are void, so that what
    the store writes are the lanes inside both (here, the same columns)."""
    height, width = symbols["M"], symbols["N"]
    failed = set()
    written: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for statement, values, path in runs(sketch.phases[0].body, dict(symbols), ()):
        row = statement.access.subscripts[0]
        if not 0 <= int(evaluate(row.index, values)) < height:
            failed.add("in-bounds")
        if isinstance(statement, ir.Load):
            continue
        for element in touched(statement, values, width):
            others = written.setdefault(element, [])
            if any(conflict(path, other) for other in others):
                failed.add("independent")
            others.append(path)
    elements = set(product(range(height), range(width)))
    if not elements <= written.keys():
        failed.add("covered")
    return failed


@settings(max_examples=120, deadline=None)
@given(sketches())
def test_verdicts_equal_brute_force(text: str) -> None:
    """Proved claims never fail at small sizes, and refuted ones fail at their counter-example."""
    sketch, worst, _ = verdicts(text)
    failures: dict[str, list[dict[str, int]]] = {"in-bounds": [], "covered": [], "independent": []}
    for height, width in product(range(6), repeat=2):
        symbols = {"M": height, "N": width}
        if all(evaluate(require.condition, symbols) for require in sketch.requires):
            for claim in broken(sketch, symbols):
                failures[claim].append(symbols)
    for claim, sizes in failures.items():
        proof = worst[claim]
        assert proof.tier is not ir.Tier.UNPROVED
        if proof.tier is not ir.Tier.REFUTED:
            assert not sizes, (claim, sizes)
            continue
        assert proof.counter_example is not None
        assert claim in broken(sketch, dict(proof.counter_example.symbols))


RADIX = """sketch radix {{
    symbols: A, B, C;
    tensors: X[A, B, C, 4]: in f32; Y[A, B, C, 4]: out f32;

    @llm_hint("parallel")
    for m in range(A*B*C):
        x = alloc([4])
        load(X[m // (B*C), (m // C) % B, m % C, 0:4] -> x)
        store(x -> Y[{index}, 0:4])
}}
"""


def test_digits_of_a_mixed_radix_index_are_decided() -> None:
    """In bounds, covered and independent, though every subscript is a quotient by sizes."""
    _, worst, found = verdicts(RADIX.format(index="m // (B*C), (m // C) % B, m % C"))
    assert not found
    assert {proof.tier for proof in worst.values()} == {ir.Tier.PROVED}


def test_a_forgotten_digit_is_refuted() -> None:
    _, worst, found = verdicts(RADIX.format(index="m // (B*C), (m // C) % B, 0"))
    assert {d.code for d in found} == {"SK0510", "SK0520"}
    assert worst["in-bounds"].tier is ir.Tier.PROVED


@pytest.mark.parametrize("tile", ["S", "S + 1", "2*S"])
def test_tiles_of_a_symbolic_size_are_decided(tile: str) -> None:
    text = f"""sketch tiles {{
    symbols: M, S;
    tensors: X[M]: in f32; W[M, S]: in f32; Y[M]: out f32;
    require: S >= 1;

    @llm_hint("parallel")
    for i in range(ceil(M, {tile})):
        x = alloc([{tile}])
        load(X[i*({tile}):(i+1)*({tile})] -> x)
        store(x -> Y[i*({tile}):(i+1)*({tile})])
}}
"""
    _, worst, found = verdicts(text)
    assert not has_errors(found)
    assert {proof.tier for proof in worst.values()} == {ir.Tier.PROVED}


# ---------------------------------------------------------------- single verdicts

ROWS = """sketch rows {{
    symbols: M, N <= 64, S;
    tensors: X[{extents}]: in f32; Y[M, N]: out f32; L[M, S]: in f32;
    {head}

    @llm_hint("parallel")
    for i in range({loop}):
        x = alloc([N])
        load(X[{row}, 0:N] -> x)
        store(x -> Y[i, 0:N])
}}
"""


def rows(extents: str = "M, N", row: str = "i", loop: str = "M", head: str = "") -> str:
    return ROWS.format(extents=extents, row=row, loop=loop, head=head)


def test_a_size_relation_becomes_a_launch_check_in_words() -> None:
    sketch, worst, found = verdicts(rows(extents="S, N"))
    assert not has_errors(found)
    assert worst["in-bounds"].tier is ir.Tier.CHECKED_AT_LAUNCH
    (require,) = [r for r in sketch.requires if r.generated]
    assert require.text == "M <= S"
    assert evaluate(require.condition, {"M": 3, "S": 3})
    assert not evaluate(require.condition, {"M": 4, "S": 3})


@pytest.mark.parametrize(("loop", "generated"), [("0, 1", ["0 <= M - 1"]), ("M", [])])
def test_extents_are_not_negative_or_a_launch_check(loop: str, generated: list[str]) -> None:
    text = f"""sketch shorter {{
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32 = 0;

    for i in range({loop}):
        x = alloc([M - 1])
        load(X[0:M-1] -> x)
        store(x -> Y[0:M-1])
}}
"""
    sketch, _, found = verdicts(text)
    assert not has_errors(found)
    assert [require.text for require in sketch.requires if require.generated] == generated


def test_a_stated_requirement_makes_it_a_proof() -> None:
    sketch, worst, _ = verdicts(rows(extents="S, N", head="require: M <= S;"))
    assert worst["in-bounds"].tier is ir.Tier.PROVED
    assert not any(require.generated for require in sketch.requires)


def test_what_no_large_size_satisfies_is_refuted_not_deferred() -> None:
    sketch, worst, found = verdicts(rows(row="i + 1"))
    assert worst["in-bounds"].tier is ir.Tier.REFUTED
    assert not any(require.generated for require in sketch.requires)
    assert [d.code for d in found] == ["SK0501"]
    assert "iteration i = 0 reads X[1, 0]" in found[0].label


def test_what_cannot_be_decided_is_an_error_unless_allowed() -> None:
    sketch = elaborated(rows(extents="2, N", row="i*i % 4"))
    _, proofs, found = prove(sketch)
    assert [p.tier for p in proofs if p.claim == "in-bounds"].count(ir.Tier.UNPROVED) >= 1
    assert {(d.code, d.severity) for d in found} == {("SK0502", Severity.ERROR)}
    _, proofs, found = prove(sketch, allow_unproved=True)
    assert {(d.code, d.severity) for d in found} == {("SK0502", Severity.WARNING)}
    assert any(p.tier is ir.Tier.UNPROVED for p in proofs)


FLAT = """sketch flat {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    views: XF[M*N] = X; YF[M*N] = Y;
    constexpr: T = 64;

    @llm_hint("parallel")
    for i in range({loop}):
        x = alloc([T])
        load(XF[i*T:(i+1)*T] -> x)
        store(x -> YF[i*T:(i+1)*T])
}}
"""


def test_products_of_sizes_are_one_quantity() -> None:
    _, worst, found = verdicts(FLAT.format(loop="ceil(M*N, T)"))
    assert not found
    assert {proof.tier for proof in worst.values()} == {ir.Tier.PROVED}


def test_counter_examples_of_products_name_real_sizes() -> None:
    _, worst, _ = verdicts(FLAT.format(loop="M*N // T"))
    example = worst["covered"].counter_example
    assert example is not None
    sizes = example.symbols
    assert 0 <= example.element[0] < sizes["M"]
    assert 0 <= example.element[1] < sizes["N"]


PHASES = """sketch phases {{
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    workspace: W[M]: f32;

    @llm_hint("parallel")
    for i in range({first}):
        x = alloc([1])
        load(X[i:i+1] -> x)
        store(x -> W[i:i+1])

    @llm_hint("parallel")
    for k in range(M):
        y = alloc([1])
        load(W[M - 1 - k:M - k] -> y)
        store(y -> Y[k:k+1])
}}
"""


def test_phases_are_launches_one_after_the_other() -> None:
    """Iteration k reads what another iteration wrote, in an earlier phase: no race."""
    _, worst, found = verdicts(PHASES.format(first="M"))
    assert not found
    assert worst["initialised"].tier is ir.Tier.PROVED
    assert worst["independent"].tier is ir.Tier.PROVED


def test_a_workspace_read_where_no_phase_wrote_is_refuted() -> None:
    _, worst, found = verdicts(PHASES.format(first="M - 1"))
    assert [d.code for d in found] == ["SK0530"]
    example = worst["initialised"].counter_example
    assert example is not None
    assert example.element == (example.symbols["M"] - 1,)


def test_unassigned_tiles_are_told_with_sizes() -> None:
    tree, _ = parse(
        Source(
            "test",
            """sketch last {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32;

    @llm_hint("parallel")
    for i in range(M):
        x = alloc([1])
        for k in range(N):
            load(X[i, k:k+1] -> x)
        store(x -> Y[i:i+1])
}
""",
        )
    )
    assert tree is not None
    checked, found = check_sketch(tree.sketches[0])
    assert checked is None
    (error,) = [d for d in found if d.severity is Severity.ERROR]
    assert error.code == "SK0402"
    assert any("for M = 1, N = 0, iteration i = 0 reads `x`" in note for note in error.notes)


@pytest.mark.parametrize("access", ["i:i+T", "i*T:(i+1)*T"])
def test_fix_its_of_tile_loops_lead_to_a_correct_sketch(access: str) -> None:
    """The loop counts tiles while slices count elements: either repair proves."""
    text = f"""sketch relu_tiles {{
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        load(X[{access}] -> x)
        relu(x, x)
        store(x -> Y[{access}])
}}
"""
    _, _, found = verdicts(text)
    fixes = {fix.title: fix for d in found for fix in d.fixes}
    assert len(fixes) == (2 if access == "i:i+T" else 0)
    for fix in fixes.values():
        repaired = text
        for edit in sorted(fix.edits, key=lambda edit: -edit.span.start):
            repaired = repaired[: edit.span.start] + edit.replacement + repaired[edit.span.end :]
        _, worst, problems = verdicts(repaired)
        assert not problems, repaired
        assert {proof.tier for proof in worst.values()} == {ir.Tier.PROVED}
