"""The table of tricks (`tricks.toml`), and how its kernels are put before sketchc."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest
from shared_work import measuring

from sketchc.cli import main

FOLDER = Path(__file__).resolve().parent
#: Repeats a run; what is random besides (clocks, addresses) is the kernels' own doing.
SEED = 11
#: Names a file in the environment that every verdict is appended to, as JSON.
RECORD = "SKETCHC_TRICKS_RECORD"
#: Seconds for each run of a kernel; a model's run includes building its library.
PATIENCE = 60.0
#: Command, target, task and timeout: one command line for all kernels that share them.
Group: TypeAlias = "tuple[str, str, str, float]"


@attrs.frozen
class Trick:
    """One kernel. `caught` are the classes of failure that are right, none for an honest kernel;
    `like` is the file of the same mechanism elsewhere, "" for a mechanism of its own."""

    file: str
    task: str
    target: str
    caught: tuple[str, ...] = attrs.field(converter=tuple)
    by: str = ""
    like: str = ""
    command: str = "verify"
    runs: str = "cpu"
    timeout: float = PATIENCE

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    @property
    def group(self) -> Group:
        return self.command, self.target, self.task, self.timeout

    @property
    def mechanism(self) -> str:
        """What the kernel does, by its own first comment."""
        text = self.path.read_text("utf-8")
        if self.file.endswith(".cpp"):
            found = re.match(r"(?:// [^\n]*\n)+", text)
            assert found is not None, self.file
            said = found[0].replace("// ", "")
        else:
            found = re.match(r'"""(.*?)"""', text, re.DOTALL)
            assert found is not None, self.file
            said = found[1].partition(": ")[2] if found[1].startswith("task: ") else found[1]
        return " ".join(said.split())


def load() -> tuple[Trick, ...]:
    """Every row of the table."""
    table = tomllib.loads((FOLDER / "tricks.toml").read_text("utf-8"))
    return tuple(Trick(**row) for row in table["kernel"])


def grouped(runs: str) -> dict[Group, list[Trick]]:
    """The kernels that run on "cpu" or "gpu", by the command line that they share."""
    groups: dict[Group, list[Trick]] = defaultdict(list)
    for trick in load():
        if trick.runs == runs:
            groups[trick.group].append(trick)
    return dict(groups)


def name_of(group: object) -> str:
    """A group as the name of a test."""
    assert isinstance(group, tuple)
    return "-".join(str(part) for part in group)


def judged(
    group: Group, tricks: Sequence[Trick], capsys: pytest.CaptureFixture[str]
) -> dict[str, dict[str, Any]]:
    """What sketchc says of each kernel, by file. The exit status must be 1 exactly where one is
    caught, and no report may be missing."""
    command, target, task, timeout = group
    files = [str(trick.path) for trick in tricks]
    arguments = [command, *files, "--task", str(FOLDER / "tasks" / f"{task}.py")]
    arguments += ["--target", target, "--seed", str(SEED), "--json", "--no-store"]
    arguments += ["--samples", "5"] if command == "bench" else ["--timeout", str(timeout)]
    with measuring() if command == "bench" else nullcontext():
        status = main.run(arguments)
    shown = capsys.readouterr()
    assert status == int(any(trick.caught for trick in tricks)), shown.err
    reply = json.loads(shown.out)
    if command == "bench":
        reports = reply["results"] if len(files) > 1 else [reply]
        found = {report["kernel_file"]: report for report in reports}
    else:
        reports = reply["verdicts"] if len(files) > 1 else [reply]
        found = {report["kernel"]["path"]: report for report in reports}
    assert set(found) == set(files)
    return {trick.file: found[str(trick.path)] for trick in tricks}


def misjudged(
    group: Group, tricks: Sequence[Trick], capsys: pytest.CaptureFixture[str]
) -> dict[str, str]:
    """The kernels of a group that were not judged as the table says, with what was said."""
    wrong = {}
    for file, report in judged(group, tricks, capsys).items():
        trick = next(trick for trick in tricks if trick.file == file)
        _record(trick, report)
        right = report["failure"] in trick.caught if trick.caught else report["passed"]
        if not right or report["passed"] == bool(trick.caught):
            wrong[file] = f"{report['failure'] or 'passed'}, not {trick.caught or 'passed'}: " + (
                _reason(report)
            )
    return wrong


def _record(trick: Trick, report: dict[str, Any]) -> None:
    """One line more in the file that the environment names, for what runs where CI does not."""
    place = os.environ.get(RECORD)
    if place is None:
        return
    asked = {"file": trick.file, "command": trick.command, "target": trick.target}
    said = {name: report[name] for name in ("passed", "failure")} | {"reason": _reason(report)}
    known = ("how_it_runs", "hardware", "seed", "versions")
    with Path(place).open("a") as file:
        file.write(json.dumps(asked | said | {k: report[k] for k in known if k in report}) + "\n")


def _reason(report: dict[str, Any]) -> str:
    if report.get("error"):
        return str(report["error"])
    cases = [case for case in report.get("cases", ()) if case["failure"] not in ("", "skipped")]
    return str(cases[0]["reason"] if cases else report.get("problems", ""))
