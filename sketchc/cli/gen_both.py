"""`sketchc gen --designer both`: the built-in Designer's kernel and a model's, of which the faster
one is kept.

Each is a run of its own, in the folders `builtin` and `llm`; what the better one left is copied
beside them, with `choice.json`, which says which and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from sketchc.agents.run.output import claim_folder, take_files
from sketchc.agents.run.record import run_verdict
from sketchc.agents.run.run import RunResult
from sketchc.base.diagnostics import refusing

DESIGNERS = ("builtin", "llm")
_CHOICE = "choice.json"
_NAMES = {"builtin": "the built-in Designer's", "llm": "the model's"}


@attrs.frozen
class Choice:
    """Which Designer's kernel is kept, why, and the speed of each over eager (None: not known)."""

    kept: str
    reason: str
    gains: Mapping[str, float | None]


def generate_both(folder: Path, run: Callable[[str, Path], RunResult]) -> tuple[RunResult, str]:
    """Run each Designer by `run(designer, its folder)`. Returns the result that is kept, as if made
    in `folder`, and why it is kept. Raises `UsageError` where `folder` has other files."""
    claim_folder(folder, _CHOICE, (*DESIGNERS, _CHOICE))
    results = {designer: run(designer, folder / designer) for designer in DESIGNERS}
    choice = choose(results)
    kept = results[choice.kept]
    with refusing(f"cannot write the outputs to {folder}"):
        files = take_files(folder, _CHOICE, kept.files)
        told = {**attrs.asdict(choice), "files": [path.name for path in files]}
        (folder / _CHOICE).write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    said = f"kept {_NAMES[choice.kept]}: {choice.reason}"
    return attrs.evolve(kept, folder=folder, files=(*files, folder / _CHOICE)), said


def choose(results: Mapping[str, RunResult]) -> Choice:
    """Choose the faster verified kernel; the built-in Designer's where that is undecided."""
    gains = {name: run_verdict(r.state).gain for name, r in results.items()}
    passed = [name for name in DESIGNERS if results[name].state.outcome == "passed"]
    if len(passed) == 1:
        other = results[next(name for name in DESIGNERS if name not in passed)]
        why = other.stopped or other.state.reason
        return Choice(passed[0], f"the other did not pass ({why})", gains)
    if not passed:
        return Choice("builtin", "neither passed", gains)
    ours, theirs = gains["builtin"], gains["llm"]
    if ours is None or theirs is None:
        return Choice("builtin", "both passed, and nothing was timed that tells them apart", gains)
    better, worse = ("builtin", "llm") if ours >= theirs else ("llm", "builtin")
    told = f"{gains[better]:.2f}x of eager, the other {gains[worse]:.2f}x"
    return Choice(better, told, gains)
