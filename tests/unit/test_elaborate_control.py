"""What elaboration makes of branches, loops, fetches, atomics, host steps and declarations."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

TENSORS = """
        X[M]: in f32;
        L[4]: in i32;
        S[]: in f64;
        W[M]: in f32?;
        V[M]: in f32?;
        Y[M]: out f32 = 0;
        C[]: out i32 = 0;
        N[M]: inout f32;"""


def run(
    body: str, tensors: str = TENSORS, more: str = "", **constants: float
) -> tuple[ir.Sketch | None, list[str]]:
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    text = f"""sketch example {{
    symbols: M;
    params: flag: bool = True; count: i64 = 3; level: f32 = 0.5;
    constexpr: T = 64, CAUSAL: bool = True, DEPTH = 2;
    tensors:{tensors}
{more}
{lines}
}}
"""
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, [diagnostic.message for diagnostic in found]
    formatted = format_file(tree, Source("test.sketch", text))
    assert parse(Source("test.sketch", formatted))[0] == tree
    sketch, found = elaborate(tree.sketches[0], constants)
    return sketch, [one.code for one in found if one.code != "SK0611"]


def good(body: str, tensors: str = TENSORS, more: str = "", **constants: float) -> ir.Sketch:
    sketch, codes = run(body, tensors, more, **constants)
    assert sketch is not None, codes
    assert codes == []
    return sketch


def codes(body: str, tensors: str = TENSORS, more: str = "") -> list[str]:
    return run(body, tensors, more)[1]


def vector(work: str) -> str:
    """A parallel loop over blocks of X; `work` stands between load and store."""
    inner = "\n".join("    " + line for line in work.strip("\n").split("\n"))
    return f"""@llm_hint("parallel")
for i in range(ceil(M, T)):
    x = alloc([T])
    load(X[i*T:(i+1)*T] -> x)
{inner}
    store(x -> Y[i*T:(i+1)*T])
"""


ADD = "atomic_add(x -> N[i*T:(i+1)*T])"


def inside(sketch: ir.Sketch) -> list[ir.Statement]:
    """The statements between load and store of the one parallel loop."""
    loop = sketch.phases[-1].body[0]
    assert isinstance(loop, ir.For)
    return list(loop.body[2:-1])


# ---------------------------------------------------------------- branches


def test_a_branch_on_a_value_of_the_launch_stays():
    (branch,) = inside(good(vector("if flag and i < count:\n    neg(x, x)\nelse:\n    exp(x, x)")))
    assert isinstance(branch, ir.If)
    assert show(branch.condition) == "flag and i < count"
    assert [type(s) for s in (*branch.body, *branch.orelse)] == [ir.Compute, ir.Compute]
    assert branch.carried == ("x",)


@pytest.mark.parametrize(
    ("condition", "operation"),
    [
        ("CAUSAL", "neg"),
        ("not CAUSAL", "exp"),
        ("DEPTH == 2 and CAUSAL", "neg"),
        ("DEPTH > 2 or not CAUSAL", "exp"),
        ("flag and DEPTH > 2", "exp"),
        ("flag or CAUSAL", "neg"),
        ("True", "neg"),
    ],
)
def test_a_condition_that_is_known_leaves_the_branch_taken(condition, operation):
    (statement,) = inside(good(vector(f"if {condition}:\n    neg(x, x)\nelse:\n    exp(x, x)")))
    assert isinstance(statement, ir.Compute)
    assert statement.operation == operation


def test_known_parts_of_a_condition_go():
    (branch,) = inside(good(vector("if CAUSAL and flag:\n    neg(x, x)")))
    assert isinstance(branch, ir.If)
    assert show(branch.condition) == "flag"
    (branch,) = inside(good(vector("if not (not CAUSAL or flag):\n    neg(x, x)")))
    assert isinstance(branch, ir.If)
    assert show(branch.condition) == "not flag"


def test_constants_given_from_outside_choose_the_branch():
    sketch = good(vector("if CAUSAL:\n    neg(x, x)\nelse:\n    exp(x, x)"), CAUSAL=False)
    (statement,) = inside(sketch)
    assert isinstance(statement, ir.Compute)
    assert statement.operation == "exp"


def test_the_other_branch_is_read_for_unknown_names_only():
    assert codes(vector("if not CAUSAL:\n    neg(z, x)")) == ["SK0201"]
    assert codes(vector("if not CAUSAL:\n    negg(x, x)")) == ["SK0210"]
    wrong = "if not CAUSAL:\n    y = alloc([3])\n    load(X[0:5, 1] -> y)"
    assert codes(vector(wrong)) == []


def test_the_other_branch_leaves_no_trace():
    left = "if not CAUSAL:\n    y = alloc([T])\n    k = count + 1\n    copy(x, y)\n"
    right = "y = alloc([T])\ncopy(x, y)\ncopy(y, x)"
    sketch = good(vector(left + right))
    assert [tile.name for tile in sketch.tiles] == ["x", "y"]


def test_names_of_a_branch_end_with_it():
    assert codes(vector("if flag:\n    y = alloc([T])\n    copy(x, y)\ncopy(y, x)")) == ["SK0203"]
    good(vector("if flag:\n    k = i + 1\n    add(x, k, x)\nelse:\n    k = i\n    add(x, k, x)"))


def test_conditions_are_the_same_for_all_lanes():
    assert codes(vector("if iota(T) < 3:\n    neg(x, x)")) == ["SK0324"]
    assert codes(vector("if count:\n    neg(x, x)")) == ["SK0308"]
    assert codes(vector("if x > 3:\n    neg(x, x)")) == ["SK0324"]


def test_conditions_on_host_floats_are_computed_once():
    sketch = good(vector("if 2*level > 0.5:\n    neg(x, x)"))
    (branch,) = inside(sketch)
    assert isinstance(branch, ir.If)
    assert isinstance(branch.condition, ir.Ref)
    assert [let.dtype for let in sketch.lets] == [DType.BOOL]
    work = "if i > 0 and (level > 0.25 or not 2*level <= 0.5):\n    neg(x, x)"
    sketch = good(vector(work))
    (branch,) = inside(sketch)
    assert isinstance(branch, ir.If)
    assert show(branch.condition) == "i > 0 and (scalar or not scalar_2)"
    assert [show(let.value) for let in sketch.lets] == ["level > 0.25", "2*level <= 0.5"]


def test_what_both_branches_assign_is_assigned():
    both = "y = alloc([T])\nif flag:\n    neg(x, y)\nelse:\n    exp(x, y)\ncopy(y, x)"
    branch = next(s for s in inside(good(vector(both))) if isinstance(s, ir.If))
    assert branch.carried == ("y",)
    assert codes(vector("y = alloc([T])\nif flag:\n    neg(x, y)\ncopy(y, x)")) == ["SK0404"]
    assert codes(vector("y = alloc([T], init=0)\nif flag:\n    neg(x, y)\ncopy(y, x)")) == []
    loop = "y = alloc([T])\nfor j in range(count):\n    if flag:\n        copy(x, y)\n    "
    assert codes(vector(loop + ADD.replace("x", "y"))) == ["SK0404"]


def test_a_branch_carries_only_what_is_read_afterwards():
    work = """y = alloc([T])
if flag:
    neg(x, y)
    copy(y, x)
"""
    branch = next(s for s in inside(good(vector(work))) if isinstance(s, ir.If))
    assert branch.carried == ("x",)


def test_a_loop_carries_what_its_branches_write():
    work = """total = alloc([T], init=0)
for j in range(count):
    if j > 0:
        add(total, x, total)
copy(total, x)
"""
    loop = next(s for s in inside(good(vector(work))) if isinstance(s, ir.For))
    assert loop.carried == ("total",)
    (branch,) = loop.body
    assert isinstance(branch, ir.If)
    assert branch.carried == ("total",)


# ---------------------------------------------------------------- optional tensors


LOAD_W = "load(W[i*T:(i+1)*T] -> x)"


@pytest.mark.parametrize(
    "work",
    [
        f"if present(W):\n    {LOAD_W}",
        f"if present(W) and flag:\n    {LOAD_W}",
        f"if not present(W):\n    neg(x, x)\nelse:\n    {LOAD_W}",
        f"if not present(W) or flag:\n    neg(x, x)\nelse:\n    {LOAD_W}",
        "if flag:\n    if present(W):\n        for j in range(4):\n            k = fetch(W[j])",
        f"if present(W) and present(V):\n    {LOAD_W}\n    load(V[i*T:(i+1)*T] -> x)",
        f"if (present(W) and flag) or (present(W) and count > 3):\n    {LOAD_W}",
    ],
)
def test_an_optional_tensor_is_accessed_where_it_is_known_to_be_given(work):
    sketch = good(vector(work))
    assert sketch.tensor("W").optional
    assert not sketch.tensor("X").optional


@pytest.mark.parametrize(
    "work",
    [
        LOAD_W,
        f"if present(V):\n    {LOAD_W}",
        f"if present(W) or flag:\n    {LOAD_W}",
        f"if present(W) or present(V):\n    {LOAD_W}",
        f"if present(W):\n    neg(x, x)\nelse:\n    {LOAD_W}",
        f"if present(W) and flag:\n    neg(x, x)\nelse:\n    {LOAD_W}",
        f"if present(W):\n    neg(x, x)\n{LOAD_W}",
        "k = fetch(W[0])\nadd(x, k, x)",
    ],
)
def test_an_optional_tensor_is_accessed_nowhere_else(work):
    assert codes(vector(work)) == ["SK0216"]


def test_a_view_of_an_optional_tensor_is_optional():
    view = "    views: W2[M, 1] = W;"
    work = "if present(W2):\n    load(W2[i*T:(i+1)*T, 0] -> x)"
    (branch,) = inside(good(vector(work), more=view))
    assert isinstance(branch, ir.If)
    assert branch.condition == ir.Ref("W", ir.NameKind.PRESENT, DType.BOOL)
    assert codes(vector("load(W2[i*T:(i+1)*T, 0] -> x)"), more=view) == ["SK0216"]


def test_only_inputs_are_optional_and_only_they_are_asked_for():
    assert codes(vector(""), "X[M]: in f32; Y[M]: out f32?;") == ["SK0217"]
    assert codes(vector("if present(X):\n    neg(x, x)")) == ["SK0218"]
    assert codes(vector("if present(x):\n    neg(x, x)")) == ["SK0218"]
    assert codes(vector("given = present(W)")) == ["SK0219"]
    stored = vector("if present(W):\n    store(x -> W[i*T:(i+1)*T])")
    assert codes(stored, TENSORS.replace("in f32?", "f32?")) == ["SK0207"]


def test_an_optional_tensor_may_bind_a_symbol():
    assert codes(vector(""), "X[4]: in f32; W[M]: in f32?; Y[4]: out f32;") == []


# ---------------------------------------------------------------- types and ranks


@pytest.mark.parametrize("dtype", [dtype.value for dtype in DType])
def test_every_element_type_can_be_declared_loaded_and_stored(dtype):
    tensors = f"X[M]: in {dtype}; Y[M]: out {dtype};"
    sketch = good(vector(""), tensors)
    assert sketch.tile("x").dtype is DType(dtype)


def test_a_tensor_without_axes_has_one_element():
    work = "one = alloc([1], i32)\nfill(1, one)\natomic_add(one -> C[])"
    sketch = good(vector(work))
    assert sketch.tensor("C").extents == ()
    atomic = inside(sketch)[-1]
    assert isinstance(atomic, ir.Atomic)
    assert atomic.access.subscripts == ()
    view = good(vector(""), "X[M]: in f32; A[]: in f32; Y[M]: out f32;", "    views: B[1] = A;")
    assert view.extents("B") == (ir.Literal(1),)
    assert codes(vector("load(S[] -> x)")) == ["SK0304"]
    assert codes(vector("one = alloc([1])\nload(S[0] -> one)")) == ["SK0303"]


# ---------------------------------------------------------------- fetch and atomics


def test_fetch_in_a_nest_is_a_scalar_of_the_phase():
    work = "k = fetch(L[i % 4])\ns = fetch(S[])\nmul(x, s, x)\nfor j in range(k):\n    " + ADD
    sketch = good(vector(work))
    first, second, scaled, loop = inside(sketch)
    assert isinstance(first, ir.Fetch)
    assert isinstance(second, ir.Fetch)
    assert (first.dtype, second.dtype) == (DType.I64, DType.F64)
    assert isinstance(loop, ir.For)
    assert loop.stop == ir.Ref("k", ir.NameKind.BINDING, DType.I64)
    assert isinstance(scaled, ir.Compute)
    assert scaled.operands[1] == ir.ScalarOperand(
        ir.Ref("s", ir.NameKind.BINDING, DType.F64), DType.F64
    )
    assert sketch.schedule == ()


def test_fetch_takes_one_element():
    assert codes(vector("k = fetch(L[0:2])")) == ["SK0323"]
    assert codes(vector("k = fetch(L[iota(T)])")) == ["SK0323"]
    assert codes(vector("i = fetch(L[0])")) == ["SK0204"]


def test_an_atomic_needs_a_value_to_combine_with():
    atomic = "atomic_add(x -> N[i*T:(i+1)*T])"
    good(vector(atomic))
    bare = TENSORS.replace("N[M]: inout f32", "N[M]: out f32")
    assert codes(vector(atomic), bare) == ["SK0220"]
    good(vector(atomic), bare.replace("N[M]: out f32", "N[M]: out f32 = 0"))
    assert codes(vector(atomic), bare.replace("N[M]: out f32", "N[M]: in f32")) == ["SK0207"]
    first = vector("").replace("Y[", "N[")
    good(first + vector(atomic), bare)


def test_atomics_by_type():
    for dtype in ("i32", "i64", "u32", "f32", "f64", "f16", "bf16"):
        good(
            vector("atomic_max(x -> N[i*T:(i+1)*T])"),
            f"X[M]: in {dtype}; N[M]: inout {dtype}; Y[M]: out {dtype};",
        )
    for dtype in ("i8", "i16", "u8", "bool"):
        found = codes(
            vector("atomic_max(x -> N[i*T:(i+1)*T])"),
            f"X[M]: in {dtype}; N[M]: inout {dtype}; Y[M]: out {dtype};",
        )
        assert found == ["SK0330"]
    assert codes(vector("atomic_add(x -> C[])")) == ["SK0304"]
    assert codes(vector("y = alloc([1])\nfill(0, y)\natomic_add(y -> C[])")) == ["SK0307"]
    assert codes(vector("atomic_add(x -> N[i*T:(i+1)*T], unique=True)")) == ["SK0211"]


# ---------------------------------------------------------------- loops


def test_loops_may_run_downwards_and_depend_on_outer_ones():
    work = "for j in range(i, -1, -1):\n    for k in range(j, i*2, 3):\n        " + ADD
    (loop,) = inside(good(vector(work)))
    assert isinstance(loop, ir.For)
    assert [show(part) for part in (loop.start, loop.stop, loop.step)] == ["i", "-1", "-1"]
    (inner,) = loop.body
    assert isinstance(inner, ir.For)
    assert [show(part) for part in (inner.start, inner.stop, inner.step)] == ["j", "i*2", "3"]


def test_parallel_loops_may_be_triangular():
    body = """@llm_hint("parallel")
for i in range(ceil(M, T)):
    @llm_hint("parallel")
    for j in range(i + 1):
        x = alloc([T])
        load(X[j*T:(j+1)*T] -> x)
        atomic_add(x -> N[i*T:(i+1)*T])
"""
    sketch = good(body)
    outer = sketch.phases[0].body[0]
    assert isinstance(outer, ir.For)
    inner = outer.body[0]
    assert isinstance(inner, ir.For)
    assert inner.parallel
    assert show(inner.stop) == "i + 1"


def test_steps_are_not_zero():
    assert codes(vector("for j in range(0, 4, 0):\n    " + ADD)) == ["SK0315"]
    assert codes(vector("for j in range(0, 4, i):\n    " + ADD)) == ["SK0315"]
    sketch = good(vector("for j in range(0, 4, count):\n    " + ADD))
    assert "count >= 1" in [require.text for require in sketch.requires]


# ---------------------------------------------------------------- the host


def steps(sketch: ir.Sketch) -> list[str]:
    """The schedule, one line a step, indented by the blocks around it."""

    def lines(body: tuple[ir.HostStep, ...], indent: str) -> list[str]:
        result = []
        for step in body:
            match step:
                case ir.Launch(phase):
                    result.append(f"{indent}launch {phase}")
                case ir.Fetch(name=name):
                    result.append(f"{indent}{name} = fetch")
                case ir.Bind(name=name, value=value):
                    result.append(f"{indent}{name} = {show(value)}")
                case ir.HostFor():
                    parts = ", ".join(map(show, (step.start, step.stop, step.step)))
                    result.append(f"{indent}for {step.variable} in {parts}")
                    result += lines(step.body, indent + "  ")
                case ir.HostIf():
                    result.append(f"{indent}if {show(step.condition)}")
                    result += lines(step.body, indent + "  ")
                    result.append(f"{indent}else")
                    result += lines(step.orelse, indent + "  ")
        return result

    return lines(sketch.schedule, "")


def indented(text: str) -> str:
    return "\n".join("    " + line for line in text.strip("\n").split("\n")) + "\n"


def test_a_loop_around_a_nest_runs_on_the_host():
    body = f"""n = fetch(L[0])
for s in range(n, 0, -1):
    half = s // 2
{indented(vector("add(x, half + s, x)"))}"""
    sketch = good(body)
    assert steps(sketch) == ["n = fetch", "for s in n, 0, -1", "  half = s//2", "  launch 0"]
    assert sketch.phases[0].scalars == ("half", "s")
    (add,) = inside(sketch)
    assert isinstance(add, ir.Compute)
    operand = add.operands[1]
    assert isinstance(operand, ir.ScalarOperand)
    kinds = {part.kind for part in (operand.value.left, operand.value.right)}
    assert kinds == {ir.NameKind.HOST}


def test_a_branch_around_a_nest_runs_on_the_host():
    two = f"if present(W):\n{indented(vector(LOAD_W))}else:\n{indented(vector(''))}"
    assert steps(good(two)) == ["if present(W)", "  launch 0", "else", "  launch 1"]
    known = f"if CAUSAL:\n{indented(vector(''))}else:\n{indented(vector('neg(x, x)'))}"
    sketch = good(known)
    assert sketch.schedule == ()
    assert len(sketch.phases) == 1
    assert inside(sketch) == []


def test_a_plain_sequence_of_launches_needs_no_schedule():
    sketch = good(vector("") + vector("neg(x, x)").replace("X[", "Y["))
    assert len(sketch.phases) == 2
    assert sketch.schedule == ()
    assert sketch.steps == (ir.Launch(0), ir.Launch(1))


def test_a_fetch_ends_the_run_before_it():
    body = """x = alloc([4], f32)
load(X[0:4] -> x)
store(x -> Y[0:4])
n = fetch(L[1])
y = alloc([4], f32)
for j in range(n):
    load(X[j:j+4] -> y)
    store(y -> Y[j:j+4])
"""
    sketch = good(body)
    assert steps(sketch) == ["launch 0", "n = fetch", "launch 1"]
    assert [phase.scalars for phase in sketch.phases] == [(), ("n",)]
    assert codes(body.replace("store(y ->", "store(x ->")) == ["SK0212"]


def test_integers_of_the_launch_are_no_steps():
    sketch = good(f"k = M // 2\nfor s in range(k):\n{indented(vector('add(x, s, x)'))}")
    assert [let.name for let in sketch.lets] == ["k"]
    assert steps(sketch) == ["for s in 0, k, 1", "  launch 0"]
    around = walk.around(sketch.steps, 0)
    assert [step.variable for step in around if isinstance(step, ir.HostFor)] == ["s"]


def test_what_the_host_fetches_must_have_a_value():
    read = f"n = fetch(C[])\nfor s in range(n):\n{indented(vector(''))}"
    good(read)
    bare = TENSORS.replace("C[]: out i32 = 0", "C[]: out i32")
    assert codes(read, bare) == ["SK0207"]
    written = "one = alloc([1], i32)\nfill(1, one)\nstore(one -> C[])\n"
    good(written + read, bare)


def test_host_values_are_not_known_at_launch():
    extent = vector("y = alloc([s])")
    assert codes(f"for s in range(4):\n{indented(extent)}") == ["SK0306"]
    divided = vector("add(x, i // s, x)")
    assert codes(f"for s in range(4):\n{indented(divided)}") == ["SK0314"]
    stepped = vector("for j in range(0, 4, s):\n    " + ADD)
    assert codes(f"for s in range(4):\n{indented(stepped)}") == ["SK0315"]
    good(f"for s in range(1, 4):\n{indented(stepped)}")
    good(f"for s in range(1, 4):\n{indented(divided)}")


def test_a_bound_of_the_host_is_one_integer():
    body = f"x = alloc([4], i32)\nload(L[0:4] -> x)\nfor s in range(x):\n{indented(vector(''))}"
    assert "SK0212" in codes(body)
    assert codes(f"for s in range(0.5):\n{indented(vector(''))}") == ["SK0302"]


def test_a_constant_that_decides_a_branch_needs_a_value():
    more = "    constexpr: MODE, KIND: bool;"
    assert codes(vector("if MODE == 1:\n    neg(x, x)"), more=more) == ["SK0209"]
    assert codes(vector("if KIND:\n    neg(x, x)"), more=more) == ["SK0209"]
    good(vector("if MODE == 1:\n    neg(x, x)"), more=more, MODE=1)
