"""The state of a run as frozen, JSON-able data: what one agent leaves for the next, and what a
checkpoint holds. `--resume` starts from the last one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class KernelText:
    """A kernel's source. `entry` is the wrapper's or C function's name; `origin` is "builtin",
    "llm" or "given"."""

    source: str
    entry: str
    language: str  # "python" or "c++"
    origin: str


@attrs.frozen
class Feedback:
    """What an agent is told when work comes back to it.

    `failure` is a class of docs/VERIFICATION.md ("numerical", ...), `reason` one sentence,
    `evidence` JSON data (diagnostics, the shape case, the first wrong element, a log excerpt), and
    `suggestion` what the Conductor advises ("" for nothing).
    """

    failure: str
    reason: str
    evidence: Mapping[str, Any] = attrs.field(factory=dict)
    suggestion: str = ""


@attrs.frozen
class Step:
    """One visit to one agent. `outcome` labels the edge that was taken; `failure` is set where the
    step ended in one. Tokens and cost are those of the step's own calls."""

    number: int
    agent: str
    attempt: int
    outcome: str
    reason: str
    failure: str = ""
    seconds: float = 0.0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    details: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class RunState:
    """Everything a run knows between two steps.

    `node` is the agent whose turn it is ("" when the run is over); `attempt` counts candidates that
    the Verifier has seen or the Designer has given up on, from 1; `sketch` is the text as the
    Designer wrote it; `verdict` is `runtime.verify.verdict.to_json`; `outcome` is "" while running,
    then "passed", "generated" (no verification asked for), "exhausted", "failed", "rejected" or
    "incomplete".
    `disputed`: a model said of this verdict that nothing is wrong ("asked": the evidence is to be
    taken again; "taken": it was, and a model may not say so again); "" for any other verdict.
    """

    node: str
    attempt: int = 1
    sketch: str = ""
    kernel: KernelText | None = None
    feedback: Feedback | None = None
    verdict: Mapping[str, Any] | None = None
    measurement: Mapping[str, Any] | None = None
    history: tuple[Step, ...] = ()
    outcome: str = ""
    reason: str = ""
    disputed: str = ""


@attrs.frozen
class Turn:
    """What an agent returns: the state it leaves (history and node are the engine's to fill), the
    label of the edge to take, one sentence why, and data for the trace."""

    state: RunState
    outcome: str
    reason: str
    failure: str = ""
    details: Mapping[str, Any] = attrs.field(factory=dict)
