"""Whether a measurement is believed: the outputs, the clocks, the settings, and physics.

Everything here is arithmetic on recorded data, so that it can be tested on made-up data.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import attrs

from sketchc.runtime.bench.child import KERNEL
from sketchc.runtime.bench.driver import (
    BURST_RATIO,
    BURST_SECONDS,
    CLOCK_SECONDS,
    CLOCK_SHARE,
    Burst,
    Run,
    Sample,
    burst_ratio,
    call_in_burst,
    heard_late,
    unexplained_in_burst,
    usual_delay,
)
from sketchc.runtime.bench.roofline import SLACK, Floor
from sketchc.runtime.verify.compare import Comparison

#: Where other work makes a call of the baseline slower in a burst than in a sample, a call of the
#: kernel may be slower by the same factor, but by at most this one.
BURST_WEATHER = 4.0
#: How long a device may still work after an output was ready: the sum of a share of the sample, a
#: multiple of the baseline's own time (whose outputs are copied, too), and seconds.
LATE_SHARE = 0.1
LATE_RATIO = 1.5
LATE_SECONDS = 1e-5


@attrs.frozen
class Problem:
    """Why a measurement does not count: a class of failure, and a sentence."""

    failure: str
    reason: str


def problems(
    run: Run,
    comparisons: Sequence[Comparison],
    floor: Floor,
) -> tuple[Problem, ...]:
    """All reasons why the kernel's times do not count: forbidden changes first, then a wrong
    output, the clocks, and the physical floor."""
    found = [Problem("policy", f"{change} while it was timed") for change in run.changes]
    wrong = next((one for one in comparisons if not one.passed), None)
    if wrong is not None:
        reason = f"a timed output is wrong ({wrong.name}: {wrong.reason})"
        found.append(Problem(wrong.failure, reason))
    found += clocks(run)
    found += _below(floor, run)
    return tuple(found)


def clocks(run: Run) -> list[Problem]:
    """Problems where the parent's clock does not agree with the one in the kernel's process.

    How much later the parent usually notices an end is known from samples before the kernel was
    loaded, and from samples without a call; both are of the baselines' process, whose clock no
    kernel can reach.
    """
    handshake = statistics.median(run.handshakes)
    usual = max(handshake, _unexplained(run.alone))
    usual_in_burst = max(0.0, unexplained_in_burst(run.alone_bursts))
    own = [sample for sample in run.samples if sample.contender == KERNEL]
    bursts = [burst for burst in run.bursts if burst.contender == KERNEL]
    typical = statistics.median(sample.seconds for sample in own)
    found = [
        _samples(own, typical, usual),
        _bursts(bursts, usual_delay(run.handshakes, run.alone_bursts)),
    ]
    # On a GPU, a call of a burst may take as long as its launch on the host; a sample does not.
    if run.device == "cpu":
        found.append(_slower_in_burst(run, bursts, typical, usual_in_burst))
    return [Problem("policy", reason) for reason in (*found, _late(run)) if reason]


def _samples(own: Sequence[Sample], typical: float, usual: float) -> str:
    unexplained = _unexplained(own)
    if unexplained <= CLOCK_SHARE * typical + 2 * usual + CLOCK_SECONDS:
        return ""
    return (
        f"the measuring process says {typical:.3g} s a call of the kernel, and the parent's clock "
        f"{typical + unexplained - usual:.3g} s"
    )


def _unexplained(samples: Sequence[Sample]) -> float:
    """Seconds of the parent's clock in which neither the call nor the copying ran.

    The least of the faster half of the samples: these determine the median, so a kernel that wants
    it lower must report too little in all of them. The least, since the parent is often woken late,
    where threads still spin.
    """
    own = sorted(samples, key=lambda sample: sample.seconds)
    faster = own[: (len(own) + 1) // 2]
    return min((s.wall - s.seconds - s.copying for s in faster), default=0.0)


def _late(run: Run) -> str:
    """A sentence where the device works too long after the kernel's output was ready; else ""."""

    def median(contender: str) -> float:
        return statistics.median(s.late for s in run.samples if s.contender == contender)

    own, late = statistics.median(run.seconds(KERNEL)), median(KERNEL)
    if late <= LATE_SHARE * own + LATE_RATIO * median(run.baselines[0]) + LATE_SECONDS:
        return ""
    return f"the device works on for {late:.3g} s after the kernel's end"


def _bursts(bursts: Sequence[Burst], usual: float) -> str:
    """A sentence where the clocks do not agree on bursts, else "". A burst has up to thousands of
    short calls, so that the parent's clock can measure them. `usual`: how many seconds later the
    parent may notice the end of a burst."""
    if not heard_late(bursts, usual):
        return ""
    each, most = call_in_burst(bursts), max(burst.calls for burst in bursts)
    return (
        f"the measuring process says {each:.3g} s a call of the kernel in a burst of {most}, and "
        f"the parent's clock {each + unexplained_in_burst(bursts):.3g} s"
    )


def _slower_in_burst(run: Run, bursts: Sequence[Burst], typical: float, usual: float) -> str:
    """A sentence where a call in a burst is much slower than a sample, else "".

    Without other contenders in between and on warm data, a call should be no slower. Bursts of all
    contenders take equally long, and a busy machine takes the processor from a process that works
    long without a rest: the kernel's calls may be slower by the same factor as the baseline's.
    """
    baseline = run.baselines[0]
    seen = [
        burst_ratio(baseline, run.alone, run.alone_bursts),
        burst_ratio(baseline, run.samples, run.bursts),
    ]
    weather = min(BURST_WEATHER, max(1.0, *seen))
    each = call_in_burst(bursts)
    if each <= BURST_RATIO * weather * typical + 2 * usual + BURST_SECONDS:
        return ""
    return f"a sample of the kernel takes {typical:.3g} s, and a call in a burst {each:.3g} s"


def _below(floor: Floor, run: Run) -> list[Problem]:
    """A problem where the kernel's median time is too short for the machine."""
    own = statistics.median(run.seconds(KERNEL))
    if not floor.refuses(own) or disproved(floor, run):
        return []
    reason = (
        f"{own:.3g} s is less than {SLACK:.0%} of the physical floor, {floor.least:.3g} s "
        f"({floor.reason})"
    )
    return [Problem("policy", reason)]


def disproved(floor: Floor, run: Run) -> bool:
    """Whether a baseline is faster than the floor: then the machine is faster than was measured."""
    return any(min(run.seconds(name)) < floor.least for name in run.baselines)


def outdone(floor: Floor, run: Run) -> bool:
    """Whether a sample of the kernel or of a baseline is shorter than the floor's `least`."""
    return min(run.seconds(KERNEL)) < floor.least or disproved(floor, run)


def poisoned_share(samples: Iterable[Sample]) -> float:
    """The share of the kernel's samples whose outputs lay in memory that had been poisoned."""
    own = [sample.poisoned for sample in samples if sample.contender == KERNEL]
    return sum(own) / len(own) if own else 0.0
