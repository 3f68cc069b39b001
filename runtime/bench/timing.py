"""Interleaved timing: the same inputs, the same protocol, one process, samples turn about.

Frequency, temperature and neighbours change over seconds; samples that alternate meet the same
weather. The order within a round alternates too, and input sets rotate, so that neither side
inherits warm caches from the other more often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import torch

#: Calls one contender on one input set and returns its outputs.
Call = Callable[[int], list[torch.Tensor]]


@attrs.frozen
class Schedule:
    """How long and how often."""

    samples: int = 31
    warm_up_seconds: float = 0.5
    at_least_seconds: float = 1.0
    at_most_seconds: float = 60.0


class Clock(Protocol):
    """Measures one call, in seconds."""

    def measure(self, call: Callable[[], Any]) -> float: ...


class CpuClock:
    """Wall time of one call, begun when the threads of the call before have gone to sleep.

    torch and the kernel may each bring an OpenMP runtime, whose threads spin for about a
    millisecond after their last work; without a pause each side would start against the other's.
    """

    def __init__(self, pause: float = 0.005) -> None:
        self._pause = pause  # seconds

    def measure(self, call: Callable[[], Any]) -> float:
        time.sleep(self._pause)
        started = time.perf_counter_ns()
        call()
        return (time.perf_counter_ns() - started) * 1e-9


class CudaClock:
    """CUDA events around one call, the L2 flushed before; checked against synchronised wall time.

    The GPU is kept busy for a moment before the first event, so that the time of a short kernel is
    not that of the Python code which launches it.
    """

    def __init__(self, flush_bytes: int = 512 << 20) -> None:
        self._flush = torch.empty(flush_bytes // 4, dtype=torch.int32, device="cuda")

    def measure(self, call: Callable[[], Any]) -> float:
        cuda: Any = torch.cuda  # its functions are not annotated
        begin = cuda.Event(enable_timing=True)
        end = cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        wall = time.perf_counter_ns()
        self._flush.zero_()
        cuda._sleep(2_000_000)  # cycles, about a millisecond
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        elapsed = (time.perf_counter_ns() - wall) * 1e-9
        seconds = float(begin.elapsed_time(end)) * 1e-3
        if seconds > elapsed * 1.01:
            msg = f"CUDA events say {seconds:.3g} s, the wall clock {elapsed:.3g} s"
            raise RuntimeError(msg)
        return seconds


def interleave(
    contenders: Mapping[str, Call], input_sets: int, clock: Clock, protocol: Schedule
) -> tuple[dict[str, list[float]], dict[str, dict[int, list[torch.Tensor]]]]:
    """Samples in seconds by contender, and the outputs of the last timed call on each input set."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    outputs: dict[str, dict[int, list[torch.Tensor]]] = {name: {} for name in contenders}
    names = list(contenders)
    with torch.no_grad():
        for name in names:
            _warm_up(contenders[name], input_sets, protocol.warm_up_seconds)
        started = time.monotonic()
        number = 0
        while _go_on(number, time.monotonic() - started, protocol):
            position = number % input_sets
            for name in names if number % 2 == 0 else reversed(names):
                kept: list[list[torch.Tensor]] = []
                seconds = clock.measure(_keeping(contenders[name], position, kept))
                samples[name].append(seconds)
                outputs[name][position] = kept[0]
            number += 1
    return samples, outputs


def _keeping(call: Call, position: int, kept: list[list[torch.Tensor]]) -> Callable[[], None]:
    def run() -> None:
        kept.append(call(position))

    return run


def _warm_up(call: Call, input_sets: int, seconds: float) -> None:
    started = time.monotonic()
    number = 0
    while number < input_sets or time.monotonic() - started < seconds:
        call(number % input_sets)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        number += 1


def _go_on(number: int, elapsed: float, protocol: Schedule) -> bool:
    if number < protocol.samples:
        return elapsed < protocol.at_most_seconds or number < 5
    return elapsed < protocol.at_least_seconds


def as_sequence(outputs: Any) -> Sequence[torch.Tensor]:
    """A wrapper's result as a sequence of tensors."""
    return outputs if isinstance(outputs, tuple | list) else [outputs]
