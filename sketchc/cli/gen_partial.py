"""`sketchc gen --allow-partial` of a task with operations that have no form.

Each part that kernels can compute is a run by itself, in the folder `kernels`, of a task made from
the trace of the whole; PyTorch computes the rest. The files of all runs are copied beside that
folder, with one drop-in for the whole task. It never counts as passed: its outcome is "partial".
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from sketchc.agents.autosketch.cuts import Cut, Piece, cut
from sketchc.agents.designer.messages import sketch_name
from sketchc.agents.run.output import claim_folder, take_files
from sketchc.agents.run.run import RunResult
from sketchc.agents.run.summary import ending, table
from sketchc.base.diagnostics import UsageError, refusing
from sketchc.cli.gen_lists import OWN, RUNS, TRACE, joined_state, tell
from sketchc.lowering.registry import load_target
from sketchc.runtime.dropin.partial_dropin import PARTIAL, part_task, steps_module, write_partial
from sketchc.runtime.process.peer import PYTHON_NAMES, PYTHON_PREFIXES, clean_environment
from sketchc.runtime.tasks.outline import modules_beside
from sketchc.runtime.tasks.task import load_task, task_path

#: What a comparison says of a drop-in that is wrong.
_WRONG = "wrong as a whole"
#: Seconds for one run of the whole drop-in beside the task.
_PATIENCE = 600


def cut_of(task: str, timeout: float = 300.0) -> Cut | None:
    """The task in pieces; None where all of it has a form, nothing of it, or it is broken."""
    with load_task(task, timeout) as loaded:
        try:
            loaded.describe(0)
        except UsageError:
            return None  # the run says what is wrong with the task
        return cut(loaded)


@attrs.frozen
class PartialRuns:
    """The runs for the pieces of a task that kernels compute, in one folder."""

    task: str
    cut: Cut
    folder: Path
    target: str

    @property
    def name(self) -> str:
        """What the files are named after."""
        return sketch_name(task_path(self.task)[0].stem)

    def _tasks(self) -> list[Path]:
        """Write the task of each piece of kernels, and what all import. Raises `UsageError`."""
        place = self.folder / RUNS
        claim_folder(self.folder, TRACE, {RUNS})
        path = task_path(self.task)[0]
        with refusing(f"cannot write the tasks to {place}"):
            place.mkdir(parents=True, exist_ok=True)
            for file in modules_beside(path):
                shutil.copyfile(file, place / file.name)
            shutil.copyfile(path, place / f"{self.name}_whole.py")
            steps = steps_module(self.name, self.cut)
            (place / f"{self.name}_steps.py").write_text(steps, "utf-8")
            found = []
            for number, piece in enumerate(self.cut.kernels):
                file = place / f"{self.name}_part_{number + 1}.py"
                file.write_text(part_task(self.name, self.cut, piece, number), "utf-8")
                found.append(file)
        return found

    def generate(self, run: Callable[[str, Path], RunResult]) -> RunResult:
        """Make the kernel of each piece by `run(task, folder)`, and the drop-in of the whole, in
        which PyTorch also computes the pieces whose kernel did not pass. Raises `UsageError`."""
        results: list[RunResult] = []
        for file in self._tasks():
            results.append(run(str(file), self.folder / RUNS / file.stem))
            if results[-1].stopped:
                break
        made = [r.state.outcome == "passed" and not r.stopped for r in results]
        pieces = [p for p, passed in zip(self.cut.kernels, made, strict=False) if passed]
        worst = next((r for r in results if r.state.outcome != "passed"), results[0])
        with refusing(f"cannot write the outputs to {self.folder}"):
            files = self._files(results, pieces)
            told = "" if worst.stopped or not pieces else self._compared()
            outcome = "failed" if not pieces or told.startswith(_WRONG) else "partial"
            reason = f"PyTorch computes {self._left(pieces)}{told and '; '}{told}"
            state = joined_state(results, worst)
            if not worst.stopped:
                state = attrs.evolve(state, outcome=outcome, reason=reason)
            joined = attrs.evolve(
                worst,
                state=state,
                options=attrs.evolve(worst.options, task=task_path(self.task)[0].name),
                folder=self.folder,
                files=(self.folder / "SUMMARY.md", *files),
            )
            self._tell(joined, results)
        return joined

    def _left(self, pieces: Sequence[Piece]) -> str:
        """What PyTorch computes, in words."""
        left = [piece for piece in self.cut.pieces if piece not in pieces]
        return ", ".join(self.cut.operations(left))

    def _files(self, results: Sequence[RunResult], pieces: Sequence[Piece]) -> list[Path]:
        passed = [r for r in results if r.state.outcome == "passed" and not r.stopped]
        made = [path for r in passed for path in r.files if path.name not in OWN]
        whole = [self.folder / RUNS / f"{self.name}_{what}.py" for what in ("whole", "steps")]
        module = f"{self.name}_dropin"
        names = {*OWN, f"{module}.py"}
        files = take_files(self.folder, TRACE, [*made, *whole] if pieces else [], names)
        if pieces:
            files.append(write_partial(self.folder, self.name, self.target, self.cut, pieces))
        return files

    def _compared(self) -> str:
        """How far the drop-in is from the task on its own inputs, in words: in a process of its
        own, three times; `_WRONG` where it is far, or fails."""
        device = load_target(self.target).device
        dropin = self.folder / f"{self.name}_dropin.py"
        command = [sys.executable, "-c", PARTIAL, str(dropin), device]
        environment = clean_environment({}, PYTHON_NAMES, PYTHON_PREFIXES)
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
            told = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError):
            return f"{_WRONG}: it did not end on the task's own inputs"
        if told["off"] is None:
            return f"{_WRONG if device == 'cpu' else 'not tried as a whole here'}: {told['why']}"
        if told["off"] > told["limit"]:
            return f"{_WRONG}: {told['off']:.1e} of the result's norm from the task's"
        return f"on its own inputs the whole is within {told['off']:.1e} of the result's norm"

    def _tell(self, joined: RunResult, results: Sequence[RunResult]) -> None:
        rows = [
            (
                ", ".join(self.cut.operations([piece])),
                f"[{name}]({RUNS}/{name}/SUMMARY.md)",
                ending(result.state, result.stopped),
            )
            for number, (piece, result) in enumerate(
                zip(self.cut.kernels, results, strict=False), 1
            )
            if (name := f"{self.name}_part_{number}")
        ]
        parts = [
            f"There is no form for {'; '.join(self.cut.missing)}, and `--allow-partial` was given.",
            table(("operations", "kernel", "outcome"), rows),
        ]
        if any(path.name == f"{self.name}_dropin.py" for path in joined.files):
            parts.append(
                f"`{self.name}_dropin.py` is the drop-in for the whole, at the sizes of the task's "
                "own inputs: kernels, and PyTorch between them."
            )
        tell(joined, parts)
