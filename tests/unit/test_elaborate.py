"""What elaboration makes of correct sketches, and which rules it enforces."""

from __future__ import annotations

import keyword
from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.checker.context.context import RESERVED
from sketchc.checker.elaboration.elaborate import bindable, elaborate
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.parsing.parser import parse

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.sketch"))


def run(text: str, **constants: float) -> tuple[ir.Sketch | None, list[str]]:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, [diagnostic.message for diagnostic in found]
    sketch, found = elaborate(tree.sketches[0], constants)
    return sketch, [diagnostic.code for diagnostic in found]


def good(text: str, **constants: float) -> ir.Sketch:
    sketch, codes = run(text, **constants)
    assert sketch is not None, codes
    assert codes == []
    return sketch


def vector(work: str, **parts: str) -> str:
    """A sketch over blocks of X[M]; `work` stands between load and store."""
    body = {
        "symbols": "M",
        "tensors": "X[M]: in f32; Y[M]: out f32;",
        "more": "constexpr: T = 64;",
        "alloc": "x = alloc([T])",
        "load": "load(X[i*T:(i+1)*T] -> x)",
        "store": "store(x -> Y[i*T:(i+1)*T])",
        "before": "",
        **parts,
    }
    inner = "\n".join(
        "        " + line
        for part in (body["alloc"], body["load"], work, body["store"])
        for line in part.split("\n")
        if line
    )
    return f"""sketch example {{
    symbols: {body["symbols"]};
    tensors: {body["tensors"]}
    {body["more"]}
    {body["before"]}
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
{inner}
}}
"""


def statements(sketch: ir.Sketch) -> list[ir.Statement]:
    result: list[ir.Statement] = []

    def visit(body):
        for statement in body:
            result.append(statement)
            if isinstance(statement, ir.For):
                visit(statement.body)

    for phase in sketch.phases:
        visit(phase.body)
    return result


def computes(sketch: ir.Sketch) -> list[ir.Compute]:
    return [s for s in statements(sketch) if isinstance(s, ir.Compute)]


def loops(sketch: ir.Sketch) -> list[ir.For]:
    return [s for s in statements(sketch) if isinstance(s, ir.For)]


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_elaborate_without_a_word(path):
    sketch = good(path.read_text("utf-8"))
    names = [
        *(tile.name for tile in sketch.tiles),
        *(loop.variable for loop in loops(sketch)),
        *(symbol.name for symbol in sketch.symbols),
        *(tensor.name for tensor in sketch.tensors),
        *(view.name for view in sketch.views),
        *(constant.name for constant in sketch.constants),
        *(param.name for param in sketch.params),
    ]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    for statement in statements(sketch):
        if isinstance(statement, ir.Load | ir.Store | ir.Compute | ir.For):
            assert statement.text


def carried(name: str) -> dict[str, tuple[str, ...]]:
    path = next(path for path in EXAMPLES if path.stem == name)
    return {loop.variable: loop.carried for loop in loops(good(path.read_text("utf-8")))}


def test_carried_tiles_of_the_examples():
    assert carried("rms") == {
        "b": (),
        "d1_outer": (),
        "f": ("square_sum",),
        "f_2": (),
    }
    assert carried("matmul")["k"] == ("c",)
    online = carried("online_softmax")
    assert sorted(online["j"]) == ["running_max", "running_sum"]
    assert online["j_2"] == ()
    assert carried("softmax") == {"i": ()}


def test_reads_before_writes_in_a_loop_are_carried():
    sketch = good(
        vector(
            "y = alloc([T])\ncopy(x, y)\nfor k in range(3):\n    z = alloc([T])\n"
            "    copy(y, z)\n    mul(z, 2.0, y)"
        )
    )
    assert {loop.variable: loop.carried for loop in loops(sketch)} == {"i": (), "k": ("y",)}


# ---------------------------------------------------------------- names and phases


def test_reserved_names_are_respelt():
    sketch, codes = run(
        vector(
            "class = alloc([T])\nmul(x, lambda, class)\ncopy(class, x)",
            more="constexpr: T = 64;\n    params: lambda: f32 = 0.5;",
        )
    )
    assert codes == ["SK0610"]
    assert sketch is not None
    assert [param.name for param in sketch.params] == ["lambda_"]
    assert sketch.tiles[1].name == "class_"
    assert sketch.tiles[1].source_name == "class"
    assert not {tile.name for tile in sketch.tiles} & RESERVED


def test_generated_names_never_collide_with_declared_ones():
    sketch = good(
        vector("M_2 = alloc([T])\ncopy(x, M_2)\nfor k in range(2):\n    mul(M_2, 1.0, M_2)")
        .replace("symbols: M;", "symbols: M, k_2;")
        .replace("X[M]: in f32;", "X[M]: in f32; W[k_2]: in f32;")
        .replace("copy(x, M_2)", "copy(x, M_2)\n        w = alloc([1])\n        load(W[0] -> w)")
    )
    names = [t.name for t in sketch.tiles] + [loop.variable for loop in loops(sketch)]
    assert len(set(names) | {s.name for s in sketch.symbols}) == len(names) + 2


def test_each_outermost_nest_is_a_phase():
    text = """sketch two {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    workspace: W[M]: f32;
    constexpr: T = 64;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        store(x -> W[i*T:(i+1)*T])
    total = alloc([1], init=0)
    for k in range(ceil(M, T)):
        x = alloc([T])
        s = alloc([1])
        load(W[k*T:(k+1)*T] -> x)
        reduce_sum(x, 0, s)
        add(total, s, total)
    store(total -> W[0])
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        load(W[i*T:(i+1)*T] -> x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
    sketch = good(text)
    assert [type(phase.body[0]).__name__ for phase in sketch.phases] == ["For", "Alloc", "For"]
    assert [tensor.role for tensor in sketch.tensors] == [
        ir.Role.IN,
        ir.Role.OUT,
        ir.Role.WORKSPACE,
    ]
    across = text.replace("load(W[i*T:(i+1)*T] -> x)", "fill(total, x)")
    assert run(across.replace("fill(total, x)", "x = alloc([1])\n        copy(total, x)"))[1] == [
        "SK0202",
        "SK0212",
    ]
    assert run(text.replace("store(x -> W[i*T:(i+1)*T])", "copy(x, x)"))[1] == ["SK0207"]


# ---------------------------------------------------------------- roles


@pytest.mark.parametrize(
    ("tensors", "store", "codes"),
    [
        ("X[M]: f32; Y[M]: f32;", "store(x -> Y[i*T:(i+1)*T])", []),
        ("X[M]: inout f32;", "store(x -> X[i*T:(i+1)*T])", []),
        ("X[M]: f32; Z[M]: in f32;", "store(x -> X[i*T:(i+1)*T])", ["SK0611", "SK0207"]),
        ("X[M]: in f32; Z[M]: in f32;", "store(x -> X[i*T:(i+1)*T])", ["SK0611", "SK0207"]),
        ("X[M]: in f32 = 0; Y[M]: f32;", "store(x -> Y[i*T:(i+1)*T])", ["SK0207"]),
        ("X[M|1]: in f32; Z[M]: in f32;", "store(x -> X[i*T:(i+1)*T])", ["SK0611", "SK0207"]),
    ],
)
def test_roles(tensors, store, codes):
    found = run(vector("", tensors=tensors, store=store))[1]
    assert sorted(set(found)) == sorted(codes)


def test_undeclared_roles_follow_use():
    sketch = good(vector("", tensors="X[M]: f32; Y[M]: f32;"))
    assert [tensor.role for tensor in sketch.tensors] == [ir.Role.IN, ir.Role.OUT]


# ---------------------------------------------------------------- constants


def test_bindable_names():
    tree, _ = parse(Source("s", vector("", more="constexpr: T = 64, eps; params: p: f32 = 1.0;")))
    assert bindable(tree.sketches[0]) == {"T", "eps", "p"}


@pytest.mark.parametrize(
    ("default", "dtype"),
    [("1.5", DType.F32), ("2", DType.I64), ("True", DType.BOOL)],
)
def test_params_without_type_take_that_of_their_default(default, dtype):
    sketch = good(vector("", more=f"constexpr: T = 64; params: p = {default};"))
    assert sketch.params[0].dtype is dtype


def test_user_values_replace_defaults_of_params():
    text = vector("mul(x, p, x)", more="constexpr: T = 64; params: p: f32 = 1.0;")
    assert good(text, p=3).params[0].default == 3.0


@pytest.mark.parametrize(
    ("constant", "work", "tensors", "fine"),
    [
        ("T = 64 in [32, 64]", "mul(x, T, x)", None, False),
        ("T = 64", "mul(x, T, x)", None, True),
        ("T", "mul(x, T, x)", None, False),
        ("T = 64 in [32, 64], U = T*2", "mul(x, U, x)", None, False),
        ("T = 64 in [32, 64]", "mul(x, i*T, x)", None, True),
        ("T = 64 in [32, 64]", "where(i*T + iota(T) < M, x, 0, x)", None, True),
        ("T = 64 in [32, 64]", "", "X[M]: in f32; Y[M*T]: out f32;", False),
        ("T = 64 in [32, 64]", "y = alloc([T], init=T)", None, False),
        ("T = 64 in [32, 64]", "clamp(x, low=T, high=2*T, dst=x)", None, False),
    ],
)
def test_tile_sizes_are_not_data(constant, work, tensors, fine):
    parts = {"more": f"constexpr: {constant};"} | ({"tensors": tensors} if tensors else {})
    codes = run(vector(work, **parts))[1]
    assert codes == ([] if fine else ["SK0208"])


def test_lets_made_from_tile_sizes_are_not_data_either():
    text = vector("mul(x, half, x)", more="constexpr: T = 64 in [32, 64]; let: half = T//2;")
    assert run(text)[1] == ["SK0208"]


# ---------------------------------------------------------------- types


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_accumulators_take_the_evaluation_type(dtype):
    sketch = good(
        vector(
            "largest = alloc([1], init=-inf)\nblock = alloc([1])\nnew = alloc([1])\n"
            "reduce_max(x, 0, block)\nmax(largest, block, new)\ncopy(new, largest)",
            tensors=f"X[M]: in {dtype}; Y[M]: out {dtype};",
        )
    )
    wide = DType(dtype).compute
    assert {tile.source_name: tile.dtype for tile in sketch.tiles} == {
        "x": DType(dtype),
        "largest": wide,
        "block": wide,
        "new": wide,
    }
    assert {compute.dtype for compute in computes(sketch)} == {wide}


@pytest.mark.parametrize(
    ("call", "tile", "evaluated"),
    [
        ("mul(x, 2.0, r)", DType.F32, DType.F32),
        ("mul(x, M, r)", DType.F32, DType.F32),
        ("gt(x, 0, r)", DType.BOOL, DType.F32),
        ("add(n, 1, r)", DType.I32, DType.I32),
        ("add(n, M, r)", DType.I64, DType.I64),
        ("div(n, 2, r)", DType.F32, DType.F32),
        ("mul(n, 0.5, r)", DType.F32, DType.F32),
        ("add(n, iota(T), r)", DType.I64, DType.I64),
        ("logical_and(x, n, r)", DType.BOOL, DType.F32),
        ("where(i == 0, n, 7, r)", DType.I32, DType.I32),
        ("fill(3, r)", DType.F32, DType.F32),
        ("bitwise_and(n, 1, r)", DType.I32, DType.I32),
    ],
)
def test_types_of_results(call, tile, evaluated):
    sketch = good(
        vector(
            f"n = alloc([T])\nload(I[i*T:(i+1)*T] -> n)\nr = alloc([T])\n{call}",
            tensors="X[M]: in f32; I[M]: in i32; Y[M]: out f32;",
        )
    )
    assert sketch.tiles[2].dtype is tile
    assert computes(sketch)[-1].dtype is evaluated


@pytest.mark.parametrize(
    ("source", "destination", "implicit"),
    [
        ("f32", "f16", True),
        ("f64", "bf16", True),
        ("i32", "i64", True),
        ("i64", "i32", False),
        ("i32", "f32", False),
        ("f32", "i32", False),
        ("bool", "i32", False),
    ],
)
def test_which_conversions_are_implicit(source, destination, implicit):
    tensors = f"X[M]: in {source}; Y[M]: out {destination};"
    assert run(vector("", tensors=tensors))[1] == ([] if implicit else ["SK0307"])
    copied = vector(
        f"y = alloc([T], {destination})\ncopy(x, y)",
        tensors=tensors,
        store="store(y -> Y[i*T:(i+1)*T])",
    )
    assert run(copied)[1] == ([] if implicit else ["SK0307"])
    assert run(copied.replace("copy(", "cast("))[1] == []


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    ("subscript", "alloc", "exact"),
    [
        ("i*T:(i+1)*T", "[T]", True),
        ("i*T:i*T + T", "[T]", True),
        ("i*T:min((i+1)*T, M)", "[T]", False),
        ("0:64", "[T]", True),
        ("i*T:(i+1)*T", "[2*T]", False),
    ],
)
def test_exact_slices(subscript, alloc, exact):
    sketch = good(vector("", alloc=f"x = alloc({alloc})", load=f"load(X[{subscript}] -> x)"))
    load = next(s for s in statements(sketch) if isinstance(s, ir.Load))
    assert [part.exact for part in load.access.subscripts] == [exact]


def test_slices_through_bindings():
    sketch = good(
        vector("", load="lo = i*T\nhi = lo + T\nload(X[lo:hi] -> x)").replace("[T])", "[T])", 1)
    )
    load = next(s for s in statements(sketch) if isinstance(s, ir.Load))
    assert load.access.subscripts[0].exact
    binds = [s for s in statements(sketch) if isinstance(s, ir.Bind)]
    assert [bind.name for bind in binds] == ["lo", "hi"]


def test_predicates_over_two_axes():
    text = """sketch causal {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: TM = 8, TN = 16;
    @llm_hint("parallel")
    for i in range(ceil(M, TM)):
        for j in range(ceil(N, TN)):
            x = alloc([TM, TN])
            load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
            m = i*TM + iota(TM)
            n = j*TN + iota(TN)
            where(n[None, :] <= m[:, None] and j >= 0, x, -inf, x)
            store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}
"""
    sketch = good(text)
    operand = computes(sketch)[0].operands[0]
    assert isinstance(operand, ir.IndexOperand)
    assert operand.dtype is DType.BOOL
    assert [show(extent) for extent in operand.extents] == ["TM", "TN"]
    assert run(text.replace("n[None, :] <= m[:, None]", "n <= m"))[1] == ["SK0305"]


@pytest.mark.parametrize(
    ("axis", "shape", "codes", "axes"),
    [
        ("0", "[N]", [], (0,)),
        ("0", "[1, N]", [], (0,)),
        ("-1", "[T]", [], (1,)),
        ("[1, 0]", "[1, 1]", [], (0, 1)),
        ("1", "[N]", ["SK0311"], None),
        ("2", "[T]", ["SK0310"], None),
        ("[0, -2]", "[1, N]", ["SK0310"], None),
    ],
)
def test_reductions(axis, shape, codes, axes):
    text = f"""sketch reduction {{
    symbols: M, N <= 512;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 8;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T, N])
        r = alloc({shape})
        load(X[i*T:(i+1)*T, 0:N] -> x)
        reduce_sum(x, {axis}, r)
        store(x -> Y[i*T:(i+1)*T, 0:N])
}}
"""
    sketch, found = run(text)
    assert found == codes
    if sketch is not None:
        assert computes(sketch)[0].attributes == {"axis": axes}


def test_launch_checks_are_generated_where_needed():
    sketch = good(
        vector(
            "",
            more="constexpr: T = 64; params: G: i64 = 1; let: H = M//G - 1;\n"
            "    views: V[G, M//G] = X;",
            tensors="X[M]: in f32; Z[H]: in f32; Y[M]: out f32;",
        ).replace("load(", "z = alloc([1])\n        load(Z[0] -> z)\n        load(", 1)
    )
    generated = [require.text for require in sketch.requires if require.generated]
    assert "G >= 1" in generated
    assert "H >= 0" in generated
    assert any("==" in text for text in generated)


def test_host_floats_are_computed_once():
    sketch = good(vector("mul(x, 1.0/M, x)\nadd(x, 1.0/M, x)\nmul(x, -(2.0*3), x)"))
    assert [let.dtype for let in sketch.lets] == [DType.F64]
    values = [compute.operands[1].value for compute in computes(sketch)]
    assert values[0] == values[1]
    assert values[2] == ir.Literal(-6.0)


def test_narrow_sums_of_conditions_count():
    sketch = good(vector("p = alloc([T], bool)\ngt(x, 0, p)\nn = alloc([1])\nreduce_sum(p, 0, n)"))
    assert sketch.tiles[2].dtype is DType.I64


def has_function(node) -> bool:
    """Whether any part of a tree of records is a host function."""
    if isinstance(node, ir.Function):
        return True
    if isinstance(node, tuple):
        return any(map(has_function, node))
    return any(has_function(getattr(node, f.name)) for f in getattr(node, "__attrs_attrs__", ()))


@pytest.mark.parametrize(
    "work",
    [
        "mul(x, sqrt(M), x)",
        "where(sqrt(M) > 3, x, 0, x)",
        "n = abs(M - 3)\nmul(x, n, x)",
        "for k in range(int(sqrt(M))):\n    mul(x, 2.0, x)",
        "where(i*T + iota(T) < abs(M - 3), x, 0, x)",
        "y = alloc([int(sqrt(T))])",
    ],
)
def test_host_functions_never_reach_the_body(work):
    sketch, codes = run(vector(work))
    if sketch is None:
        assert codes == ["SK0302"]
    else:
        assert not has_function(sketch.phases)
        assert not has_function(sketch.tiles)


def test_abs_of_integers_is_known_everywhere():
    assert run(vector("n = abs(i - 3)\nmul(x, n, x)"))[1] == []


@pytest.mark.parametrize("work", ["mul(x, sqrt(i), x)", "mul(x, i*0.5, x)"])
def test_host_functions_take_host_values(work):
    assert run(vector(work))[1] == ["SK0302"]
