"""CUDA-C: running sums and products, of lines that a thread, a warp or a block scans, compiled by
nvcc and run on the CPU, equal the interpreter; what would be wrong on a GPU is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cpp_cases import assert_equal, inputs, reference
from test_cuda_c import TOOLCHAIN, check_fault, lowered, with_fault

#: The forms of a scan: the tensor, the operation and its flags.
FORMS = {
    "ON": ("cumsum", ""),
    "BACK": ("cumsum", ", reverse=True"),
    "BEFORE": ("cumsum", ", exclusive=True"),
    "PRODUCT": ("cumprod", ""),
    "BEHIND": ("cumprod", ", reverse=True, exclusive=True"),
}
#: Lines, and lanes of each: about what a warp and a block take in a turn, about as many lines as
#: there are warps and threads, primes, and none.
SIZES = [
    *((1, n) for n in (0, 1, 31, 32, 33, 127, 128, 129, 511, 512, 513, 1097)),
    *((0, 40), (3, 37), (3, 1024), (4, 131), (5, 700), (37, 41), (127, 33), (128, 40), (130, 129)),
]


def scans(axis: int, dtype: str, wide: str) -> str:
    """All forms of scans along an axis of [130, 1100] (or [1100, 130]) tiles."""

    def shape(rows: str, columns: str) -> str:
        return f"{rows}, {columns}" if axis else f"{columns}, {rows}"

    tile, place = shape("130", "1100"), shape("i*130:(i+1)*130", "0:N")
    calls = "".join(
        f"        {operation}(x, {axis}, y{flags})\n        store(y -> {name}[{place}])\n"
        for name, (operation, flags) in FORMS.items()
    )
    outputs = " ".join(f"{name}[{shape('M', 'N')}]: out {wide};" for name in FORMS)
    return f"""sketch scans {{
    symbols: M, N <= 1100;
    tensors: X[{shape("M", "N")}]: in {dtype}; {outputs}

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 130)):
        x = alloc([{tile}], {dtype})
        y = alloc([{tile}], {wide})
        load(X[{place}] -> x)
{calls}}}
"""


def powers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Signed powers of two whose running products stay in f32; in some rows NaN, or infinities of
    both signs."""
    generator = np.random.default_rng(seed)
    x = generator.choice([-1.0, 1.0], shape) * 2.0 ** np.round(generator.normal(size=shape))
    middle = shape[1] // 2
    x[1::3, middle : middle + 1] = np.inf
    x[1::3, middle + 20 : middle + 21] = -np.inf
    x[2::3, middle : middle + 1] = np.nan
    return x


@pytest.mark.sweep(12)
@pytest.mark.parametrize("axis", [1, 0])
@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("f32", "f32"), ("f64", "f64"), ("f16", "f32"), ("i32", "i32"), ("i64", "i64"), ("u8", "u8")],
)
def test_scans_equal_the_interpreter(axis: int, dtype: str, wide: str, tmp_path: Path) -> None:
    kernel = lowered(scans(axis, dtype, wide), {})
    artefact = TOOLCHAIN.compile(kernel, tmp_path)
    assert artefact.details["warnings"] == ""
    with TOOLCHAIN.open(artefact) as session:
        for seed, (m, n) in enumerate(SIZES):
            symbols = {"M": m, "N": n}
            tensors = inputs(kernel.sketch, symbols, {}, seed)
            x = tensors["X"] if axis else tensors["X"].T
            if dtype.startswith("f"):
                x[...] = powers(seed, x.shape)
            expected = reference(kernel.sketch, tensors, symbols, {})
            for _ in range(2):  # threads run forwards, and backwards
                found = session.run(tensors, symbols, {})
                assert_equal(kernel.sketch, found, expected, 256.0)


#: Running products from both ends.
WAVES = """sketch waves {
    symbols: M, N <= 1100;
    tensors: X[M, N]: in f64; Y[M, N]: out f64; Z[M, N]: out f64;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 8)):
        x = alloc([8, 1100], f64)
        y = alloc([8, 1100], f64)
        load(X[i*8:(i+1)*8, 0:N] -> x)
        cumprod(x, 1, y)
        store(y -> Y[i*8:(i+1)*8, 0:N])
        cumprod(x, 1, y, reverse=True, exclusive=True)
        store(y -> Z[i*8:(i+1)*8, 0:N])
}
"""


def waves(rows: int, lanes: int) -> np.ndarray:
    """Powers of two whose running products reach 2**900, 2**-900, 2**1200 and 2**-1200, each row
    from another place on: some leave the range of f64 upwards, some downwards."""
    reached = [0, 900, -900, 900, -900, 1200, -1200, 0]
    places = np.linspace(0, len(reached) - 1, lanes + 1)
    heights = np.round(np.interp(places, range(len(reached)), reached))
    found = [
        2.0 ** np.diff(np.roll(heights, row * lanes // 5)).clip(-1000, 1000) for row in range(rows)
    ]
    return np.array(found) * np.random.default_rng(lanes).choice([-1.0, 1.0], (rows, lanes))


def running_products(fault: tuple[str, str], rows: int, lanes: int, folder: Path) -> bool:
    """Whether the kernel, with a fault put into it, multiplies as the interpreter does."""
    kernel, symbols = with_fault(WAVES, *fault), {"M": rows, "N": lanes}
    tensors = inputs(kernel.sketch, symbols, {}) | {"X": waves(rows, lanes)}
    expected = reference(kernel.sketch, tensors, symbols, {})
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, folder)) as session:
        runs = [session.run(tensors, symbols, {}) for _ in range(2)]
    return all(np.array_equal(run[name], expected[name], True) for run in runs for name in "YZ")


@pytest.mark.sweep(12)
@pytest.mark.parametrize(("rows", "lanes"), [(8, 100), (8, 700), (3, 700), (1, 1100)])
def test_a_product_that_has_left_the_range_does_not_come_back(
    rows: int, lanes: int, tmp_path: Path
) -> None:
    assert running_products(("", ""), rows, lanes, tmp_path)


#: What is replaced in the source of such products, and by what.
PRODUCT_FAULTS = {
    "products that come back": ("end == 1.0F ? *this", "true ? *this"),
    "the last place that a product left for": (
        "return a == 1.0F ? b : a;",
        "return b == 1.0F ? a : b;",
    ),
    "what earlier threads left for is forgotten": ("float end = ends.before;", "float end = 1.0F;"),
    "what earlier turns left for is forgotten": ("total = total.after(ends.whole);", ""),
    "powers of one factor": ("a.power + b.power)", "a.power)"),
    "a power that is not passed on": ("shuffle(value.power)}", "value.power}"),
}


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", list(PRODUCT_FAULTS))
def test_an_injected_fault_in_a_product_is_found(name: str, tmp_path: Path) -> None:
    assert not running_products(PRODUCT_FAULTS[name], 3, 1100, tmp_path)


#: Rows whose sums a block shares, one after the other, or its warps, a row each.
SUMS = """sketch sums {
    symbols: M, N <= 1100;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 8)):
        x = alloc([8, 1100])
        y = alloc([8, 1100])
        load(X[i*8:(i+1)*8, 0:N] -> x)
        cumsum(x, 1, y)
        store(y -> Y[i*8:(i+1)*8, 0:N])
}
"""
#: See `test_cuda_c.FAULTS`; of what a warp does, and of what a block does.
WARP_FAULTS = {
    "a shuffle that not all lanes reach": (
        "(0xffffffffU, x, distance)",
        "(0xffffU, x, distance)",
        "mask",
    ),
    "a shuffle that some lanes skip": (
        "const T before = from_below(value, 1);",
        "const T before = lane > 0 ? from_below(value, 1) : value;",
        "meet",
    ),
    "a distance left out": ("distance < 32; distance *= 2", "distance < 16; distance *= 2", ""),
    "a lane too far": ("from_below(value, distance);", "from_below(value, distance + 1);", ""),
    "a lane that takes nothing": ("lane >= distance ?", "lane > distance ?", ""),
    "a first lane that takes its own": ("lane > 0 ? before", "lane >= 0 ? before", ""),
    "the result of another lane": ("(0xffffffffU, x, 31)", "(0xffffffffU, x, 30)", ""),
    "what earlier threads came to is forgotten": ("How::combine(total, all.before)", "total", ""),
    "what earlier turns came to is forgotten": ("total = How::combine(total, all.whole);", "", ""),
    "turns that overlap": ("turn += sharing.threads * width", "turn += sharing.threads", ""),
    "lanes of another thread": ("turn + sharing.thread * width", "turn + sharing.thread", ""),
}
BLOCK_FAULTS = {
    "a barrier before the exchange left out": (
        "    __syncthreads();\n    T before = How::start()",
        "    T before = How::start()",
        "",
    ),
    "an exchange while others still read": (
        "__syncthreads(); // an earlier call may still be reading",
        "",
        "",
    ),
    "a barrier that not all threads reach": (
        "__syncthreads(); // an earlier call may still be reading",
        "if (threadIdx.x < 64) { __syncthreads(); }",
        "barrier",
    ),
    "what earlier warps came to is forgotten": (
        "{How::combine(before, own.before),",
        "{own.before,",
        "",
    ),
    "one warp for all": ("How::combine(whole, parts[warp]);", "parts[warp];", ""),
    "a warp too many": (
        "before = warp == threadIdx.x / 32",
        "before = warp == threadIdx.x / 32 + 1",
        "",
    ),
}


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", list(WARP_FAULTS))
def test_an_injected_fault_in_a_warp_is_found(name: str, tmp_path: Path) -> None:
    check_fault(SUMS, {"M": 8, "N": 301}, *WARP_FAULTS[name], tmp_path)


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", list(BLOCK_FAULTS))
def test_an_injected_fault_in_a_block_is_found(name: str, tmp_path: Path) -> None:
    check_fault(SUMS, {"M": 2, "N": 1091}, *BLOCK_FAULTS[name], tmp_path)


def test_without_a_fault_nothing_is_found(tmp_path: Path) -> None:
    for number, symbols in enumerate(({"M": 8, "N": 301}, {"M": 2, "N": 1091})):
        with pytest.raises(AssertionError):
            check_fault(SUMS, symbols, "", "", "", tmp_path / str(number))
