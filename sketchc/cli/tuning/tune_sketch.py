"""Tuning one sketch for one task: what `sketchc tune` and `sketchc gen --tune` share."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from sketchc.api import sketches
from sketchc.base.types import Scalar
from sketchc.cli.options import recorder, store_path
from sketchc.cli.timed import Say, require_speed
from sketchc.cli.tuning.tuned import compilers
from sketchc.cli.verify_files import VerifyRequest, candidate_of, types_of, verify_one

if TYPE_CHECKING:
    from sketchc.lowering.passes.space import Point, Space
    from sketchc.parsing import syntax
    from sketchc.runtime.bench.prepared import Prepared
    from sketchc.runtime.store.recording import Recorder
    from sketchc.runtime.store.tunings import Best, PointRow, Setting
    from sketchc.runtime.store.writing import TaskText
    from sketchc.runtime.tasks.client import TaskClient
    from sketchc.runtime.tune.sizes import SizesTuning
    from sketchc.runtime.tune.tuner import Limits, Request, Tuning
    from sketchc.runtime.verify.verify import Candidate

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
#: Seconds of warming up each point; a schedule of many points has no time for more.
_WARM_UP = 0.02


def duration(_context: click.Context, _option: click.Parameter, value: str) -> float:
    """The seconds of `90`, `90s`, `1.5m` or `2h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no time: say 90s, 1.5m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


@attrs.frozen
class TuneRequest:
    """A sketch to tune, with its target and what does not vary (`request`), the limits of the
    search, the sizes that the task's are replaced by, threads, and the store (None: nothing is
    kept)."""

    request: VerifyRequest
    limits: Limits
    sizes: dict[str, int]
    threads: int
    store: Path | None


def tune_sketch(asked: TuneRequest, task: TaskClient, say: Say) -> tuple[Tuning, syntax.Sketch]:
    """Tune; returns what was found, and the sketch, or its instance for the task's types. Raises
    `SketchError`, `UsageError` and `MeasurementFailedError`."""
    from sketchc.runtime.store.tunings import Best
    from sketchc.runtime.tune.tuner import tune

    with tempfile.TemporaryDirectory() as folder:
        session = _Session(asked, task, Path(folder), say)
        request, setting = session.request(asked.sizes)
        found = tune(request)
    default = None if found.default_times is None else found.default_times.median
    session.keep(setting, Best(found.best, found.best_times.median, default))
    return found, session.tree


def tune_for_sizes(
    asked: TuneRequest, sizes: Sequence[dict[str, int]], task: TaskClient, say: Say
) -> tuple[SizesTuning, syntax.Sketch]:
    """Tune for several `sizes` in place of those in `asked`; each keeps the point that serves it.
    Returns and raises as `tune_sketch` does."""
    from sketchc.runtime.store.tunings import Best
    from sketchc.runtime.tune.sizes import tune_sizes

    with tempfile.TemporaryDirectory() as folder:
        session = _Session(asked, task, Path(folder), say)
        requests = [session.request(one) for one in sizes]
        found = tune_sizes([request for request, _ in requests])
    for row, (_, setting) in zip(found.sizes, requests, strict=True):
        point = found.points[row.chosen]
        session.keep(setting, Best(point, row.chosen_seconds, row.seconds[0]))
    return found, session.tree


class _Session:
    """A sketch and its task, opened to be tuned at one size or several; builds go into `folder`.
    Raises `SketchError` and `UsageError`."""

    def __init__(self, asked: TuneRequest, task: TaskClient, folder: Path, say: Say) -> None:
        from sketchc.runtime.bench.machine import device_name

        self._asked, self._task, self._folder, self._say = asked, task, folder, say
        self._candidate = candidate_of(asked.request, task)
        require_speed(self._candidate.toolchain)
        self._device = device_name(self._candidate.device)
        self.tree, self._space = _space(asked.request, task, self._candidate)
        self._kept = recorder(asked.store, task)
        self._versions = self._candidate.toolchain.status().versions

    def request(self, sizes: dict[str, int]) -> tuple[Request, Setting | None]:
        """What is tuned at `sizes` in place of the task's, and what the store knows it by (None:
        nothing is kept)."""
        from sketchc.runtime.bench.machine import cache_bytes
        from sketchc.runtime.bench.prepared import prepare
        from sketchc.runtime.bench.schedule import Schedule, Settings
        from sketchc.runtime.tune.tuner import Request

        asked, candidate, kept = self._asked, self._candidate, self._kept
        settings = Settings(
            *(asked.limits.seed, asked.threads, Schedule(warm_up_seconds=_WARM_UP), sizes),
            asked.request.constants,
            device=candidate.device,
        )
        prepared, _ = prepare(candidate, self._task, settings, self._say, lambda: None)
        setting = None if kept.task is None else _setting(prepared, kept.task, self._device)

        def record(rows: Sequence[PointRow]) -> None:
            if setting is not None:
                kept.points(setting, rows, self._versions)

        request = Request(
            *(self._space, prepared, self._device, cache_bytes(candidate.device), self._folder),
            *(asked.limits, _Verifier(asked.request, self._task, kept), record),
            *(_known(asked.store, setting), self._say),
        )
        return request, setting

    def keep(self, setting: Setting | None, best: Best) -> None:
        """Keep the point that was chosen, for `lower --tuned`."""
        if setting is not None:
            self._kept.best_point(setting, best, self._versions)


def again(request: VerifyRequest, tree: syntax.Sketch, best: Point, task: str = "") -> str:
    """The command that gives the winner's code; of a sketch with `types:` it names the instance,
    and `task` is the one that the built-in Designer made a sketch of that nobody has kept."""
    from sketchc.runtime.tune.tuner import settings_text

    point = {**request.constants, **best}
    words = _naming(request, tree, task)
    return shlex.join([*words, *(["--set", settings_text(point)] if point else [])])


def again_for_sizes(
    asked: TuneRequest, tree: syntax.Sketch, found: SizesTuning, task: str = ""
) -> str:
    """The command that gives the code for the first of several sizes: from the store, where it is
    kept with its sketch in a file."""
    from sketchc.runtime.tune.tuner import settings_text

    request, row = asked.request, found.sizes[0]
    if task or asked.store is None:
        return again(request, tree, found.points[row.chosen], task)
    words = [*_naming(request, tree), "--tuned"]
    words += ["--set", settings_text(request.constants)] if request.constants else []
    words += ["--store", str(asked.store)] if asked.store != store_path(None) else []
    return shlex.join([*words, "--symbols", settings_text(row.symbols)])


def _naming(request: VerifyRequest, tree: syntax.Sketch, task: str = "") -> list[str]:
    name = request.sketch if tree.generic is None else tree.name
    words = ["sketchc", "lower", request.file]
    if task:
        words = ["sketchc", "gen", task, "--designer", "builtin"]
    words += ["--target", request.target]
    words += [] if request.hardware is None else ["--hardware", request.hardware]
    return words + ([] if name is None else ["--sketch", name])


def _setting(prepared: Prepared, task: TaskText, device: str) -> Setting:
    """What times depend on here, as the store knows it."""
    from sketchc.runtime.store.recording import sketch_text
    from sketchc.runtime.store.tunings import Setting

    candidate, settings = prepared.candidate, prepared.settings
    plan, source = candidate.plan, candidate.source
    assert source is not None  # tuned is a sketch
    return Setting(
        *(sketch_text(source.text, plan.sketch.name), task, plan.target, plan.hardware.name),
        *(device, compilers(candidate.toolchain), dict(prepared.symbols), settings.threads),
        *(dict(settings.values), settings.schedule.cold),
    )


def _known(store: Path | None, setting: Setting | None) -> list[PointRow]:
    """The points that the store knows of this setting; none, with a warning, where it cannot be
    read."""
    from sketchc.runtime.store.database import StoreError
    from sketchc.runtime.store.tunings import known_points

    if store is None or setting is None:
        return []
    try:
        return known_points(store, setting)
    except StoreError as error:
        click.echo(f"warning: nothing is known from before: {error}", err=True)
        return []


def _space(
    request: VerifyRequest, task: TaskClient, candidate: Candidate
) -> tuple[syntax.Sketch, Space]:
    """The sketch, the instance that the task's types decide, and its points."""
    from sketchc.lowering.passes.pipeline import planner
    from sketchc.lowering.passes.space import Space

    plan, source = candidate.plan, candidate.source
    assert source is not None  # tuned is a sketch
    tree = sketches.the_sketch(source, request.sketch, types_of(task.describe()))
    with sketches.pointing_into(source):
        made = planner(tree, plan.target, plan.hardware.name)
        return tree, Space(made, dict(request.constants))


class _Verifier:
    """Says why a point does not pass `sketchc verify`, "" where it does."""

    def __init__(self, request: VerifyRequest, task: TaskClient, kept: Recorder) -> None:
        self._request, self._task, self._kept = request, task, kept

    def __call__(self, point: Point) -> str:
        constants: dict[str, Scalar] = {**self._request.constants, **point}
        whole = attrs.evolve(self._request, constants=constants, lowered=None)
        outcome = verify_one(whole, self._task, recorder=self._kept)
        if outcome.verdict is not None and outcome.verdict.passed:
            return ""
        return outcome.reason or outcome.word
