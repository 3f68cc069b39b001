"""One run of `sketchc gen`: its folder, its options on disk, start, resume, stop.

    DIR/run/run.json      what was asked for: written once, compared on --resume
    DIR/run/state.json    the last checkpoint: replaced as a whole after each step
    DIR/run/ledger.jsonl  every call to the model, synced before anybody acts on it
    DIR/run/lock          held while a process works on the run

The outputs are written beside `run/` when the run ends or stops.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import attrs

from sketchc.agents.llm.client import Client, Spend, spent_on
from sketchc.agents.state.state import (
    KernelText,
    Migration,
    Progress,
    RunContext,
    RunState,
    Scalar,
    Step,
    Turn,
    dump_state,
    load_state,
    migration_of,
)
from sketchc.agents.workflows import AGENTS, Workflow, load_workflow
from sketchc.base.diagnostics import InternalError, UsageError, refuse, refusing
from sketchc.base.files import replace_file, written_for
from sketchc.lowering.registry import load_target
from sketchc.runtime.verify.seed import fresh_seed

if TYPE_CHECKING:
    from sketchc.agents.config.settings import Configuration
    from sketchc.agents.llm.ledger import Header, Ledger, Record
    from sketchc.agents.state.state import Agent
    from sketchc.runtime.tasks.task import Task


def load_agent(name: str) -> Agent:
    """A fresh agent of that name."""
    module, _, attribute = AGENTS[name].partition(":")
    agent: Agent = getattr(importlib.import_module(module), attribute)()
    return agent


def _step(state: RunState, turn: Turn, used: Sequence[Record], started: float) -> Step:
    """The record of one turn, with what its calls used."""
    spent = spent_on(used)
    return Step(
        number=len(state.history) + 1,
        agent=state.node,
        attempt=state.attempt,
        outcome=turn.outcome,
        reason=turn.reason,
        failure=turn.failure,
        seconds=round(time.monotonic() - started, 3),
        calls=sum(record.reply is not None for record in used),
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost=spent.cost,
        details=turn.details,
    )


def _take(workflow: Workflow, before: RunState, turn: Turn, step: Step) -> RunState:
    """The state after a turn: the edge taken, the step recorded."""
    try:
        target = workflow.follow(before.node, turn.outcome)
    except KeyError:
        msg = f"workflow {workflow.name} has no edge for {before.node}: {turn.outcome}"
        raise InternalError(msg) from None
    ended = target.startswith("end:")
    return attrs.evolve(
        turn.state,
        node="" if ended else target,
        history=(*before.history, step),
        outcome=target.removeprefix("end:") if ended else "",
        reason=turn.reason if ended else "",
    )


VERSION = 1

#: What a process that was killed early leaves in `run/` before there is a run.
_BEFORE_A_RUN = ("lock", "run.json", "ledger.jsonl")

#: `RunResult.stopped` after Ctrl-C or SIGTERM.
INTERRUPTED = "interrupted"


@attrs.frozen
class RunOptions:
    """What a run's prompts and verdicts depend on; kept in run.json.

    `task` is the file's name, `task_digest` the SHA-256 of its text; `sketch` and `kernel` are the
    texts of files given on the command line, "" without; `picked` names one of several sketches of
    that text. `migration` is the kernel that is migrated, which is the `task`, too, where there is
    no other.
    """

    task: str
    task_digest: str
    target: str
    hardware: str
    workflow: str
    coder: str
    seed: int
    constants: Mapping[str, Scalar] = attrs.field(factory=dict)
    sketch: str = ""
    kernel: str = ""
    entry: str = ""
    max_attempts: int = 5
    max_repairs: int = 4
    everything_to_coder: bool = False
    picked: str = ""
    migration: Migration | None = attrs.field(default=None, converter=migration_of)


@attrs.frozen
class RunResult:
    """How a run ended. `stopped` says why it stopped before an end ("" when it reached one)."""

    state: RunState
    options: RunOptions
    folder: Path
    spend: Spend
    stopped: str
    files: tuple[Path, ...]


class RunFolder:
    """The folder of a run; `lock` it before use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inner = path / "run"

    @property
    def ledger_path(self) -> Path:
        """The ledger of the calls to the model."""
        return self.inner / "ledger.jsonl"

    def exists(self) -> bool:
        """True when a run was started here."""
        return (self.inner / "run.json").exists()

    def foreign_files(self) -> str:
        """Names of files that are not a run's, a few of them; "" for none, or for no folder."""
        try:
            others = [path.name for path in self.path.iterdir() if path != self.inner]
            inside = [path.name for path in self.inner.iterdir()] if self.inner.is_dir() else []
        except (FileNotFoundError, NotADirectoryError):
            return ""
        others += [f"run/{name}" for name in inside if written_for(name) not in _BEFORE_A_RUN]
        return ", ".join(sorted(others)[:3]) + (", ..." if len(others) > 3 else "")

    def paid(self) -> bool:
        """True when the ledger holds a call."""
        from sketchc.agents.llm.ledger import read_ledger

        path = self.ledger_path
        return path.exists() and path.stat().st_size > 0 and bool(read_ledger(path).records)

    def discard(self) -> None:
        """Remove a run that came to nothing, and its folder where nothing else is in it."""
        shutil.rmtree(self.inner, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes out. Raises `UsageError` when one is at work here."""
        return locked(self.inner / "lock", self.path, "run")

    def write_options(self, options: RunOptions) -> None:
        """Write what was asked for to run.json."""
        replace_json(self.inner / "run.json", {"version": VERSION, **attrs.asdict(options)})

    def read_options(self) -> RunOptions:
        """What was asked for. Raises `UsageError` where there is no run of this version."""
        data = read_object(self.inner / "run.json")
        if data is None or data.pop("version", None) != VERSION:
            refuse(f"{self.path} holds no run that this version of sketchc can go on with")
        return RunOptions(**data)

    def write_checkpoint(self, state: RunState, consumed: int) -> None:
        """Replace the checkpoint as a whole: a reader sees the old one or the new one."""
        replace_json(self.inner / "state.json", {"consumed": consumed, "state": dump_state(state)})

    def read_checkpoint(self) -> tuple[RunState, int] | None:
        """The last state and how many records of the ledger belong to it; None before the first."""
        data = read_object(self.inner / "state.json")
        return None if data is None else (load_state(data["state"]), int(data["consumed"]))


@contextmanager
def locked(path: Path, folder: Path, kind: str) -> Iterator[None]:
    """Hold a lock file of the run, or another `kind` of work, in a folder that is made where it is
    missing. Raises `UsageError` where that fails, and when another process is at work there."""
    file: IO[str]
    with refusing(f"cannot write to {folder}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            refuse(f"another process is working on the {kind} in {folder}", error)
        yield


def replace_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a file as a whole: a reader sees the old one or the new one."""
    replace_file(path, json.dumps(data, indent=1), durable=True)


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object of a file; None where there is no file. Raises `UsageError`."""
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        refuse(f"cannot read {path}: {error}", error)
    return data


def digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def require_own_folder(folder: RunFolder) -> None:
    """Raises `UsageError` for a new run in a folder that holds other files."""
    if not folder.exists() and (foreign := folder.foreign_files()):
        refuse(f"{folder.path} holds other files ({foreign}); give the run a folder of its own: -o")


def settle_options(
    wanted: RunOptions, folder: RunFolder, resume: bool, recorded: Header | None
) -> RunOptions:
    """The options of this run, with a seed, on disk.

    A new run takes the seed of `recorded` (the header that `replay` reads), else a fresh one
    (`seed` < 0 stands for none given). Raises `UsageError` when the folder holds a run already, or,
    with `resume`, holds none or another one.
    """
    if folder.exists():
        if not resume:
            refuse(
                f"{folder.path} holds a run; add --resume to go on with it, or choose another -o"
            )
        stored = folder.read_options()
        wanted = attrs.evolve(wanted, seed=stored.seed if wanted.seed < 0 else wanted.seed)
        _agree(wanted, stored, folder.path)
        return attrs.evolve(
            stored, max_attempts=wanted.max_attempts, max_repairs=wanted.max_repairs
        )
    if resume:
        refuse(f"there is no run to go on with in {folder.path}")
    if wanted.seed < 0:
        seed = recorded.seed if recorded is not None else fresh_seed()
        wanted = attrs.evolve(wanted, seed=seed)
    folder.write_options(wanted)
    return wanted


#: What `--resume` may change: limits only.
_LIMITS = ("max_attempts", "max_repairs")


def _agree(wanted: RunOptions, stored: RunOptions, path: Path) -> None:
    for field in attrs.fields(RunOptions):
        if field.name in _LIMITS:
            continue
        new, old = getattr(wanted, field.name), getattr(stored, field.name)
        if new == old:
            continue
        if field.name in ("task_digest", "sketch", "kernel"):
            what = field.name.removesuffix("_digest")
            msg = f"the {what} file is not the one that the run in {path} was started with"
        elif field.name == "migration":
            msg = f"the run in {path} migrates another kernel, or knows of another task of it"
        else:
            msg = f"the run in {path} has {field.name} = {old!r}, not {new!r}"
        raise UsageError(msg)


def first_state(workflow: Workflow, options: RunOptions) -> RunState:
    """The state before the first step: with the sketch and the kernel that were given."""
    kernel = None
    if options.kernel:
        language = load_target(options.target).language.name
        kernel = KernelText(options.kernel, options.entry, language, "given")
    return RunState(workflow.start, sketch=options.sketch, kernel=kernel)


def reopened(state: RunState, max_attempts: int) -> RunState:
    """The state; where the run is exhausted and its limit was raised, that before the Conductor's
    last decision."""
    if state.outcome != "exhausted" or state.attempt >= max_attempts:
        return state
    history = state.history[:-1]
    return attrs.evolve(state, node="conductor", outcome="", reason="", history=history)


@attrs.frozen
class Run:
    """What a run is made of, opened and ready."""

    options: RunOptions
    folder: RunFolder
    task: Task
    task_source: str
    configuration: Configuration
    client: Client | None
    ledger: Ledger
    progress: Progress
    #: Hears of the state after each step, once it is in the checkpoint.
    on_step: Callable[[RunState, RunContext], None] | None = None


#: The options that are fields of a run's context, too.
_SHARED = (
    *("target", "hardware", "constants", "coder", "seed", "max_attempts", "max_repairs"),
    *("everything_to_coder", "picked", "migration"),
)


def context_of(options: RunOptions, task: Task, **others: Any) -> RunContext:
    """The context of a run with these options; `others` are what they do not say."""
    shared = {name: getattr(options, name) for name in _SHARED}
    agents = load_workflow(options.workflow).agents
    return RunContext(task=task, agents=agents, **shared, **others)


def go(run: Run, bench: bool) -> RunState:
    """Walk the workflow from the last checkpoint, or from the start, to an end.

    Raises `LlmError`, `UsageError` or `KeyboardInterrupt`; the last checkpoint then stands.
    """
    options = run.options
    workflow = load_workflow(options.workflow)
    context = context_of(
        options,
        run.task,
        description=run.task.describe(options.seed % (1 << 31)),
        task_source=run.task_source,
        model=run.client,
        configuration=run.configuration,
        folder=run.folder.inner.resolve(),
        progress=run.progress,
        bench=bench,
    )
    state, consumed = run.folder.read_checkpoint() or (first_state(workflow, options), 0)
    return walk(workflow, reopened(state, options.max_attempts), context, run, consumed)


def walk(
    workflow: Workflow, state: RunState, context: RunContext, run: Run, consumed: int
) -> RunState:
    """Run to an end of the workflow; returns the last state.

    `consumed` counts the records of the ledger that belong to steps done before. Raises what agents
    raise: `LlmError` and `UsageError`; the last checkpoint then stands.
    """
    while state.node:
        loops = "conductor" in context.agents and state.node != "conductor"
        attempt = f"attempt {state.attempt} of {context.max_attempts}"
        context.progress.note(state.node, attempt if loops else "at work")
        started = time.monotonic()
        turn = load_agent(state.node).run(state, context)
        records, before = run.ledger.records, consumed
        consumed = len(records) if run.client is None else run.client.position
        step = _step(state, turn, records[before:consumed], started)
        # As a resumed run would read it: prompts are the same with and without a stop.
        state = load_state(dump_state(_take(workflow, state, turn, step)))
        run.folder.write_checkpoint(state, consumed)
        if run.on_step is not None:
            run.on_step(state, context)
    return state
