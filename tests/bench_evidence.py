"""Made-up evidence of measurements, for tests of what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from sketchc.runtime.bench.driver import Burst, Run, Sample, turn_order
from sketchc.runtime.bench.judgement import problems
from sketchc.runtime.bench.machine import Machine
from sketchc.runtime.bench.measurement import Baseline, Measurement, speedup, summarise
from sketchc.runtime.bench.roofline import Precision, Work, floor_of
from sketchc.runtime.bench.schedule import Settings, draw_variation
from sketchc.runtime.verify.compare import Comparison

#: 10 GB/s of memory, 100 GB/s of a cache of 1 MB, 100 GFLOP/s.
MACHINE = Machine(
    "a CPU", 2, 1e10, 1 << 20, {"torch": "2"}, {"ieee f32": 1e11}, ((1 << 15, 1e11),), "today"
)
RIGHT = Comparison("Y", "", "within tolerance", 3)
EXACT = Precision("ieee f32", "f32 tensors")
#: 100 MB in all, half of them read.
STREAMED = Work(10**8, 10**8, 5 * 10**7, 5 * 10**7, 10**8)
#: Seconds by which the parent hears of an end later than it was.
HANDSHAKE = 1e-4


def run_of(
    kernel: Sequence[float],
    eager: Sequence[float],
    *,
    wall: Callable[[float], float] = lambda seconds: seconds + HANDSHAKE,
    burst: tuple[float, float] | None = None,
    handshake: float = HANDSHAKE,
) -> Run:
    """A run with these samples in seconds; `wall` is the parent's time of a sample of the kernel,
    `burst` the process's and the parent's seconds of one call of the kernel in a burst, `handshake`
    those of the parent for no call at all."""
    random = np.random.default_rng(0)
    samples = []
    for number, (own, other) in enumerate(zip(kernel, eager, strict=True)):
        samples.append(Sample("eager", number, other, other + HANDSHAKE))
        samples.append(Sample("kernel", number, own, wall(own)))
    typical, usual = float(np.median(kernel)), float(np.median(eager))
    calls, others = (min(2000, max(1, round(0.02 / each))) for each in (typical, usual))
    own, outer = burst or (typical, typical)
    return Run(
        "cpu",
        ("eager",),
        tuple(samples),
        (
            Burst("eager", others, others * usual, others * usual + HANDSHAKE),
            Burst("kernel", calls, calls * own, calls * outer + HANDSHAKE),
        ),
        (),
        tuple(draw_variation(random, {"X": (999, True)}, 3, n % 3) for n in range(len(kernel))),
        tuple(turn_order(("eager", "kernel"), n) for n in range(len(kernel))),
        (),
        {},
        (),
        tuple(Sample("eager", n, usual, usual + HANDSHAKE) for n in range(5)),
        (Burst("eager", others, others * usual, others * usual + HANDSHAKE),),
        (handshake,) * len(kernel),
    )


def made_up(
    seconds: float,
    *,
    samples: int = 31,
    comparison: Comparison = RIGHT,
    precision: Precision = EXACT,
    work: Work = STREAMED,
    run: Run | None = None,
) -> Measurement:
    """A measurement in which every sample of the kernel takes `seconds`, and of eager 0.3 s."""
    run = run or run_of([seconds] * samples, [0.3] * samples)
    kernel, eager = run.seconds("kernel"), run.seconds("eager")
    floor = floor_of(work, MACHINE, "ieee f32", cold=True)
    gain = speedup(eager, kernel) if precision.comparable else None
    return Measurement(
        sketch="s",
        target="cpp",
        hardware="cpu",
        task="t.py",
        kernel_file="s.sketch",
        source="",
        sketch_text="",
        machine=MACHINE,
        symbols={"M": 3},
        shapes={"X": (3,)},
        constants={},
        params={},
        settings=Settings(1, 2),
        input_sets=3,
        precision=precision,
        kernel=summarise(kernel),
        baselines={
            "eager": Baseline("eager", precision.of_baseline, summarise(eager), gain, 0.5, ())
        },
        work=work,
        floor=floor,
        roofline=floor.roofline / summarise(kernel).median,
        comparisons=(comparison,),
        problems=problems(run, (comparison,), floor),
        run=attrs.evolve(run, kept=()),
        surroundings={},
        versions={"torch": "2"},
    )
