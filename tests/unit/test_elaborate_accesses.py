"""What elaboration makes of accesses: strides, index tiles, padding, masks and promises."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import element_indices
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

SKETCH = """sketch example {{
    symbols: M, N;
    params: P: i64 = 2, S: i64 = 1;
    require: P >= 1, S <= -1;
    tensors:
        X[M, N]: in f32;
        I[M]: in i32;
        B[M]: in bool;
        F[M]: in f32;
        Y[M, N]: out f32 = 0;
        Z[M]: out f32 = 0;
        C[M]: out i64 = 0;
    constexpr: T = 64, PAD = 3;

    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        y = alloc([T, T])
        c = alloc([T], i64)
        idx = alloc([T])
        mask = alloc([T])
        f = alloc([T])
        load(I[i*T:(i+1)*T] -> idx)
        load(B[i*T:(i+1)*T] -> mask)
        load(F[i*T:(i+1)*T] -> f)
        fill(1, c)
        fill(1.0, x)
        fill(1.0, y)
        m = i*T + iota(T)
{work}
}}
"""


def elaborated(*work: str) -> tuple[ir.Sketch | None, list[str]]:
    text = SKETCH.format(work="\n".join("        " + line for line in work))
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, [diagnostic.message for diagnostic in found]
    sketch, found = elaborate(tree.sketches[0], {})
    return sketch, [one.code for one in found if not one.code.startswith("SK0611")]


def statements(*work: str) -> list[ir.Statement]:
    """The statements that these lines become."""
    sketch, codes = elaborated(*work)
    assert sketch is not None, codes
    assert codes == []
    loop = sketch.phases[0].body[0]
    assert isinstance(loop, ir.For)
    names = [s.name for s in loop.body if isinstance(s, ir.Bind)]
    assert names[0] == "m"
    start = next(i for i, s in enumerate(loop.body) if isinstance(s, ir.Bind))
    return list(loop.body[start + 1 :])


def one(work: str) -> ir.Load | ir.Store:
    found = statements(work)[-1]
    assert isinstance(found, ir.Load | ir.Store)
    return found


def indices(work: str) -> list[str]:
    """The element index of each dimension, as text."""
    statement = one(work)
    extents = {"x": 1, "y": 2, "c": 1}[statement.tile]
    lanes = (ir.Ref("T", ir.NameKind.CONSTANT),) * extents
    return [show(index) for index in element_indices(statement.access, lanes)]


# ---------------------------------------------------------------- slices


@pytest.mark.parametrize(
    ("subscript", "step", "exact"),
    [
        ("0:T", "1", True),
        ("0:2*T:2", "2", True),
        ("0:2*T-1:2", "2", True),
        ("0:N:3", "3", False),
        ("0:T*P:P", "P", True),
        ("0:T:1", "1", True),
        ("T-1:-1:-1", "-1", True),
        ("2*T-1:-1:-2", "-2", True),
        ("2*T-2:-1:-2", "-2", True),
        ("N-1:-1:-1", "-1", False),
        ("N-1:0:S", "S", False),
    ],
)
def test_a_slice_keeps_its_step_and_knows_its_length(subscript, step, exact):
    statement = one(f"load(X[i, {subscript}] -> x)")
    part = statement.access.subscripts[1]
    assert isinstance(part, ir.SliceSubscript)
    assert (show(part.step), part.exact) == (step, exact)


def test_a_forward_slice_may_leave_out_its_bounds():
    part = one("load(X[i, ::2] -> x)").access.subscripts[1]
    assert isinstance(part, ir.SliceSubscript)
    assert (show(part.lower), show(part.upper), show(part.step)) == ("0", "N", "2")


@pytest.mark.parametrize("subscript", ["::-1", "N-1::-1", ":0:-1", ":0:S"])
def test_a_backward_slice_needs_both_bounds(subscript):
    assert elaborated(f"load(X[i, {subscript}] -> x)")[1] == ["SK0319"]


@pytest.mark.parametrize("step", ["0", "N", "1 - N", "i", "P - 2"])
def test_the_sign_of_a_step_must_be_known(step):
    assert elaborated(f"load(X[i, 0:N:{step}] -> x)")[1] == ["SK0318"]


@pytest.mark.parametrize("part", ["m:N", "0:m", "0:N:m", "idx:N"])
def test_parts_of_slices_are_single_integers(part):
    assert elaborated(f"load(X[i, {part}] -> x)")[1] == ["SK0302"]


# ---------------------------------------------------------------- index tiles


def test_index_tiles_without_slices_go_lane_by_lane():
    assert indices("load(X[idx, m] -> x)") == ["idx", "m"]
    assert indices("load(X[i, 2*idx + 1] -> x)") == ["i", "2*idx + 1"]
    assert indices("load(X[m[:, None], idx[None, :]] -> y)") == ["m[:, None]", "idx[None, :]"]
    assert indices("load(X[m[:, None], m] -> y)") == ["m[:, None]", "m"]


def test_beside_a_slice_an_index_tile_takes_its_axis():
    assert indices("load(X[idx, 0:T] -> y)") == ["idx[:, None]", "iota(T)"]
    assert indices("load(X[0:T, idx + m] -> y)") == ["iota(T)[:, None]", "idx + m"]
    statement = one("load(X[m // 2, 0:T] -> y)")
    first = statement.access.subscripts[0]
    assert isinstance(first, ir.IndexSubscript)
    assert first.axis == 0
    assert [show(extent) for extent in first.extents] == ["T", "1"]
    assert not statement.access.lane_form


def test_what_comes_from_memory_is_marked():
    def loaded(*work: str) -> list[bool]:
        statement = statements(*work)[-1]
        assert isinstance(statement, ir.Load)
        parts = statement.access.subscripts
        return [part.loaded for part in parts if isinstance(part, ir.IndexSubscript)]

    assert loaded("load(X[m, idx] -> x)") == [False, True]
    assert loaded("k = idx*2", "n = k + m", "load(X[n, m + 1] -> x)") == [True, False]


def test_a_tile_in_an_index_is_its_lanes_as_i64():
    statement = one("load(X[i, idx] -> x)")
    part = statement.access.subscripts[1]
    assert isinstance(part, ir.IndexSubscript)
    assert isinstance(part.value, ir.TileLanes)
    assert (part.value.tile, part.value.dtype, part.value.layout) == ("idx", DType.I64, (True,))


def test_the_indices_have_the_shape_of_the_tile():
    for access in ("X[m, idx]", "X[m[:, None], 0]", "X[i, m]", "X[m[:, None], idx[:, None]]"):
        assert elaborated(f"load({access} -> y)")[1] == ["SK0321"], access
    assert elaborated("load(X[iota(T//2), 0:T] -> y)")[1] == ["SK0321"]
    assert elaborated("load(X[iota(2), m] -> x)")[1] == ["SK0305"]
    assert elaborated("load(X[m, 0:T] -> x)")[1] == ["SK0304"]


def test_beside_a_slice_an_index_tile_has_one_axis():
    assert elaborated("load(X[m[:, None], 0:T] -> y)")[1] == ["SK0320"]


def test_floats_and_conditions_are_no_indices():
    assert elaborated("load(X[i, f] -> x)")[1] == ["SK0317"]
    assert elaborated("load(X[i, f + m] -> x)")[1] == ["SK0317"]
    assert elaborated("load(X[i, mask] -> x)")[1] == ["SK0302"]


def test_an_index_must_be_assigned_before_it_is_used():
    fresh = "other = alloc([T], i32)"
    assert elaborated(fresh, "load(X[i, other] -> x)")[1] == ["SK0401"]
    assert elaborated(fresh, "n = other + 1")[1] == ["SK0401"]
    assert elaborated(fresh, "load(X[i, m] -> x, where=other > 0)")[1] == ["SK0401"]
    assert elaborated(fresh, "add(other*2, 1, c)")[1] == ["SK0401"]


def test_integer_tiles_are_index_tiles_in_expressions():
    *_, compute = statements("wide = alloc([T, T], i64)", "add(idx[:, None]*2, m, wide)")
    assert isinstance(compute, ir.Compute)
    assert [show(operand.value) for operand in compute.operands] == ["idx[:, None]*2", "m"]
    assert compute.dtype is DType.I64
    *_, compute = statements("where(mask and idx > 3, x, f, x)")
    assert isinstance(compute, ir.Compute)
    assert isinstance(compute.operands[0], ir.IndexOperand)
    assert compute.operands[0].dtype is DType.BOOL
    assert elaborated("n = f*2")[1] == ["SK0206"]


# ---------------------------------------------------------------- arguments


def test_padding_takes_the_type_of_the_tile():
    padded = one("load(X[i, 0:T] -> x, pad=-inf)")
    assert isinstance(padded, ir.Load)
    assert padded.pad == float("-inf")
    padded = one("load(X[i, 0:T] -> x, pad=PAD)")
    assert isinstance(padded, ir.Load)
    assert padded.pad == 3.0
    assert isinstance(padded.pad, float)
    plain = one("load(X[i, 0:T] -> x)")
    assert isinstance(plain, ir.Load)
    assert plain.pad is None


def test_padding_fits_and_is_known():
    assert elaborated("load(I[i*T:(i+1)*T] -> c, pad=0.5)")[1] == ["SK0214"]
    assert elaborated("load(X[i, 0:T] -> x, pad=N)")[1] == []
    assert elaborated("load(I[i*T:(i+1)*T] -> c, pad=1/(N + 1))")[1] == ["SK0307"]
    assert elaborated("load(X[i, 0:T] -> x, pad=m)")[1] == ["SK0214"]
    assert elaborated("load(X[i, 0:T] -> x, padding=0)")[1] == ["SK0211"]
    assert elaborated("store(x -> Z[m], pad=0)")[1] == ["SK0211"]


def test_where_broadcasts_to_the_tile():
    statement = one("store(y -> Y[m[:, None], m], where=idx[:, None] > 3 and not mask)")
    assert statement.where is not None
    assert show(statement.where) == "idx[:, None] > 3 and not mask"
    assert elaborated("load(X[i, 0:T] -> x, where=m[:, None] < 3)")[1] == ["SK0322"]
    assert elaborated("load(X[i, 0:T] -> x, where=m)")[1] == ["SK0308"]
    assert elaborated("load(X[i, 0:T] -> x, where=f > 0)")[1] == []
    assert elaborated("load(X[i, 0:T] -> x, where=f + 1 > 0)")[1] == []
    assert one("store(x -> Z[m], where=N > 3)").where is not None


def test_promises_are_kept():
    statement = one("store(x -> Z[idx], unique=True, covers=False)")
    assert isinstance(statement, ir.Store)
    assert (statement.unique, statement.covers) == (True, False)
    assert elaborated("store(x -> Z[idx], unique=1)")[1] == ["SK0211"]


@pytest.mark.parametrize(
    "line",
    [
        "load(X[idx, m] -> x, pad=-inf, where=m < N and idx >= 0)",
        "load(X[N-1:-1:-1, idx] -> y)",
        "load(X[m[:, None]+idx, m[None, :]] -> y, pad=0)",
        "store(x -> Z[2*idx+1], where=not mask, unique=True, covers=True)",
        "atomic_max(c -> C[idx], where=m % 2 == 0)",
    ],
)
def test_the_formatter_keeps_accesses(line):
    text = SKETCH.format(work="        " + line)
    tree, _ = parse(Source("test.sketch", text))
    assert tree is not None
    formatted = format_file(tree, Source("test.sketch", text))
    again, _ = parse(Source("test.sketch", formatted))
    assert again == tree
    assert line in formatted
