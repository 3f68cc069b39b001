"""What all agents of one run share: the task, the target, the model, the settings, a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from sketchc.agents.config.settings import Configuration
    from sketchc.agents.llm.messages import LanguageModel
    from sketchc.agents.state.state import RunState, Turn
    from sketchc.runtime.tasks.client import WorkerTask
    from sketchc.runtime.tasks.description import TaskDescription

Scalar = int | float | bool


class Progress(Protocol):
    """Who listens to a run: the live display of `sketchc gen`, or nobody."""

    def note(self, agent: str, text: str) -> None:
        """One line on what an agent is doing now."""


@attrs.define
class Session:
    """Shared by the agents of one run; nothing in it changes while the run goes on.

    `seed` makes every drawn input of the run; `folder` takes builds and attempts; `model` is None
    only in runs that no model takes part in.
    """

    task: WorkerTask
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

    @property
    def name(self) -> str:
        """The task's file name without folder and suffix: prompts never hold a path."""
        return self.task.path.stem


class Agent(Protocol):
    """One of the four. `sketchc.agents.{designer,coder,verifier,conductor}` hold one each."""

    def run(self, state: RunState, session: Session) -> Turn:
        """One turn. Raises `LlmError` when the model cannot be reached (the run stops and can be
        resumed), `UsageError` when the task itself is broken."""
