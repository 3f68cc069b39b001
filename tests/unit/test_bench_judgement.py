"""What is believed of a measurement: made-up evidence through the function that decides."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import numpy as np
import pytest
from bench_evidence import HANDSHAKE, RIGHT, made_up, run_of

from sketchc.runtime.bench import driver
from sketchc.runtime.bench.driver import Burst, Run
from sketchc.runtime.bench.judgement import clocks, problems
from sketchc.runtime.bench.roofline import Floor
from sketchc.runtime.bench.text import summary

NO_FLOOR = Floor(0.0, 0.0, "")


def noisy(seconds: float, seed: int) -> list[float]:
    return list(seconds * np.random.default_rng(seed).lognormal(0, 0.3, 31))


@pytest.mark.parametrize("seconds", [2e-6, 5e-5, 2e-3, 0.2])
def test_honest_clocks_are_believed_however_noisy(seconds: float) -> None:
    assert clocks(run_of(noisy(seconds, 1), noisy(3 * seconds, 2))) == []
    late = np.random.default_rng(3)
    run = run_of(
        noisy(seconds, 1),
        noisy(seconds, 2),
        wall=lambda own: own + HANDSHAKE + float(late.exponential(0.005)),
    )
    assert clocks(run) == [], "the parent may be woken late"
    run = run_of(
        noisy(seconds, 1), noisy(seconds, 2), wall=lambda own: own + 0.008, handshake=0.006
    )
    assert clocks(run) == [], "it may always be, where the machine is busy"


@pytest.mark.parametrize("true", [0.002, 0.05, 1.0])
def test_a_clock_that_shrinks_time_is_found_by_the_parent(true: float) -> None:
    """The process that times says half of what it takes."""
    run = run_of([true / 2] * 31, [true] * 31, wall=lambda own: 2 * own + HANDSHAKE)
    (found,) = clocks(run)[:1]
    assert found.failure == "policy"
    assert "the parent's clock" in found.reason


def test_a_clock_that_shrinks_only_half_of_the_samples_is_found() -> None:
    fake = [0.01] * 16 + [0.05] * 15
    run = run_of(fake, [0.05] * 31, wall=lambda own: 0.05 + HANDSHAKE)
    assert clocks(run)


def test_short_calls_are_timed_by_the_parent_in_bursts() -> None:
    """20 us that are said to be 5: no handshake could tell for a single call."""
    run = run_of([5e-6] * 31, [2e-5] * 31, burst=(5e-6, 2e-5))
    (found,) = clocks(run)
    assert "in a burst" in found.reason


def test_samples_that_are_faster_than_bursts_are_not_believed() -> None:
    """Fresh data and cold caches cannot make a call faster."""
    run = run_of([5e-6] * 31, [2e-5] * 31, burst=(5e-5, 5e-5))
    (found,) = clocks(run)
    assert "a call in a burst" in found.reason
    assert clocks(attrs.evolve(run, device="cuda")) == [], "there, launches take their time"


def longer_bursts(run: Run, contender: str, factor: float) -> Run:
    def longer(burst: Burst) -> Burst:
        more = (factor - 1) * burst.seconds
        return attrs.evolve(burst, seconds=burst.seconds + more, wall=burst.wall + more)

    bursts = tuple(longer(b) if b.contender == contender else b for b in run.bursts)
    return attrs.evolve(run, bursts=bursts)


@pytest.mark.parametrize(
    ("kernel", "baseline", "believed"),
    [(2.7, 3.0, True), (2.7, 1.0, False), (7.0, 3.0, False), (9.0, 50.0, False)],
)
def test_a_busy_machine_lengthens_everybodys_bursts(
    kernel: float, baseline: float, *, believed: bool
) -> None:
    """A kernel's alone are evidence, and so is what exceeds even a busy machine."""
    run = longer_bursts(run_of([4e-3] * 31, [2e-5] * 31), "kernel", kernel)
    own = [one.reason for one in clocks(longer_bursts(run, "eager", baseline))]
    assert believed is not any("a sample of the kernel" in reason for reason in own), own


def test_what_the_clock_of_the_other_process_says_convicts_no_kernel() -> None:
    """No kernel can reach that one."""
    run = run_of([1e-3] * 31, [1e-3] * 31)
    baseline = [
        attrs.evolve(s, wall=5 * s.seconds + HANDSHAKE) if s.contender == "eager" else s
        for s in run.samples
    ]
    assert clocks(attrs.evolve(run, samples=tuple(baseline))) == []
    lying = run_of([1e-3] * 31, [1e-3] * 31, wall=lambda own: 5 * own + HANDSHAKE)
    assert len(clocks(lying)) == 1


def late(run: Run, seconds: float) -> Run:
    samples = tuple(
        attrs.evolve(s, late=seconds) if s.contender == "kernel" else s for s in run.samples
    )
    return attrs.evolve(run, samples=samples)


def test_work_on_another_stream_after_the_end_is_found() -> None:
    run = run_of([1e-3] * 31, [2e-3] * 31)
    assert clocks(late(run, 5e-5)) == []
    (found,) = clocks(late(run, 2e-3))
    assert "works on" in found.reason


def test_a_time_below_the_physical_floor_is_refused_with_its_reason() -> None:
    """100 MB at 10 GB/s take 10 ms; half of that is put down to a modest measurement of both."""
    assert made_up(0.006).passed
    impossible = made_up(0.004)
    assert not impossible.passed
    assert not impossible.believable
    assert "less than 50% of the physical floor, 0.01 s" in summary(impossible)
    assert "100 MB at 10 GB/s of memory" in summary(impossible)


def test_a_floor_that_the_baseline_beats_refuses_nothing() -> None:
    """PyTorch shows that the machine does better than was measured."""
    run = run_of([0.004] * 31, [0.009] * 31)
    assert made_up(0.004, run=run).passed


def test_only_times_are_disputed_and_measured_again() -> None:
    wrong = attrs.evolve(RIGHT, failure="numerical", reason="wrong")
    changed = attrs.evolve(run_of([0.001] * 31, [0.3] * 31), changes=("it replaced a clock",))
    assert made_up(0.001).disputed
    assert not made_up(0.2).disputed
    assert not made_up(0.001, comparison=wrong).disputed
    assert not made_up(0.001, run=changed).disputed


def test_whatever_the_kernel_changed_is_named() -> None:
    run = attrs.evolve(
        run_of([0.2] * 31, [0.3] * 31), changes=("it replaced time.perf_counter_ns",)
    )
    (found,) = problems(run, (RIGHT,), NO_FLOOR)
    assert found.failure == "policy"
    assert found.reason == "it replaced time.perf_counter_ns while it was timed"


def test_bursts_whose_end_is_heard_of_late_are_taken_again() -> None:
    """Other work may wake the parent late after each of the first; a clock that lies does so after
    all of them, of which there is a bound."""

    def taken(lies: range) -> list[Burst]:
        def burst(name: str, number: int) -> Burst:
            late = 4e-3 if name == "kernel" and number in lies else 0.0
            return Burst(name, 27, 2.3e-3, 2.3e-3 + late)

        settings = SimpleNamespace(schedule=SimpleNamespace(bursts=3))
        rounds = SimpleNamespace(settings=settings, _samples=[], _burst=burst)
        return list(driver._Rounds._bursts(rounds, "eager", 1e-4))

    honest = taken(range(5))
    assert [b.contender for b in honest].count("kernel") == 6
    assert not driver.heard_late([b for b in honest if b.contender == "kernel"], 1e-4)
    lying = taken(range(1000))
    assert [b.contender for b in lying].count("kernel") == 15
    assert driver.heard_late([b for b in lying if b.contender == "kernel"], 1e-4)
