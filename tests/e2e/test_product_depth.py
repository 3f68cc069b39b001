"""The depth of a product is where both operands are valid, whatever stands beyond; what is ordered
are the values that have an index.

One operand is valid to L, the other to S, and each holds NaN, infinities or large numbers where
the other is void: the tail of a cache beside the keys so far. L < S, L > S and L = S run through
the same kernels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from every_target import disagreements
from triton_cases import Array, Case, assert_close, dtype_of

from sketchc.base.types import DType
from sketchc.lowering.registry import TARGETS

#: Rows, columns and the deepest block; `tl.dot` takes it in all these types.
M, N, K = 16, 16, 32
#: Element type and accumulator.
TYPES = (("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("i32", "i32"))
SIZES = ((5, 11), (11, 5), (3, 0), (K, 7), (1, K), (0, 3), (9, 9))
#: Where each kernel compiles by itself, and again at sizes of 1: so many types and sizes.
ASCEND_TYPES, ASCEND_SIZES = 2, 3


def text(name: str, dtype: str, total: str, trans_a: bool, trans_b: bool) -> str:
    """All three products, of tiles as they are loaded, of computed ones (whose void lanes hold
    anything), and of a whole tile beside a partial one."""
    shapes = (
        ("L", str(M)) if trans_a else (str(M), "L"),
        (str(N), "S") if trans_b else ("S", str(N)),
    )
    tiles = ((K, M) if trans_a else (M, K), (N, K) if trans_b else (K, N))
    whole = (
        ("G", f"{K}, {M}" if trans_a else f"{M}, {K}"),
        ("H", f"{N}, {K}" if trans_b else f"{K}, {N}"),
    )
    lines, declared = [], []
    for tile, tensor, shape, extents in zip("abcd", "ABCD", shapes * 2, tiles * 2, strict=True):
        declared.append(f"{tensor}[{', '.join(shape)}]: in {dtype};")
        inside = ", ".join(f"0:{extent}" for extent in shape)
        lines += [
            f"{tile} = alloc([{extents[0]}, {extents[1]}], {dtype})",
            f"load({tensor}[{inside}] -> {tile})",
            f"{tile}1 = alloc([{extents[0]}, {extents[1]}], {dtype})",
            f"add({tile}, 1, {tile}1)",
        ]
    for (tensor, shape), tile in zip(whole, "gh", strict=True):
        declared.append(f"{tensor}[{shape}]: in {dtype};")
        lines += [f"{tile} = alloc([{shape}], {dtype})", f"load({tensor}[:, :] -> {tile})"]
    flags = f"trans_a={trans_a}, trans_b={trans_b}"
    pairs = [("a", "b"), ("a1", "b"), ("a", "b1"), ("a1", "b1"), ("g", "d"), ("c", "h")]
    calls = [("gemm", pair) for pair in pairs] + [("matmul", ("a", "b1")), ("dot", ("g", "d1"))]
    for number, (operation, (left, right)) in enumerate(calls):
        init = ", init=0" if operation == "gemm" else ""
        lines += [
            f"y{number} = alloc([{M}, {N}], {total}{init})",
            f"{operation}({left}, {right}, y{number}, {flags})",
            f"store(y{number} -> Y{number}[:, :])",
        ]
        declared.append(f"Y{number}[{M}, {N}]: out {total};")
    body = "\n".join(f"    {line}" for line in lines)
    return (
        f"sketch {name} {{\n    symbols: L <= {K}, S <= {K};\n"
        f"    tensors: {' '.join(declared)}\n{body}\n}}\n"
    )


def blocked(name: str) -> str:
    """A loop over blocks: the last one is partial on one side, or absent."""
    return f"""sketch {name} {{
    symbols: L, S;
    tensors: A[{M}, L]: in f32; B[S, {N}]: in f32; Y[{M}, {N}]: out f32;
    constexpr: T = 16;
    y = alloc([{M}, {N}], f32, init=0)
    for k in range(ceil(max(L, S), T)):
        a = alloc([{M}, T])
        b = alloc([T, {N}])
        load(A[:, k*T:(k+1)*T] -> a)
        load(B[k*T:(k+1)*T, :] -> b)
        gemm(a, b, y)
    store(y -> Y[:, :])
}}
"""


def ordered(name: str, largest: int) -> str:
    """Values valid to L with indices valid to S: tiles, and an index tile that ends at S. `largest`
    is the most that a topk takes: it takes the compilers of MLIR long."""
    lines = [
        "a = alloc([3, 13])",
        "i = alloc([3, 13])",
        "load(A[0:3, 0:L] -> a)",
        "load(I[0:3, 0:S] -> i)",
    ]
    outputs = []
    for number, indices in enumerate(("i", "iota(13, 0, S)")):
        for operation, columns, value, index in (
            ("sort", 13, "", ""),
            ("topk", 4, ", init=-inf", ", init=-1"),
            ("topk", 20, ", init=-inf", ", init=-1"),
        ):
            if operation == "topk" and columns > largest:
                continue
            tile = f"{operation}_{columns}_{number}"
            lines += [
                f"{tile} = alloc([3, {columns}], f32{value})",
                f"{tile}i = alloc([3, {columns}], i64{index})",
                f"{operation}(a, {indices}, 1, {tile}, {tile}i)",
                f"store({tile} -> V_{tile}[:, 0:{columns}], covers=True)",
                f"store({tile}i -> I_{tile}[:, 0:{columns}], covers=True)",
            ]
            outputs += [
                f"V_{tile}[3, {columns}]: out f32 = 0;",
                f"I_{tile}[3, {columns}]: out i64 = 0;",
            ]
    body = "\n".join(f"    {line}" for line in lines)
    return (
        f"sketch {name} {{\n    symbols: L <= 13, S <= 13;\n"
        f"    tensors: A[3, L]: in f32; I[3, S]: in i64; {' '.join(outputs)}\n{body}\n}}\n"
    )


def entries() -> list[tuple[dict[str, int], dict[str, Array]]]:
    """The largest and the smallest values have no index."""
    made = []
    for seed, (length, stop) in enumerate(((5, 11), (11, 5), (13, 7), (0, 3), (9, 0))):
        rng = np.random.default_rng(seed)
        values = rng.integers(-4, 5, (3, length)).astype(np.float32)
        values[:, stop:] = rng.choice([np.nan, np.inf, -np.inf], values[:, stop:].shape)
        indices = rng.integers(0, 100, (3, stop))
        made.append(({"L": length, "S": stop}, {"A": values, "I": indices}))
    return made


def planted(
    dtype: str, size: tuple[int, int], axis: int, valid: int, rng: np.random.Generator
) -> Array:
    """Small whole numbers, with NaN and infinities (the type's ends) from `valid` on."""
    array = rng.integers(-4, 5, size).astype(np.float64)
    lanes = np.arange(size[axis]) >= valid
    beyond = np.broadcast_to(lanes if axis == 1 else lanes[:, None], size)
    ends = [-128, 127, 100] if dtype.startswith("i") else [np.nan, np.inf, -np.inf]
    array[beyond] = rng.choice(ends, int(beyond.sum()))
    return array.astype(dtype_of(DType(dtype)))


def runs(
    dtype: str, trans_a: bool, trans_b: bool, whole: bool = True
) -> list[tuple[dict[str, int], dict[str, Array]]]:
    """Inputs at all sizes."""
    made = []
    for seed, (length, stop) in enumerate(SIZES):
        rng = np.random.default_rng(seed)
        least = min(length, stop)
        a_axis, b_axis = (0 if trans_a else 1), (1 if trans_b else 0)

        def array(axis: int, extent: int, valid: int) -> Array:
            size = (extent, M) if axis == 0 else (M, extent)
            return planted(dtype, size, axis, valid, rng)  # noqa: B023

        tensors = {"A": array(a_axis, length, least), "B": array(b_axis, stop, least)}
        if whole:  # what stands beside whole tiles has nothing beyond
            tensors |= {"C": array(a_axis, length, length), "D": array(b_axis, stop, stop)}
            tensors |= {"G": array(a_axis, K, stop), "H": array(b_axis, K, length)}
        made.append(({"L": length, "S": stop}, tensors))
    return made


def same(case: Case, found: dict[str, Array]) -> str:
    wrong = []
    for name, expected in case.expected.items():
        assert not np.isnan(expected.astype(np.float64)).any()
        try:
            assert_close(found[name], expected, terms=K)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    return "\n".join(wrong)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
def test_what_one_operand_holds_beyond_the_other_does_not_count(
    target: str, tmp_path: Path
) -> None:
    sketches = {}
    ascend = target == "triton_ascend"
    types, sizes = (TYPES[:ASCEND_TYPES], ASCEND_SIZES) if ascend else (TYPES, len(SIZES))
    for position, (dtype, total) in enumerate(types):
        for trans_a, trans_b in ((False, False), (position % 2 == 0, position % 2 == 1)):
            name = f"depth_{dtype}_{int(trans_a)}{int(trans_b)}"
            kernel = text(name, dtype, total, trans_a, trans_b)
            sketches[name] = (kernel, runs(dtype, trans_a, trans_b)[:sizes])
    sketches["depth_blocks"] = (
        blocked("depth_blocks"),
        runs("f32", False, False, whole=False)[:sizes],
    )
    wrong = disagreements(target, sketches, tmp_path, same)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
def test_values_without_an_index_are_not_ordered(target: str, tmp_path: Path) -> None:
    runs, largest = (entries()[:2], 0) if target == "triton_ascend" else (entries(), 20)
    wrong = disagreements(target, {"ordered": (ordered("ordered", largest), runs)}, tmp_path, same)
    assert not wrong, "\n\n".join(wrong)
