"""What `sketchc gen` does once its options are known: folder, model, task, run, outputs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sketchc.agents.llm.client import Client, Spend
from sketchc.agents.llm.errors import LlmError
from sketchc.agents.llm.ledger import Header, Ledger
from sketchc.agents.llm.mailbox import MailboxProvider
from sketchc.agents.llm.replay import ReplayProvider
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
    needs_model,
    require_own_folder,
    settle_options,
)
from sketchc.agents.run.summary import ending
from sketchc.agents.workflows import agents_of, load_workflow
from sketchc.base.diagnostics import UsageError
from sketchc.cli.gen_progress import Display
from sketchc.cli.gen_recording import RunRecorder
from sketchc.cli.store_option import recorder
from sketchc.cli.verify_files import require_running
from sketchc.runtime.toolchains.base import toolchain

if TYPE_CHECKING:
    from sketchc.agents.config.settings import Configuration
    from sketchc.agents.llm.client import Provider
    from sketchc.agents.state.state import RunState

#: Family of chips -> the variable by which its driver hides devices from a process.
_VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "ascend": "ASCEND_RT_VISIBLE_DEVICES"}
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
) -> RunResult:
    """Start or resume the run and write its outputs, however it ends; `store` gets it, too.

    Raises `UsageError` for what no run can start with: no model configured, a broken task.
    """
    folder = RunFolder(output or _default_folder(wanted, configuration, resume))
    graph = load_workflow(wanted.workflow)
    if "verifier" in agents_of(graph):
        require_running(toolchain(wanted.target))  # before anything is paid for
    provider = None
    take_key(configuration.llm.api_key_env)  # kernels under test must not find it here
    if needs_model(graph, wanted.coder):
        from sketchc.agents.llm.providers import make_provider

        provider = make_provider(configuration.llm, configuration.target(wanted.target))
    recorded: Header | None = getattr(provider, "header", None)
    if recorded is not None:
        _fits_recording(wanted, recorded)
    from sketchc.runtime.tasks.task import load_task

    timeout = configuration.target(wanted.target).verify_timeout
    os.environ |= visible_devices(wanted.hardware, configuration.target(wanted.target).devices)
    with load_task(str(task_path), timeout) as task:
        task.describe(0)  # a broken task ends here, before a folder holds a run of it
        task.require_deterministic(0)  # else every attempt would fail, and the sketch be blamed
        require_own_folder(folder)
        with folder.lock(), _kept_if_started(folder):
            asked = settle_options(wanted, folder, resume, recorded)
            with Ledger(folder.ledger_path) as ledger, Display(quiet=quiet) as display:
                ledger.begin(_header(asked))
                client = _client(provider, ledger, folder, configuration, display)
                kept = RunRecorder(recorder(store, task), folder, asked)
                run = Run(
                    *(asked, folder, task, task_source, configuration),
                    *(client, ledger, display, kept.step),
                )
                state, stopped = _run_to_end(run, bench)
                display.note("end", ending(state, stopped))
            spend = Spend() if client is None else client.spend
            files = write_outputs(folder.path, asked, state, task, spend, stopped)
            kept.end(state, stopped)
    return RunResult(state, asked, folder.path, spend, stopped, tuple(files))


@contextmanager
def _kept_if_started(folder: RunFolder) -> Iterator[None]:
    """A misuse that shows only within the run leaves no run behind that was never started."""
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
        return (state if kept is None else kept[0]), _why(error)


def _why(error: LlmError | KeyboardInterrupt) -> str:
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else f"{error.kind}: {error}"


def _header(asked: RunOptions) -> Header:
    return Header(
        task=asked.task,
        target=asked.target,
        hardware=asked.hardware,
        workflow=asked.workflow,
        coder=asked.coder,
        seed=asked.seed,
        options={"constants": dict(asked.constants), "task_digest": asked.task_digest},
    )


def _fits_recording(wanted: RunOptions, recorded: Header) -> None:
    """Raises `UsageError` where the recording is of another run."""
    for name in ("task", "target", "hardware", "workflow", "coder"):
        old, new = getattr(recorded, name), getattr(wanted, name)
        if old != new:
            msg = f"the recording is of {name} {old!r}, and {new!r} is asked for"
            raise UsageError(msg)


def _client(
    provider: Provider | None,
    ledger: Ledger,
    folder: RunFolder,
    configuration: Configuration,
    display: Display,
) -> Client | None:
    if provider is None:
        return None
    # A recording, or a mailbox, does not give a run that goes on what it has been given already.
    advance = getattr(provider, "advance", None)
    if advance is not None:
        advance(ledger.records)
    if isinstance(provider, ReplayProvider):
        provider.noted = lambda text: display.note("replay", text)
    if isinstance(provider, MailboxProvider):
        provider.waiting = lambda path: display.note("mailbox", f"waits for {path}")
    checkpoint = folder.read_checkpoint()
    client = Client(
        provider,
        ledger,
        configuration.llm.caps,
        configuration.llm.retry,
        consumed=0 if checkpoint is None else checkpoint[1],
        streamed=display.streamed,
    )
    display.client = client
    return client


def visible_devices(hardware: str, devices: Sequence[int]) -> dict[str, str]:
    """The environment in which workers see these devices of the chip only; empty for all."""
    from sketchc.lowering.hardware import load_hardware

    name = _VISIBLE.get(load_hardware(hardware).family)
    return {name: ",".join(map(str, devices))} if name and devices else {}


def _default_folder(wanted: RunOptions, configuration: Configuration, resume: bool) -> Path:
    """The next free folder for this task and target, or the last one to resume."""
    parent = configuration.target(wanted.target).log_folder or Path(DEFAULT_FOLDER)
    stem = f"{Path(wanted.task).stem}-{wanted.target}"
    number = 1
    while RunFolder(parent / f"{stem}-{number}").exists():
        number += 1
    if resume and number == 1:
        msg = f"there is no run of {stem} in {parent}; say which with -o DIR"
        raise UsageError(msg)
    return parent / f"{stem}-{number - 1 if resume else number}"
