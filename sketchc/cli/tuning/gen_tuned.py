"""`sketchc gen --tune`: the sketch of a kernel that passed is tuned for the task's sizes, and what
is written is the kernel of the point that won.

The folder `untuned` has the run that made the sketch, `tuned` one that lowers and verifies it with
the winner's constants. What the better one left is copied beside them, with `tuning.json`, which
says which and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.run.output import claim_folder, take_files
from sketchc.agents.run.run import RunFolder, RunOptions, RunResult, replace_json
from sketchc.base.diagnostics import UsageError, refuse, refusing
from sketchc.cli.tuning.tune_sketch import TuneRequest, tune_sketch

if TYPE_CHECKING:
    from sketchc.base.types import Scalar
    from sketchc.cli.timed import Say
    from sketchc.runtime.tune.tuner import Tuning

UNTUNED, TUNED, TUNING = "untuned", "tuned", "tuning.json"


@attrs.frozen
class _Found:
    """The constants of the tuned kernel (None: the untuned one is kept), why, and the search as
    data, {} where none was made."""

    point: Mapping[str, Scalar] | None
    reason: str
    search: Mapping[str, Any] = attrs.field(factory=dict)


def require_tunable(options: RunOptions) -> None:
    """Raises `UsageError` for a run whose kernel is not the built-in Coder's for a sketch, or that
    verifies none, and where the target cannot be timed here."""
    from sketchc.agents.workflows import load_workflow
    from sketchc.cli.timed import require_speed
    from sketchc.runtime.toolchains.base import toolchain

    if options.coder != "builtin" or options.kernel:
        refuse("--tune is for kernels that the built-in Coder makes of a sketch: --coder builtin")
    if not {"coder", "verifier"} <= load_workflow(options.workflow).agents:
        refuse(f"--tune needs a workflow that codes and verifies, and {options.workflow} does not")
    require_speed(toolchain(options.target))


def generate_tuned(
    folder: Path,
    options: RunOptions,
    run: Callable[[RunOptions, Path], RunResult],
    tune: Callable[[str], Tuning],
) -> tuple[RunResult, str]:
    """Run with `options` by `run(options, its folder)`, tune the sketch's file by `tune`, and run
    again with the winner's constants. Returns the result that is kept, as if made in `folder`, and
    why it is kept. Raises `UsageError`."""
    claim_folder(folder, TUNING, (UNTUNED, TUNED, TUNING))
    kept = first = run(options, folder / UNTUNED)
    found = _Found(None, "the run did not pass, and nothing was tuned")
    if first.state.outcome == "passed" and not first.stopped:
        found = _tuned(first, folder / TUNED, options, tune)
    if found.point is not None:
        constants = {**options.constants, **found.point}
        own = attrs.evolve(
            options, workflow="coder-only", sketch=first.state.sketch, constants=constants
        )
        second = run(own, folder / TUNED)
        kept = second if second.state.outcome == "passed" or second.stopped else first
        if kept is first:
            found = attrs.evolve(found, reason="the tuned kernel did not pass: the untuned one")
    told = {"kept": UNTUNED if kept is first else TUNED, **attrs.asdict(found)}
    with refusing(f"cannot write the outputs to {folder}"):
        files = take_files(folder, TUNING, kept.files)
        replace_json(folder / TUNING, {**told, "files": [path.name for path in files]})
    return attrs.evolve(kept, folder=folder, files=tuple(files)), f"tuned: {found.reason}"


def _tuned(
    first: RunResult, place: Path, options: RunOptions, tune: Callable[[str], Tuning]
) -> _Found:
    """The winner for the sketch of a run that passed; where the run in `place` was started before,
    the one that it was started with."""
    from sketchc.runtime.bench.driver import MeasurementFailedError
    from sketchc.runtime.tune import text
    from sketchc.runtime.tune.tuner import settings_text

    if (begun := RunFolder(place)).exists():
        started = begun.read_options().constants
        point = {n: v for n, v in started.items() if options.constants.get(n) != v}
        return _Found(point, "the point that was found before")
    (sketch,) = (path for path in first.files if path.suffix == ".sketch")
    try:
        found = tune(str(sketch))
    except (MeasurementFailedError, UsageError) as error:  # the kernel itself has passed
        return _Found(None, f"nothing was found: {error}")
    said, search = text.conclusion(found).removeprefix("passed: "), text.to_json(found)
    # The untuned kernel was planned for the task's sizes: it need not be the search's default.
    verified = (first.state.verdict or {}).get("constants", {})
    own = {name: verified.get(name) for name in found.best}
    if dict(found.best) == dict(found.default) == own:
        return _Found(None, said, search)
    return _Found(dict(found.best), f"{settings_text(found.best)}, {said}", search)


def tune_found(asked: TuneRequest, task: str, say: Say) -> Tuning:
    """What tuning the sketch of a run finds. Raises as `tune_sketch` does."""
    from sketchc.runtime.tasks.task import load_task

    with load_task(task) as loaded:
        return tune_sketch(asked, loaded, say)[0]
