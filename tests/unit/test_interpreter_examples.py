"""Examples against PyTorch in float64, at ragged sizes, in several orders and layouts.

Tile constants are small (3 and 4, by `--set`), so that sizes of 1, T-1, T, T+1 and primes stay
quick; each is also run once at the sketch's own constants.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check_sketch
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_inputs
from sketchc.interpreter.launch import bind_symbols, bind_values, tensor_shapes
from sketchc.parsing.parser import parse

F = torch.nn.functional
FOLDER = Path(__file__).parents[2] / "examples"
EPS = 1e-5


def rms(x):
    return x / torch.sqrt((x * x).mean(1, keepdim=True) + EPS)


def layer_norm(x, weight, bias):
    return F.layer_norm(x, x.shape[1:], weight, bias, EPS)


REFERENCES = {
    "add": lambda x, bias: x + bias,
    "batched_matmul": torch.bmm,
    "gelu": F.gelu,
    "layer_norm": layer_norm,
    "matmul": torch.matmul,
    "matmul_bias_gelu": lambda x, w, bias: F.gelu(F.linear(x, w, bias)),
    "online_softmax": lambda x: torch.softmax(x, 1),
    "relu": torch.relu,
    "rms": rms,
    "softmax": lambda x: torch.softmax(x, 1),
    "sum_middle": lambda x: x.sum(1),
}
ORDERS = {
    "in order": Options(check_domains=True),
    "shuffled": Options(check_domains=True, shuffle=7),
    "padded": Options(check_domains=True, shuffle=8, padding=5),
    "padded with 1e30": Options(check_domains=True, padding=1, poison=1e30),
}


def checked(name: str, constants: dict[str, int | float]):
    text = (FOLDER / f"{name}.sketch").read_text("utf-8")
    tree, _ = parse(Source(name, text))
    assert tree is not None
    result, found = check_sketch(tree.sketches[0], constants)
    assert result is not None, found
    return result.sketch


def constants_of(name: str, size: int) -> dict[str, int | float]:
    """Every tile constant at `size`, and eps where the sketch leaves it open."""
    text = (FOLDER / f"{name}.sketch").read_text("utf-8")
    declared = re.search(r"constexpr: ([^;]*);", text)
    names = re.findall(r"\b(T\w+)\b", declared.group(1)) if declared else []
    values: dict[str, int | float] = dict.fromkeys(names, size)
    if declared and "eps" in declared.group(1):
        values["eps"] = EPS
    return values


def compare(sketch, name: str, sizes: dict[str, int], options: Options) -> None:
    values = bind_values(sketch, bind_symbols(sketch, {}, sizes), {})
    shapes = tensor_shapes(sketch, values, 2**30)
    generator = np.random.default_rng(sum(sizes.values()))
    arrays = random_inputs(sketch, shapes, generator)
    (actual,) = interpret(sketch, arrays, options=options).outputs.values()
    operands = [torch.from_numpy(array).double() for array in arrays.values()]
    expected = REFERENCES[name](*operands).numpy()
    assert actual.shape == expected.shape
    assert actual.dtype == np.float32
    scale = max((float(operand.abs().max()) for operand in operands if operand.numel()), default=1)
    depth = max(sizes.values())
    products = scale * scale if "matmul" in name else scale
    tolerance = 4 * 2**-23 * max(1.0, products) * max(1, depth)
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=tolerance)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", REFERENCES)
def test_ragged_sizes(name, order):
    tile = 4 if order != "shuffled" else 3
    sketch = checked(name, constants_of(name, tile))
    symbols = [symbol.name for symbol in sketch.symbols]
    for sizes in [(1, 1, 1, 1), (3, 4, 5, 2), (5, 3, 7, 4), (7, 13, 4, 3), (2, 11, 3, 5)]:
        compare(sketch, name, dict(zip(symbols, sizes, strict=False)), ORDERS[order])


@pytest.mark.parametrize("name", REFERENCES)
def test_own_constants(name):
    constants = {key: value for key, value in constants_of(name, 0).items() if key == "eps"}
    sketch = checked(name, constants)
    symbols = [symbol.name for symbol in sketch.symbols]
    sizes = dict(zip(symbols, (3, 67, 65, 33), strict=False))
    compare(sketch, name, sizes, ORDERS["shuffled"])


@pytest.mark.parametrize("name", ["matmul", "sum_middle", "batched_matmul"])
def test_a_trip_count_of_zero_still_stores_zeros(name):
    sketch = checked(name, constants_of(name, 4))
    sizes = {symbol.name: 5 for symbol in sketch.symbols}
    sizes["M" if name == "sum_middle" else "K"] = 0
    values = bind_values(sketch, sizes, {})
    arrays = random_inputs(sketch, tensor_shapes(sketch, values, 2**30), np.random.default_rng(0))
    (actual,) = interpret(sketch, arrays, sizes, options=ORDERS["padded"]).outputs.values()
    assert actual.size > 0
    assert not actual.any()


@pytest.mark.parametrize("name", REFERENCES)
def test_empty_tensors(name):
    sketch = checked(name, constants_of(name, 4))
    sizes = {symbol.name: 0 for symbol in sketch.symbols}
    values = bind_values(sketch, sizes, {})
    arrays = random_inputs(sketch, tensor_shapes(sketch, values, 2**30), np.random.default_rng(0))
    (actual,) = interpret(sketch, arrays, sizes, options=ORDERS["padded"]).outputs.values()
    assert actual.size == 0


def test_an_order_that_matters_would_be_seen():
    """Shuffling permutes parallel iterations: the last writer of a shared element changes."""
    text = """sketch shared {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32 = 0;
    @llm_hint("parallel")
    for i in range(M):
        x = alloc([1])
        load(X[i] -> x)
        store(x -> Y[0])
}
"""
    from sketchc.checker.domains.inference import infer_domains
    from sketchc.checker.elaboration.elaborate import elaborate

    tree, _ = parse(Source("shared", text))
    assert tree is not None
    sketch, _ = elaborate(tree.sketches[0], {})
    assert sketch is not None
    sketch, _ = infer_domains(sketch)
    x = np.arange(20, dtype=np.float32)
    seen = {
        float(interpret(sketch, {"X": x}, options=Options(collect=True, shuffle=s)).outputs["Y"][0])
        for s in range(6)
    }
    assert len(seen) > 1
