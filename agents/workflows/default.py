"""Designer, Coder and Verifier in a loop, with the Conductor in charge (paper, section 3.1)."""

from __future__ import annotations

DESCRIPTION = "Designer -> Coder <-> Verifier, the Conductor decides who mends what"
START = "designer"

#: (agent, outcome, next agent or end)
EDGES: tuple[tuple[str, str, str], ...] = (
    ("designer", "designed", "coder"),
    ("designer", "gave_up", "conductor"),
    ("coder", "coded", "verifier"),
    ("coder", "refused", "conductor"),
    ("coder", "gave_up", "conductor"),
    ("verifier", "passed", "conductor"),
    ("verifier", "failed", "conductor"),
    ("verifier", "incomplete", "end:incomplete"),
    ("conductor", "to_designer", "designer"),
    ("conductor", "to_coder", "coder"),
    ("conductor", "retry_verifier", "verifier"),
    ("conductor", "finish", "end:passed"),
    ("conductor", "exhausted", "end:exhausted"),
    ("conductor", "fail", "end:failed"),
)
