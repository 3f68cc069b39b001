"""What a program may not say: each mistake has its code, at its place."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Source, has_errors
from sketchc.checker.api import check
from sketchc.parsing.parser import parse

SKETCHES = """\
sketch rows {
    symbols: M, N;
    params: factor: f32; turn: i64 = 0;
    tensors: X[M, N]: in f32; B[N]: in f32?; Y[M, N]: out f32;
    constexpr: T = 64;
    @llm_hint("parallel")
    for i in range(M):
        for j in range(0, N, T):
            x = alloc([T])
            load(X[i, j:j+T] -> x)
            mul(x, factor, x)
            if present(B):
                b = alloc([T])
                load(B[j:j+T] -> b)
                add(x, b, x)
            add(x, turn, x)
            store(x -> Y[i, j:j+T])
}

sketch narrow {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f16;
    constexpr: T = 64;
    @llm_hint("parallel")
    for j in range(0, N, T):
        x = alloc([T])
        load(X[j:j+T] -> x)
        y = alloc([T], f16)
        cast(x, y)
        store(y -> Y[j:j+T])
}

sketch small {
    symbols: M, N;
    params: n: u8; f: f32 = 0.5;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: K: i32 = 2;
    let: half = f/2;
    @llm_hint("parallel")
    for i in range(M):
        for j in range(N):
            x = alloc([1])
            load(X[i, j:j+1] -> x)
            mul(x, half, x)
            add(x, n, x)
            add(x, K, x)
            store(x -> Y[i, j:j+1])
}

sketch pairs {
    symbols: N;
    tensors: X[2*N]: in f32; Y[2*N]: out f32;
    views: XF[2, N] = X;
    constexpr: T = 64;
    @llm_hint("parallel")
    for j in range(0, 2*N, T):
        x = alloc([T])
        load(X[j:j+T] -> x)
        store(x -> Y[j:j+T])
}
"""


def program(body: str, more: str = "") -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"""{SKETCHES}
program whole {{
    symbols: P, Q;
    tensors: A[P, Q]: in f32; C[P, Q]: out f32; V[Q]: in f32; H[Q]: out f16 = 0;
             V_MAYBE[P, Q]: in f32?;
    buffers: W[P, Q]: f32; U[Q]: f32;
{more}{lines}}}
"""


RIGHT = "rows(A -> W, factor=2.0)\nrows(W, V -> C, factor=0.5, turn=1)"


def test_the_program_that_the_mistakes_are_made_in_is_right() -> None:
    result = check(Source("test", program(RIGHT)))
    assert result.ok, result.diagnostics


@pytest.mark.parametrize(
    ("body", "code", "place"),
    [
        ("rows(A -> W)", "SK0142", "rows(A -> W)"),
        ("rows(A, V, V -> W, factor=1.0)", "SK0142", "V"),
        ("rows(A -> W, C, factor=1.0)", "SK0142", "C"),
        ("rows(V=A, Y=W, factor=1.0)", "SK0142", "rows(V=A, Y=W, factor=1.0)"),
        ("rows(A -> W, factor=1.0, factr=1.0)", "SK0142", "factr"),
        ("rows(A -> W, factor=1.0, turn=0.5)", "SK0142", "0.5"),
        ("rows(A -> W, factor=1.0, turn=P/2)", "SK0142", "P/2"),
        ("rows(A -> W, factor=1.0, turn=sqrt(P))", "SK0142", "sqrt(P)"),
        ("rows(A -> W, factor=1.0, turn=P > 1)", "SK0142", "P > 1"),
        ("rows(A -> W, factor=True)", "SK0142", "True"),
        ("rows(A -> W, factor=A)", "SK0201", "A"),
        ('rows(A -> W, factor="1")', "SK0142", '"1"'),
        ("rows(A -> W, factor=[1])", "SK0142", "[1]"),
        ("rows(A -> W, factor=1.0, turn=iota(P))", "SK0142", "iota(P)"),
        ("rows(A -> W, factor=1.0, T=P)", "SK0142", "P"),
        ("rows(A -> W, factor=1.0, T=0.5)", "SK0142", "0.5"),
        ("rows(A -> W, factor=1.0, N=-1)", "SK0142", "-1"),
        # Names of the sketch, which are none of the program's.
        ("rows(A -> W, factor=1.0, turn=j)", "SK0201", "j"),
        ("for i in range(T):\n    rows(A -> W, factor=1.0)", "SK0201", "T"),
        ("if M > 1:\n    rows(A -> W, factor=1.0)", "SK0201", "M"),
        ("for i in range(2):\n    pass\npairs(A[i] -> U, N=P)", "SK0201", "i"),
        ("small(A -> W, n=P)", "SK0142", "P"),
        ("small(A -> W, n=300)", "SK0142", "300"),
        ("small(A -> W, n=1, K=2.5)", "SK0142", "2.5"),
        (
            "for i in range(P):\n    small(A -> W, n=1, f=i/2)",
            "SK0146",
            "small(A -> W, n=1, f=i/2)",
        ),
        ("for i in range(P):\n    small(A -> W, n=1, N=i)", "SK0146", "small(A -> W, n=1, N=i)"),
        ("rows(V_MAYBE -> W, factor=1.0)", "SK0142", "V_MAYBE"),
        ("rows(A -> W, X=A, factor=1.0)", "SK0142", "X=A"),
        ("rows(A + A -> W, factor=1.0)", "SK0142", "A + A"),
        ("rows(A[0:P, 0:Q] -> W, factor=1.0)", "SK0142", "A[0:P, 0:Q]"),
        ("rows(AA -> W, factor=1.0)", "SK0201", "AA"),
        ("rows(V -> W, factor=1.0)", "SK0143", "V"),
        ("rows(A[0] -> W, factor=1.0)", "SK0143", "A[0]"),
        ("rows(A -> U, factor=1.0)", "SK0143", "U"),
        ("narrow(V -> U)", "SK0143", "U"),
        ("pairs(V -> U)", "SK0142", "pairs(V -> U)"),
        ("pairs(A[0] -> W[0], N=Q//2)", "SK0143", "A[0]"),
        ("rows(A -> A, factor=1.0)", "SK0144", "A"),
        ("rows(W -> A, factor=1.0)", "SK0144", "A"),
        ("rows(A -> W, factor=1.0)\nrows(W -> W, factor=1.0)", "SK0144", "W"),
        ("rows(W -> C, factor=1.0)", "SK0145", "W"),
        ("if P > 1:\n    rows(W -> C, factor=1.0)", "SK0145", "W"),
        ("row(A -> W, factor=1.0)", "SK0141", "row"),
        ("whole(A -> W, factor=1.0)", "SK0141", "whole"),
        ("rows(A, W)", "SK0140", "rows(A, W)"),
        ("load(A[0:P, 0:Q] -> x)", "SK0140", "load(A[0:P, 0:Q] -> x)"),
        ("n = P + 1", "SK0140", "n = P + 1"),
        ("n = fetch(A[0, 0])", "SK0140", "n = fetch(A[0, 0])"),
        ('@llm_hint("parallel")\nfor i in range(P):\n    pass', "SK0140", '@llm_hint("parallel")'),
    ],
)
def test_a_mistake_has_its_code_at_its_place(body: str, code: str, place: str) -> None:
    text = program(body)
    tree, found = parse(Source("test", text))
    assert tree is None
    assert [each.code for each in found] == [code]
    (one,) = found
    assert text[one.span.start : one.span.end] == place
    assert one.span.start > text.index("program whole")


@pytest.mark.parametrize(
    "more",
    [
        "    buffers: Z[T]: f32;\n",
        "    require: j > 1;\n",
        "    let: h = half*2;\n",
        "    params: q: i64 = T;\n",
    ],
)
def test_sections_know_names_of_the_program_alone(more: str) -> None:
    _, found = parse(Source("test", program(RIGHT, more)))
    assert [each.code for each in found] == ["SK0201"]


def test_a_program_may_mean_much_but_not_anything() -> None:
    text = SKETCHES
    for level in range(40):
        inner = "rows({} -> {}, factor=1.0)" if level == 0 else f"p{level - 1}({{}} -> {{}})"
        first, second = inner.format("A", "W"), inner.format("W", "C")
        text += f"""
program p{level} {{
    symbols: P, Q;
    tensors: A[P, Q]: in f32; C[P, Q]: out f32;
    buffers: W[P, Q]: f32;
    {first}
    {second}
}}
"""
    _, found = parse(Source("test", text))
    assert {each.code for each in found} <= {"SK0121", "SK0132"}
    assert found


def test_many_calls_are_read_in_time() -> None:
    body = (
        "for i in range(2):\n"
        + "    rows(A -> W, factor=1.0)\n    rows(W -> C, factor=2.0)\n" * 400
    )
    tree, found = parse(Source("test", program(body)))
    assert tree is not None, found


def test_every_wrong_call_is_told_of_in_one_run() -> None:
    wrong = "rows(A -> W)\nrow(W -> C, factor=1.0)\nrows(W -> C, factor=1.0)\nnarrow(V -> U)"
    _, found = parse(Source("test", program(wrong)))
    assert [each.code for each in found] == ["SK0142", "SK0141", "SK0143"]


def test_sections_stand_where_they_mean_something() -> None:
    for text, word in (
        (program(RIGHT, "    workspace: Z[P]: f32;\n"), "workspace"),
        (program(RIGHT, "    buffers: Z[P]: out f32;\n"), "f32"),
        (SKETCHES.replace("constexpr: T", "buffers: Z[N]: f32;\n    constexpr: T", 1), "buffers"),
    ):
        _, found = parse(Source("test", text))
        assert [each.code for each in found] == ["SK0140"]
        assert text[found[0].span.start :].startswith(word)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        # Written in the last turn only, or in no turn at all.
        (
            "for i in range(P):\n    rows(W -> C, factor=1.0)\n    rows(A -> W, factor=1.0)",
            "SK0530",
        ),
        (
            "for i in range(P - 1):\n    rows(A -> W, factor=1.0)\nrows(W -> C, factor=1.0)",
            "SK0530",
        ),
        ("if P > 3:\n    rows(A -> W, factor=1.0)\nrows(W -> C, factor=1.0)", "SK0530"),
        # An output that some launches do not write.
        ("if P > 3:\n    rows(A -> C, factor=1.0)", "SK0510"),
    ],
)
def test_what_only_some_launches_write_is_found(body: str, code: str) -> None:
    result = check(Source("test", program(body)))
    assert has_errors(result.diagnostics)
    assert code in {each.code for each in result.diagnostics}, result.diagnostics


def test_shapes_that_only_a_launch_tells_are_conditions_of_it() -> None:
    text = program("pairs(V -> U, N=P)\nrows(A -> C, factor=1.0)")
    result = check(Source("test", text))
    assert result.ok, result.diagnostics
    (whole,) = [each.sketch for each in result.sketches if each.sketch.name == "whole"]
    assert any("2*P == Q" in require.text for require in whole.requires)


def test_what_is_wrong_with_a_sketch_is_told_once() -> None:
    text = program(RIGHT).replace("mul(x, factor, x)", "mul(x, gain, x)")
    result = check(Source("test", text))
    assert [each.code for each in result.diagnostics] == ["SK0201"]


def test_a_broken_program_does_not_hide_what_else_is_wrong() -> None:
    text = program("rows(A -> W factor=1.0)\nrows(A => W, factor=1.0)").replace(
        "alloc([T])", "alloc(T)", 1
    )
    tree, found = parse(Source("test", text))
    assert tree is None
    assert len(found) == 3


def test_loops_of_one_name_are_one_mistake() -> None:
    """The outer variable keeps its meaning behind the inner loop."""
    body = (
        "for k in range(2):\n    for k in range(3):\n        rows(A -> W, factor=1.0, turn=k)\n"
        "    rows(A -> W, factor=1.0, turn=k)"
    )
    result = check(Source("test", program(body)))
    assert [each.code for each in result.diagnostics if each.code in ("SK0201", "SK0204")] == [
        "SK0204"
    ]
