"""Text as a page may show it: harmless, bounded, nothing hidden; numbers with few digits.

The templates escape HTML. Here, terminal sequences (colours) are removed, and characters that are
invisible, or that change the order in which others are shown, are replaced by visible ones. Takes
any text, returns text that UTF-8 can encode.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

#: Characters that a page shows of one log or reply; the middle of a longer one is left out.
LONGEST = 60_000
#: Characters that a page shows of one line: longer lines make a browser slow.
LONGEST_LINE = 4_000

#: Terminal sequences: colours and cursor (CSI), titles and links (OSC), single ones.
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|\x1b"
)
#: Characters that reorder text, join words, or have no width.
_INVISIBLE = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
_INVISIBLE += "\u2060\u2066\u2067\u2068\u2069\ufeff"


def _written_out() -> dict[int, str]:
    """The replacements of characters that are not shown as they are, by code point."""
    found: dict[int, str] = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
    found[0x7F] = "\u2421"
    found |= dict.fromkeys(range(0x80, 0xA0), "\ufffd")
    found |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # halves of surrogate pairs
    found |= {ord(character): f"\\u{ord(character):04x}" for character in _INVISIBLE}
    return found


_TABLE = _written_out()


def sanitised(text: object, longest: int = LONGEST) -> str:
    """`text` made harmless, and at most about `longest` characters long: of a longer text, the
    first two thirds and the last third, with a line between them on how much is left out."""
    shown = str(text).replace("\r\n", "\n")
    if len(shown) > longest:
        head, tail = longest * 2 // 3, longest // 3
        left_out = len(shown) - head - tail
        shown = f"{shown[:head]}\n\u2026 {left_out:,} characters left out \u2026\n{shown[-tail:]}"
    shown = _TERMINAL.sub("", shown).translate(_TABLE)
    if len(shown) <= LONGEST_LINE:
        return shown
    return "\n".join(_shortened(line) for line in shown.split("\n"))


def sanitised_line(text: object, longest: int = 400) -> str:
    """`text` cleaned, in one line of at most `longest` characters, for names, reasons and cells."""
    shown = " ".join(sanitised(str(text)[: 4 * longest], 4 * longest).split())
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}\u2026"


def _shortened(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    left_out = len(line) - LONGEST_LINE
    return f"{line[:LONGEST_LINE]} \u2026 {left_out:,} characters of this line left out"


_RATES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def short(value: float | int | None, digits: int = 3) -> str:
    """An integer with separators, any other number with few digits; "" for None."""
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
    """A time in seconds as text with a fitting unit; "" for None."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{short(value)} s"
    if value >= 120:
        return f"{value / 60:.1f} min"
    unit, scale = unit_of(value)
    return f"{significant(value / scale, digits)} {unit}"


def unit_of(value: float, units: Sequence[tuple[str, float]] = _TIMES) -> tuple[str, float]:
    """The first of `units` (name, size) that is at most `value`, else the last; by default, units
    of time."""
    return next((unit for unit in units if abs(value) >= unit[1]), units[-1])


def rate(value: float | None, unit: str, digits: int = 3) -> str:
    """A rate or an amount with a prefix, as 22.8 GB/s; "" for None and numbers not finite."""
    if value is None or not math.isfinite(value):
        return ""
    prefix, scale = unit_of(value, _RATES)
    return f"{significant(value / scale, digits)} {prefix}{unit}"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, never with an exponent: 1234, 12.3, 0.0123."""
    if value == 0 or not math.isfinite(value):
        return short(value)
    behind = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{behind}f}"


def times(value: float | None) -> str:
    """A speedup, as 1.25×."""
    return "" if value is None else f"{significant(value)}×"


def share(value: float | None) -> str:
    """A share as a percentage, as 26 %; with two digits below 1 %."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{100 * value:.2g} %" if 0 < value < 0.01 else f"{100 * value:.0f} %"


def power(value: float) -> str:
    """The label of a tick of a logarithmic axis: 0.01, 1, 100, 10⁶."""
    exponent = round(math.log10(value))
    if -3 <= exponent <= 3:
        return f"{10.0**exponent:g}"
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}"
