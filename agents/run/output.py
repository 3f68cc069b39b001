"""What a run leaves in its folder, however it ends: sketch, plan, kernel, drop-in module, verdict
and trace as JSON, and SUMMARY.md.

Files are made aside and moved into place together; a file that an earlier part of the same run left
and that no longer holds is removed, and one that is not the run's own is never touched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.config.settings import Configuration
from sketchc.agents.run.record import FILES, record_text, recorded, run_verdict
from sketchc.agents.run.run import RunOptions, context_of, replace_json
from sketchc.agents.run.summary import Facts, summary
from sketchc.agents.state.candidates import kernel_of, plan_of, signature_plan
from sketchc.agents.state.state import RunContext, RunState
from sketchc.base.diagnostics import DiagnosticError, UsageError, refuse, refusing
from sketchc.lowering.kernel import source_map_json
from sketchc.lowering.plan_text import print_plan
from sketchc.lowering.registry import load_language
from sketchc.runtime.cases.binding import bind
from sketchc.runtime.cases.reach import find_freedom
from sketchc.runtime.dropin.torch_dropin import write_dropin
from sketchc.runtime.store.origins import Origin, does_what_its_sketch_says, with_origin
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.verify.design import SketchTask

if TYPE_CHECKING:
    from sketchc.agents.llm.client import Spend
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.plan import Plan
    from sketchc.runtime.tasks.description import TaskDescription
    from sketchc.runtime.tasks.task import Task

STAGING = "outputs.new"
#: Outcomes whose kernel is worth a drop-in module.
_USABLE = ("passed", "generated")
_KERNELS = ("the kernel", "the last kernel")
_UNVERIFIED = "NOT VERIFIED: nobody has compared this kernel with the task."


def write_outputs(
    folder: Path,
    options: RunOptions,
    state: RunState,
    task: Task,
    spend: Spend,
    stopped: str = "",
    description: TaskDescription | None = None,
) -> list[Path]:
    """Write everything that there is to write into `folder`; returns the paths, summary first.

    `state` is the run's last; `stopped` says why it is not an end, "" for an end; `description` is
    that of the task, for whose own sizes kernels were planned. Raises
    `UsageError` where the folder refuses, or holds a file of the same name that is not this run's.
    """
    staging = folder / "run" / STAGING
    with refusing(f"cannot write the outputs to {folder}"):
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        writer = _Writer(staging, options, state, task, stopped, description)
        writer.write()
        facts = writer.facts(spend, folder)
        (staging / "trace.json").write_text(record_text(facts.record), "utf-8")
        (staging / "SUMMARY.md").write_text(summary(facts), "utf-8")
        return _move(staging, folder)


def _move(staging: Path, folder: Path) -> list[Path]:
    """Put the staged files into place: the trace first, for a run that is killed meanwhile knows by
    it which files are its own. Returns them in the order of their names, but the summary first."""
    earlier = named_files(folder / "trace.json")
    made = sorted(staging.iterdir(), key=lambda path: (path.name != "SUMMARY.md", path.name))
    for path in made:
        there = folder / path.name
        if there.exists() and path.name not in earlier:
            refuse(f"{there} is no file of this run, so it is kept; the outputs are in {staging}")
    for name in earlier - {path.name for path in made}:
        (folder / name).unlink(missing_ok=True)
    for path in sorted(made, key=lambda path: path.name != "trace.json"):
        path.replace(folder / path.name)
    staging.rmdir()
    return [folder / path.name for path in made]


def named_files(path: Path) -> set[str]:
    """The names of the files that a run wrote before, as the JSON file at `path` lists them."""
    try:
        names = json.loads(path.read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {name for name in names if isinstance(name, str) and Path(name).name == name}


def claim_folder(folder: Path, listing: str, own: Collection[str]) -> None:
    """Make sure that a folder of several runs is free for them: it may hold `own`, and what its
    file `listing` names. Raises `UsageError`."""
    foreign = {path.name for path in folder.glob("*")} - {*own, *named_files(folder / listing)}
    if foreign:
        refuse(f"{folder} holds other files ({min(foreign)}); give the run a folder of its own: -o")


def take_files(
    folder: Path, listing: str, files: Iterable[Path], more: Collection[str] = ()
) -> list[Path]:
    """Copy files of several runs to their folder, in place of those that `listing` names there. It
    names these and `more`, which are to be written, before there is one of them."""
    taken, earlier = (
        list({path.name: path for path in files}.values()),
        named_files(folder / listing),
    )
    names = {path.name for path in taken} | {*more}
    replace_json(folder / listing, {"files": sorted(names | earlier)})
    for name in earlier - {listing}:
        (folder / name).unlink(missing_ok=True)
    return [Path(shutil.copy2(path, folder)) for path in taken]


# ---------------------------------------------------------------- the files


@attrs.define
class _Writer:
    """Writes the files of one run into a folder; `files` are (name, what it is)."""

    folder: Path
    options: RunOptions
    state: RunState
    task: Task
    stopped: str
    description: TaskDescription | None
    files: list[tuple[str, str]] = attrs.field(factory=list)
    dropin: str = ""
    no_dropin: str = "there is no kernel"

    def write(self) -> None:
        stem = self._context().name
        if self.state.sketch:
            self._text(f"{stem}.sketch", self.state.sketch, FILES[".sketch"])
        plan = self._plan()
        if plan is not None and plan.phases:
            self._text(f"{stem}.plan", print_plan(plan), FILES[".plan"])
        if self.state.kernel is not None:
            self._kernel(plan)
        found = run_verdict(self.state, self.stopped)
        self._text("verdict.json", record_text(found), _about(self.state.verdict))

    def facts(self, spend: Spend, folder: Path) -> Facts:
        self.files.append(("trace.json", "every step and route, with counts of calls, as data"))
        self.files.append(("SUMMARY.md", "this page"))
        names = [name for name, _ in self.files]
        return Facts(
            recorded(self.options, self.state, spend, self.stopped, names),
            options=self.options,
            verdict=self.state.verdict,
            measurement=self.state.measurement,
            files=tuple(self.files),
            task_path=self.task.specification,
            folder=str(folder),
            given_kernel=self._given_kernel(),
            dropin=self.dropin,
            no_dropin=self.no_dropin,
        )

    def _given_kernel(self) -> str:
        """The file that holds the kernel that was given; "" when another has taken its place."""
        kernel = self.state.kernel
        if kernel is None or kernel.origin != "given":
            return ""
        return next((name for name, what in self.files if what in _KERNELS), "")

    def _text(self, name: str, text: str, what: str) -> None:
        (self.folder / name).write_text(text if text.endswith("\n") else f"{text}\n", "utf-8")
        self.files.append((name, what))

    def _plan(self) -> Plan | None:
        """The plan of the last sketch (without one, of the task's signature), if it has one."""
        try:
            if self.state.sketch:
                return plan_of(self.state.sketch, self._context())
            # After a stop the task's worker may be in the middle of something.
            return None if self.stopped else signature_plan(self._context())
        except (DiagnosticError, UsageError):
            return None

    def _context(self) -> RunContext:
        """A context for the helpers of the agents; no agent is called with it."""
        return context_of(
            self.options,
            self.task,
            description=self.description,
            task_source="",
            model=None,
            configuration=Configuration(),
            folder=self.folder,
            progress=None,
        )

    def _kernel(self, plan: Plan | None) -> None:
        """Write the kernel, with a drop-in where the run's outcome is one of `_USABLE`."""
        text = self.state.kernel
        assert text is not None
        kernel = None if plan is None else kernel_of(text, plan)
        language = load_language(text.language)
        source = text.source
        passed = self.state.outcome == "passed"
        does = does_what_its_sketch_says(text.origin, passed)
        if kernel is not None and self.state.sketch and does:
            source = with_origin(source, language, self._origin(kernel))
        if kernel is not None:
            as_coded = kernel.source == text.source
            kernel = attrs.evolve(kernel, source=source)
            if kernel.source_map and as_coded:
                found = source_map_json(
                    kernel, self.state.sketch, f"{kernel.name}{language.suffix}"
                )
                self._text(f"{kernel.name}.map.json", json.dumps(found), FILES[".map.json"])
            if self._dropin(kernel):
                return
        name = self._context().name if kernel is None else kernel.name
        what = _KERNELS[self.state.outcome not in _USABLE]
        self._text(f"{name}{language.suffix}", source, what)

    def _origin(self, kernel: Kernel) -> Origin:
        """What the kernel was made of, for the comment at its end."""
        asked = self.options
        made_for = (kernel.name, asked.target, asked.hardware, asked.constants)
        alone = asked.migration is not None and asked.migration.alone
        named = ("", "") if alone else (asked.task, asked.task_digest)
        return Origin(self.state.sketch, *made_for, *named)

    def _dropin(self, kernel: Kernel) -> bool:
        """Write the drop-in; False, with the reason kept, where there is none."""
        if isinstance(self.task, SketchTask):
            self.no_dropin = "there is no task that a `ModelNew` could stand for"
            return False
        if self.stopped or self.state.outcome not in _USABLE:
            self.no_dropin = "no kernel has passed verification"
            return False
        before = {path.name for path in self.folder.iterdir()}
        note = "" if self.state.outcome == "passed" else _UNVERIFIED
        try:
            description = self.task.describe(self.options.seed % (1 << 31))
            binding = bind(kernel.sketch, description, dict(self.options.constants))
            freedom = find_freedom(binding, self.task)
            path = write_dropin(self.folder, kernel, binding, self.task.path, freedom, note)
        except (ToolchainError, UsageError) as error:
            self.no_dropin = str(error).split("\n")[0]
            for made in self.folder.iterdir():
                if made.name not in before:
                    made.unlink()
            return False
        self.dropin = path.stem
        names = sorted({made.name for made in self.folder.iterdir()} - before)
        self.files += [(name, _described(name, kernel)) for name in names]
        return True


def _about(verdict: Mapping[str, Any] | None) -> str:
    """The description of verdict.json in the list of files."""
    if verdict is None:
        return "how the run ended, as data; there is no verdict"
    if not verdict.get("cases"):
        return "the verdict, as data; no case was run"
    return "the verdict: every case, every number"


def _described(name: str, kernel: Kernel) -> str:
    """The description of one of the drop-in's files in the list of files."""
    rest = name.removeprefix(kernel.name)
    other = "imported by the task" if name.endswith(".py") else "part of the kernel"
    return FILES.get(".so" if rest.endswith(".so") else rest, other)
