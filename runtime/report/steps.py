"""The agents' work in a run, as a page shows it: their steps, and the calls of a model in them.

Separate from verdicts and measurements, so that this module needs neither NumPy nor torch.
"""

from __future__ import annotations

from typing import Any

import attrs

#: The state of what has neither passed nor failed; also the name of its colour.
OPEN = "open"


@attrs.frozen
class Message:
    """One message of a prompt."""

    role: str
    text: str


@attrs.frozen
class Call:
    """One call of a language model. `left_out` says that its texts are not in the page."""

    number: int
    purpose: str
    level: str
    provider: str
    model: str
    started: str
    outcome: str
    failed: bool
    tokens: str
    cost: str
    seconds: float
    messages: tuple[Message, ...] = ()
    reply: str = ""
    left_out: bool = False


@attrs.frozen
class Visit:
    """One step of one agent: the `step` and its `details` as recorded in the trace
    (`agents.run.record`). `evidence` are facts on its failure, `tried` its attempts within the
    step, `made` its calls of a model."""

    step: Any
    details: Any
    state: str
    evidence: tuple[tuple[str, str], ...]
    log: str
    tried: tuple[str, ...]
    made: tuple[Call, ...]


@attrs.frozen
class Trace:
    """The agents' steps in a run. `loose` are calls of a step that did not end."""

    steps: tuple[Visit, ...]
    totals: tuple[tuple[str, str], ...]
    loose: tuple[Call, ...] = ()
    note: str = ""
