"""The parent's side of a measurement: it decides what is timed when, and also measures the time.

The baselines are timed in a process that never loads the kernel, and the kernel in another one, on
the same processors; while one is timed the other one is stopped. In each round, every contender
gets the same fresh inputs at the same place, in an order that changes from round to round. Which
samples' outputs are verified is drawn here, and told only after the call. The parent's own clock
runs from "go" to the answer; it notices the end later than the process that times, by as much for
the kernel as for the baseline.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from sketchc.base.diagnostics import UsageError
from sketchc.runtime.bench.child import KERNEL, PROCESSORS, Job, StateMismatchError
from sketchc.runtime.bench.schedule import Settings, Variation, draw_variation
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.process.messages import MessageError, Raw, array_of, raw_of
from sketchc.runtime.process.peer import (
    Peer,
    PeerEndedError,
    Start,
    python_environment,
    signal_group,
)
from sketchc.runtime.process.templates import Template, TemplateError, forking
from sketchc.runtime.toolchains.base import TORCH_NOTED

BASELINES = "baselines"
_CHILD = "sketchc.runtime.bench.child"
#: Samples of the kernel whose outputs are verified.
LOOKED_AT = 3
#: Seconds that a burst of calls should take, and the most calls in a burst.
_BURST_SECONDS = 0.02
_BURST_CALLS = 2000
#: A call in a burst, on warm data, should take at most this multiple of a sample on fresh data.
BURST_RATIO = 2.0
#: Where a call takes longer, or the clocks do not agree, there are more bursts, up to this multiple
#: of the schedule's number: the best one counts, and other work on the machine lengthens a burst
#: more than a sample, which follows a rest.
_MORE_BURSTS = 5
#: The parent's time may exceed the process's own by this share of the latter, plus twice the usual
#: difference, plus so many seconds for each sample, or for each call of a burst.
CLOCK_SHARE = 0.25
CLOCK_SECONDS = 2e-4
BURST_SECONDS = 2e-6
#: Samples of the first baseline before there is a process with the kernel, which could take
#: processors, memory or a device from the baseline.
_ALONE = 5

Progress = Callable[[str], None]
#: A set of inputs, by tensor name.
Inputs = Mapping[str, Array]


#: How a process ended that somebody else ended, the system where memory is short among them.
_KILLS = (-signal.SIGKILL, -signal.SIGTERM)


class MeasurementFailedError(UsageError):
    """The kernel cannot be timed, through its own fault: `failure` is the class of failure.
    `killed`: its process was ended by a signal that others send, so that it may not be at fault."""

    def __init__(self, message: str, failure: str, *, killed: bool = False) -> None:
        self.failure, self.killed = failure, killed
        super().__init__(message)


@attrs.frozen
class Sample:
    """One timed call, in seconds: `seconds` by the process that times, `wall` by the parent's clock
    (including copying the outputs), `copying` the outputs, and `late`, how long the device still
    worked after the result was ready. `poisoned`: all outputs lay where memory was poisoned."""

    contender: str
    round: int
    seconds: float
    wall: float
    copying: float = 0.0
    late: float = 0.0
    poisoned: bool = False


@attrs.frozen
class Burst:
    """Many calls one after the other: `seconds` in all by the process that times, `wall` by the
    parent's clock."""

    contender: str
    calls: int
    seconds: float
    wall: float


@attrs.frozen
class SampleOutputs:
    """The outputs of one sample, and the variation of its inputs."""

    contender: str
    round: int
    variation: Variation
    outputs: tuple[Array, ...] = attrs.field(repr=False, eq=False)


@attrs.frozen
class Run:
    """Everything that both processes measured, on "cpu" or "cuda". `variations` and `orders` are by
    round; `changes` are forbidden changes that a process reported; `settings` are torch's, as the
    baselines ran; `alone` and `alone_bursts` are of the first baseline, from before the kernel's
    process was there, and `handshakes` the parent's seconds for a sample without a call, one for
    each round. `idle` names baselines that compute nothing: their outputs are views of inputs."""

    device: str
    baselines: tuple[str, ...]
    samples: tuple[Sample, ...]
    bursts: tuple[Burst, ...]
    kept: tuple[SampleOutputs, ...]
    variations: tuple[Variation, ...]
    orders: tuple[tuple[str, ...], ...]
    changes: tuple[str, ...]
    settings: Mapping[str, str]
    notes: tuple[str, ...]
    alone: tuple[Sample, ...] = ()
    alone_bursts: tuple[Burst, ...] = ()
    handshakes: tuple[float, ...] = ()
    idle: tuple[str, ...] = ()

    def seconds(self, contender: str) -> list[float]:
        """The seconds of all samples of one contender, in order."""
        return [s.seconds for s in self.samples if s.contender == contender]


def burst_ratio(contender: str, samples: Iterable[Sample], bursts: Iterable[Burst]) -> float:
    """The time of a call in the contender's best burst over its median sample; 0 without bursts."""
    each = call_in_burst([burst for burst in bursts if burst.contender == contender])
    own = [sample.seconds for sample in samples if sample.contender == contender]
    return each / max(statistics.median(own), 1e-9) if own else 0.0


def call_in_burst(bursts: Sequence[Burst]) -> float:
    """Seconds of a call in the best burst; 0 without bursts."""
    return min((burst.seconds / burst.calls for burst in bursts), default=0.0)


def unexplained_in_burst(bursts: Sequence[Burst]) -> float:
    """Seconds for each call by which the parent's time exceeds the process's own, in the burst with
    the least: other work on the machine only adds to them."""
    return min(((burst.wall - burst.seconds) / burst.calls for burst in bursts), default=0.0)


def usual_delay(handshakes: Sequence[float], alone: Sequence[Burst]) -> float:
    """How much later, in seconds, the parent may usually notice the end of a burst, by the times
    `handshakes` and the bursts `alone`. The delay occurs once in a burst of any number of calls."""
    once = min((burst.wall - burst.seconds for burst in alone), default=0.0)
    return 2 * (statistics.median(handshakes) + max(0.0, once))


def heard_late(bursts: Sequence[Burst], usual: float) -> bool:
    """Whether in every burst the parent's time exceeds the process's own by more than allowed; the
    `usual` delay, in seconds, is divided among the calls of a burst."""
    if not bursts:
        return False
    most = max(burst.calls for burst in bursts)
    allowed = CLOCK_SHARE * call_in_burst(bursts) + BURST_SECONDS + (CLOCK_SECONDS + usual) / most
    return unexplained_in_burst(bursts) > allowed


def turn_order(names: Sequence[str], number: int) -> tuple[str, ...]:
    """The order of contenders in round `number`: over the rounds, orders rotate and reverse, so
    that no contender always follows the same one."""
    start = number % len(names)
    turned = (*names[start:], *names[:start])
    return turned if number // len(names) % 2 == 0 else turned[::-1]


def environment(threads: int) -> dict[str, str]:
    """The child's environment: pinned threads, and a heap that keeps its pages.

    glibc would return large outputs to the system after every call, and each page would fault again
    at the next call, on both sides; that would measure Linux's page clearing rather than the code.
    """
    return python_environment(
        {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "OMP_PROC_BIND": "true",
            "OMP_PLACES": "cores",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
            "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
            "MALLOC_TOP_PAD_": str(64 << 20),
        }
    )


def processors(threads: int) -> list[int]:
    """The processors to time on: the last `threads`, since the first serve most interrupts."""
    return sorted(os.sched_getaffinity(0))[-threads:]


def _forking(threads: int) -> tuple[Template, Start]:
    """The template and the `Start` of processes that time. The template pins itself to the
    processors before it imports torch, which starts threads."""
    pinned = {PROCESSORS: ",".join(map(str, processors(threads)))}
    modules = [f"{_CHILD}:pin", "sketchc.runtime.bench.server", TORCH_NOTED]
    return forking(f"{_CHILD}:main", sys.executable, modules, {**environment(threads), **pinned})


def prepare(threads: int) -> None:
    """Wait until the template of processes that time on so many `threads` has imported everything.
    Raises `UsageError` where an import fails."""
    try:
        missing = _forking(threads)[0].missing
    except TemplateError as error:
        missing = (str(error),)
    if missing:
        raise UsageError(f"no process that times can be started: {missing[0]}")


class Timer:
    """A process that times one side: "baselines", "kernel" or "points". Failures of the latter
    two are blamed on the kernel. `deadline`, for all that it is asked, is by the monotonic
    clock, `timeout` in seconds, for messages."""

    def __init__(self, job: Job, side: str, deadline: float, timeout: float) -> None:
        self.deadline, self.timeout = deadline, timeout
        self._side, self._of_kernel = side, side != BASELINES
        self._peer = Peer(_forking(job.threads)[1])

    def begin(self, job: Job, inputs: Sequence[Inputs]) -> None:
        """Send the process its job and the sets of inputs. Raises `UsageError` on a timeout."""
        content = pickle.dumps(job)
        pickled = Raw("uint8", (len(content),), memoryview(content))
        sent = [{name: raw_of(array) for name, array in one.items()} for one in inputs]
        self.tell({"job": pickled, "inputs": sent, "side": self._side})

    def close(self) -> None:
        """End the process."""
        self._peer.close()

    def signal(self, number: int) -> None:
        """Send signal `number`, SIGSTOP or SIGCONT, to the process and all that it started."""
        signal_group(self._peer.process.pid, number)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message. Raises `UsageError` or `MeasurementFailedError` on a timeout."""
        try:
            self._peer.tell(message, self.deadline)
        except TimeoutError:
            raise self._late() from None

    def hear(self) -> dict[str, Any]:
        """The next message of the process.

        Raises `UsageError` for the task's failure, `MeasurementFailedError` for the kernel's, and
        `StateMismatchError`.
        """
        try:
            message = self._peer.hear(self.deadline)
        except TimeoutError:
            raise self._late() from None
        except PeerEndedError as end:
            tail = self._peer.printed.strip().split("\n")[-1][:300] or "none"
            msg = f"the measuring process ended with status {end.status}; its last line: {tail}"
            faulted = end.status in (-11, -7)
            failure, killed = "illegal_access" if faulted else "launch", end.status in _KILLS
            raise self._failure(msg, failure, killed=killed) from None
        except MessageError as error:
            msg = "what the measuring process says cannot be read"
            raise self._failure(msg, "policy") from error
        if "error" in message:
            raise UsageError(message["error"])
        if "mismatch" in message:
            raise StateMismatchError
        if "candidate" in message:
            msg = f"the kernel cannot be timed: {message['candidate']}"
            raise MeasurementFailedError(msg, "launch")
        return message

    def ask(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        """Have `request` timed; returns the process's answer, and the seconds by this process's
        clock from "go" to that answer. Raises as `hear` does."""
        self.tell(request)
        self.hear()
        started = time.perf_counter_ns()
        self.tell({"do": "go"})
        timed = self.hear()
        return timed, (time.perf_counter_ns() - started) * 1e-9

    def sample(
        self, name: str, number: int, variation: Variation, keep: bool
    ) -> tuple[Sample, SampleOutputs | None, dict[str, Any]]:
        """Take sample `number` of contender `name`; returns it, its outputs if they are to be kept,
        and the process's last answer, with the forbidden "changes". Raises as `hear` does."""
        turns = {key: [turn.offset, turn.factor] for key, turn in variation.turns.items()}
        request = {"contender": name, "base": variation.base, "place": variation.place}
        timed, wall = self.ask({"do": "sample", "number": number, "turns": turns, **request})
        self.tell({"do": "keep" if keep else "drop"})
        answer = self.hear()
        sample = Sample(
            *(name, number, float(timed["seconds"]), wall),
            *(float(timed["copy"]), float(timed["late"]), bool(answer["poisoned"])),
        )
        if not keep:
            return sample, None, answer
        outputs = tuple(array_of(raw) for raw in answer["outputs"])
        return sample, SampleOutputs(name, number, variation, outputs), answer

    def _late(self) -> UsageError:
        msg = f"the measurement did not end within {self.timeout:g} s"
        return self._failure(msg, "timeout")

    def _failure(self, message: str, failure: str, *, killed: bool = False) -> UsageError:
        """The exception for a failure: `MeasurementFailedError` on the kernel's side, else a plain
        `UsageError`."""
        if not self._of_kernel:
            return UsageError(message)
        return MeasurementFailedError(message, failure, killed=killed)


def run(
    job: Job,
    inputs: Sequence[Inputs],
    settings: Settings,
    sizes: Mapping[str, tuple[int, bool]],
    progress: Progress,
) -> Run:
    """Time all contenders. `inputs` are sets of values by tensor name; `sizes` are of the tensors
    that may be varied (see `draw_variation`); `progress` is called, between samples, with what is
    being done.

    Raises `UsageError` for what cannot be timed, `MeasurementFailedError` where that is due to the
    kernel, and `StateMismatchError`.
    """
    with contextlib.ExitStack() as stack:
        return _Rounds(job, inputs, settings, sizes, progress, stack).run()


@attrs.define
class _Rounds:
    """A measurement with both processes, from start to end; see `run`. They end with `stack`."""

    job: Job
    inputs: Sequence[Inputs]
    settings: Settings
    sizes: Mapping[str, tuple[int, bool]]
    progress: Progress
    stack: contextlib.ExitStack
    _deadline: float = 0.0
    _random: np.random.Generator = attrs.field(init=False)
    _processes: dict[str, Timer] = attrs.field(factory=dict)
    _running: str = ""
    _samples: list[Sample] = attrs.field(factory=list)
    _kept: list[SampleOutputs] = attrs.field(factory=list)
    _changes: dict[str, None] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._random = np.random.default_rng([self.settings.seed, 7])
        self._deadline = time.monotonic() + self.settings.timeout

    def run(self) -> Run:
        """Measure everything, from the warm-up to the last burst."""
        self.progress("warms PyTorch up")
        ready = self._begin(BASELINES)
        baselines = tuple(ready["baselines"])
        self.progress(f"times {baselines[0]} alone")
        for number in range(_ALONE):
            place = number % self.job.places
            variation = draw_variation(self._random, self.sizes, len(self.inputs), place)
            self._sample(baselines[0], number, variation, keep=False)
        alone = tuple(self._samples)
        alone_bursts = tuple(
            self._burst(baselines[0], n) for n in range(self.settings.schedule.bursts)
        )
        self._samples.clear()
        self.progress("warms the kernel up")
        self._note(self._begin(KERNEL))
        names = (*baselines, KERNEL)
        chosen = self._random.permutation(self.settings.schedule.samples)[:LOOKED_AT]
        looked_at = {int(number) for number in chosen}
        variations: list[Variation] = []
        orders = []
        handshakes: list[float] = []
        started = time.monotonic()
        schedule = self.settings.schedule
        while True:
            number, elapsed = len(variations), time.monotonic() - started
            enough = number >= schedule.samples and elapsed >= schedule.at_least_seconds
            if enough or (5 <= number < schedule.samples and elapsed >= schedule.at_most_seconds):
                break
            self.progress(f"times, round {number + 1} (at least {self.settings.schedule.samples})")
            place = number % self.job.places
            variations.append(draw_variation(self._random, self.sizes, len(self.inputs), place))
            orders.append(turn_order(names, number))
            handshakes.append(self._of(baselines[0]).ask({"do": "nothing"})[1])
            # In the first round whose outputs are verified, those of the baselines are kept, too.
            for name in orders[-1]:
                keep = number in looked_at and (name == KERNEL or number == min(looked_at))
                self._sample(name, number, variations[-1], keep)
        self.progress("times bursts of calls")
        bursts = self._bursts(baselines[0], usual_delay(handshakes, alone_bursts))
        self._note(self._last(KERNEL))
        settings = self._last(baselines[0])["settings"]
        return Run(
            self.job.device,
            baselines,
            tuple(self._samples),
            bursts,
            tuple(self._kept),
            tuple(variations),
            tuple(orders),
            tuple(self._changes),
            settings,
            tuple(ready["notes"]),
            alone,
            alone_bursts,
            tuple(handshakes),
            tuple(ready["idle"]),
        )

    # ------------------------------------------------------------ both processes

    def _begin(self, side: str) -> dict[str, Any]:
        """Start the process of a side; returns its message when it is warm."""
        self._give_way()
        timer = Timer(self.job, side, self._deadline, self.settings.timeout)
        self._processes[side] = timer
        self.stack.callback(timer.close)
        timer.begin(self.job, self.inputs)
        self._running = side
        return timer.hear()

    def _give_way(self) -> None:
        """Stop the process that runs, with all that it started, so that it takes no time from the
        other one."""
        if self._running:
            self._processes[self._running].signal(signal.SIGSTOP)

    def _of(self, name: str) -> Timer:
        """The process in which `name` is timed, with the other one stopped."""
        side = KERNEL if name == KERNEL else BASELINES
        if side != self._running:
            self._give_way()
            self._processes[side].signal(signal.SIGCONT)
            self._running = side
        return self._processes[side]

    def _last(self, name: str) -> dict[str, Any]:
        process = self._of(name)
        process.tell({"do": "end"})
        return process.hear()

    # ------------------------------------------------------------ samples

    def _sample(self, name: str, number: int, variation: Variation, keep: bool) -> None:
        sample, outputs, answer = self._of(name).sample(name, number, variation, keep)
        self._note(answer)
        self._samples.append(sample)
        if outputs is not None:
            self._kept.append(outputs)

    def _bursts(self, baseline: str, usual: float) -> tuple[Burst, ...]:
        """Bursts of the kernel and one baseline in turn, so that both meet the same conditions.
        `usual`: how many seconds later the parent may notice the end of a burst."""
        found: list[Burst] = []
        names = (baseline, KERNEL)
        for number in range(self.settings.schedule.bursts * _MORE_BURSTS):
            slow = any(burst_ratio(name, self._samples, found) > BURST_RATIO for name in names)
            late = heard_late([burst for burst in found if burst.contender == KERNEL], usual)
            if number >= self.settings.schedule.bursts and not (slow or late):
                break
            found += [self._burst(name, number) for name in turn_order(names, number)]
        return tuple(found)

    def _burst(self, name: str, number: int) -> Burst:
        """Time a burst of as many calls as take `_BURST_SECONDS`, by the median sample so far."""
        own = [sample.seconds for sample in self._samples if sample.contender == name]
        least = max(statistics.median(own), 1e-9)
        calls = min(_BURST_CALLS, max(1, math.ceil(_BURST_SECONDS / least)))
        request = {"contender": name, "place": number % self.job.places, "calls": calls}
        timed, wall = self._of(name).ask({"do": "burst", **request})
        return Burst(name, calls, float(timed["seconds"]), wall)

    def _note(self, answer: Mapping[str, Any]) -> None:
        for change in answer.get("changes", ()):
            self._changes[str(change)] = None
