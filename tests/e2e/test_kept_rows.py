"""Rows that the built-in Designer's programs load once: those that stay in tiles from one pass to
the next, long ones whose passes share a loop, and scans that read and write each element once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from designed_functions import designed, written  # noqa: E402
from toolchains import require  # noqa: E402

from sketchc.cli.main import run  # noqa: E402
from sketchc.interpreter.api import interpret  # noqa: E402
from sketchc.ir import nodes as ir  # noqa: E402

Shapes = tuple[tuple[int, ...], ...]
#: Functions of x, of which a row is kept, and of w, which is as long as a row.
KEPT: dict[str, tuple[str, Shapes]] = {
    "softmax": ("torch.softmax(x, 1)", ((20, 300),)),
    "log_softmax": ("torch.log_softmax(x, 1)", ((20, 300),)),
    "unit": ("x / x.norm(dim=1, keepdim=True)", ((20, 300),)),
    "weighted": ("F.layer_norm(x, (x.shape[1],)) * w", ((20, 300), (300,))),
    "of_loss": ("F.cross_entropy(x, x.argmin(1))", ((20, 300),)),
    "log_of_sums": ("torch.logsumexp(x, 1).mean()", ((20, 300),)),
}
#: Functions of x, whose rows lie side by side along the last axis.
BESIDE = {
    "root_mean_square": "x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-5)",
    "softmax": "torch.softmax(x, 1)",
}
SCANS = {
    "reversed": "x.flip(1).cumsum(1).flip(1)",
    "exclusive": "F.pad(x.cumsum(1), (1, 0))[:, :-1]",
    "joined": "torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)",
    "product_from_the_end": "(x * 0.1 + 1.0).flip(1).cumprod(1).flip(1)",
}
MIDDLE_SCANS = {
    "reversed": "x.flip(1).cumsum(1).flip(1)",
    "exclusive": "torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)",
}


def agrees(path: Path, body: str, sizes: tuple[tuple[int, ...], ...], scale: float = 1.0) -> str:
    """The sketch of a task, whose results at these sizes of x are those of `body` in float64."""
    text, sketch = designed(path, planes=True)
    extents = sketch.tensor("X").extents
    random = np.random.default_rng(7)
    for size in sizes:
        x = (random.normal(0.0, 2.0, size) * 10.0 ** random.integers(-2, 2, size)) * scale
        given = {"X": x.astype(np.float32)}
        if "w" in body:
            given["W"] = random.normal(0.0, 1.0, size[-1:]).astype(np.float32)
        exact = {name.lower(): torch.from_numpy(each).double() for name, each in given.items()}
        wanted = eval(body, {"torch": torch, "F": torch.nn.functional, **exact}).numpy()
        pairs = zip(extents, size, strict=True)
        symbols = {each.name: extent for each, extent in pairs if isinstance(each, ir.Ref)}
        (found,) = interpret(sketch, given, symbols, {}).outputs.values()
        rows = np.abs(wanted).max(initial=1e-30)
        assert np.allclose(found, wanted, rtol=2e-4, atol=2e-5 * rows, equal_nan=True), size
    return text


@pytest.mark.parametrize("name", KEPT)
def test_rows_stay_in_a_tile(name: str, tmp_path: Path) -> None:
    """Also rows shorter and longer than the tile, up to several tiles of what is left."""
    body, shapes = KEPT[name]
    sizes = ((1, 1), (3, 2), (2, 511), (1, 512), (3, 513), (2, 1031), (1, 2600))
    text = agrees(written(tmp_path, body, shapes), body, sizes)
    assert "TR in [512]" in text


@pytest.mark.parametrize("name", BESIDE)
def test_rows_side_by_side_stay_in_a_tile(name: str, tmp_path: Path) -> None:
    sizes = ((1, 1, 1), (2, 31, 33), (1, 32, 128), (2, 33, 129), (1, 97, 300))
    text = agrees(written(tmp_path, BESIDE[name], ((4, 20, 700),)), BESIDE[name], sizes)
    assert "load(X[i, 0:TR, k_tile*TR_128:(k_tile+1)*TR_128]" in text


@pytest.mark.parametrize("body", ["torch.softmax(x, 1)", "torch.log_softmax(x, 1)"])
def test_a_long_softmax_takes_two_passes(body: str, tmp_path: Path) -> None:
    """One for the maximum and the sum, of which the sum follows each new maximum."""
    path = written(tmp_path, body, ((2, 70_001),))
    text = agrees(path, body, ((1, 1), (3, 255), (2, 257), (1, 5003)), scale=20.0)
    assert text.count("load(X") == 2
    _, sketch = designed(path, planes=True)
    x = np.linspace(-80.0, 80.0, 6 * 1031, dtype=np.float32).reshape(6, 1031)
    x[1] = x[1, ::-1]
    x[2, :500], x[3], x[4, 700], x[5, 3] = -np.inf, -np.inf, np.nan, np.inf
    wanted = eval(body, {"torch": torch, "x": torch.from_numpy(x)}).numpy()
    (found,) = interpret(sketch, {"X": x}, {"M": 6, "N": 1031}, {}).outputs.values()
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", SCANS)
def test_scans_read_and_write_once(name: str, tmp_path: Path) -> None:
    sizes = ((1, 1), (3, 2), (2, 255), (1, 256), (3, 257), (2, 1031))
    text = agrees(written(tmp_path, SCANS[name], ((20, 300),)), SCANS[name], sizes)
    assert "workspace" not in text
    assert (text.count("load("), text.count("store(")) == (1, 1)


@pytest.mark.parametrize("name", MIDDLE_SCANS)
def test_scans_along_a_middle_axis_read_and_write_once(name: str, tmp_path: Path) -> None:
    sizes = ((1, 1, 1), (2, 7, 255), (1, 33, 257))
    body = MIDDLE_SCANS[name]
    text = agrees(written(tmp_path, body, ((4, 20, 700),)), body, sizes)
    assert (text.count("load("), text.count("store(")) == (1, 1)


def test_groups_of_channels_take_one_launch(tmp_path: Path) -> None:
    """Where there are many groups, and a workspace where there are few."""
    body = "F.group_norm(x, 4)"
    sizes = ((1, 8, 1, 3), (3, 8, 5, 7), (2, 8, 31, 17))
    many = agrees(written(tmp_path, body, ((40, 8, 30, 20),)), body, sizes)
    assert "workspace" not in many
    few = agrees(written(tmp_path, body, ((3, 8, 30, 20),)), body, sizes)
    assert "workspace" in few


@pytest.mark.parametrize(
    "body", [KEPT["softmax"][0], BESIDE["root_mean_square"], SCANS["joined"], KEPT["of_loss"][0]]
)
def test_gen_leaves_a_kernel_that_passed(body: str, tmp_path: Path) -> None:
    require("triton_cuda")
    shape = (4, 20, 700) if body == BESIDE["root_mean_square"] else (20, 300)
    path = written(tmp_path, body, (shape,))
    words = [
        "gen",
        str(path),
        "-t",
        "triton_cuda",
        "--designer",
        "builtin",
        "--no-bench",
        "--quiet",
    ]
    assert run([*words, "-o", str(tmp_path / "out")]) == 0
