"""The toolchain of a target that exists only as documents: its build command and its runner, both
in workers (docs/RUNNERS.md). Nothing of the target's folder is imported."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchc.base.types import numpy_dtype
from sketchc.launch.conditions import broken
from sketchc.launch.inputs import absent_symbols
from sketchc.lowering.abi import passed
from sketchc.lowering.c_source.abi import actual_extents
from sketchc.lowering.registry import load_language
from sketchc.runtime.process.venvs import Environment, canonical
from sketchc.runtime.sandbox.worker import Limits, PersistentWorker, Worker, run_worker
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    Arrays,
    Artefact,
    Params,
    Session,
    Sizes,
    Tensors,
    Toolchain,
    ToolchainError,
    ToolchainStatus,
    last_lines,
    place,
    reply_of,
)
from sketchc.runtime.toolchains.native.session import signature

if TYPE_CHECKING:
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.target import Packages, Target

_WORKER = "sketchc.runtime.toolchains.documents.worker"
#: A line by which compilers say what is wrong.
_COMPLAINTS = (re.compile(r"\berror:", re.IGNORECASE), re.compile(r"\berror\b", re.IGNORECASE))


class DocumentToolchain(Toolchain):
    """See the module. `record` is the target's, with its `tools`."""

    def __init__(self, record: Target) -> None:
        assert record.tools is not None
        self.target, self._tools = record.name, record.tools
        self._folder = Path(record.documents)
        self._environment = environment_of(record.name, record.tools.packages)

    def status(self) -> ToolchainStatus:
        """See `Toolchain.status`; looks for programs and the environment, starts nothing."""
        tools, own = self._tools, self._environment
        if tools.never_built:
            return ToolchainStatus(
                self.target, False, False, "never", never_built=tools.never_built
            )
        versions = {}
        missing = [name for name in tools.programs if shutil.which(name) is None]
        missing += [name for name in tools.own_files if not (self._folder / name).is_file()]
        advice = [tools.advice] if tools.advice and missing else []
        if own is not None and own.python() is None:
            missing.append(f"{own.distribution} {own.version} in an environment of its own")
            advice.append(f"sketchc toolchain install {self.target}")
        elif tools.packages is not None:
            versions = dict(text.split("==", 1) for text in tools.packages.requirements)
        return ToolchainStatus(
            target=self.target,
            can_compile=not missing,
            can_run=not missing,
            how_it_runs=tools.how_it_runs,
            versions=versions,
            missing=tuple(missing),
            advice="; ".join(advice),
            interpreted=not tools.at_own_speed,
        )

    def install(self) -> str:
        """Make the environment of Python packages, where the target has one; returns a message on
        what was done. Raises `InstallError`."""
        own, packages = self._environment, self._tools.packages
        if self._tools.never_built:
            return f"there is nothing to install: {self._tools.never_built}"
        if own is None or packages is None:
            return self._tools.advice or "there is nothing to install"
        requirements = packages.requirements
        return own.install(own.distribution, lambda pip_install: pip_install(*requirements))

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Write the source into `folder` and run the build command, if there is one; `details`
        holds what it printed and seconds. A target that is never built gets its source written."""
        source = place(kernel, folder, _source(folder, kernel).name)
        details: dict[str, Any] = {"seconds": 0.0, "warnings": ""}
        if not self._tools.build:
            folder.chmod(folder.stat().st_mode | 0o055)  # workers may be another user
            return Artefact(kernel, folder, None, details)
        started = time.perf_counter()
        limit = min(timeout, self._tools.timeout)
        result = run_worker(
            f"{_WORKER}:build",
            {"command": self.command(self._tools.build, kernel, folder)},
            timeout=limit,
            preload=(_WORKER,),
            readable=[source, *self.readable()],
            writable=[folder],
        )
        reply = reply_of(result, limit, last_lines(result), stage="infrastructure")
        printed = reply["printed"].replace(f"{folder}/", "")
        if reply["status"]:
            message = _complaint(printed) or f"the build ended with status {reply['status']}"
            raise ToolchainError("compile", message, printed)
        details = {"seconds": round(time.perf_counter() - started, 3), "warnings": printed}
        return Artefact(kernel, folder, None, details)

    def build_module(self, kernel: Kernel, folder: Path) -> Path:
        """Raises `ToolchainError`: outside of its runner nobody calls such a kernel."""
        msg = f"a kernel of {self.target} is called by its runner alone: there is no module for it"
        raise ToolchainError(stage="infrastructure", message=msg)

    def open(self, artefact: Artefact) -> Session:
        """A session for several runs of one kernel; see `base.Session`."""
        return _Session(self, artefact)

    def command(self, template: tuple[str, ...], kernel: Kernel, folder: Path) -> list[str]:
        """A command line of the target for a kernel in its build folder, placeholders filled in."""
        python = None if self._environment is None else self._environment.python()
        known = {
            "source": _source(folder, kernel),
            "artefact": _built(folder, kernel),
            "entry": kernel.entry,
            "target": self._folder,
            "python": python or sys.executable,
        }
        return [re.sub(r"\{(\w+)\}", lambda found: str(known[found[1]]), part) for part in template]

    def readable(self) -> list[Path]:
        """What the target's programs may read beside the system's files."""
        found = [self._folder]
        if self._environment is not None and (python := self._environment.python()):
            # The interpreter of an environment leads to that which it was made with.
            found += [self._environment.folder(), python.resolve().parents[1]]
        return found

    def run_command(self, artefact: Artefact) -> list[str]:
        """The command line of the runner of a kernel."""
        return self.command(self._tools.run, artefact.kernel, artefact.folder)


def environment_of(target: str, packages: Packages | None) -> Environment | None:
    """The environment of a target's packages, which targets with the same ones share."""
    if packages is None:
        return None
    name, _, version = packages.requirements[0].partition("==")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = [_canonical(requirement) for requirement in packages.requirements[1:]]
    mark = hashlib.sha256("\0".join(others).encode()).hexdigest()[:8] if others else ""
    variable = f"SKETCHC_{target.upper()}_ENV"
    return Environment(name, version, variable, packages.pythons or (here,), mark)


def _canonical(requirement: str) -> str:
    name, _, version = requirement.partition("==")
    return f"{canonical(name)}=={version}"


class _Session(Session):
    """Runs of one kernel by one runner, in one worker."""

    def __init__(self, toolchain: DocumentToolchain, artefact: Artefact) -> None:
        self._tool, self._artefact = toolchain, artefact
        self._worker = PersistentWorker(f"{_WORKER}:execute", self._make)
        self.workers = (self._worker,)

    def run(
        self, tensors: Tensors, symbols: Sizes, params: Params, timeout: float = 300.0
    ) -> Arrays:
        """Run once, as `Toolchain.run` does; sizes that the sketch refuses are refused here."""
        request = {
            "command": self._tool.run_command(self._artefact),
            **request_of(self._artefact, symbols, params, tensors),
        }
        sketch = self._artefact.kernel.sketch
        known = {**symbols, **absent_symbols(sketch, tensors)}
        if refused := broken(sketch, known, params):
            msg, kinds = f"the sketch needs {refused}", ("LaunchError",)
            raise ToolchainError(stage="launch", message=msg, kinds=kinds)
        result = self._worker.call(request, tensors, timeout)
        try:
            reply_of(result, timeout, last_lines(result))
        except ToolchainError:
            self._worker.close()  # what the runner holds after an error, nobody knows
            raise
        return dict(result.arrays)

    def _make(self, tensor_bytes: int, file_bytes: int) -> Worker:
        readable = [self._artefact.folder, *self._tool.readable()]
        limits = Limits(file_bytes=file_bytes)
        return Worker(limits=limits, preload=(_WORKER,), readable=readable)


def request_of(
    artefact: Artefact, symbols: Sizes, params: Params, tensors: Tensors
) -> dict[str, Any]:
    """What the worker is asked: the manifest, but for its tensors, and the "tensors". A param's
    value is rounded to its type. Raises `ToolchainError` for arguments that do not fit."""
    kernel = artefact.kernel
    sketch, called = kernel.sketch, signature(kernel, symbols, params, tensors)
    types = {tensor.name: tensor.dtype.value for tensor in passed(sketch)}
    names = [("size", symbol.name, "i64") for symbol in sketch.symbols]
    names += [("param", param.name, param.dtype.value) for param in sketch.params]
    names += [("extent", name, "i64") for name, _, _ in actual_extents(sketch)]
    floats = {p.name: numpy_dtype(p.dtype) for p in sketch.params if p.dtype.is_float}
    scalars = []
    for (kind, name, dtype), (_, value) in zip(names, called["scalars"], strict=True):
        exact = float(floats[name].type(value)) if name in floats else value
        scalars.append({"name": name, "kind": kind, "dtype": dtype, "value": exact})
    built = _built(artefact.folder, kernel)
    manifest = {
        "kernel": str(_source(artefact.folder, kernel)),
        "artefact": str(built) if built.exists() else None,
        "entry": kernel.entry,
        "hardware": kernel.hardware,
        "scalars": scalars,
    }
    described = [
        {"name": name, "role": role, "dtype": types[name], "numpy": dtype, "shape": shape}
        for name, role, shape, dtype in called["tensors"]
    ]
    return {"manifest": manifest, "tensors": described}


def _source(folder: Path, kernel: Kernel) -> Path:
    """The file of a kernel's text."""
    return folder / f"{kernel.name}{load_language(kernel.language).suffix}"


def _built(folder: Path, kernel: Kernel) -> Path:
    """The file that a build may make."""
    return folder / f"{kernel.name}.built"


def _complaint(printed: str) -> str:
    """The first line that states an error, else one that speaks of errors, else the first one.
    Compilers count errors as well, and some print the count first."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    found = (line for asked in _COMPLAINTS for line in lines if asked.search(line))
    return next(found, lines[0] if lines else "")


def toolchain_of(record: Target) -> DocumentToolchain:
    """The toolchain of a target of documents; see `base.toolchain`."""
    return DocumentToolchain(record)
