"""The machinery of measurements, without measuring: statistics, turns, reports, summaries."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from itertools import pairwise

import attrs
import numpy as np
import pytest
from bench_evidence import MACHINE, RIGHT, made_up
from processes import started

from sketchc.agents.run.record import RunVerdict
from sketchc.runtime.bench.driver import turn_order
from sketchc.runtime.bench.machine import Machine, OtherWork, better, busy_note, read_probe
from sketchc.runtime.bench.measurement import fast_p, geometric_mean, speedup, summarise
from sketchc.runtime.bench.roofline import Precision, Work, floor_of
from sketchc.runtime.bench.schedule import Turn, draw_variation, varied
from sketchc.runtime.bench.text import Entry, against, seconds_text, summary, to_json
from sketchc.runtime.bench.timing import write_varied


def test_the_interval_holds_the_median_and_narrows_with_more_samples() -> None:
    random = np.random.default_rng(0)
    few = summarise(list(random.lognormal(0, 0.3, 31)))
    many = summarise(list(random.lognormal(0, 0.3, 3100)))
    for found in (few, many):
        assert found.minimum <= found.low <= found.median <= found.high
    assert many.high - many.low < 0.3 * (few.high - few.low)
    assert many.low <= 1.0 <= many.high, "the true median of this distribution is 1"


def test_the_interval_of_a_speedup_holds_the_true_one_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    held = 0
    for _ in range(60):
        base, other = random.lognormal(np.log(3), 0.2, 31), random.lognormal(0, 0.2, 31)
        found = speedup(list(base), list(other))
        held += found.low <= 3.0 <= found.high
    assert held >= 0.85 * 60


def test_speedup_is_baseline_over_candidate() -> None:
    gain = speedup([2.0, 2.0, 2.0, 6.0], [1.0, 1.0, 1.0, 1.0])
    assert gain.of_medians == 2.0
    assert gain.of_means == 3.0
    assert gain.low <= 2.0 <= gain.high
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)


def test_fast_p_counts_failed_kernels_as_not_fast() -> None:
    gains = [0.5, 1.0, 1.5, 2.5, None]
    assert [fast_p(gains, p) for p in (0.0, 1.0, 2.0)] == [0.8, 0.4, 0.2]
    assert fast_p([], 1.0) == 0.0


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")])
def test_everybody_is_first_and_follows_everybody_equally_often(names: tuple[str, ...]) -> None:
    orders = [turn_order(names, number) for number in range(2 * len(names))]
    assert all(sorted(order) == sorted(names) for order in orders)
    assert set(Counter(order[0] for order in orders).values()) == {2}
    follows = Counter(pair for order in orders for pair in pairwise(order))
    assert len(follows) == len(names) * (len(names) - 1)
    assert len(set(follows.values())) == 1


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "bool"])
def test_both_processes_make_the_same_varied_inputs(dtype: str) -> None:
    import ml_dtypes  # noqa: F401  (gives NumPy the type)
    import torch

    random = np.random.default_rng(3)
    values = np.asarray(np.trunc(random.standard_normal((7, 5)) * 3), np.dtype(dtype))
    turn = Turn(11, 1.0 if dtype in ("int32", "bool") else 0.609375)
    base = torch.from_numpy(values.astype(np.float64)).to(getattr(torch, dtype))
    target = torch.empty_like(base)
    write_varied(base, turn, target)
    expected = varied(values, turn)
    assert expected.dtype == values.dtype
    assert np.array_equal(target.double().numpy(), expected.astype(np.float64))
    assert not np.array_equal(expected, values)


def test_no_two_samples_have_the_same_inputs() -> None:
    random = np.random.default_rng(0)
    turns = [draw_variation(random, {"X": (10_000, True)}, 3, 0) for _ in range(200)]
    assert len({(one.base, one.turns["X"]) for one in turns}) == 200
    assert all(0.5 < one.turns["X"].factor <= 1.0 for one in turns)


# ---------------------------------------------------------------- physics


def test_the_floor_is_that_of_memory_or_of_arithmetic() -> None:
    streaming = floor_of(Work(10**9, 10**9, 5 * 10**8, 5 * 10**8, 10**9), MACHINE, "ieee f32", True)
    assert streaming.least == pytest.approx(0.1)
    assert "of memory" in streaming.reason
    product = floor_of(Work(10**6, 10**12, 10**6, 10**5, 10**12), MACHINE, "ieee f32", True)
    assert product.least == pytest.approx(10.0)
    assert "GFLOP/s" in product.reason
    assert not product.refuses(6.0)
    assert product.refuses(4.0)


def test_what_fits_into_the_caches_is_not_held_to_the_memory() -> None:
    work = Work(2 * 10**5, 0, 10**5, 10**5, 0)
    warm = floor_of(work, MACHINE, "ieee f32", cold=False)
    cold = floor_of(work, MACHINE, "ieee f32", cold=True)
    assert warm.least == pytest.approx(2e5 / 1e11)
    assert cold.least == pytest.approx(1e5 / 1e10), "what was flushed comes from memory"
    unknown = attrs.evolve(MACHINE, levels=())
    assert floor_of(work, unknown, "ieee f32", cold=False).least == 0.0


def test_measuring_again_keeps_the_better_of_each() -> None:
    one = Machine("a", 2, 5.0, 1, {}, {"ieee f32": 9.0}, ((10, 3.0), (20, 8.0)), "earlier")
    other = Machine("a", 2, 7.0, 1, {}, {"ieee f32": 4.0, "f16": 5.0}, ((10, 6.0),), "later")
    found = better(one, other)
    assert (found.bandwidth, found.measured) == (7.0, "later")
    assert found.peaks == {"ieee f32": 9.0, "f16": 5.0}
    assert found.levels == ((10, 6.0), (20, 8.0))


def test_what_the_probe_prints_is_read() -> None:
    rates, reads = read_probe("f32 2e11\nf64 1e11\nread 32768 5e11\nread 1048576 1e11\n")
    assert rates == {"f32": 2e11, "f64": 1e11}
    assert reads == ((32768, 5e11), (1048576, 1e11))
    for text in ("", "f32 1e9", "f32 1e9 7 8\nf64 2", "f32 many\nf64 1"):
        with pytest.raises(ValueError, match=r".|^$"):
            read_probe(text)


# ---------------------------------------------------------------- reports


@pytest.mark.parametrize(
    ("seconds", "score"),
    # 100 MB at 10 GB/s take 0.01 s, and eager 0.3 s.
    [(0.01, 1.0), (0.155, 0.5), (0.3, 0.0), (0.4, 0.0), (0.008, 1.0)],
)
def test_the_score_is_the_share_of_the_way_to_a_perfect_kernel(
    seconds: float, score: float
) -> None:
    data = json.loads(json.dumps(to_json(made_up(seconds))))
    assert data["sol_score"] == pytest.approx(score)
    assert RunVerdict(1, "passed", "", None, data).sol_score == pytest.approx(score)


def test_no_score_where_no_speedup_is_quoted_or_nothing_is_left_to_save() -> None:
    assert made_up(0.2, precision=Precision("tf32x3", "gemm")).sol_score is None
    heavy = Work(4 * 10**9, 10**8, 10**8, 10**8, 10**8)
    assert made_up(0.2, work=heavy).sol_score is None
    assert RunVerdict(1, "failed", "", None, None).sol_score is None


def test_a_wrong_output_fails_whatever_its_time() -> None:
    wrong = attrs.evolve(RIGHT, failure="numerical", reason="1 of 3 elements are wrong")
    assert made_up(0.2).passed
    found = made_up(0.2, comparison=wrong)
    assert (found.passed, found.failure, found.believable) == (False, "numerical", True)
    assert "a timed output is wrong" in summary(found)


def test_a_measurement_is_plain_json_with_its_samples() -> None:
    data = json.loads(json.dumps(to_json(made_up(0.2)), allow_nan=False))
    assert data["samples"]["kernel"] == [0.2] * 31
    assert data["samples"]["eager"] == [0.3] * 31
    assert data["passed"] is True
    assert data["too_few"] is False
    assert data["machine"]["bandwidth"] == MACHINE.bandwidth
    assert data["precision"]["name"] == "ieee f32"
    assert data["speedup"]["of_medians"] == pytest.approx(1.5)
    assert len(data["rounds"]) == len(data["timer"]["wall"]["kernel"]) == 31
    assert len({tuple(one["turns"]["X"].items()) for one in data["rounds"]}) == 31


def test_no_speedup_is_quoted_between_classes() -> None:
    found = made_up(0.2, precision=Precision("tf32x3", "gemm"))
    assert found.speedup is None
    assert found.baselines["eager"].precision == "ieee f32"
    assert to_json(found)["speedup"] is None
    assert "no speedup over eager is quoted" in summary(found)
    assert "x of eager" not in summary(found)


def test_a_class_that_is_as_exact_is_compared_and_both_are_named() -> None:
    found = made_up(0.2, precision=Precision("f32_split", "gemm"))
    assert found.speedup is not None
    assert found.baselines["eager"].precision == "ieee f32"
    assert to_json(found)["precision"]["name"] == "f32_split"
    assert "x of eager in ieee f32 (" in summary(found)
    assert "x of eager (" in summary(made_up(0.2))


def test_few_samples_are_flagged() -> None:
    assert to_json(made_up(0.2, samples=29))["too_few"] is True
    assert to_json(made_up(0.2, samples=30))["too_few"] is False


def test_a_summary_of_several_kernels() -> None:
    wrong = attrs.evolve(RIGHT, failure="numerical", reason="wrong")
    entries = [
        Entry("a", "t", made_up(0.1)),
        Entry("b", "t", made_up(0.4)),
        Entry("c", "t", made_up(0.1, comparison=wrong)),
        Entry("d", "t", failure="compile", reason="no"),
    ]
    (found,) = against(entries, ["eager"])
    assert (found.kernels, found.compared) == (4, 2)
    assert found.fast == {0.0: 0.5, 1.0: 0.25, 2.0: 0.25}
    assert found.geometric_mean == pytest.approx((3.0 * 0.75) ** 0.5)


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.5e-6, "4.5 us"), (7e-9, "7 ns")]
)
def test_times_are_readable(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_a_baseline_that_only_makes_a_view_gives_no_ratio() -> None:
    measured = made_up(0.1)
    eager = attrs.evolve(measured.baselines["eager"], speedup=None, idle=True)
    idle = attrs.evolve(measured, baselines={"eager": eager})
    assert "no speedup over eager is quoted (it only makes a view)" in summary(idle)
    assert to_json(idle)["speedup"] is None
    (total,) = against([Entry("a", "t", idle), Entry("b", "t", measured)], ("eager",))
    assert (total.kernels, total.compared) == (2, 1)


def test_other_work_is_seen_and_said() -> None:
    others = OtherWork(sorted(os.sched_getaffinity(0)))
    ended = time.monotonic() + 0.3
    with started([sys.executable, "-c", "while True: pass"]):
        while time.monotonic() < ended:
            time.sleep(0.05)
    # It was waited for: what it used was this process's own.
    share = others.share()
    assert share is None or share >= 0.0
    assert "other work took 37 % of the processors" in busy_note(0.37)
    assert busy_note(0.01) == busy_note(None) == ""
