"""Clocks: how one call is timed, and what is done between calls. Used by the process that times.

The clock functions are captured when this module is loaded, before any candidate is: a candidate
that replaces `time.perf_counter_ns` changes nothing here, and the guards detect the replacement.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from sketchc.runtime.bench.schedule import Turn
from sketchc.runtime.guards.placement import raw_bytes
from sketchc.runtime.tasks.worker.task_file import flat

_now = time.perf_counter_ns
_sleep = time.sleep
_cpu_time = time.process_time_ns
#: Threads of the previous call keep spinning for a while (libgomp's for 5 ms on one CPU, 17 on
#: another), and would slow the next call down. So before a sample this process is watched, for
#: `_WATCH` seconds at a time and `_WATCHES` times at most, until it takes less than a share of
#: `_IDLE` of a CPU.
_WATCH = 0.002
_WATCHES = 50
_IDLE = 0.2
#: Cycles of a GPU, about 50 ms: any wrapper has launched its kernels by then.
_LONG = 100_000_000


@attrs.frozen
class Timed:
    """One timed call: its seconds; `late`, the seconds for which the device still worked after the
    call's stream had finished; and `copying`, the seconds of copying the outputs."""

    seconds: float
    late: float = 0.0
    copying: float = 0.0


def _nothing() -> None:
    pass


class Clock(ABC):
    """Times calls on one device."""

    def __init__(self, flush_bytes: int = 0, device: str = "cpu") -> None:
        self._flush = torch.zeros(flush_bytes // 4, dtype=torch.int32, device=device)

    def flush(self) -> None:
        """Evict everything else from the caches, by updating a buffer of `flush_bytes`."""
        self._flush.add_(1)

    @abstractmethod
    def rest(self) -> None:
        """Wait until earlier calls no longer use the device."""

    def measure(self, call: Callable[[], Any]) -> Timed:
        """Time one call, after a `rest`."""
        self.rest()
        return self.measure_now(call)

    @abstractmethod
    def measure_now(self, call: Callable[[], Any], copy: Callable[[], Any] = _nothing) -> Timed:
        """Time one call at once; then `copy` is called, which copies the call's outputs before
        anything else can be done to them."""

    @abstractmethod
    def burst(self, call: Callable[[], Any], calls: int) -> float:
        """The seconds of `calls` calls in all, one after the other, without rest."""

    def astray(self, call: Callable[[], Sequence[torch.Tensor]]) -> bool:
        """Whether a call does its work where this clock does not measure, as on another stream.
        False here: on a CPU, work that goes on after the return shows in the outputs."""
        return False


class CpuClock(Clock):
    """Wall time of one call, begun when the threads of the previous call have gone to sleep."""

    def rest(self) -> None:
        """Wait until the threads of this process sleep."""
        for _ in range(_WATCHES):
            started, used = _now(), _cpu_time()
            _sleep(_WATCH)
            if _cpu_time() - used < _IDLE * (_now() - started):
                return

    def measure_now(self, call: Callable[[], Any], copy: Callable[[], Any] = _nothing) -> Timed:
        """Time one call by the wall clock, then copy its outputs."""
        started = _now()
        call()
        ended = _now()
        copy()
        return Timed((ended - started) * 1e-9, 0.0, (_now() - ended) * 1e-9)

    def burst(self, call: Callable[[], Any], calls: int) -> float:
        """Time `calls` calls by the wall clock, each by itself."""
        total = 0
        for _ in range(calls):
            started = _now()
            call()
            total += _now() - started
        return total * 1e-9


class CudaClock(Clock):
    """CUDA events around one call; the time for which other streams still work is kept separately.

    The GPU is kept busy for a moment before the first event, so that the time of a short kernel
    does not include that of the Python code which launches it.
    """

    def __init__(self, flush_bytes: int = 0) -> None:
        super().__init__(flush_bytes, "cuda")
        self._cuda: Any = torch.cuda  # its functions are not annotated
        self._event = self._cuda.Event
        self._synchronize = torch.cuda.synchronize
        self._busy = self._cuda._sleep
        self._other = self._cuda.Stream()

    def rest(self) -> None:
        """Wait for the device."""
        self._synchronize()

    def measure_now(self, call: Callable[[], Any], copy: Callable[[], Any] = _nothing) -> Timed:
        """Time one call by events on the current stream, then copy its outputs. Raises
        `RuntimeError` where the events say more than the wall clock."""
        begin, end = self._event(enable_timing=True), self._event(enable_timing=True)
        self._synchronize()
        wall = _now()
        self._busy(2_000_000)  # cycles, about a millisecond
        begin.record()
        call()
        end.record()
        copy()  # on the same stream: unfinished results of other streams are not in the copy
        end.synchronize()
        ready = _now()
        self._synchronize()
        done = _now()
        seconds = float(begin.elapsed_time(end)) * 1e-3
        if seconds > (done - wall) * 1e-9 * 1.01:
            msg = f"CUDA events say {seconds:.3g} s, the wall clock {(done - wall) * 1e-9:.3g} s"
            raise RuntimeError(msg)
        return Timed(seconds, (done - ready) * 1e-9)

    def burst(self, call: Callable[[], Any], calls: int) -> float:
        """Time `calls` calls by two events around all of them."""
        begin, end = self._event(enable_timing=True), self._event(enable_timing=True)
        self._synchronize()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        self._synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def astray(self, call: Callable[[], Sequence[torch.Tensor]]) -> bool:
        """Whether the outputs are complete while the timed stream has not begun: then the work was
        done on another stream. (A call that waits for the timed stream itself is not detected.)"""
        begun = self._event()
        self._synchronize()
        self._busy(_LONG)
        begun.record()
        outputs = call()
        with self._cuda.stream(self._other):
            early = [output.detach().clone() for output in outputs]
        self._other.synchronize()
        waited = begun.query()
        self._synchronize()
        same = [
            raw_bytes(one).equal(raw_bytes(other))
            for one, other in zip(early, outputs, strict=True)
        ]
        return bool(same) and not waited and all(same)


def as_sequence(outputs: Any) -> Sequence[torch.Tensor]:
    """A wrapper's result as a sequence of tensors."""
    return list(flat(outputs))  # type: ignore[arg-type]


def write_varied(base: torch.Tensor, turn: Turn, target: torch.Tensor) -> None:
    """Write `base`, varied by `turn`, over `target`, with the values of `schedule.varied`; both are
    contiguous and of one type."""
    source, sink = base.reshape(-1), target.reshape(-1)
    split = source.numel() - turn.offset
    for part, place in (
        (source[split:], sink[: turn.offset]),
        (source[:split], sink[turn.offset :]),
    ):
        if turn.factor == 1.0:
            place.copy_(part)
        else:
            torch.mul(part, turn.factor, out=place)
