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
from sketchc.cli.options import recorder
from sketchc.cli.timed import Say, require_speed
from sketchc.cli.tuning.tuned import compilers
from sketchc.cli.verify_files import VerifyRequest, candidate_of, types_of, verify_one

if TYPE_CHECKING:
    from sketchc.lowering.passes.space import Point, Space
    from sketchc.parsing import syntax
    from sketchc.runtime.bench.prepared import Prepared
    from sketchc.runtime.store.recording import Recorder
    from sketchc.runtime.store.tunings import PointRow, Setting
    from sketchc.runtime.store.writing import TaskText
    from sketchc.runtime.tasks.client import TaskClient
    from sketchc.runtime.tune.tuner import Limits, Tuning
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
    from sketchc.runtime.bench.machine import cache_bytes, device_name
    from sketchc.runtime.bench.prepared import prepare
    from sketchc.runtime.bench.schedule import Schedule, Settings
    from sketchc.runtime.store.tunings import Best
    from sketchc.runtime.tune.tuner import Request, tune

    request = asked.request
    candidate = candidate_of(request, task)
    require_speed(candidate.toolchain)
    device = device_name(candidate.device)
    schedule = Schedule(warm_up_seconds=_WARM_UP)
    settings = Settings(
        *(asked.limits.seed, asked.threads, schedule, asked.sizes, request.constants),
        device=candidate.device,
    )
    tree, space = _space(request, task, candidate)
    prepared, _ = prepare(candidate, task, settings, say, lambda: None)
    kept = recorder(asked.store, task)
    setting = None if kept.task is None else _setting(prepared, kept.task, device)
    versions = candidate.toolchain.status().versions

    def record(rows: Sequence[PointRow]) -> None:
        if setting is not None:
            kept.points(setting, rows, versions)

    with tempfile.TemporaryDirectory() as folder:
        found = tune(
            Request(
                *(space, prepared, device, cache_bytes(candidate.device), Path(folder)),
                *(asked.limits, _Verifier(request, task, kept), record),
                *(_known(asked.store, setting), say),
            )
        )
    if setting is not None:
        default = None if found.default_times is None else found.default_times.median
        kept.best_point(setting, Best(found.best, found.best_times.median, default), versions)
    return found, tree


def again(request: VerifyRequest, tree: syntax.Sketch, found: Tuning, task: str = "") -> str:
    """The command that gives the winner's code; of a sketch with `types:` it names the instance,
    and `task` is the one that the built-in Designer made a sketch of that nobody has kept."""
    from sketchc.runtime.tune.tuner import settings_text

    name = request.sketch if tree.generic is None else tree.name
    words = ["sketchc", "lower", request.file]
    if task:
        words = ["sketchc", "gen", task, "--designer", "builtin"]
    words += ["--target", found.target]
    words += [] if request.hardware is None else ["--hardware", request.hardware]
    words += [] if name is None else ["--sketch", name]
    point = {**request.constants, **found.best}
    return shlex.join([*words, *(["--set", settings_text(point)] if point else [])])


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
    tree = sketches.the_sketch(source, request.sketch, types_of(task))
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
