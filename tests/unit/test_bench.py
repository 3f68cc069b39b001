"""The machinery of measurements, without measuring: statistics, turn-taking, reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pytest

from sketchc.runtime.bench.bench import Measurement
from sketchc.runtime.bench.machine import Machine
from sketchc.runtime.bench.report import seconds_text, summary, to_json
from sketchc.runtime.bench.statistics import geometric_mean, speedup, summarise
from sketchc.runtime.bench.timing import Schedule, interleave
from sketchc.runtime.verify.compare import Comparison

if TYPE_CHECKING:
    import torch


class CountingClock:
    """Says that the n-th call took n seconds."""

    def __init__(self) -> None:
        self.calls = 0

    def measure(self, call: Callable[[], Any]) -> float:
        call()
        self.calls += 1
        return float(self.calls)


def test_the_interval_holds_the_median_and_narrows_with_more_samples() -> None:
    random = np.random.default_rng(0)
    few = summarise(list(random.lognormal(0, 0.3, 31)))
    many = summarise(list(random.lognormal(0, 0.3, 3100)))
    for found in (few, many):
        assert found.minimum <= found.low <= found.median <= found.high
    assert many.high - many.low < 0.3 * (few.high - few.low)
    assert many.low <= 1.0 <= many.high, "the true median of this distribution is 1"


def test_speedup_is_baseline_over_candidate() -> None:
    gain = speedup([2.0, 2.0, 2.0, 6.0], [1.0, 1.0, 1.0, 1.0])
    assert gain.of_medians == 2.0
    assert gain.of_means == 3.0
    assert gain.low <= 2.0 <= gain.high
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)


def test_contenders_take_turns_and_input_sets_rotate() -> None:
    import torch  # here, since it takes seconds in every worker that collects this file

    order: list[tuple[str, int]] = []

    def contender(name: str) -> Callable[[int], list[torch.Tensor]]:
        def call(position: int) -> list[torch.Tensor]:
            order.append((name, position))
            return [torch.full((1,), float(len(order)))]

        return call

    schedule = Schedule(samples=6, warm_up_seconds=0.0, at_least_seconds=0.0)
    contenders = {"a": contender("a"), "b": contender("b")}
    samples, outputs = interleave(contenders, 3, CountingClock(), schedule)
    timed = order[6:]  # each was warmed up on every input set
    assert order[:6] == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    assert [position for _, position in timed] == [0, 0, 1, 1, 2, 2] * 2
    assert [name for name, _ in timed] == list("abbaabbaabba")
    assert samples == {"a": [1, 4, 5, 8, 9, 12], "b": [2, 3, 6, 7, 10, 11]}
    for name in contenders:
        for position in range(3):
            last = max(i for i, call in enumerate(order) if call == (name, position))
            assert outputs[name][position][0].item() == last + 1, "outputs of the last timed call"


def measurement(seconds: float, comparison: Comparison) -> Measurement:
    samples = [seconds] * 31
    machine = Machine("a CPU", 2, 1e10, 1 << 20, {"torch": "2"})
    return Measurement(
        *("s", "cpp", "cpu", "t.py", machine, {"M": 3}, {}, {}, 1, 3),
        summarise(samples),
        summarise(samples),
        speedup(samples, samples),
        10**9,
        10**9,
        10**9 / 1e10 / seconds,
        10**9 / 1e10 / seconds,
        (comparison,),
        (),
        {"eager": samples, "kernel": samples},
    )


RIGHT = Comparison("Y", "", "within tolerance", 3)


def test_a_wrong_output_fails_whatever_its_time() -> None:
    wrong = attrs.evolve(RIGHT, failure="numerical", reason="1 of 3 elements are wrong")
    assert measurement(0.2, RIGHT).passed
    assert not measurement(0.2, wrong).passed
    assert "a timed output is wrong" in summary(measurement(0.2, wrong))


def test_a_time_below_the_physical_floor_fails() -> None:
    """1 GB at 10 GB/s takes 0.1 s; half of that is put down to a modest measurement of both."""
    assert measurement(0.06, RIGHT).passed
    impossible = measurement(0.01, RIGHT)
    assert not impossible.passed
    assert "faster than the memory" in summary(impossible)


def test_a_measurement_is_plain_json_with_its_samples() -> None:
    data = json.loads(json.dumps(to_json(measurement(0.2, RIGHT)), allow_nan=False))
    assert data["samples"]["kernel"] == [0.2] * 31
    assert data["passed"] is True
    assert data["machine"]["bandwidth"] == 1e10


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.5e-6, "4.5 us"), (7e-9, "7 ns")]
)
def test_times_are_readable(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
