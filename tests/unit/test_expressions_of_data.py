"""An element-wise expression means the calls that it is written with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.checker.api import check
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.ops.table import ARITHMETIC, COMPARISONS, OPS, Category, Fact, Result
from sketchc.parsing.data import in_expressions
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

SKETCH = """sketch both {{
    symbols: N;
    params: p = 0.75; k: i32 = 3;
    tensors: X[N]: in f16; Y[N]: in f32; Q[N]: in i16; OUT[N]: out f32;
    constexpr: T = 5 in [3, 5];

    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        x = alloc([T], f16)
        y = alloc([T], f32)
        q = alloc([T], i16)
        z = alloc([T], f32)
        load(X[i*T:(i+1)*T] -> x)
        load(Y[i*T:(i+1)*T] -> y)
        load(Q[i*T:(i+1)*T] -> q)
{body}
        store(z -> OUT[i*T:(i+1)*T])
}}
"""


#: A name or number; or an operation, by its name or infix, and what it is given.
Tree = str | tuple[Any, ...]
INFIX = {**ARITHMETIC, **COMPARISONS}


def text_of(tree: Tree) -> str:
    """As it is written, with brackets that leave no doubt."""
    if isinstance(tree, str):
        return tree
    operation, *parts = tree
    if operation in INFIX:
        return f"({f' {operation} '.join(map(text_of, parts))})"
    return f"{operation}({', '.join(map(text_of, parts))})"


def calls(tree: Tree, lines: list[str]) -> str:
    """Add the calls that it stands for; gives what holds its value after them."""
    if isinstance(tree, str):
        return tree
    operation, *parts = tree
    given = [calls(part, lines) for part in parts]
    name = f"t{len(lines)}"
    dtype = "bool" if operation in COMPARISONS else "f32"
    lines.append(f"{name} = alloc([T], {dtype})")
    lines.append(f"{INFIX.get(operation, operation)}({', '.join((*given, name))})")
    return name


UNARY = sorted(
    row.name
    for row in OPS.values()
    if in_expressions(row.name)
    and len(row.operands) == 1
    and row.result in (Result.SAME, Result.FLOAT)
    and not row.attributes
    and Fact.ONE_SCALAR not in row.facts
)
tile = st.sampled_from(["x", "y"])
scalar = st.sampled_from(["2", "0.5", "p", "k", "i"])


def _larger(data: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    pair = st.one_of(st.tuples(data, data), st.tuples(data, scalar), st.tuples(scalar, data))

    def on_two(names: Iterable[str]) -> st.SearchStrategy[Tree]:
        return st.builds(lambda name, two: (name, *two), st.sampled_from(sorted(names)), pair)

    return st.one_of(
        st.tuples(st.sampled_from(UNARY), data),
        on_two({"+", "-", "*", "/", "max", "min"}),
        st.tuples(st.just("where"), on_two(COMPARISONS), data, data),
    )


data = st.recursive(tile, _larger, max_leaves=8)


def checked(body: list[str]) -> ir.Sketch:
    text = SKETCH.format(body="\n".join(f"        {line}" for line in body))
    found = check(Source("both.sketch", text), {"T": 5}, allow_unproved=True)
    assert found.ok, (text, found.diagnostics)
    return found.sketches[0].sketch


def result(sketch: ir.Sketch) -> bytes:
    random = np.random.default_rng(5)
    tensors = {
        "X": random.normal(size=11).astype(np.float16),
        "Y": (random.normal(size=11) * 10.0 ** random.integers(-3, 4, 11)).astype(np.float32),
        "Q": random.integers(-9, 9, 11).astype(np.int16),
    }
    with np.errstate(all="ignore"):
        done = interpret(sketch, tensors)
    return bytes(done.outputs["OUT"].tobytes())


@given(data)
def test_an_expression_means_the_calls_that_it_is_written_with(tree: Tree) -> None:
    lines: list[str] = []
    name = calls(tree, lines)
    long = result(checked([*lines, f"copy({name}, z)"]))
    assert result(checked([f"copy({text_of(tree)}, z)"])) == long


def tiles(*body: str) -> dict[str, DType]:
    """The types of the tiles that such statements make."""
    return {tile.name: tile.dtype for tile in checked([*body, "copy(y, z)"]).tiles}


@pytest.mark.parametrize(
    ("expression", "name", "dtype"),
    [
        ("x*x", "x_mul", DType.F32),
        ("x > 2*y", "y_mul", DType.F32),
        ("(q - k)*p", "q_mul", DType.F32),
        ("relu(q)", "q_relu", DType.I16),
    ],
)
def test_tiles_of_expressions_have_the_type_of_the_evaluation(
    expression: str, name: str, dtype: DType
) -> None:
    use = f"where({expression}, y, y, w)" if ">" in expression else f"copy({expression}, w)"
    assert (
        tiles("w = alloc([T], f32)" if dtype.is_float else "w = alloc([T], i64)", use)[name]
        == dtype
    )


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ("0.5, -inf", DType.F32),
        ("nan, -65504.0", DType.F32),
        ("0.1, 0.0", DType.F64),
        ("1e300, 0.0", DType.F64),
        ("p, 0.0", DType.F32),
    ],
)
def test_a_choice_between_numbers_is_f32_where_nothing_is_lost(numbers: str, dtype: DType) -> None:
    made = tiles("w = alloc([T], f32)", f"copy(y + where(x > y, {numbers}), w)")
    assert [kind for name, kind in made.items() if name.endswith("_where")] == [dtype]


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [("x*0.5", "f32"), ("q*0.5", "f32"), ("q*2", "i64"), ("exp(q)", "f32"), ("x > y", "bool")],
)
def test_a_tile_without_a_type_takes_that_of_the_expression(expression: str, dtype: str) -> None:
    assert tiles("w = alloc([T])", f"copy({expression}, w)")["w"].value == dtype


def test_what_works_across_lanes_is_a_call_of_its_own() -> None:
    for row in OPS.values():
        alone = row.category is not Category.ELEMENTWISE or row.result is Result.DESTINATION
        assert (in_expressions(row.name) is None) == alone
    text = SKETCH.format(body="        add(x, 1 + reduce_sum(y), z)")
    (found,) = check(Source("both.sketch", text)).diagnostics
    assert (found.code, found.message) == ("SK0206", "`reduce_sum` cannot stand in an expression")


def test_integers_alone_stay_an_index() -> None:
    """With 64 bits, and no tile of their own."""
    assert set(tiles("w = alloc([T], i64)", "copy(q*2 + k, w)")) == {"x", "y", "q", "z", "w"}


def test_the_formatter_keeps_what_is_meant() -> None:
    body = ["copy((x+1)*(y-p)/-(x*  x), z)", "where(not(x>y or isnan(x)),x,exp( -y ),z)"]
    source = Source("both.sketch", SKETCH.format(body="\n".join(" " * 8 + line for line in body)))
    tree, _ = parse(source)
    assert tree is not None
    lines = [line.strip() for line in format_file(tree, source).split("\n")]
    formatted = [line for line in lines if line.startswith(("copy", "where"))]
    assert formatted == [
        "copy((x+1)*(y-p)/-(x*x), z)",
        "where(not (x > y or isnan(x)), x, exp(-y), z)",
    ]
    assert result(checked(body)) == result(checked(formatted))
