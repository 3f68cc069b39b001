"""`sketchc gen` of a task whose lists of inputs need several kernels.

Lists that differ only in sizes share a sketch; lists of other types, ranks or constants need
another. Each such group is a run by itself, in the folder `kernels`, of the task's file narrowed to
its lists; the files of all runs are copied beside that folder, with one drop-in for all groups.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from sketchc.agents.autosketch.designer import followed_numbers
from sketchc.agents.designer.messages import sketch_name
from sketchc.agents.run.output import claim_folder, take_files
from sketchc.agents.run.record import record_text, recorded, run_verdict
from sketchc.agents.run.run import RunResult
from sketchc.agents.run.summary import conclusion, ending, table
from sketchc.agents.state.state import RunState
from sketchc.base.diagnostics import UsageError, refusing
from sketchc.runtime.cases.lists import Group, list_groups
from sketchc.runtime.dropin.lists_dropin import Part, write_lists_dropin
from sketchc.runtime.tasks.input_lists import LIST_MAKERS, narrowed
from sketchc.runtime.tasks.outline import modules_beside
from sketchc.runtime.tasks.task import load_task, task_path

RUNS = "kernels"
TRACE = "trace.json"
#: Files of a run that are not copied from its folder.
OWN = frozenset({"SUMMARY.md", TRACE, "verdict.json"})
_DROPIN = "_dropin"
_INTRODUCTION = (
    "The task has lists of inputs of several types, ranks or constants, and a kernel for each of "
    "these kinds."
)


def groups_of(task: str, source: str, timeout: float = 300.0) -> tuple[Group, ...]:
    """The task's lists of inputs by the sketch that they need; () if it has one or is broken."""
    if not any(maker in source for maker in LIST_MAKERS):
        return ()
    try:
        with load_task(task, timeout) as loaded:
            return list_groups(loaded, followed_numbers)
    except UsageError:
        return ()  # the run says what is wrong with the task


@attrs.frozen
class ListRuns:
    """The runs for a task whose lists of inputs form several groups, in one folder."""

    task: str
    source: str
    groups: Sequence[Group]
    folder: Path

    @property
    def stem(self) -> str:
        """The stem of the task's file, after which the drop-in for all groups is named."""
        return task_path(self.task)[0].stem

    def narrowed_tasks(self) -> list[str]:
        """Write the task's file narrowed to each group; returns the tasks. Raises `UsageError`."""
        place = self.folder / RUNS
        claim_folder(self.folder, TRACE, {RUNS})
        path, subject = task_path(self.task)
        titles = [title for group in self.groups for title in group.titles]
        with refusing(f"cannot write the tasks to {place}"):
            place.mkdir(parents=True, exist_ok=True)
            for file in modules_beside(path):
                shutil.copyfile(file, place / file.name)
            found = []
            for number, group in enumerate(self.groups, 1):
                file = place / f"{self.stem}_{number}.py"
                file.write_text(narrowed(self.source, titles, group.titles), "utf-8")
                found.append(f"{file}:{subject}" if subject else str(file))
        return found

    def generate(self, run: Callable[[str, Path], RunResult]) -> RunResult:
        """Make each group's kernel by `run(task, folder)`. The result is that of the first run that
        did not pass, else of the first, with the files of all runs. Raises `UsageError`."""
        results: list[RunResult] = []
        for task in self.narrowed_tasks():
            results.append(run(task, self.folder / RUNS / task_path(task)[0].stem))
            if results[-1].stopped:
                break
        worst = next((r for r in results if r.state.outcome != "passed"), results[0])
        with refusing(f"cannot write the outputs to {self.folder}"):
            files = self._files(results, worst.options.target)
            joined = attrs.evolve(
                worst,
                state=joined_state(results, worst),
                options=attrs.evolve(worst.options, task=task_path(self.task)[0].name),
                folder=self.folder,
                files=(self.folder / "SUMMARY.md", *files),
            )
            self._tell(joined, results)
        return joined

    def _files(self, results: Sequence[RunResult], target: str) -> list[Path]:
        """Copy the runs' files, and write the drop-in for all if each run made one; their paths."""
        made = (path for r in results for path in r.files if path.name not in OWN)
        module = sketch_name(self.stem) + _DROPIN
        files = take_files(self.folder, TRACE, made, {*OWN, f"{module}.py"})
        modules = [path.stem for path in files if path.stem.endswith(_DROPIN)]
        if len(modules) == len(self.groups):
            parts = [Part(m, group.inputs) for m, group in zip(modules, self.groups, strict=True)]
            files.append(write_lists_dropin(self.folder, module, self.stem, target, parts))
        return files

    def _tell(self, joined: RunResult, results: Sequence[RunResult]) -> None:
        """Write trace.json, verdict.json and SUMMARY.md."""
        parts = [_INTRODUCTION, self._table(results)]
        if any(path.stem == sketch_name(self.stem) + _DROPIN for path in joined.files):
            parts.append(f"`{sketch_name(self.stem)}{_DROPIN}.py` is the drop-in for all of them.")
        tell(joined, parts)

    def _table(self, results: Sequence[RunResult]) -> str:
        rows = []
        for group, result in zip(self.groups, results, strict=False):
            name = Path(result.options.task).stem
            gain = run_verdict(result.state).gain
            rows.append(
                (
                    ", ".join(group.titles),
                    f"[{name}]({RUNS}/{name}/SUMMARY.md)",
                    ending(result.state, result.stopped),
                    "" if gain is None else f"{gain:.2f}x",
                )
            )
        head = ("lists of inputs", "kernel", "outcome", "of eager")
        return table(head, rows, right=head[-1:])


def tell(joined: RunResult, parts: Sequence[str]) -> None:
    """Write trace.json and verdict.json of several runs' result, and SUMMARY.md with these parts.
    Raises `OSError`."""
    names = [*sorted(OWN - {"SUMMARY.md"}), *(path.name for path in joined.files)]
    record = recorded(joined.options, joined.state, joined.spend, joined.stopped, names)
    verdict = run_verdict(joined.state, joined.stopped)
    for name, data in ((TRACE, record), ("verdict.json", verdict)):
        (joined.folder / name).write_text(record_text(data), "utf-8")
    title = f"# {Path(record.task).stem} for {record.target}: {record.outcome}"
    text = "\n\n".join([title, conclusion(record), *parts])
    (joined.folder / "SUMMARY.md").write_text(text + "\n", "utf-8")


def joined_state(results: Sequence[RunResult], worst: RunResult) -> RunState:
    """The state of the run `worst`, with the steps of all runs and the cases of all verdicts."""
    state = worst.state
    if state.verdict is not None:
        verdicts = [result.state.verdict or {} for result in results]
        cases = [case for verdict in verdicts for case in verdict.get("cases", ())]
        notes = dict.fromkeys(note for verdict in verdicts for note in verdict.get("notes", ()))
        state = attrs.evolve(state, verdict={**state.verdict, "cases": cases, "notes": list(notes)})
    return attrs.evolve(state, history=tuple(step for r in results for step in r.state.history))
