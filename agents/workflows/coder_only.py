"""No Designer: a given sketch, or none at all, and a Coder that is sent back until it is right."""

from __future__ import annotations

DESCRIPTION = "Coder <-> Verifier on a given sketch, or straight from the task"
START = "coder"

#: (agent, outcome, next agent or end)
EDGES: tuple[tuple[str, str, str], ...] = (
    ("coder", "coded", "verifier"),
    ("coder", "refused", "conductor"),
    ("coder", "gave_up", "conductor"),
    ("verifier", "passed", "conductor"),
    ("verifier", "failed", "conductor"),
    ("verifier", "incomplete", "end:incomplete"),
    ("conductor", "to_coder", "coder"),
    ("conductor", "retry_verifier", "verifier"),
    ("conductor", "finish", "end:passed"),
    ("conductor", "exhausted", "end:exhausted"),
    ("conductor", "fail", "end:failed"),
)
