"""Types and shapes of the operations across lanes, and composites written out as primitives."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.checker.api import check_sketch
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ops.table import OPS, Category
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

SKETCH = """sketch example {{
    symbols: M, N <= 256;
    params: seed: i64 = 1, level: f32 = 0.5;
    tensors:
        X[M, N]: in {dtype};
        I[M, N]: in i32;
        Y[M, N]: out f32 = 0;
    constexpr: T = 4, U = 2 in [2, 4];

    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T, N])
        load(X[i*T:(i+1)*T, :] -> x)
        idx = alloc([T, N])
        load(I[i*T:(i+1)*T, :] -> idx)
{work}
}}
"""


def run(work: str, dtype: str = "f32") -> tuple[ir.Sketch | None, list[str]]:
    lines = "\n".join("        " + line for line in work.strip("\n").split("\n"))
    text = SKETCH.format(work=lines, dtype=dtype)
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, [diagnostic.message for diagnostic in found]
    formatted = format_file(tree, Source("test.sketch", text))
    assert parse(Source("test.sketch", formatted))[0] == tree
    sketch, found = elaborate(tree.sketches[0], {})
    return sketch, [one.code for one in found if one.code != "SK0611"]


def codes(work: str, dtype: str = "f32") -> list[str]:
    return run(work, dtype)[1]


def good(work: str, dtype: str = "f32") -> tuple[ir.Sketch, list[ir.Compute]]:
    """The sketch, and its computations."""
    sketch, found = run(work, dtype)
    assert sketch is not None, found
    assert found == []
    loop = sketch.phases[0].body[0]
    assert isinstance(loop, ir.For)
    return sketch, [s for s in loop.body if isinstance(s, ir.Compute)]


def last(work: str, dtype: str = "f32") -> ir.Compute:
    return good(work, dtype)[1][-1]


# ---------------------------------------------------------------- scans and indices


@pytest.mark.parametrize(
    ("source", "declared", "result", "evaluated"),
    [
        ("f32", "", DType.F32, DType.F32),
        ("f16", "", DType.F32, DType.F32),
        ("f16", ", f16", DType.F16, DType.F32),
        ("f64", "", DType.F64, DType.F64),
        ("i32", "", DType.I64, DType.I64),
        ("i32", ", i32", DType.I32, DType.I32),
        ("u8", ", i32", DType.I32, DType.I32),
        ("bool", "", DType.I64, DType.I64),
    ],
)
def test_scans_accumulate_like_sums(source, declared, result, evaluated):
    sketch, computes = good(f"y = alloc([T, N]{declared})\ncumsum(x, 1, y)", source)
    assert sketch.tile("y").dtype is result
    assert computes[-1].dtype is evaluated
    assert computes[-1].attributes == {"axis": (1,), "reverse": False, "exclusive": False}


def test_scans_run_along_one_axis_of_another_tile():
    scan = last("y = alloc([T, N])\ncumprod(x, -2, y, reverse=True)")
    assert scan.attributes == {"axis": (0,), "reverse": True, "exclusive": False}
    assert codes("y = alloc([T, N])\ncumsum(x, 2, y)") == ["SK0310"]
    assert codes("y = alloc([N, T])\ncumsum(x, 1, y)") == ["SK0305"]
    assert codes("cumsum(x, 1, x)") == ["SK0313"]
    assert codes("y = alloc([T, N])\ncumsum(x, y)") == ["SK0211"]
    assert codes("y = alloc([T, N], i32)\ncumsum(x, 1, y)") == ["SK0307"]


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_a_carry_has_one_lane_for_each_row_and_the_type_of_the_scan(name):
    def found(carry, call=f"{name}(x, 1, y, carry=c)"):
        return codes(f"y = alloc([T, N])\nc = alloc({carry})\n{call}")

    assert found("[T, 1], init=0") == []
    assert found("[T], init=0") == []
    assert found("[1, N], init=0") == ["SK0311"]
    assert found("[N], init=0") == ["SK0311"]
    assert found("[T, 1], f16, init=0") == ["SK0312"]
    assert found("[T, 1], f64, init=0") == ["SK0312"]
    assert found("[T, 1]") == ["SK0401"]
    assert found("[T, 1], init=0", f"{name}(x, 1, y, carry=y)") == ["SK0313"]
    assert found("[T, 1], init=0", f"{name}(x, 1, y, carry=x)") == ["SK0313"]
    assert found("[T, 1], init=0", f"{name}(x, 1, y, carry=2)") == ["SK0211"]
    assert found("[T, 1], init=0", f"{name}(x, 1, y, carry=X)") == ["SK0206"]
    assert found("[T, 1], init=0", f"{name}(x, 1, y, carry=nothing)") == ["SK0201"]


def test_ranks_are_counted_in_tiles_of_integers_beside_others_that_differ_along_the_axis():
    def found(call, place="[T, N], i64, init=0"):
        more = "o = alloc([T, 4])\nfill(1, o)\nw = alloc([4, N])\nfill(1, w)"
        return codes(f"{more}\np = alloc({place})\n{call}")

    assert found("rank(x, iota(N), o, iota(4), 1, p)") == []
    assert found("rank(x, iota(N), o, iota(4), -1, p, descending=True)") == []
    assert found("rank(x, iota(T)[:, None], w, iota(4)[:, None], 0, p)") == []
    assert found("rank(x, iota(N), o, iota(4), 1, p)", "[T, N], i32, init=0") == []
    assert found("rank(x, iota(N), o, iota(4), 1, p)", "[T, N], i16, init=0") == ["SK0307"]
    assert found("rank(x, iota(N), o, iota(4), 1, p)", "[T, N], f32, init=0") == ["SK0307"]
    assert found("rank(x, iota(N), o, iota(4), 1, p)", "[T, N], i64") == ["SK0401"]
    assert found("rank(x, iota(N), o, iota(4), 0, p)") == ["SK0327"]
    assert found("rank(x, iota(N), o, iota(4), 2, p)") == ["SK0310"]
    assert found("rank(x, iota(4), o, iota(4), 1, p)") == ["SK0305"]
    assert found("rank(x, iota(N), o, iota(N), 1, p)") == ["SK0305"]
    assert found("rank(x, x, o, iota(4), 1, p)") == ["SK0312"]
    assert found("rank(x, 0, o, iota(4), 1, p)") == ["SK0206"]
    assert found("rank(x, p, o, iota(4), 1, p)") == ["SK0313"]
    assert found("rank(x, iota(N), o, iota(4), 1, p)", "[T, 4], i64, init=0") == ["SK0305"]


def test_indices_of_extrema_are_i64_and_compared_in_the_sources_type():
    sketch, computes = good(
        "a = alloc([T])\nargmax(x, 1, a)\nb = alloc([1, N])\nargmin(x, 0, b)", "f16"
    )
    assert [sketch.tile(name).dtype for name in "ab"] == [DType.I64, DType.I64]
    assert [compute.dtype for compute in computes] == [DType.F32, DType.F32]
    assert [compute.attributes["axis"] for compute in computes] == [(1,), (0,)]
    assert codes("a = alloc([T], i32)\nargmax(x, 1, a)") == ["SK0307"]
    assert codes("a = alloc([N])\nargmax(x, 1, a)") == ["SK0311"]
    assert codes("a = alloc([T])\nargmax(x, [0, 1], a)") == ["SK0211"]


# ---------------------------------------------------------------- topk and sort


TOP = "v = alloc([T, 8], init=-inf)\np = alloc([T, 8], init=-1)\n"


def test_topk_takes_k_from_its_destinations():
    sketch, computes = good(TOP + "topk(x, iota(N), 1, v, p, largest=False)")
    top = computes[-1]
    assert top.destinations == ("v", "p")
    assert top.attributes == {"axis": (1,), "largest": False}
    assert [sketch.tile(name).dtype for name in ("v", "p")] == [DType.F32, DType.I64]
    assert last(TOP + "topk(x, idx, 1, dst=[v, p])").destinations == ("v", "p")


def test_topk_merges_into_initialised_tiles_of_one_shape():
    for work in (TOP.replace(", init=-inf", ""), TOP.replace(", init=-1", "")):
        assert codes(work + "topk(x, idx, 1, v, p)") == ["SK0405"]
    assert codes(TOP.replace("p = alloc([T, 8]", "p = alloc([T, 4]") + "topk(x, idx, 1, v, p)") == [
        "SK0305"
    ]
    assert codes(TOP + "topk(x, idx, 0, v, p)") == ["SK0305"]
    assert codes(TOP + "topk(x, iota(T), 1, v, p)") == ["SK0305"]
    assert codes(TOP + "topk(x, x, 1, v, p)") == ["SK0312"]
    assert codes(TOP.replace("init=-1", "i32, init=-1") + "topk(x, iota(N), 1, v, p)") == ["SK0307"]


def test_sort_gives_values_and_indices():
    work = "v = alloc([T, N])\np = alloc([T, N])\nsort(x, iota(N), 1, v, p, descending=True)"
    sketch, computes = good(work, "bf16")
    assert [sketch.tile(name).dtype for name in ("v", "p")] == [DType.F32, DType.I64]
    assert computes[-1].dtype is DType.F32
    assert computes[-1].attributes == {"axis": (1,), "descending": True}
    assert codes("v = alloc([T, N])\nsort(x, idx, 1, v, v)") == ["SK0313"]
    assert codes("p = alloc([T, N], i64)\nsort(x, idx, 1, x, p)") == ["SK0313"]
    assert codes("v = alloc([T, N])\nsort(x, idx*2, 1, v, idx)") == ["SK0313"]
    assert codes("v = alloc([T])\np = alloc([T], i64)\nsort(x, idx, 1, v, p)") == ["SK0305"]


def test_the_number_of_destinations_is_checked():
    assert codes("v = alloc([T, N], f32)\nsort(x, idx, 1, v)") == ["SK0325"]
    assert codes("v = alloc([T, N], f32)\nsort(x, idx, 1, dst=v)") == ["SK0325"]
    assert codes("v = alloc([T, N], f32)\nw = alloc([T, N], f32)\nneg(x, dst=[v, w])") == ["SK0325"]
    assert codes("v = alloc([T, N], f32)\nneg(x, dst=[v])") == []


def test_several_destinations_are_written():
    work = "v = alloc([T, N])\np = alloc([T, N])\nsort(x, idx, 1, v, p)\nadd(v, 1, v)\nadd(p, 1, p)"
    assert codes(work) == []
    assert codes(work.replace("sort(x, idx, 1, v, p)\n", "")) == ["SK0401", "SK0401"]
    loop = """v = alloc([T, 8], init=-inf)
p = alloc([T, 8], init=-1)
for j in range(2):
    topk(x, iota(N), 1, v, p)
store(v -> Y[i*T:(i+1)*T, 0:8])
cast(p, v)"""
    sketch, found = run(loop)
    assert found == []
    assert sketch is not None
    outer = sketch.phases[0].body[0]
    assert isinstance(outer, ir.For)
    inner = next(s for s in outer.body if isinstance(s, ir.For))
    assert inner.carried == ("v", "p")


# ---------------------------------------------------------------- layout


def test_permute_orders_the_axes():
    move = last("y = alloc([N, T])\npermute(x, [1, 0], y)")
    assert move.attributes == {"axes": (1, 0)}
    assert last("y = alloc([N, T])\npermute(x, y, axes=[-1, 0])").attributes == {"axes": (1, 0)}
    assert codes("y = alloc([T, N])\npermute(x, [1, 0], y)") == ["SK0305"]
    assert codes("y = alloc([T, N])\npermute(x, [1], y)") == ["SK0310"]
    assert codes("y = alloc([T, N])\npermute(x, [0, 0], y)") == ["SK0310"]
    assert codes("permute(x, [0, 1], x)") == ["SK0313"]


def test_reshape_keeps_the_elements():
    for shape in ("T*N", "N, T", "N*T, 1", "1, T, 1, N", "2, N*T//2", "N*4"):
        assert last(f"y = alloc([{shape}])\nreshape(x, y)").operation == "reshape", shape
    assert codes("y = alloc([T, N + 1])\nreshape(x, y)") == ["SK0326"]
    assert codes("y = alloc([T])\nreshape(x, y)") == ["SK0326"]
    assert codes("reshape(x, x)") == ["SK0313"]


def test_concat_adds_up_one_axis():
    assert last("y = alloc([2*T, N])\nconcat(x, x, 0, y)").attributes == {"axis": (0,)}
    assert last("y = alloc([T, 2*N])\nconcat(x, idx, -1, y)", "i32").attributes == {"axis": (1,)}
    assert codes("y = alloc([2*T, N])\nconcat(x, x, 1, y)") == ["SK0327"]
    assert codes("z = alloc([N, T])\ntranspose(x, z)\ny = alloc([T, 2*N])\nconcat(x, z, 1, y)") == [
        "SK0327"
    ]
    assert codes("y = alloc([2*T, N], f32)\nconcat(x, 1.0, 0, y)") == ["SK0206"]


# ---------------------------------------------------------------- random numbers


def test_random_numbers_are_f32():
    for name in ("rand", "randn"):
        draw = last(f"y = alloc([T, N])\n{name}(seed, i*N + iota(N), y)")
        assert draw.dtype is DType.F32
        assert isinstance(draw.operands[0], ir.ScalarOperand)
        assert isinstance(draw.operands[1], ir.IndexOperand)
        assert last(f"y = alloc([T, N], f64)\n{name}(3, idx, y)").dtype is DType.F32
        assert last(f"y = alloc([T, N])\n{name}(seed, i, y)").dtype is DType.F32
        assert codes(f"y = alloc([T, N], i32)\n{name}(seed, i, y)") == ["SK0307"]
        assert codes(f"y = alloc([T, N])\n{name}(level, i, y)") == ["SK0312"]
        assert codes(f"y = alloc([T, N])\n{name}(idx, i, y)") == ["SK0312"]
        assert codes(f"y = alloc([T, N])\n{name}(seed, x, y)") == ["SK0312"]
        assert codes(f"y = alloc([T, N])\n{name}(seed, iota(T), y)") == ["SK0305"]
        assert codes(f"y = alloc([T, N])\n{name}(U, i, y)") == ["SK0208"]


# ---------------------------------------------------------------- composites


@pytest.mark.parametrize(
    "name",
    [n for n, row in OPS.items() if row.category is Category.COMPOSITE and not row.accumulates],
)
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i32"])
def test_composites_become_primitives(name, dtype):
    sketch, computes = good(f"y = alloc([T, N])\n{name}(x, y)", dtype)
    evaluated = DType.F64 if dtype == "f64" else DType.F32
    assert all(OPS[one.operation].category is not Category.COMPOSITE for one in computes)
    assert {one.dtype for one in computes} == {evaluated}
    assert computes[-1].destination == "y"
    assert sketch.tile("y").dtype is evaluated
    written = [one.destination for one in computes]
    assert written.count("y") == 1  # so that it may be the source as well
    for one in computes:
        if one.operation.startswith("reduce"):
            assert one.attributes["axis"] == (1,)
            extents = sketch.tile(one.destination).extents
            assert [show(extent) for extent in extents] == ["T", "1"]
    assert (computes[0].operation == "cast") == (dtype == "i32")


def test_composites_may_work_in_place_and_repeatedly():
    sketch, _ = good("softmax(x, x)\nlayer_norm(x, x)\nlayer_norm(x, x, eps=0.5)\nrms_norm(x, x)")
    names = [tile.name for tile in sketch.tiles]
    assert len(names) == len(set(names))


def test_eps_is_the_attribute():
    *_, scaled = (
        one
        for one in good("y = alloc([T, N])\nrms_norm(x, y, eps=0.25)")[1]
        if one.operation == "add"
    )
    operand = scaled.operands[1]
    assert isinstance(operand, ir.ScalarOperand)
    assert operand.value == ir.Literal(0.25)


def test_composites_take_numbers_of_the_destinations_shape():
    assert codes("y = alloc([T, N])\nsoftmax(x, y)", "bool") == ["SK0312"]
    assert codes("y = alloc([T])\nsoftmax(x, y)") == ["SK0305"]
    assert codes("y = alloc([T, N], i32)\nsoftmax(x, y)") == ["SK0307"]
    assert codes("y = alloc([T, N])\nsoftmax(x, 1, y)") == ["SK0211"]


ROWS = """sketch rows {{
    symbols: M, N <= 64;
    tensors: X[M, N]: in {dtype}; Y[M, N]: out {dtype};
    constexpr: T = 4;

    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T, 64])
        load(X[i*T:(i+1)*T, 0:N] -> x)
        {call}(x, x)
        store(x -> Y[i*T:(i+1)*T, 0:N])
}}
"""


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize(("rows", "columns"), [(7, 13), (1, 1), (4, 64), (5, 33)])
def test_composites_agree_with_pytorch_on_ragged_rows(dtype, rows, columns):
    torch = pytest.importorskip("torch")
    kind = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64}[dtype]
    generator = torch.Generator().manual_seed(rows * 100 + columns)
    values = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    values = (values * torch.logspace(-2, 2, rows, dtype=torch.float64)[:, None]).to(kind)
    wide = values.double()
    expected = {
        "softmax": torch.softmax(wide, -1),
        "layer_norm": torch.nn.functional.layer_norm(wide, (columns,), eps=1e-5),
        "rms_norm": wide / torch.sqrt((wide * wide).mean(-1, keepdim=True) + 1e-5),
    }
    tolerance = {"f16": 2e-3, "f32": 2e-5, "f64": 1e-11}[dtype]
    for name, wanted in expected.items():
        tree, _ = parse(Source("test.sketch", ROWS.format(dtype=dtype, call=name)))
        assert tree is not None
        checked, found = check_sketch(tree.sketches[0])
        assert checked is not None, found
        result = interpret(checked.sketch, {"X": values.numpy()}).outputs["Y"]
        torch.testing.assert_close(
            torch.as_tensor(result).double(), wanted, rtol=tolerance, atol=tolerance, msg=name
        )
