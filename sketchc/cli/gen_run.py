"""What `sketchc gen` does once its options are known: folder, model, task, run, outputs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from rich.markup import escape

from sketchc.agents.llm.client import Client, Provider, Spend
from sketchc.agents.llm.ledger import Header, Ledger
from sketchc.agents.llm.messages import LlmError, Request
from sketchc.agents.llm.providers import make_client, make_provider
from sketchc.agents.llm.secret import take_key
from sketchc.agents.run.output import write_outputs
from sketchc.agents.run.run import (
    INTERRUPTED,
    Run,
    RunFolder,
    RunOptions,
    RunResult,
    first_state,
    go,
    require_own_folder,
    settle_options,
)
from sketchc.agents.run.summary import counted, ending
from sketchc.agents.workflows import load_workflow
from sketchc.base.diagnostics import UsageError, refuse
from sketchc.base.json_form import to_plain
from sketchc.cli.consoles import make_console
from sketchc.cli.options import recorder
from sketchc.cli.verify_files import require_running
from sketchc.runtime.store.writing import KernelRow, RunRow, RunStep, digest_of
from sketchc.runtime.toolchains.base import toolchain

if TYPE_CHECKING:
    from rich.progress import Progress

    from sketchc.agents.config.settings import Configuration
    from sketchc.agents.state.state import RunContext, RunState
    from sketchc.runtime.store.recording import Recorder
    from sketchc.runtime.tasks.task import Task

#: Seconds between two updates of the live line while a reply streams in.
_REFRESH = 0.2


class Display:
    """Shows on standard error what agents do (`state.Progress`) and how replies stream in: in a
    terminal with a bar of the steps done, of `steps`, or of an unknown number (0)."""

    def __init__(self, *, quiet: bool, steps: int = 0) -> None:
        self.console = make_console(stderr=True, quiet=quiet, highlight=False)
        self.client: Client | None = None
        self._steps = steps
        self._bar: Progress | None = None
        self._doing = "starting"
        self._updated = 0.0

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            from rich import progress

            columns = (
                *(progress.SpinnerColumn(), progress.TextColumn("{task.description}")),
                *(progress.BarColumn(20), progress.TextColumn("{task.fields[steps]}")),
                progress.TimeElapsedColumn(),
            )
            self._bar = progress.Progress(*columns, console=self.console, transient=True)
            self._bar.add_task(self._doing, total=self._steps or None, steps="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def ended(self, steps: int) -> None:
        """Show that so many steps of the run have ended."""
        if self._bar is not None:
            told = f"{steps} of {self._steps}" if self._steps else f"{steps} steps"
            self._bar.update(self._bar.task_ids[0], completed=steps, steps=told)

    def note(self, agent: str, text: str) -> None:
        """Print `text` of `agent` as a permanent line, and show it on the live line from now on."""
        self._doing = f"{agent}: {text}"
        spent = self._spent()
        self.console.print(f"[bold]{agent:<9}[/bold] {escape(text)}{spent}", soft_wrap=True)
        self._update(self._doing)

    def streamed(self, request: Request, characters: int) -> None:
        """Show on the live line that the reply to `request` has this many `characters` so far."""
        now = time.monotonic()
        if self._bar is None or now - self._updated < _REFRESH:
            return
        self._updated = now
        self._update(f"{self._doing}; {request.purpose} writes, {characters:,} characters")

    def _update(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=escape(text) + self._spent())

    def _spent(self) -> str:
        """The calls, tokens and money spent so far, as text; "" before the first call."""
        if self.client is None or not self.client.spend.calls:
            return ""
        spend = self.client.spend
        tokens = spend.input_tokens + spend.output_tokens
        money = f", {spend.cost:.4f}" if spend.cost else ""
        return f"  [dim]({counted(spend.calls, 'call')}, {tokens:,} tokens{money})[/dim]"


#: The agents that replace the kernel, or the sketch that it is made from.
_MAKERS = ("designer", "autosketch", "coder")


@attrs.define(eq=False)
class RunRecorder:
    """Records one run in the store; its `folder` and `options` are on disk already."""

    recorder: Recorder
    folder: RunFolder
    options: RunOptions
    context: RunContext | None = None

    def step(self, state: RunState, context: RunContext) -> None:
        """Record the run after a step; after one of the Verifier, its results too."""
        self.context = context
        self._run(state, "")
        if state.history[-1].agent == "verifier":
            self._found(state, context)

    def end(self, state: RunState, stopped: str) -> None:
        """Record how the run ended, with the trace in its folder; if this process made a step, also
        the last verdict, which an earlier process that was killed may not have recorded."""
        self._run(state, stopped)
        if self.context is not None and state.verdict is not None:
            self._found(state, self.context)

    def _found(self, state: RunState, context: RunContext) -> None:
        """Record the verdict and measurement in `state`, for the last step of the Verifier; nothing
        where a later step may have replaced the kernel that was verified."""
        steps = [step.number for step in state.history if step.agent == "verifier"]
        verdict, measured = state.verdict, state.measurement
        if verdict is None or not steps or state.kernel is None:
            return
        if any(step.agent in _MAKERS for step in state.history if step.number > steps[-1]):
            return
        place = RunStep(self._identity(), steps[-1])
        kernel = partial(_kernel, state, context)
        self.recorder.claim("verdict", kernel, lambda: verdict, made_in=place)
        if measured is not None and "not_measured" not in measured:
            self.recorder.claim("measurement", kernel, lambda: measured, made_in=place)

    def _run(self, state: RunState, stopped: str) -> None:
        self.recorder.run(lambda: self._row(state, stopped), lambda: self._ledger()[1:])

    def _row(self, state: RunState, stopped: str) -> RunRow:
        asked = self.options
        return RunRow(
            self._identity(),
            asked.target,
            asked.hardware,
            asked.workflow,
            asked.coder,
            asked.seed,
            "stopped" if stopped else state.outcome,
            stopped or state.reason,
            state.attempt,
            str(self.folder.path.resolve()),
            self._ledger()[0],
            self._trace(state),
        )

    def _identity(self) -> str:
        """The run's id, unique and the same after a resume, since run.json is written once."""
        path = self.folder.inner / "run.json"
        made = str(path.stat().st_mtime_ns)
        return digest_of(str(self.folder.path.resolve()), made, path.read_text("utf-8"))[:32]

    def _ledger(self) -> list[dict[str, Any]]:
        lines = self.folder.ledger_path.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines if line]

    def _trace(self, state: RunState) -> Mapping[str, Any]:
        """The folder's trace.json if its steps are those of `state`, else these steps alone."""
        steps = to_plain([attrs.asdict(step) for step in state.history])
        try:
            trace = json.loads((self.folder.path / "trace.json").read_text("utf-8"))
            same = trace["steps"] == steps
        except (OSError, ValueError, KeyError, TypeError):
            same = False
        return trace if same else {"steps": steps}


def _kernel(state: RunState, context: RunContext) -> KernelRow:
    """The store's row of the kernel in `state`, which the Verifier checked."""
    from sketchc.agents.state.candidates import candidate_of
    from sketchc.runtime.store.recording import kernel_row, sketch_text

    assert state.kernel is not None
    candidate = candidate_of(state, context)
    text = state.sketch
    sketch = sketch_text(text, candidate.plan.sketch.name) if text else None
    return kernel_row(candidate, sketch, state.kernel.origin)


DEFAULT_FOLDER = "sketchc-runs"


def generate(
    wanted: RunOptions,
    task_path: Path,
    task_source: str,
    output: Path | None,
    configuration: Configuration,
    *,
    resume: bool,
    bench: bool,
    quiet: bool,
    store: Path | None = None,
    opened: Callable[[], Task] | None = None,
) -> RunResult:
    """Start or resume the run, write its outputs however it ends, and record it in `store`.
    `opened` opens the task where it is not to be loaded from `task_path`.

    Raises `UsageError` for what no run can start with: no model configured, a broken task.
    """
    folder = RunFolder(output or default_folder(wanted, configuration, resume))
    workflow = load_workflow(wanted.workflow)
    if "verifier" in workflow.agents:
        require_running(toolchain(wanted.target), unbuilt=True)  # before anything is paid for
    provider = None
    take_key(configuration.llm.api_key_env)  # kernels under test must not find it here
    if workflow.needs_model(wanted.coder):
        provider = make_provider(configuration.llm, configuration.target(wanted.target))
    recorded: Header | None = getattr(provider, "header", None)
    if recorded is not None:
        _fits_recording(wanted, recorded)
    from sketchc.runtime.tasks.task import load_task

    timeout = configuration.target(wanted.target).verify_timeout
    os.environ |= visible_devices(wanted.target, configuration.target(wanted.target).devices)
    with opened() if opened is not None else load_task(str(task_path), timeout) as task:
        described = task.describe(0)  # a broken task ends here, before a folder holds a run of it
        task.require_deterministic(0)  # else every attempt would fail, and the sketch be blamed
        require_own_folder(folder)
        with folder.lock(), _kept_if_started(folder):
            asked = settle_options(wanted, folder, resume, recorded)
            loops = "conductor" in workflow.agents
            display = Display(quiet=quiet, steps=0 if loops else len(workflow.agents))
            with Ledger(folder.ledger_path) as ledger, display:
                ledger.begin(_header(asked))
                client = _client(provider, ledger, folder, configuration, display)
                kept = _run_recorder(store, task, folder, asked)

                def stepped(state: RunState, context: RunContext) -> None:
                    kept.step(state, context)
                    display.ended(len(state.history))

                run = Run(
                    *(asked, folder, task, task_source, configuration),
                    *(client, ledger, display, stepped),
                )
                state, stopped = _run_to_end(run, bench)
                display.note("end", ending(state, stopped))
            spend = Spend() if client is None else client.spend
            files = write_outputs(folder.path, asked, state, task, spend, stopped, described)
            kept.end(state, stopped)
    return RunResult(state, asked, folder.path, spend, stopped, tuple(files))


def _run_recorder(
    store: Path | None, task: Task, folder: RunFolder, asked: RunOptions
) -> RunRecorder:
    """What keeps a run in the store."""
    keeper = recorder(store, task)
    if asked.migration is not None and asked.migration.alone and keeper.task:
        # A kernel stands for the task, which nobody can load as one.
        keeper.task = attrs.evolve(keeper.task, subject="")
    return RunRecorder(keeper, folder, asked)


@contextmanager
def _kept_if_started(folder: RunFolder) -> Iterator[None]:
    """On a `UsageError` inside, discard a new folder whose run has no checkpoint and no call."""
    existed = folder.exists()
    try:
        yield
    except UsageError:
        if not existed and folder.read_checkpoint() is None and not folder.paid():
            folder.discard()
        raise


def _run_to_end(run: Run, bench: bool) -> tuple[RunState, str]:
    """The last state, and why the run stopped before an end ("" when it reached one)."""
    try:
        return go(run, bench), ""
    except (LlmError, KeyboardInterrupt) as error:
        kept = run.folder.read_checkpoint()
        state = first_state(load_workflow(run.options.workflow), run.options)
        why = f"{error.kind}: {error}" if isinstance(error, LlmError) else INTERRUPTED
        return (state if kept is None else kept[0]), why


#: What a ledger's header says of a run, besides its seed.
_RECORDED = ("task", "target", "hardware", "workflow", "coder")


def _header(asked: RunOptions) -> Header:
    said = {name: getattr(asked, name) for name in (*_RECORDED, "seed")}
    options = {"constants": dict(asked.constants), "task_digest": asked.task_digest}
    return Header(**said, options=options)


def _fits_recording(wanted: RunOptions, recorded: Header) -> None:
    """Raises `UsageError` where the recording is of another run."""
    for name in _RECORDED:
        old, new = getattr(recorded, name), getattr(wanted, name)
        if old != new:
            refuse(f"the recording is of {name} {old!r}, and {new!r} is asked for")


def _client(
    provider: Provider | None,
    ledger: Ledger,
    folder: RunFolder,
    configuration: Configuration,
    display: Display,
) -> Client | None:
    if provider is None:
        return None
    checkpoint = folder.read_checkpoint()
    display.client = make_client(
        *(provider, ledger, configuration.llm),
        lambda text: display.note("replay", text),
        lambda path: display.note("mailbox", f"waits for {path}"),
        consumed=0 if checkpoint is None else checkpoint[1],
        streamed=display.streamed,
    )
    return display.client


def visible_devices(target: str, devices: Sequence[int]) -> dict[str, str]:
    """The environment variables that let workers see only `devices` of the target; none for all."""
    from sketchc.lowering.registry import load_target

    name = load_target(target).devices_variable
    return {name: ",".join(map(str, devices))} if name and devices else {}


def default_folder(wanted: RunOptions, configuration: Configuration, resume: bool) -> Path:
    """The next free folder for the task and target or, with `resume`, the last one taken."""
    parent = configuration.target(wanted.target).log_folder or Path(DEFAULT_FOLDER)
    stem = f"{Path(wanted.task).stem}-{wanted.target}"
    number = 1
    while _taken(parent / f"{stem}-{number}"):
        number += 1
    if resume and number == 1:
        refuse(f"there is no run of {stem} in {parent}; say which with -o DIR")
    return parent / f"{stem}-{number - 1 if resume else number}"


def _taken(folder: Path) -> bool:
    """Whether a run was started in `folder`, or several for lists of inputs (`gen_lists`) or for
    tuning (`tuning.gen_tuned`)."""
    return RunFolder(folder).exists() or any(
        (folder / name).exists() for name in ("trace.json", "untuned")
    )
