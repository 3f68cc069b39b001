"""The state of a run as frozen, JSON-able data: what one agent leaves for the next, and what a
checkpoint holds. `--resume` starts from the last one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.base.json_form import from_plain, to_plain

if TYPE_CHECKING:
    from sketchc.agents.config.settings import Configuration
    from sketchc.agents.llm.messages import LanguageModel
    from sketchc.runtime.tasks.description import TaskDescription
    from sketchc.runtime.tasks.task import Task


@attrs.frozen
class KernelText:
    """A kernel's source. `entry` is the wrapper's or C function's name; `origin` is "builtin",
    "llm" or "given"."""

    source: str
    entry: str
    language: str  # "python" or "c++"
    origin: str


@attrs.frozen
class Migration:
    """A kernel that is brought to another target: the `file` as the user named it, its own
    `target`, and its `text`. `sketch` says where its sketch is found, `task` where the task is; ""
    for a kernel that is compared with what it computes itself, for there is no task. `signature` is
    the file of the sketch that says what it is called with, "" for none."""

    file: str
    target: str
    text: str
    sketch: str
    task: str = ""
    signature: str = ""

    @property
    def alone(self) -> bool:
        """Whether the kernel itself is the only task there is."""
        return not self.task


def migration_of(data: Migration | Mapping[str, str] | None) -> Migration | None:
    """The migration that run.json holds as data."""
    return Migration(**data) if isinstance(data, Mapping) else data


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


Scalar = int | float | bool


class Progress(Protocol):
    """A listener to a run, such as the live display of `sketchc gen`."""

    def note(self, agent: str, text: str) -> None:
        """One line on what an agent is doing now."""


@attrs.define
class RunContext:
    """Shared by the agents of one run; nothing in it changes while the run goes on.

    `seed` makes every drawn input of the run; `folder` takes builds and attempts; `model` is None
    only in runs that no model takes part in.
    """

    task: Task
    description: TaskDescription
    task_source: str  # the text of the task's file
    target: str
    hardware: str
    constants: Mapping[str, Scalar]
    coder: str  # "builtin" or "llm"
    model: LanguageModel | None
    configuration: Configuration
    seed: int
    folder: Path
    progress: Progress
    max_attempts: int
    max_repairs: int
    #: The agents that take part in the workflow: without a "designer", nothing can be sent to one.
    agents: frozenset[str] = frozenset({"designer", "coder", "verifier", "conductor"})
    #: Ablation (paper, section 3.2.4): every failure goes to the Coder.
    everything_to_coder: bool = False
    #: Measure a kernel that passed, where the target runs at its own speed.
    bench: bool = True
    #: The sketch that is meant, where a given text holds several.
    picked: str = ""
    #: The kernel that is migrated to the target, where one is.
    migration: Migration | None = None

    @property
    def name(self) -> str:
        """The name, without folder and suffix, of the task's file, or of the kernel's that is
        migrated: prompts never hold a path."""
        migrated = self.migration
        return self.task.path.stem if migrated is None else Path(migrated.file).stem


class Agent(Protocol):
    """An agent of a workflow; `sketchc.agents.workflows.AGENTS` names the class of each."""

    def run(self, state: RunState, context: RunContext) -> Turn:
        """One turn. Raises `LlmError` when the model cannot be reached (the run stops and can be
        resumed), `UsageError` when the task itself is broken."""


#: Raised by one with every change that an older reader would misread.
VERSION = 1
#: What every checkpoint has held.
_ALWAYS = ("node", "kernel", "feedback", "history")


def dump_state(state: RunState) -> dict[str, Any]:
    """The state as JSON data, with the version of this format."""
    plain: dict[str, Any] = to_plain(attrs.asdict(state, recurse=True))
    return {"version": VERSION, **plain}


def load_state(data: Mapping[str, Any]) -> RunState:
    """The state that `dump_state` wrote. Raises `UsageError` for anything else."""
    if not isinstance(data, Mapping) or data.get("version") != VERSION:
        found = data.get("version") if isinstance(data, Mapping) else None
        refuse(f"the checkpoint is of format {found!r}; this version of sketchc reads {VERSION}")
    try:
        # A field that is newer than the checkpoint has its default.
        older = {k: v for k, v in attrs.asdict(RunState("")).items() if k not in _ALWAYS}
        if unknown := data.keys() - {*older, *_ALWAYS, "version"}:
            raise TypeError(*sorted(unknown))
        return from_plain(RunState, {**older, **data}, strict=True)
    except (KeyError, TypeError) as error:
        refuse(f"the checkpoint does not hold the state of a run: {error}", error)
