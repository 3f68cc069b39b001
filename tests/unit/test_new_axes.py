"""`t[:, None]`: what the checker knows of a tile with axes of 1 added, and what it refuses.

tests/e2e/features/new_axes.sketch compares the results on all targets with NumPy.
"""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Severity, Source
from sketchc.checker.api import check
from sketchc.checker.domains.messages import describe
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.plan_text import print_plan
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

HEAD = """sketch example {
    symbols: M, N;
    tensors: X[M, N]: in f32; R[M]: in f32; K[M]: in i16; Y[M, N]: out f32 = 0; S[M]: out f32 = 0;
    constexpr: T = 8;

    @llm_hint("parallel", "grididx")
    for i in range(0, M, T):
        r = alloc([T])
        k = alloc([T])
        x = alloc([T, T])
        y = alloc([T, T])
        total = alloc([T])
        acc = alloc([T, T], f32, init=0)
        load(R[i:i+T] -> r)
        load(K[i:i+T] -> k)
        load(X[i:i+T, 0:min(T, N)] -> x)
"""


def text_of(*lines: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in lines) + "}\n"


def found(*lines: str) -> list[str]:
    """The codes of all errors."""
    reports = check(Source("test.sketch", text_of(*lines)), {})
    return [each.code for each in reports.diagnostics if each.severity is Severity.ERROR]


def domain_of(tile: str, *lines: str) -> str:
    """The valid lanes of the last version of a tile."""
    plan = plan_of(text_of(*lines))
    writes = [
        statement
        for statement in walk.statements(plan.phases[0].body)
        if isinstance(statement, ir.Compute) and statement.destination == tile
    ]
    return describe(writes[-1].domain)


def plan_of(text: str) -> Plan:
    tree, problems = parse(Source("test.sketch", text))
    assert tree is not None, problems
    return build_plan(tree.sketches[0], "cpp", None, {}).plan


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        (["sub(x, r[:, None], y)", "store(y -> Y[i:i+T, 0:min(T, N)])"], []),
        (["sub(x, r[:], y)", "store(y -> Y[i:i+T, 0:min(T, N)])"], []),
        (["sub(x, r[:, :, None], y)"], ["SK0303"]),
        (["sub(x, r[0:T, None], y)"], ["SK0303"]),
        (["sub(x, r[0, None], y)"], ["SK0303"]),
        (["sub(x, r[0], y)"], ["SK0303"]),
        (["sub(x, r[:, None, None], y)"], ["SK0305"]),
        (["reduce_sum(x, 1, total[:, None])"], ["SK0303"]),
        (["load(R[i:i+T] -> total[:, None])"], ["SK0115"]),
        (["store(r[:, None] -> S[i:i+T])"], []),
        (["sub(x, total[:, None], y)"], ["SK0401"]),
        (["store(total[:, None] -> Y[i:i+T, 0:1])"], ["SK0401"]),
        (["reduce_sum(total[:, None], 1, total)"], ["SK0313"]),
        (["mul(k[:, None], 2, y)", "mul(k[:, None], k, y)"], []),
        (["add(acc, r[:, None], acc)"], []),
        (["add(acc, r[:, None], acc)", "add(acc, x, acc)"], []),
        (["add(acc, r, acc)", "add(acc, x, acc)"], ["SK0420"]),
        (["add(acc, r[None], acc)", "add(acc, x, acc)"], ["SK0420"]),
    ],
)
def test_codes(lines: list[str], codes: list[str]) -> None:
    assert found(*lines) == codes


def test_the_lanes_follow_the_axis() -> None:
    rows = domain_of("y", "neg(r[:, None], y)", "store(y -> Y[i:i+T, 0:min(T, N)])")
    columns = domain_of("y", "neg(r[None, :], y)", "store(y -> Y[i:i+T, 0:min(T, N)])")
    assert (rows, columns) == ("[lane < M - i, all]", "[all, lane < M - i]")


def test_padding_is_known_behind_a_new_axis() -> None:
    lines = ["load(R[i:i+T] -> r, pad=1)", "reduce_sum(r[None, :], 1, one)"]
    assert found("one = alloc([1])", *lines) == ["SK0428"]


def test_an_integer_tile_keeps_its_type() -> None:
    lines = ["small = alloc([T, T], i16)", "mul(k[:, None], k[None, :], small)"]
    assert found(*lines) == []
    assert found(lines[0], "mul(k[:, None], k + 0, small)") == ["SK0307"]


def test_it_is_printed_as_it_was_written() -> None:
    text = text_of("sub(x, r[:,None], y)", "store(r [ : , None ] -> Y[i:i+T, 0:1])")
    source = Source("test.sketch", text)
    tree, problems = parse(source)
    assert tree is not None, problems
    formatted = format_file(tree, source)
    assert "sub(x, r[:, None], y)" in formatted
    assert "store(r[:, None] -> Y[i:i+T, 0:1])" in formatted
    assert "sub(x, r[:, None], y)" in print_plan(plan_of(formatted))
