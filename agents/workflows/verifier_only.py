"""An existing kernel against its task: one verdict, nobody mends anything."""

from __future__ import annotations

DESCRIPTION = "Verifier on an existing kernel"
START = "verifier"

#: (agent, outcome, next agent or end)
EDGES: tuple[tuple[str, str, str], ...] = (
    ("verifier", "passed", "end:passed"),
    ("verifier", "failed", "end:rejected"),
    ("verifier", "incomplete", "end:incomplete"),
)
