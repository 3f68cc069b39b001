"""What the built-in Designer computes of a row in one pass: the largest with its place, and the
variance of a long row. They mean what PyTorch computes, at any sizes, for hard values as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from designed_functions import designed, written  # noqa: E402
from toolchains import require  # noqa: E402

from sketchc.cli.main import run  # noqa: E402
from sketchc.interpreter.api import interpret  # noqa: E402

PLACES = {
    "argmax": "torch.argmax(x, 1)",
    "argmin": "torch.argmin(x, 1)",
    "largest_and_place": "x.max(1).values + x.max(1).indices",
    "of_two_axes": "torch.argmin(x.permute(0, 2, 1).contiguous(), 2)",
}
#: Sizes of x: of one, and on both sides of a tile.
SIZES = ((1, 1, 1), (2, 3, 255), (3, 7, 257), (1, 13, 1031))
#: Each with how far from zero a row is: what subtracts a mean in f32 has the rounding of that.
VARIANCES = {
    "variance": ("torch.var(x, 1)", 1e4),
    "instance_norm": ("F.instance_norm(x.reshape(1, x.shape[0], x.shape[1]))", 1e2),
    "deviation": ("(x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-3).sqrt()", 1e2),
}


def scope(x: torch.Tensor) -> dict[str, object]:
    return {"torch": torch, "F": torch.nn.functional, "x": x}


def hard_values(size: tuple[int, ...]) -> np.ndarray:
    """Ties, both infinities, NaN, and columns of nothing but one of these."""
    x = np.random.default_rng(3).integers(-4, 5, size).astype(np.float32)
    x[..., 1::7] = -np.inf
    x[..., 2::7] = np.inf
    x[:, -1:, 3::7] = np.nan
    x[:, :, 4::11] = np.nan
    x[:, size[1] // 2, 5::7] = np.inf
    return x


@pytest.mark.parametrize("name", PLACES)
def test_places_are_found_in_one_pass(name: str, tmp_path: Path) -> None:
    text, sketch = designed(written(tmp_path, PLACES[name], ((5, 30, 600),)))
    assert text.count("load(X") == 1
    symbols = [symbol.name for symbol in sketch.symbols]
    for size in SIZES:
        x = hard_values(size)
        wanted = eval(PLACES[name], scope(torch.from_numpy(x)))
        sizes = dict(zip(symbols, size, strict=True))
        (found,) = interpret(sketch, {"X": x}, sizes, {}).outputs.values()
        assert np.array_equal(found, wanted.numpy(), equal_nan=True), size


@pytest.mark.parametrize("target", ["cpp", "cuda_c", "triton_cuda"])
def test_gen_leaves_a_kernel_that_passed(target: str, tmp_path: Path) -> None:
    require(target)
    path = written(tmp_path, PLACES["argmax"], ((5, 30, 600),))
    words = ["gen", str(path), "-t", target, "--designer", "builtin", "--no-bench", "--quiet"]
    assert run([*words, "-o", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("name", VARIANCES)
def test_variances_of_long_rows_take_one_pass(name: str, tmp_path: Path) -> None:
    """Also of rows far from zero, with one element far from the others, or of equal ones."""
    body, far = VARIANCES[name]
    text, sketch = designed(written(tmp_path, body, ((130, 70_001),)))
    assert "total_f64*total_f64" in text
    symbols = [symbol.name for symbol in sketch.symbols]
    for rows, columns in ((1, 2), (3, 255), (2, 257), (1, 4099), (5, 1031)):
        x = np.random.default_rng(5).normal(3.0, 2.0, (rows, columns)).astype(np.float32)
        x[0] = x[0] * 1e-2 + far
        x[-1, 0] = 1e6
        x[rows // 2] = 0.1 if rows > 2 else x[rows // 2]
        wanted = eval(body, scope(torch.from_numpy(x).double())).reshape(-1).numpy()
        sizes = dict(zip(symbols, (rows, columns), strict=True))
        (found,) = interpret(sketch, {"X": x}, sizes, {}).outputs.values()
        found = found.reshape(-1)
        assert np.allclose(found, wanted, rtol=2e-4, atol=2e-3 * (name != "variance"))
