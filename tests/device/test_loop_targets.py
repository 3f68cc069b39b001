"""CUDA-C and TileLang on a real GPU: every example in a worker and as a drop-in, every operation,
and indices beyond 2^31."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import ml_dtypes
import pytest
from cpp_cases import (
    NAMES,
    PARAMS,
    TILES,
    assert_equal,
    example,
    inputs,
    load_module,
    reference,
    sizes,
)
from cuda_c_products import BROUGHT, CHAIN, COPIED, product
from example_sizes import params_for
from triton_cases import Array, assert_close, lower, make_case
from triton_sketches import SKETCHES

from sketchc.cli.main import run
from sketchc.ir import nodes as ir
from sketchc.lowering.python_host import abi
from sketchc.runtime.guards.placement import tensor_of
from sketchc.runtime.toolchains.base import toolchain

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
TARGETS = ["cuda_c"] + (["tilelang_cuda"] if importlib.util.find_spec("tilelang") else [])


def array_of(tensor: Any) -> Array:
    host = tensor.cpu()
    if host.dtype != torch.bfloat16:
        found: Array = host.numpy()
        return found
    return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def dropin(text: str, name: str, constants: dict[str, int], folder: Path, target: str) -> Any:
    """The function of the drop-in that `sketchc lower --module` makes of a sketch."""
    path = folder / f"{name}.sketch"
    path.write_text(text, "utf-8")
    command = ["lower", str(path), "-t", target, "--module", str(folder), "-q"]
    for constant, value in constants.items():
        command += ["--set", f"{constant}={value}"]
    assert run([*command, "-o", str(folder / "kernel")]) == 0
    return getattr(load_module(folder / f"{name}_dropin.py", f"{name}_dropin"), name)


def dropped_in(function: Any, sketch: ir.Sketch, tensors: dict[str, Array], params: Any) -> Any:
    """What a drop-in's function makes of tensors on the GPU, by name."""
    given = [tensor_of(tensors[tensor.name].copy()).cuda() for tensor in abi.given(sketch)]
    found = function(*given, **params)
    results = found if isinstance(found, tuple) else (found,)
    names = [tensor.name for tensor in abi.results(sketch)]
    return dict(zip(names, map(array_of, results), strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_an_example_equals_the_interpreter(target: str, name: str, tmp_path: Path) -> None:
    """In a worker, and as the drop-in that users get."""
    kernel = lower(example(name), target, TILES.get(name, {}))[1]
    function = dropin(example(name), kernel.name, TILES.get(name, {}), tmp_path, target)
    artefact = toolchain(target).compile(kernel, tmp_path)
    assert artefact.details.get("warnings", "") == ""
    params = PARAMS.get(name) or params_for(kernel.sketch)
    with toolchain(target).open(artefact) as session:
        for seed, symbols in enumerate(sizes(kernel, params)):
            tensors = inputs(kernel.sketch, symbols, params, seed)
            expected = reference(kernel.sketch, tensors, symbols, params)
            assert_equal(kernel.sketch, session.run(tensors, symbols, params), expected, 256.0)
            found = dropped_in(function, kernel.sketch, tensors, params)
            assert_equal(kernel.sketch, found, expected, 256.0)


@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("target", TARGETS)
def test_features_match_the_interpreter(target: str, name: str, tmp_path: Path) -> None:
    text, assignments, params = SKETCHES[name]
    kernel = lower(text, target)[1]
    with toolchain(target).open(toolchain(target).compile(kernel, tmp_path)) as session:
        for symbols in assignments:
            case = make_case(kernel, symbols, params)
            found = session.run(case.tensors, symbols, params)
            for tensor, expected in case.expected.items():
                assert_close(found[tensor], expected, terms=256)


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_beyond_32_bits(target: str, tmp_path: Path) -> None:
    relu = dropin(example("relu").replace("f32", "f16"), "relu", {}, tmp_path, target)
    x = torch.full((65_537, 32_771), -1.0, dtype=torch.float16, device="cuda")
    x[-1, -5:] = 3.0
    y = relu(x)
    assert int((y != 0).sum()) == 5
    assert bool((y[-1, -5:] == 3.0).all())


NARROW = """sketch narrow {
    symbols: N;
    tensors: X[N]: in f32; H[N]: out f16; B[N]: out bf16; W[N]: out f32;

    @llm_hint("parallel", "grididx.x")
    for i in range(ceil(N, 1024)):
        x = alloc([1024])
        load(X[i*1024:(i+1)*1024] -> x)
        h = alloc([1024], f16)
        cast(x, h)
        b = alloc([1024], bf16)
        cast(x, b)
        w = alloc([1024])
        cast(h, w)
        store(h -> H[i*1024:(i+1)*1024])
        store(b -> B[i*1024:(i+1)*1024])
        store(w -> W[i*1024:(i+1)*1024])
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_floats_are_narrowed_to_the_nearest(target: str, tmp_path: Path) -> None:
    """Any bits of a float: subnormal results, ties, infinities and NaN among them."""
    narrow = dropin(NARROW, "narrow", {}, tmp_path, target)
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (1_000_003,), generator=generator)
    # Between two neighbours of f16, just below and just above: of every exponent that it has.
    halves = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16).float().view(torch.int32)
    ties = torch.cat([halves + 0x1000 + off for off in (-1, 0, 1)])
    x = torch.cat([bits.to(torch.int32), ties, -ties - 1]).view(torch.float32)
    h, b, w = narrow(x.cuda())
    for found, expected in ((h, x.half()), (b, x.bfloat16()), (w, x.half().float())):
        assert torch.equal(torch.isnan(found.cpu()), torch.isnan(expected))
        kept = ~torch.isnan(expected)
        assert torch.equal(found.cpu()[kept], expected[kept])


#: Rows, columns and depth of products: whole tiles, ragged ones whose lines begin on 16 bytes or do
#: not, and hardly anything.
PRODUCT_SIZES = [
    (128, 256, 512),
    (1000, 1544, 904),
    (127, 264, 1),
    (129, 255, 72),
    (1, 8, 8),
    (257, 1, 65),
    (101, 103, 107),
    (300, 4097, 64),
]


@pytest.mark.parametrize("turned", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_groups_of_warps(dtype: str, turned: tuple[bool, bool], tmp_path: Path) -> None:
    """By the copy engine or by threads: where tensors begin decides, too."""
    short = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    function = dropin(product(128, 256, turned, dtype=short), "product", {}, tmp_path, "cuda_c")

    def matrix(rows: int, columns: int, turn: bool, first: int) -> Any:
        shape = (columns, rows) if turn else (rows, columns)
        place = torch.randn(first + rows * columns, device="cuda").to(getattr(torch, dtype))
        return place[first:].view(shape)

    for m, n, k in PRODUCT_SIZES:
        for first in (0, 1, 8):
            left, right = matrix(m, k, turned[0], first), matrix(k, n, turned[1], first)
            bias = torch.randn(n, device="cuda")
            a = (left.T if turned[0] else left).double()
            b = (right.T if turned[1] else right).double()
            error = function(left, right, bias) - torch.relu(a @ b + bias)
            largest = float((a.abs() @ b.abs()).max() + bias.abs().max())
            assert float(error.abs().max()) <= 2**-20 * k**0.5 * largest, (m, n, k, first)


#: Products whose operands the copy engine brings, threads copy, or either of them.
OPERANDS = {**BROUGHT, **COPIED, "both ways in one kernel": CHAIN}


@pytest.mark.parametrize("name", OPERANDS)
def test_tiles_of_tensors_as_operands(name: str, tmp_path: Path) -> None:
    kernel = lower(OPERANDS[name], "cuda_c")[1]
    function = dropin(OPERANDS[name], kernel.name, {}, tmp_path, "cuda_c")
    for seed, (m, n, k) in enumerate([(64, 64, 128), (65, 72, 200), (63, 65, 67), (136, 8, 328)]):
        symbols = {"M": m, "N": n, "K": k}
        tensors = inputs(kernel.sketch, symbols, {}, seed)
        expected = reference(kernel.sketch, tensors, symbols, {})
        found = dropped_in(function, kernel.sketch, tensors, {})
        assert_equal(kernel.sketch, found, expected, 16.0)
