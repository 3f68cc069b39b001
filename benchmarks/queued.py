"""How long a call takes on a GPU as if many were queued: for benchmarks that need torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Cycles of the device's clock, some 3 ms, in which the host makes the calls.
CYCLES = 5_000_000


def milliseconds(call: Callable[[], Any], calls: int) -> float:
    """Of one of `calls` calls that are queued one behind the other, behind a kernel that waits
    until all are made: the host's time before the first of them would count else."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(CYCLES)
    first.record()
    for _ in range(calls):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / calls
