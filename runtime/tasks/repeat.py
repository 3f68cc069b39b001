"""Whether a task gives the same outputs twice: how two runs are made to differ, and compared.

For a task's own process, also where sketchc is not installed: it needs NumPy alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

#: Two runs may differ by so much of the output's largest value (8 units in the last place of f32):
#: threads may add in another order each time.
RELATIVE = 8 * 2.0**-23
#: And by so much anyhow, for outputs that are nothing but rounding errors (runs are in float64).
ABSOLUTE = 1e-12
#: How far clocks are ahead in the second run, in seconds: another day of the week.
_LATER = 3 * 86_400.0 + 4_321.0
NOT_DETERMINISTIC = (
    "the task is not deterministic: {why}; a kernel can be judged only against a task that gives "
    "the same outputs on the same inputs"
)
ONLY_NAN = (
    "the task is broken: every element of its outputs is NaN on its own inputs; a kernel can be "
    "judged only against a task that gives numbers"
)
_SECONDS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")

Arrays = Sequence["np.ndarray[Any, Any]"]


@contextmanager
def later() -> Iterator[None]:
    """Within, the clocks of module `time` are ahead: an output that follows the time shows."""
    kept = {name: getattr(time, name) for name in (*_SECONDS, *(f"{n}_ns" for n in _SECONDS))}

    def ahead(clock: Any, by: float) -> Any:
        return lambda: clock() + by

    for name, clock in kept.items():
        setattr(time, name, ahead(clock, int(_LATER * 1e9) if name.endswith("_ns") else _LATER))
    try:
        yield
    finally:
        for name, clock in kept.items():
            setattr(time, name, clock)


def difference(first: Arrays, second: Arrays) -> str:
    """Where two runs differ, with both values; "" where they agree but for rounding."""
    if len(first) != len(second):
        return f"{len(first)} outputs and then {len(second)}"
    for position, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            forms = [f"{a.dtype.name}{list(a.shape)}" for a in (one, other)]
            return f"output {position} is {forms[0]} and then {forms[1]}"
        wrong = ~alike(one, other)
        if wrong.any():
            index = tuple(int(place[0]) for place in np.nonzero(np.atleast_1d(wrong)))
            index = index if one.ndim else ()
            values = [array[index].item() for array in (one, other)]
            shown = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
            return f"output {position}, element {list(index)}: {shown[0]} and then {shown[1]}"
    return ""


def only_nan(outputs: Arrays) -> bool:
    """Whether no output holds a number."""
    return bool(outputs) and all(
        array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(array).all())
        for array in outputs
    )


def alike(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Any:
    """Which elements agree: equal, both NaN, or as near as additions in another order come."""
    if one.dtype.kind in "iub":
        return np.asarray(one == other)
    one, other = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.abs(one[np.isfinite(one)])
        tolerance = ABSOLUTE + RELATIVE * (float(finite.max()) if finite.size else 0.0)
        both_nan = np.isnan(one) & np.isnan(other)
        return np.asarray((one == other) | both_nan | (np.abs(one - other) <= tolerance))
