"""What the agents of a run did, as a page shows it: their steps, and the calls of a model in them.

Apart from verdicts and measurements, so that telling it takes neither NumPy nor torch.
"""

from __future__ import annotations

from typing import Any

import attrs

#: How something ended, also the name of its colour: right, wrong, left out, neither.
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
    """One visit to one agent: the `step` as it stands in the trace, and the `details` there
    (`agents.run.record`). `evidence` are facts on its failure, `tried` what it tried inside."""

    step: Any
    details: Any
    state: str
    evidence: tuple[tuple[str, str], ...]
    log: str
    tried: tuple[str, ...]
    made: tuple[Call, ...]


@attrs.frozen
class Trace:
    """What the agents did. `loose` are calls of a step that did not end."""

    steps: tuple[Visit, ...]
    totals: tuple[tuple[str, str], ...]
    loose: tuple[Call, ...] = ()
    note: str = ""
