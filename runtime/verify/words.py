"""Words for results, apart from verdicts, so that saying them takes no NumPy."""

from __future__ import annotations

from collections.abc import Mapping

#: What a verdict may be, and what one of its cases may be.
PASSED, FAILED, INCOMPLETE, SKIPPED = "passed", "failed", "incomplete", "skipped"
#: The verdict on a kernel that nobody can build: as incomplete, no pass.
UNBUILT = "generated, not built"


def sizes_text(symbols: Mapping[str, object]) -> str:
    """`M=3, N=31`; "" without symbols."""
    return ", ".join(f"{name}={value}" for name, value in symbols.items())
