"""Numbers for people: few digits, fitting units."""

from __future__ import annotations

import math

_RATES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def short(value: float | int | None, digits: int = 3) -> str:
    """An integer with separators, a fraction with a few digits; "" for nothing."""
    match value:
        case None:
            return ""
        case int():
            return f"{value:,}"
        case _ if math.isinf(value):
            return "∞" if value > 0 else "-∞"
        case _ if math.isnan(value):
            return "NaN"
        case _ if value == int(value) and abs(value) < 1e6:
            return f"{int(value):,}"
        case _:
            return f"{value:.{digits}g}"


def seconds(value: float | None, digits: int = 3) -> str:
    """A time with a fitting unit."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{short(value)} s"
    if value >= 120:
        return f"{value / 60:.1f} min"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale:
            return f"{significant(value / scale, digits)} {unit}"
    return f"{significant(value / 1e-9, digits)} ns"


def rate(value: float | None, unit: str, digits: int = 3) -> str:
    """A rate or an amount, as 22.8 GB/s."""
    if value is None or not math.isfinite(value):
        return ""
    for prefix, scale in _RATES:
        if abs(value) >= scale:
            return f"{significant(value / scale, digits)} {prefix}{unit}"
    return f"{significant(value, digits)} {unit}"


def significant(value: float, digits: int = 3) -> str:
    """Digits that count, never in powers of ten: 1234, 12.3, 0.0123."""
    if value == 0 or not math.isfinite(value):
        return short(value)
    behind = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{behind}f}"


def times(value: float | None) -> str:
    """A speedup, as 1.25×."""
    return "" if value is None else f"{significant(value)}×"


def share(value: float | None) -> str:
    """A share, as 26 %; of a small one two digits."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{100 * value:.2g} %" if 0 < value < 0.01 else f"{100 * value:.0f} %"


def power(value: float) -> str:
    """A tick of a logarithmic axis: 0.01, 1, 100, 10⁶."""
    exponent = round(math.log10(value))
    if -3 <= exponent <= 3:
        return f"{10.0**exponent:g}"
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}"
