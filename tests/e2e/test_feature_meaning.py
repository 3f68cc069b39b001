"""What the feature sketches mean, written in NumPy: the interpreter, with which all targets are
compared, is itself compared here, at the same sizes and on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from test_features import CASES, Array, Run, assert_alike, runs, sketches

from sketchc.checker.api import check_sketch

Arrays = dict[str, Array]
#: Inputs, symbols and params by name -> outputs, in double precision where they are floats.
Meaning = Callable[[Mapping[str, Any]], Arrays]


def accumulators(v: Mapping[str, Any]) -> Arrays:
    x = v["X"]
    return {
        "HIGH": x.max((1, 2), initial=-np.inf),
        "SUM": x.sum((1, 2)),
        "PROD": (x * 0.0625 + 1).prod(2),
        "LANES": x.sum(2),
    }


def initial_values(v: Mapping[str, Any]) -> Arrays:
    m, n = v["X"].shape
    part, flag = np.full((m, n), -1.5), np.full(m, True)
    part[: m // 2] = v["X"][: m // 2]
    flag[: m // 2 * 2 : 2] = False
    return {
        "PART": part,
        "FLAG": flag,
        "COUNT": np.full(m, 3_000_000_000),
        "HALF": np.full(n, 0.3),
    }


def new_axes(v: Mapping[str, Any]) -> Arrays:
    x, r, k = v["X"], v["R"], v["K"]
    if "S" in v:
        s = v["S"]
        return {
            "Y": (x - 2 * r[:, None]) * np.minimum(2 * r, r)[:, None],
            "OUTER": r[:, None] * s + 0.25,
            "RANKS": k[:, None] + np.arange(x.shape[1]),
            "TRIPLED": 3 * k[:, None] + np.zeros(x.shape, "i4"),
            "LARGE": 3_000_000 * np.arange(x.shape[0])[:, None] * (1000 + np.arange(x.shape[1])),
            "CHOSEN": np.where((r > 0)[:, None], x, s[None]),
            "WIDE": r[:, None] + 0 * x,
        }
    powers = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
    return {
        "GRAM": r[:, None] * r[None, :],
        "FAR": abs(r[:, None] - r).max(1, initial=0),
        "COLUMN": r[:, None],
        "PAIR": np.concatenate([r[:, None], r[:, None]], 1),
        "TURNED": r[None, :],
        "CENTRED": x - x.min(1, keepdims=True, initial=np.inf),
        "LAST": sum(np.ogrid[: x.shape[0], : x.shape[1]]).max(1, initial=np.iinfo("i8").min),
        "SUMS": x.cumsum(1),
        "SHARES": powers / powers.sum(1, keepdims=True),
        "RANKED": x.argsort(1, kind="stable"),
        "COUNTS": k[None, :],
    }


def integers(v: Mapping[str, Any]) -> Arrays:
    a, b, wide = v["A"], v["B"], v["L"]
    return {
        "Q": a // b,
        "R": a % b,
        "W": (a + wide) * 3,
        "D": wide // v["d"],
        "E": wide % 1_000_003,
        "BITS": ~(((((a & 12) << 3) | b) ^ a) >> 1),
        "S": wide.sum(1),
        "T": a.sum(1).astype("i4"),
        "H": wide.max(1, initial=np.iinfo("i8").min),
        "K": b.min(1, initial=np.iinfo("i4").max),
        "F": a / b,
        "P": np.clip(abs(wide), 1, 3).prod(1),
    }


def lets(v: Mapping[str, Any]) -> Arrays:
    x, h, w = v["X"], v["H"], v["W"]
    height, scale = (h + 2 - 3) // 2 + 1, 1 / np.sqrt(w)
    return {
        "Y": x * scale * (v["gain"] * scale + np.exp(-float(h))),
        "SUMS": x[:, :height].sum(2) * scale,
    }


def loop_ranges(v: Mapping[str, Any]) -> Arrays:
    x, k = v["X"], np.arange(v["K"])[:, None]
    return {
        "Y": x[2:].sum(0),
        "ODD": (x * k)[1::3].sum(0),
        "NONE": np.full(v["N"], 3.0),
        "C": x[0] if v["K"] else np.zeros(v["N"]),
    }


def nested_loops(v: Mapping[str, Any]) -> Arrays:
    windows = np.lib.stride_tricks.sliding_window_view(v["X"], v["F"].shape[2:], (1, 2))
    return {"Y": np.einsum("chwij,ocij->ohw", windows, v["F"])}


def params(v: Mapping[str, Any]) -> Arrays:
    y = v["X"] * v["scale"] * (-1 if v["negate"] else 1)
    whole = v.get("shift", 5) * 1_000_000_007 + v.get("narrow", -2)
    return {
        "Y": y,
        "Z": np.full(v["N"], whole),
        "W": (y + v.get("shift", 5)) * v.get("power", 0.1) + v["scale"] / 4,
    }


def positions(v: Mapping[str, Any]) -> Arrays:
    m, n = np.arange(v["M"])[:, None], np.arange(v["N"])
    return {
        "Y": v["X"] + (m * 100 + n) * 0.125,
        "Z": (m + 3_000_000_000) * (n - 7),
        "P": np.sin(n * 0.5),
        "Q": n % 5 - 2,
    }


def predicates(v: Mapping[str, Any]) -> Arrays:
    x, m, n = v["X"], np.arange(v["M"])[:, None], np.arange(v["N"])
    return {
        "CAUSAL": np.where((m >= n) & (n < v["N"] - 1), x, -1.0),
        "BAND": np.where(abs(m - n) < v["window"], x, 0.0),
        "EDGE": np.where((n == 0) | (n == v["N"] - 1), 1.0, 0.0),
        "MASK": (m % 2 == 0) | ~((n // 3 == 1) | (n != 4)),
    }


def reduce_bools(v: Mapping[str, Any]) -> Arrays:
    x, b = v["X"], v["B"]
    return {
        "ANY": (x > 1).any(1),
        "ALL": (x < 1).all(1),
        "SOME": b.any(1),
        "EVERY": b.all(1),
        "COUNT": b.sum(1),
    }


def reduce_nan(v: Mapping[str, Any]) -> Arrays:
    x = v["X"]
    clipped = np.minimum(np.maximum(x, 0.25), 2.0)
    return {
        "HIGH": x.max(1, initial=-np.inf),
        "LOW": x.min(1, initial=np.inf),
        "SUM": x.sum(1),
        "PROD": x.prod(1),
        "NANS": np.isnan(x).sum(1),
        "Y": np.where(np.isinf(x), -7.0, clipped),
    }


def reductions(v: Mapping[str, Any]) -> Arrays:
    x = v["X"]
    low = x.min(1, initial=np.inf)
    product = (x * 0.1 + 1).prod(2)
    kept = x.max(2, initial=-np.inf)[:, :, None]
    return {
        "ROWS": x.sum(2),
        "COLUMNS": x.max(1, initial=-np.inf),
        "ALL": product.sum(1),
        "PRODUCT": product,
        "LOW": low,
        "Y": x - kept + low[:, None] - x.sum((1, 2))[:, None, None],
    }


def scan_by_hand(v: Mapping[str, Any]) -> Arrays:
    old, state, rows = np.ones(v["N"]), np.zeros(v["N"]), []
    for row in v["X"]:
        old, state = state, old * 0.5 + row
        rows.append(state)
    return {"Y": np.array(rows).reshape(v["X"].shape), "Z": state - old}


def three_phases(v: Mapping[str, Any]) -> Arrays:
    x = v["X"]
    variance = x.var(0)
    return {"Y": (x - x.mean(0)) / np.sqrt(variance + v.get("eps", 0.01)), "VARIANCE": variance}


def two_axes_at_once(v: Mapping[str, Any]) -> Arrays:
    x = v["X"]
    high = x.max((1, 3), initial=-np.inf)
    return {
        "MEAN": x.sum((1, 3)),
        "KEPT": x - high[:, None, :, None],
        "MIDDLE": x.sum((1, 2)),
    }


def whole_number_rounding(v: Mapping[str, Any]) -> Arrays:
    x = v["X"]
    return {
        "FLOOR": np.floor(x),
        "CEIL": np.ceil(x),
        "NEAREST": np.rint(x),
        "DOWN": np.floor(x),
        "ZERO": np.trunc(x),
        "UP": np.ceil(x),
        "SIGN": np.sign(x),
        "CLAMP": np.clip(x, -1.5, 2.25),
        "MOD": x - 0.75 * np.floor(x / 0.75),
        "DIV": np.floor(x / -0.75),
        "HALF": x,
    }


MEANINGS: tuple[Meaning, ...] = (
    accumulators,
    initial_values,
    integers,
    lets,
    loop_ranges,
    nested_loops,
    new_axes,
    params,
    positions,
    predicates,
    reduce_bools,
    reduce_nan,
    reductions,
    scan_by_hand,
    three_phases,
    two_axes_at_once,
    whole_number_rounding,
)


def values(run: Run, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Everything by name; integers and floats in 64 bits."""
    wide = {"f": np.float64, "i": np.int64, "b": np.bool_}
    found = {name: array.astype(wide[array.dtype.kind]) for name, array in run.tensors.items()}
    return {**defaults, **found, **run.symbols, **run.params}


@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda meaning: meaning.__name__)
def test_interpreter_means_what_it_should(meaning: Meaning) -> None:
    name = meaning.__name__
    checked, _ = check_sketch(sketches(name)[0])
    assert checked is not None
    defaults = {param.name: param.default for param in checked.sketch.params}
    for run in runs(name, checked.sketch):
        with np.errstate(all="ignore"):
            wanted = meaning(values(run, defaults))
        rounded = {key: array.astype(run.expected[key].dtype) for key, array in wanted.items()}
        assert rounded.keys() == run.expected.keys()
        assert_alike(CASES[name], run.expected, rounded)
