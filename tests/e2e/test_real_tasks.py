"""Sketches for tasks of kinds that the examples lack, as a person would write them, against NumPy.

Each is checked, interpreted and run on every target at ragged sizes: decoding with a cache, a
recurrent layer, resizing, an optimiser, weights of 4 bits, a sparse product, a selective scan,
boxes, routing, a window of attention, a roll.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from every_target import run_everything
from triton_cases import Array, lower, make_case

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.checker.selfcheck import self_check
from sketchc.ir import nodes as ir
from sketchc.lowering.registry import TARGETS

FOLDER = Path(__file__).parent / "real_tasks"
Arrays = dict[str, Array]
Numbers = dict[str, Any]


@attrs.frozen
class Task:
    """Inputs for a size (the symbols) and params, and what NumPy makes of them, in float64."""

    inputs: Callable[[np.random.Generator, Numbers], Arrays]
    reference: Callable[..., Arrays]
    sizes: tuple[Numbers, ...]
    params: tuple[Numbers, ...] = ({},)


def normal(generator: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return generator.standard_normal(shape).astype(dtype)


def softmax(x: Array) -> Array:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


# ---------------------------------------------------------------- attention


def decode_inputs(g: np.random.Generator, n: Numbers) -> Arrays:
    shape = (n["B"], n["S"], n["HK"], n["D"])
    length = g.integers(1, n["S"] + 1, n["B"]).astype(np.int32)
    keys, values = (normal(g, *shape, dtype=np.float16) for _ in range(2))
    for b, used in enumerate(length):
        keys[b, used:], values[b, used:] = np.nan, np.inf
    query = normal(g, n["B"], n["HK"], n["G"], n["D"], dtype=np.float16)
    return {"Q": query, "KC": keys, "VC": values, "LENGTH": length}


def decode(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    q = t["Q"].astype(np.float64) / np.sqrt(n["D"])
    y = np.zeros(q.shape)
    for b, used in enumerate(t["LENGTH"]):
        k, v = (t[name][b, :used].astype(np.float64) for name in ("KC", "VC"))
        y[b] = np.einsum("hgs,shd->hgd", softmax(np.einsum("hgd,shd->hgs", q[b], k)), v)
    return {"Y": y}


def window_inputs(g: np.random.Generator, n: Numbers) -> Arrays:
    shape = (n["B"], n["H"], n["N"], n["D"])
    slope = np.abs(normal(g, n["H"]))
    return {name: normal(g, *shape) for name in "QKV"} | {"SLOPE": slope}


def window(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    q, k, v, slope = (t[name].astype(np.float64) for name in ("Q", "K", "V", "SLOPE"))
    place = np.arange(n["N"])
    apart = place[:, None] - place[None, :]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(n["D"]) - apart * slope[:, None, None]
    scores = np.where((apart >= 0) & (apart < p["window"]), scores, -np.inf)
    return {"Y": softmax(scores) @ v}


# ---------------------------------------------------------------- recurrences


def lstm_inputs(g: np.random.Generator, n: Numbers) -> Arrays:
    length, batch, e, h = n["L"], n["B"], n["E"], n["H"]
    bias = {} if length % 2 else {"BIAS": normal(g, 4, h)}
    return bias | {
        "X": normal(g, length, batch, e),
        "WX": normal(g, 4, h, e),
        "WH": normal(g, 4, h, h),
        "C": normal(g, batch, h),
        "H0": normal(g, batch, h),
    }


def lstm(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    t = {name: array.astype(np.float64) for name, array in t.items()}
    last, cell, outputs = t["H0"], t["C"], []
    for x in t["X"]:
        gates = np.einsum("be,ghe->gbh", x, t["WX"]) + np.einsum("bk,ghk->gbh", last, t["WH"])
        i, f, g, o = gates + (t["BIAS"][:, None] if "BIAS" in t else 0)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        last = sigmoid(o) * np.tanh(cell)
        outputs.append(last)
    shape = (n["L"], n["B"], n["H"])
    return {"HS": np.array(outputs).reshape(shape), "C": cell}


def scan_inputs(g: np.random.Generator, n: Numbers) -> Arrays:
    long, state = (n["BATCH"], n["L"], n["DIM"]), (n["BATCH"], n["L"], n["S"])
    return {
        "X": normal(g, *long),
        "DT": normal(g, *long),
        "A": -np.abs(normal(g, n["DIM"], n["S"])),
        "BM": normal(g, *state),
        "CM": normal(g, *state),
        "D": normal(g, n["DIM"]),
    }


def scan(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    x, dt, a, bm, cm, d = (t[k].astype(np.float64) for k in ("X", "DT", "A", "BM", "CM", "D"))
    dt = np.log1p(np.exp(dt))
    h = np.zeros((n["BATCH"], n["DIM"], n["S"]))
    y = np.zeros(x.shape)
    for s in range(n["L"]):
        h = np.exp(dt[:, s, :, None] * a) * h + (dt * x)[:, s, :, None] * bm[:, s, None, :]
        y[:, s] = np.einsum("bds,bs->bd", h, cm[:, s]) + d * x[:, s]
    return {"Y": y, "STATE": h}


# ---------------------------------------------------------------- images and boxes


def resize(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    x = t["X"].astype(np.float64)

    def axis(count: int, size: int) -> tuple[Array, Array, Array]:
        at = np.maximum((np.arange(count) + 0.5) * (size / count) - 0.5, 0)
        low = np.minimum(np.floor(at).astype(int), size - 1)
        return low, np.minimum(low + 1, size - 1), at - low

    (y0, y1, wy), (x0, x1, wx) = axis(p["OH"], n["H"]), axis(p["OW"], n["W"])
    rows = x[:, :, y0] * (1 - wy)[:, None] + x[:, :, y1] * wy[:, None]
    return {"Y": rows[..., x0] * (1 - wx) + rows[..., x1] * wx}


def boxes(g: np.random.Generator, n: Numbers) -> Arrays:
    def some(count: int) -> Array:
        corner = g.uniform(-1, 1, (count, 2))
        size = g.choice([0.0, 0.5, 1.5], (count, 2)) * g.uniform(0, 1, (count, 2))
        return np.concatenate([corner, corner + size], 1).astype(np.float32)

    return {"A": some(n["M"]), "B": some(n["N"])}


def iou(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    a, b = t["A"].astype(np.float64)[:, None], t["B"].astype(np.float64)[None]
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    common = np.maximum(sides, 0).prod(-1)
    whole = sum((x[..., 2:] - x[..., :2]).prod(-1) for x in (a, b)) - common
    return {"Y": np.where(whole > 0, common / np.where(whole > 0, whole, 1), 0.0)}


def roll(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    return {"Y": np.roll(t["X"], (p["dy"], p["dx"]), (1, 2))}


# ---------------------------------------------------------------- the rest


def adamw_inputs(g: np.random.Generator, n: Numbers) -> Arrays:
    arrays = {name: normal(g, n["N"]) for name in ("P", "GRAD", "M")}
    return arrays | {name: np.abs(normal(g, n["N"])) for name in ("V", "TOP")}


def adamw(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    given = {"lr": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8, "decay": 0.01} | p
    lr, b1, b2, eps, decay = (
        float(np.float32(given[name])) for name in ("lr", "b1", "b2", "eps", "decay")
    )
    w, grad, m, v = (t[name].astype(np.float64) for name in ("P", "GRAD", "M", "V"))
    grad = -grad if given.get("maximize") else grad
    m = b1 * m + (1 - b1) * grad
    v = b2 * v + (1 - b2) * grad**2
    top = np.maximum(v, t["TOP"]) if given.get("amsgrad") else t["TOP"]
    over = np.sqrt((top if given.get("amsgrad") else v) / (1 - b2 ** given["step"])) + eps
    w = w * (1 - lr * decay) - lr * m / (1 - b1 ** given["step"]) / over
    return {"P": w, "M": m, "V": v, "TOP": top}


def packed_inputs(g: np.random.Generator, n: Numbers) -> Arrays:
    return {
        "X": normal(g, n["M"], 2 * n["K2"], dtype=np.float16),
        "W": g.integers(0, 256, (n["N"], n["K2"])).astype(np.uint8),
        "S": normal(g, n["N"], n["KG"], dtype=np.float16),
        "Z": g.integers(0, 16, (n["N"], n["KG"])).astype(np.uint8),
    }


def packed(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    w = np.stack([t["W"] & 15, t["W"] >> 4], -1).reshape(n["N"], -1).astype(np.float64)
    group = 2 * n["K2"] // n["KG"]
    scale, zero = (np.repeat(t[name].astype(np.float64), group, 1) for name in ("S", "Z"))
    return {"Y": t["X"].astype(np.float64) @ ((w - zero) * scale).T}


def sparse_inputs(g: np.random.Generator, n: Numbers) -> Arrays:
    cuts = np.sort(g.integers(0, n["NNZ"] + 1, n["M"] - 1)) if n["M"] else np.zeros(0)
    start = np.concatenate([[0], cuts, [n["NNZ"]]][: n["M"] + 2]).astype(np.int64)
    return {
        "START": start,
        "COLUMN": g.integers(0, n["N"], n["NNZ"]).astype(np.int32),
        "VALUE": normal(g, n["NNZ"]),
        "X": normal(g, n["N"]),
    }


def sparse(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    products = t["VALUE"].astype(np.float64) * t["X"][t["COLUMN"]]
    pairs = zip(t["START"][:-1], t["START"][1:], strict=True)
    return {"Y": np.array([products[a:b].sum() for a, b in pairs])}


def route(t: Arrays, n: Numbers, p: Numbers) -> Arrays:
    chance = softmax(t["LOGITS"].astype(np.float64))
    best = np.argsort(-chance, axis=1, kind="stable")[:, :2]
    weight = np.take_along_axis(chance, best, 1)
    counts = np.bincount(best.ravel(), minlength=n["E"])
    return {"WEIGHT": weight / weight.sum(1, keepdims=True), "EXPERT": best, "LOAD": counts}


TASKS = {
    "adamw_step": Task(
        adamw_inputs,
        adamw,
        ({"N": 1}, {"N": 517}),
        ({"step": 3}, {"step": 20, "lr": 0.1, "maximize": True, "amsgrad": True}),
    ),
    "alibi_window_attention": Task(
        window_inputs,
        window,
        ({"B": 1, "H": 1, "N": 1, "D": 1}, {"B": 2, "H": 3, "N": 37, "D": 20}),
        ({"window": 5}, {"window": 40}, {"window": 1}),
    ),
    "csr_spmv": Task(
        sparse_inputs, sparse, ({"M": 1, "N": 1, "NNZ": 1}, {"M": 17, "N": 11, "NNZ": 400})
    ),
    "decode_attention": Task(
        decode_inputs,
        decode,
        (
            {"B": 1, "HK": 1, "G": 1, "S": 1, "D": 1},
            {"B": 3, "HK": 2, "G": 4, "S": 67, "D": 33},
            {"B": 2, "HK": 1, "G": 16, "S": 16, "D": 16},
        ),
    ),
    "dequantised_matmul": Task(
        packed_inputs,
        packed,
        (
            {"M": 1, "N": 1, "K2": 1, "KG": 1},
            {"M": 17, "N": 33, "K2": 24, "KG": 6},
            {"M": 3, "N": 5, "K2": 15, "KG": 10},
        ),
    ),
    "lstm_layer": Task(
        lstm_inputs,
        lstm,
        ({"L": 1, "B": 1, "E": 1, "H": 1}, {"L": 4, "B": 9, "E": 17, "H": 19}),
    ),
    "pairwise_iou": Task(boxes, iou, ({"M": 1, "N": 1}, {"M": 16, "N": 32}, {"M": 17, "N": 35})),
    "resize_bilinear": Task(
        lambda g, n: {"X": normal(g, n["N"], n["C"], n["H"], n["W"])},
        resize,
        ({"N": 1, "C": 1, "H": 1, "W": 1}, {"N": 2, "C": 3, "H": 5, "W": 7}),
        ({"OH": 7, "OW": 9}, {"OH": 3, "OW": 70}),
    ),
    "roll_2d": Task(
        lambda g, n: {"X": normal(g, n["B"], n["H"], n["W"])},
        roll,
        ({"B": 1, "H": 1, "W": 1}, {"B": 2, "H": 5, "W": 67}),
        ({"dy": 1, "dx": -2}, {"dy": -13, "dx": 100}),
    ),
    "router_top2": Task(
        lambda g, n: {"LOGITS": normal(g, n["N"], n["E"])},
        route,
        ({"N": 1, "E": 2}, {"N": 19, "E": 11}, {"N": 8, "E": 64}),
    ),
    "selective_scan": Task(
        scan_inputs,
        scan,
        (
            {"BATCH": 1, "L": 1, "DIM": 1, "S": 1},
            {"BATCH": 2, "L": 5, "DIM": 9, "S": 16},
            {"BATCH": 1, "L": 3, "DIM": 8, "S": 5},
        ),
    ),
}


def text(name: str) -> str:
    return (FOLDER / f"{name}.sketch").read_text("utf-8")


def test_every_sketch_has_a_reference() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.sketch")) == sorted(TASKS)


@pytest.mark.sweep
@pytest.mark.parametrize("name", TASKS)
def test_the_checker_accepts_it_without_a_warning(name: str) -> None:
    source = Source(f"{name}.sketch", text(name))
    result = check(source)
    assert not result.diagnostics
    settled = (ir.Tier.PROVED, ir.Tier.CHECKED_AT_LAUNCH, ir.Tier.ASSUMED)
    proofs = [proof for checked in result.sketches for proof in checked.proofs]
    assert proofs
    assert [proof for proof in proofs if proof.tier not in settled] == []
    assert not self_check(source)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TASKS)
def test_every_target_equals_numpy(name: str, target: str, tmp_path: Path) -> None:
    task = TASKS[name]
    kernel = lower(text(name), target)[1]
    cases = []
    for seed, sizes in enumerate(task.sizes):
        for params in task.params:
            inputs = task.inputs(np.random.default_rng(seed), sizes)
            cases.append(make_case(kernel, sizes, params, inputs))
    for case, found in zip(cases, run_everything(target, cases, tmp_path), strict=True):
        assert isinstance(found, dict), found
        expected = task.reference(case.tensors, case.symbols, case.params)
        assert expected.keys() == case.expected.keys()
        for name_, want in expected.items():
            if want.dtype.kind in "iu":
                np.testing.assert_array_equal(found[name_], want)
                continue
            half = found[name_].dtype == np.float16
            scale = float(np.sqrt(np.mean(want**2))) if want.size else 0.0
            tolerance = 2e-3 if half else 2e-5
            np.testing.assert_allclose(found[name_], want, tolerance, tolerance * scale)
