"""Recording verdicts, measurements and runs: few calls, which never fail the command that makes
them.

    recorder = Recorder(path, task, warn)    # before the work: keeps the task's text as it is now
    recorder.verdict(candidate, verdict)     # afterwards; returns the new row's id

Errors (a full disk, read-only media, a file that is no store) are reported once, as a warning.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sketchc.base.diagnostics import UsageError
from sketchc.base.version import __version__
from sketchc.lowering.registry import all_targets
from sketchc.runtime.bench.machine import processor_name
from sketchc.runtime.process.venvs import installed
from sketchc.runtime.store import writing
from sketchc.runtime.store.origins import named
from sketchc.runtime.store.tunings import Best, PointRow, Setting, put_best, put_points
from sketchc.runtime.store.writing import KernelRow, RunStep, SketchText, TaskText
from sketchc.runtime.tasks.outline import modules_beside

if TYPE_CHECKING:
    import sqlite3

    from sketchc.runtime.bench.measurement import Measurement
    from sketchc.runtime.store.writing import RunRow
    from sketchc.runtime.tasks.task import Task
    from sketchc.runtime.verify.verdict import Verdict
    from sketchc.runtime.verify.verify import Candidate

#: By driver: the file that names its version, and the pattern of the version in that file.
_DRIVERS = {
    "nvidia driver": ("/proc/driver/nvidia/version", r"Kernel Module\D*([\d.]+)"),
    "ascend driver": ("/usr/local/Ascend/driver/version.info", r"(?i)version=([\w.]+)"),
}


def environment(versions: Mapping[str, str]) -> dict[str, str]:
    """This machine's versions, with `versions`, those of the toolchain or of the task's process."""
    return {**_machine(), **{str(name): str(value) for name, value in versions.items()}}


@lru_cache(maxsize=1)
def _machine() -> Mapping[str, str]:
    found = {
        "sketchc": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor_name(),
    }
    own = (package for target in all_targets() for package in target.distributions)
    found |= installed("torch", *own, "numpy")
    for name, (path, pattern) in _DRIVERS.items():
        try:
            match = re.search(pattern, Path(path).read_text("utf-8", "replace"))
        except OSError:
            continue
        if match:
            found[name] = match[1]
    return found


#: Seconds that a command waits for other writers before it gives up recording.
_PATIENCE = 10.0
#: A module that a task imports is kept with it up to this size, in bytes.
_LARGEST_MODULE = 1 << 20

Made = TypeVar("Made")


class Recorder:
    """Writes verdicts, measurements and runs for one task into one store.

    `path` None records nothing. `warn` is called, once, with why nothing is recorded.
    """

    def __init__(self, path: Path | None, task: Task, warn: Callable[[str], None]) -> None:
        self.path = path
        self.warn = warn
        self.task = None if path is None else self._guarded(lambda: read_task(task))

    def verdict(self, candidate: Candidate, verdict: Verdict) -> str | None:
        """Keep a verdict with the kernel, task and environment that it refers to. Returns its id,
        None where nothing was recorded."""
        from sketchc.runtime.verify.verdict import to_json

        called = candidate.signature
        text = None if called is None else called.text
        row = partial(kernel_row, candidate)
        return self.claim("verdict", row, lambda: to_json(verdict), signature=text)

    def measurement(self, candidate: Candidate, measured: Measurement) -> str | None:
        """Keep a measurement with its raw samples. Returns its id, None if it was not recorded."""
        from sketchc.runtime.bench.text import to_json

        row = partial(kernel_row, candidate)
        return self.claim("measurement", row, lambda: to_json(measured))

    def claim(
        self,
        kind: str,
        kernel: Callable[[], KernelRow],
        claim: Callable[[], Mapping[str, Any]],
        made_in: RunStep | None = None,
        signature: str | None = None,
    ) -> str | None:
        """Keep a claim of the `kind` "verdict" or "measurement", with the versions that it was made
        with. `kernel` and `claim` are called when they are needed, so that their exceptions become
        warnings, too. Returns the claim's id, None where nothing was recorded."""

        def write(connection: sqlite3.Connection, task: str) -> str:
            found = claim()
            versions = {**found.get("machine", {}).get("versions", {}), **found.get("versions", {})}
            made_with = writing.put_environment(connection, environment(versions))
            rests_on = (writing.put_kernel(connection, kernel()), task, made_with)
            return writing.put_claim(connection, kind, *rests_on, found, made_in, signature)

        return self._write(write)

    def run(
        self, run: Callable[[], RunRow], calls: Callable[[], Sequence[Mapping[str, Any]]]
    ) -> str | None:
        """Keep the current state of a run, with the lines of its ledger after the header; lines
        that are recorded already are not written again. Returns its id, None if not recorded."""

        def write(connection: sqlite3.Connection, task: str) -> str:
            found = run()
            versions = environment(found.trace.get("versions", {}))
            made_with = writing.put_environment(connection, versions)
            return writing.put_run(connection, found, task, made_with, calls())

        return self._write(write)

    def points(
        self, setting: Setting, points: Sequence[PointRow], versions: Mapping[str, str]
    ) -> None:
        """Keep points of a tuning, measured with these versions of the toolchain."""

        def write(connection: sqlite3.Connection, task: str) -> str:
            made_with = writing.put_environment(connection, environment(versions))
            return put_points(connection, task, made_with, setting, points)

        self._write(write)

    def best_point(self, setting: Setting, best: Best, versions: Mapping[str, str]) -> None:
        """Keep the point that a tuning chose."""

        def write(connection: sqlite3.Connection, task: str) -> str:
            made_with = writing.put_environment(connection, environment(versions))
            return put_best(connection, task, made_with, setting, best)

        self._write(write)

    def _write(self, write: Callable[[sqlite3.Connection, str], str]) -> str | None:
        """Call `write` with a connection and the task's id, in one transaction that also keeps the
        task; returns what it returns, None where nothing was recorded."""
        task, path = self.task, self.path
        if task is None or path is None:
            return None

        def work() -> str:
            from sketchc.runtime.store.database import open_store, transaction

            with open_store(path, _PATIENCE) as connection, transaction(connection):
                return write(connection, writing.put_task(connection, task))

        return self._guarded(work)

    def _guarded(self, work: Callable[[], Made]) -> Made | None:
        """What `work` returns; None, with a warning, for any exception, after which nothing more is
        recorded: a result that took minutes is not lost because it cannot be kept."""
        try:
            return work()
        except UsageError as error:
            reason = str(error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        self.warn(f"warning: not recorded: {reason}")
        self.path = None
        return None


# ---------------------------------------------------------------- what is recorded


def read_task(task: Task) -> TaskText:
    """The task's file with the modules beside it that it imports, directly or through others.
    Raises `OSError` and `UnicodeDecodeError`."""
    path = task.path
    text = path.read_text("utf-8")
    files = modules_beside(path, _LARGEST_MODULE)
    modules = {file.name: file.read_text("utf-8") for file in files}
    outline = getattr(task, "outline", None)
    return TaskText(path.name, text, modules, "Model" if outline is None else outline.subject)


def sketch_text(text: str, name: str) -> SketchText:
    """The sketch `name` of a `text` with one or several sketches. Raises `ValueError` where the
    text does not parse or has no such sketch."""
    from sketchc.base.diagnostics import Source
    from sketchc.parsing.parser import parse
    from sketchc.runtime.store.canonical import VERSION, canonical_hash

    tree, _ = parse(Source(f"{name}.sketch", text))
    sketches = () if tree is None else tree.sketches
    for sketch in named(sketches, name):
        return SketchText(text, sketch.name, canonical_hash(sketch), VERSION)
    raise ValueError(f"the text holds no sketch {name}")


def kernel_row(
    candidate: Candidate, sketch: SketchText | None = None, origin: str = ""
) -> KernelRow:
    """The row of a candidate's kernel. Its sketch is `sketch`, else the candidate's own, if it has
    one; without `origin`, a kernel by others is "given", any other "builtin"."""
    from sketchc.ir.evaluate import constants_of

    plan, kernel, source = candidate.plan, candidate.kernel, candidate.source
    if sketch is None and source is not None:
        sketch = sketch_text(source.text, plan.sketch.name)
    origin = origin or ("given" if kernel.foreign else "builtin")
    return KernelRow(kernel, origin, constants_of(plan.sketch), sketch)
