"""What a verdict may be, in a word; apart from verdicts, so that saying it takes no NumPy."""

from __future__ import annotations

PASSED, FAILED, INCOMPLETE = "passed", "failed", "incomplete"
