"""The operations that order, scan or move lanes, and random numbers, through small sketches.

PyTorch and NumPy are the references, at ragged sizes with NaN, infinities and ties; loops are
shuffled, domains checked, and each case runs on valid boxes and on arrays padded with poison.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from operation_cases import FLOATS, elaborated, inputs

from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_array
from sketchc.ops.references import normal, uniform

CHECKED = tuple(Options(check_domains=True, shuffle=5 + p, padding=p) for p in (0, 3))
SIZES = (0, 1, 3, 7, 8)  # of an axis with 8 lanes
NUMBERS = ("f32", "f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u8", "u32")


def rows(body: str, source: str, results: dict[str, tuple[str, str]], axis: int = 1) -> str:
    """A sketch over rows (or columns, for axis 0) of X[M, N], at most 8 wide; `results` gives the
    outputs' shapes and types; `body` has the tile x of X."""
    outputs = " ".join(f"{name}[{shape}]: out {dtype};" for name, (shape, dtype) in results.items())
    extents, access = (
        ("[T, 8]", "X[i*T:(i+1)*T, 0:N]") if axis else ("[8, T]", "X[0:N, i*T:(i+1)*T]")
    )
    declared = "X[M, N]" if axis else "X[N, M]"
    lines = "\n        ".join(body.strip().splitlines())
    return f"""sketch lanes {{
    symbols: M, N <= 8;
    tensors: {declared}: in {source}; {outputs}
    constexpr: T = 2;
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        x = alloc({extents})
        load({access} -> x)
        {lines}
}}
"""


def run(text: str, **tensors: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs, which are the same on padded arrays (but for the order of f64 sums)."""
    sketch = elaborated(text)
    first, second = (interpret(sketch, tensors, options=o).outputs for o in CHECKED)
    for name, found in first.items():
        same(found, second[name], 1e-14 if found.dtype == np.float64 else 0)
    return first


def same(actual: np.ndarray, expected: np.ndarray, tolerance: float = 0) -> None:
    assert actual.dtype == expected.dtype
    if actual.dtype.kind not in "iub":  # bfloat16 has no NaN that NumPy's comparison knows
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def array(size: int, dtype: str, seed: int = 0, ties: bool = False) -> np.ndarray:
    """A [3, size] array; few distinct values with `ties`, specials in floats."""
    generator = np.random.default_rng(seed + size)
    if ties:
        values = generator.integers(0, 3, (3, size)).astype(np.float64)
        made = values.astype(numpy_dtype(DType(dtype)))
        if dtype in FLOATS and size > 2:
            made[1, 1], made[2, 0], made[2, 2] = np.nan, -np.inf, np.nan
        return made
    return np.stack([inputs(generator, size, dtype, special=False) for _ in range(3)])


# ---------------------------------------------------------------- scans


@pytest.mark.sweep
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_scans(dtype, name, axis, reverse, exclusive):
    wide = dtype if dtype not in ("i16", "i8", "u8") else "i32"
    shape = "M, N" if axis else "N, M"
    where = "Y[i*T:(i+1)*T, 0:N]" if axis else "Y[0:N, i*T:(i+1)*T]"
    extents = "[T, 8]" if axis else "[8, T]"
    call = f"{name}(x, {axis}, y, reverse={reverse}, exclusive={exclusive})"
    text = rows(
        f"y = alloc({extents}, {wide})\n{call}\nstore(y -> {where})",
        dtype,
        {"Y": (shape, wide)},
        axis,
    )
    function = {"cumsum": np.cumsum, "cumprod": np.cumprod}[name]
    kind = numpy_dtype(DType(wide))
    for size in SIZES:
        x = array(size, dtype)
        x = x if axis else x.T.copy()
        exact = x.astype(np.float64 if dtype in FLOATS else kind)
        turned = np.flip(exact, axis) if reverse else exact
        expected = function(turned, axis=axis, dtype=exact.dtype)
        if exclusive and expected.shape[axis]:
            expected = np.roll(expected, 1, axis)
            np.moveaxis(expected, axis, 0)[0] = name == "cumprod"
        expected = np.flip(expected, axis) if reverse else expected
        np.testing.assert_array_equal(run(text, X=x)["Y"], expected.astype(kind))


def test_scans_of_a_tile_whose_first_lanes_are_void():
    text = rows(
        "z = alloc([T, 8])\nload(X[i*T:(i+1)*T, -3:5] -> z)\n"
        "y = alloc([T, 8], f32)\ncumsum(z, 1, y)\nstore(y -> Y[i*T:(i+1)*T, -3:5])\n"
        "cumsum(x, 1, y)\nstore(y -> Y[i*T:(i+1)*T, 0:N])",
        "f32",
        {"Y": ("M, N", "f32")},
    )
    x = array(5, "f32")
    np.testing.assert_array_equal(
        run(text, X=x)["Y"], np.cumsum(x.astype(np.float64), 1).astype(np.float32)
    )


# ---------------------------------------------------------------- extrema


@pytest.mark.sweep
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_extrema(dtype, name, axis, keep):
    extents = ("[T, 1]" if axis else "[1, T]") if keep else "[T]"
    where = ("Y[i*T:(i+1)*T, 0:1]" if axis else "Y[0:1, i*T:(i+1)*T]") if keep else "Y[i*T:(i+1)*T]"
    shape = ("M, 1" if axis else "1, M") if keep else "M"
    text = rows(
        f"y = alloc({extents}, i64)\n{name}(x, {axis}, y)\nstore(y -> {where})",
        dtype,
        {"Y": (shape, "i64")},
        axis,
    )
    function = {"argmax": torch.argmax, "argmin": torch.argmin}[name]
    for size in SIZES:
        x = array(size, dtype, ties=True)
        found = run(text, X=x if axis else x.T.copy())["Y"].reshape(-1)
        if size == 0:
            assert found.tolist() == [-1, -1, -1]
            continue
        values = torch.from_numpy(x.astype(np.float64))  # PyTorch's argmax: NaN wins
        extreme = torch.gather(values, 1, function(values, dim=1, keepdim=True))
        same = (values == extreme) | (values.isnan() & extreme.isnan())
        expected = same.to(torch.int8).numpy().argmax(axis=1)
        assert found.tolist() == expected.tolist()


def test_an_extremum_is_a_lane_of_the_tile():
    """The tile's lane 0 is element -3 of the row, so the lane is the element plus 3."""
    text = rows(
        "z = alloc([T, 8])\nload(X[i*T:(i+1)*T, -3:5] -> z)\n"
        "y = alloc([T], i64)\nargmax(z, 1, y)\nstore(y -> Y[i*T:(i+1)*T])",
        "f32",
        {"Y": ("M", "i64")},
    )
    x = array(5, "f32")
    assert run(text, X=x)["Y"].tolist() == (x.argmax(axis=1) + 3).tolist()


# ---------------------------------------------------------------- sort and topk


@pytest.mark.sweep
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_sort_is_stable_and_nan_is_the_largest(dtype, axis, descending):
    extents = "[T, 8]" if axis else "[8, T]"
    lanes = "iota(8)" if axis else "iota(8)[:, None]"
    where = "[i*T:(i+1)*T, 0:N]" if axis else "[0:N, i*T:(i+1)*T]"
    shape = "M, N" if axis else "N, M"
    text = rows(
        f"y = alloc({extents}, {dtype})\nk = alloc({extents}, i64)\n"
        f"sort(x, {lanes}, {axis}, y, k, descending={descending})\n"
        f"store(y -> Y{where})\nstore(k -> K{where})",
        dtype,
        {"Y": (shape, dtype), "K": (shape, "i64")},
        axis,
    )
    for size in SIZES:
        x = array(size, dtype, ties=True)
        found = run(text, X=x if axis else x.T.copy())
        values, order = (found["Y"], found["K"]) if axis else (found["Y"].T, found["K"].T)
        wide = torch.from_numpy(x.astype(np.float64))  # PyTorch too puts NaN last, as the largest
        expected, places = torch.sort(wide, dim=1, stable=True, descending=descending)
        np.testing.assert_array_equal(values.astype(np.float64), expected.numpy())
        np.testing.assert_array_equal(order, places.numpy())


@pytest.mark.sweep
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("width", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_topk_merges_tiles(dtype, width, largest):
    """Over tiles of `width` columns, in any order of columns within a tile: the same result."""
    kind = numpy_dtype(DType(dtype))
    worst = -np.inf if largest else np.nan  # NaN is the largest, so the worst for the smallest
    if dtype not in FLOATS:
        limits = np.iinfo(kind)
        worst = max(limits.min, -(2**63) + 1) if largest else limits.max
    text = f"""sketch best {{
    symbols: M, N;
    tensors: X[M, N]: in {dtype}; Y[M, 3]: out {dtype}; K[M, 3]: out i64;
    constexpr: T = 2, C = {width};
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        best = alloc([T, 3], {dtype}, init={worst})
        where = alloc([T, 3], i64, init=-1)
        for j in range(cdiv(N, C)):
            x = alloc([T, C])
            load(X[i*T:(i+1)*T, j*C:(j+1)*C] -> x)
            topk(x, iota(C, j*C), 1, best, where, largest={largest})
        store(best -> Y[i*T:(i+1)*T, 0:3])
        store(where -> K[i*T:(i+1)*T, 0:3])
}}
"""
    for size in (0, 1, 2, 3, 7, 13):
        x = array(size, dtype, ties=size % 2 == 1)
        found = run(text, X=x)
        order = np.argsort(x.astype(np.float64), axis=1, kind="stable")
        if largest:
            flipped = np.argsort(np.flip(x, 1).astype(np.float64), axis=1, kind="stable")
            order = size - 1 - np.flip(flipped, 1)
        best = np.take_along_axis(x, order, 1)[:, :3]
        missing = ((0, 0), (0, 3 - min(3, size)))
        same(found["Y"], np.pad(best, missing, constant_values=worst))
        same(found["K"], np.pad(order[:, :3], missing, constant_values=-1))


def test_topk_prefers_real_values_to_places_that_nothing_has_taken():
    """The least value of the type still has an index; only a place left over has -1."""
    text = """sketch best {
    symbols: M, N <= 8;
    tensors: X[M, N]: in f32; Y[M, 3]: out f32; K[M, 3]: out i64;
    @llm_hint("parallel")
    for i in range(M):
        x = alloc([1, 8])
        best = alloc([1, 3], f32, init=-inf)
        where = alloc([1, 3], i64, init=-1)
        load(X[i:i+1, 0:N] -> x)
        topk(x, iota(8), 1, best, where)
        store(best -> Y[i:i+1, 0:3])
        store(where -> K[i:i+1, 0:3])
}
"""
    x = np.array([[-np.inf, -np.inf]], np.float32)
    found = run(text, X=x)
    assert found["K"].tolist() == [[0, 1, -1]]
    assert found["Y"].tolist() == [[-np.inf] * 3]


def test_topk_merges_the_results_of_another():
    """The indices are a tile of integers then, and the order of merging does not show."""
    text = """sketch merge {
    symbols: M, N <= 16;
    tensors: X[M, N]: in f32; Y[M, 4]: out f32; K[M, 4]: out i64;
    @llm_hint("parallel")
    for i in range(M):
        best = alloc([1, 4], f32, init=-inf)
        where = alloc([1, 4], i64, init=-1)
        for j in range(3, -1, -1):
            x = alloc([1, 4])
            load(X[i:i+1, j*4:(j+1)*4] -> x)
            part = alloc([1, 4], f32, init=-inf)
            place = alloc([1, 4], i64, init=-1)
            topk(x, j*4 + iota(4), 1, part, place)
            topk(part, place, 1, best, where)
        store(best -> Y[i:i+1, 0:4])
        store(where -> K[i:i+1, 0:4])
}
"""
    x = np.random.default_rng(0).integers(0, 3, (5, 13)).astype(np.float32)
    found = run(text, X=x)
    values, places = torch.sort(torch.from_numpy(x), dim=1, stable=True, descending=True)
    same(found["Y"], values[:, :4].numpy())
    np.testing.assert_array_equal(found["K"], places[:, :4].numpy())


# ---------------------------------------------------------------- layout


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
@pytest.mark.parametrize("axes", [[1, 0], [0, 1]])
def test_permute(dtype, axes):
    extents, where = (
        ("[8, T]", "Y[0:N, i*T:(i+1)*T]") if axes[0] else ("[T, 8]", "Y[i*T:(i+1)*T, 0:N]")
    )
    text = rows(
        f"y = alloc({extents}, {dtype})\npermute(x, {axes}, y)\nstore(y -> {where})",
        dtype,
        {"Y": ("N, M" if axes[0] else "M, N", dtype)},
    )
    for size in SIZES:
        x = array(size, dtype)
        np.testing.assert_array_equal(run(text, X=x)["Y"], np.transpose(x, axes))


def test_permute_of_three_axes():
    text = """sketch turn {
    symbols: M, N <= 4;
    tensors: X[M, N, 3]: in f32; Y[3, M, N]: out f32;
    constexpr: T = 2;
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        x = alloc([T, 4, 3])
        y = alloc([3, T, 4])
        load(X[i*T:(i+1)*T, 0:N, 0:3] -> x)
        permute(x, [2, 0, 1], y)
        store(y -> Y[0:3, i*T:(i+1)*T, 0:N])
}
"""
    for size in (0, 1, 3, 4):
        x = np.random.default_rng(size).standard_normal((5, size, 3)).astype(np.float32)
        np.testing.assert_array_equal(run(text, X=x)["Y"], np.transpose(x, (2, 0, 1)))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5])
def test_reshape_keeps_ragged_axes_that_map_one_to_one(size):
    text = """sketch fold {
    symbols: M;
    tensors: X[M, 6]: in f32; Y[M, 2, 3]: out f32; Z[M, 6]: out f32;
    constexpr: T = 2;
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        x = alloc([T, 6])
        y = alloc([T, 2, 3])
        z = alloc([T, 6])
        load(X[i*T:(i+1)*T, 0:6] -> x)
        reshape(x, y)
        store(y -> Y[i*T:(i+1)*T, 0:2, 0:3])
        reshape(y, z)
        store(z -> Z[i*T:(i+1)*T, 0:6])
}
"""
    x = np.random.default_rng(size).standard_normal((size, 6)).astype(np.float32)
    found = run(text, X=x)
    np.testing.assert_array_equal(found["Y"], x.reshape(size, 2, 3))
    np.testing.assert_array_equal(found["Z"], x)


@pytest.mark.parametrize("axis", [0, 1])
def test_concat(axis):
    extents = "[T, 11]" if axis else "[11, T]"
    full = "[T, 3]" if axis else "[3, T]"
    where = "Y[i*T:(i+1)*T, 0:N+3]" if axis else "Y[0:N+3, i*T:(i+1)*T]"
    text = rows(
        f"a = alloc({full}, f32)\nfill(7, a)\ny = alloc({extents}, f32)\n"
        f"concat(a, x, {axis}, y)\nstore(y -> {where})",
        "f32",
        {"Y": ("M, N+3" if axis else "N+3, M", "f32")},
        axis,
    )
    for size in SIZES:
        x = array(size, "f32")
        x = x if axis else x.T.copy()
        seven = np.full((3, 3), 7, np.float32)
        np.testing.assert_array_equal(run(text, X=x)["Y"], np.concatenate((seven, x), axis))


# ---------------------------------------------------------------- random numbers


@pytest.mark.parametrize("name", ["rand", "randn"])
@pytest.mark.parametrize("tile", [1, 3, 16])
def test_random_numbers_follow_from_seed_and_offset_alone(name, tile):
    text = f"""sketch noise {{
    symbols: M;
    params: seed: i64;
    tensors: X[M]: in f32; Y[M]: out f32;
    constexpr: T = {tile};
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        x = alloc([T])
        r = alloc([T], f32)
        load(X[i*T:(i+1)*T] -> x)
        {name}(seed, i*T + iota(T), r)
        add(x, r, x)
        store(x -> Y[i*T:(i+1)*T])
}}
"""
    reference = {"rand": uniform, "randn": normal}[name]
    for size, seed in ((0, 1), (5, -3), (37, 2**40 + 17)):
        zeros = np.zeros(size, np.float32)
        for options in CHECKED:
            result = interpret(
                elaborated(text), {"X": zeros}, params={"seed": seed}, options=options
            )
            expected = reference(np, seed, np.arange(size)).astype(np.float32)
            np.testing.assert_array_equal(result.outputs["Y"], expected)


# ---------------------------------------------------------------- composites


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("call", "reference"),
    [
        ("softmax(x, y)", lambda x: torch.softmax(x, -1)),
        ("layer_norm(x, y)", lambda x: torch.layer_norm(x, x.shape[-1:])),
        ("layer_norm(x, y, eps=0.5)", lambda x: torch.layer_norm(x, x.shape[-1:], eps=0.5)),
        ("rms_norm(x, y)", lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)),
    ],
)
def test_composites(call, reference, dtype):
    text = rows(
        f"y = alloc([T, 8], {dtype})\n{call}\nstore(y -> Y[i*T:(i+1)*T, 0:N])",
        dtype,
        {"Y": ("M, N", dtype)},
    )
    epsilon = {"f64": 1e-6, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}[dtype]
    for size in SIZES[1:]:
        generator = np.random.default_rng(size)
        x = np.stack([random_array(generator, (size,), DType(dtype)) for _ in range(3)])
        expected = reference(torch.from_numpy(x.astype(np.float64))).numpy()
        found = run(text, X=x)["Y"].astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=epsilon, atol=epsilon)
