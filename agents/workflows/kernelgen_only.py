"""Designer, then Coder, and out: nothing is compiled, run or compared with generated code.

The sketch itself still has to check, and to mean what the task means, before it is coded.
"""

from __future__ import annotations

DESCRIPTION = "Designer -> Coder, no verification"
START = "designer"

#: (agent, outcome, next agent or end)
EDGES: tuple[tuple[str, str, str], ...] = (
    ("designer", "designed", "coder"),
    ("designer", "gave_up", "end:failed"),
    ("coder", "coded", "end:generated"),
    ("coder", "refused", "end:failed"),
    ("coder", "gave_up", "end:failed"),
)
