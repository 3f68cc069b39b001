"""`sketchc.compile`: a function or module of PyTorch, replaced by verified kernels.

The first call with arguments of other types, ranks or constants writes a task from them
(`task_files`), and has `sketchc gen` make and verify its kernel, offline, in a process of its own:
the verification of kernels forks, and watches its children. The resulting drop-in computes this
call and later ones, at all sizes that its sketch takes. Drop-ins and verdicts are kept in the
user's store, and a drop-in is written and built once in the user's cache; the same task is not
made twice.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import nn

from sketchc.api import task_files
from sketchc.api.kernels import (
    CompileError,
    cached_folder,
    content_key,
    default_target,
    load_module,
    made_once,
)
from sketchc.api.surroundings import fingerprint
from sketchc.api.task_files import Call, Subject, key_of, task_of
from sketchc.base.files import default_store
from sketchc.runtime.process.peer import PYTHON_NAMES, PYTHON_PREFIXES, clean_environment
from sketchc.runtime.store import builds
from sketchc.runtime.store.database import StoreError

_LOG = logging.getLogger("sketchc")
#: The folder of a run of `gen`, beside its task.
_KERNEL = "kernel"


@attrs.define
class Build:
    """One verified kernel: `folder` holds its sketch, its code, the drop-in and the verdict."""

    folder: Path
    name: str
    model: nn.Module

    @property
    def sketch(self) -> str:
        """The sketch that the built-in Designer wrote."""
        return (self.folder / f"{self.name}.sketch").read_text("utf-8")


class Compiled:
    """A function that kernels compute, made by `compile`; `builds` are its kernels so far, by the
    key of the calls and surroundings that they are for."""

    def __init__(self, subject: Subject, target: str, hardware: str | None) -> None:
        self.subject, self.target, self.hardware = subject, target, hardware
        self.builds: dict[Any, list[Build]] = {}
        if not isinstance(subject.object, nn.Module):
            update_wrapper(self, subject.object)

    def __repr__(self) -> str:
        return f"<{self.subject.name} compiled for {self.target}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The original's result, computed by a kernel, which is made if there is none yet. Raises
        `CompileError` where no kernel could be verified."""
        call = self.subject.bound(args, kwargs)
        builds = self.builds.setdefault(self._key(call), [])
        for build in reversed(builds):
            try:
                return self._run(build, call)
            except ValueError as error:  # sizes or numbers that it was not made for
                _LOG.debug("%s: %s", build.folder, error)
        builds.append(self._build(call))
        return self._run(builds[-1], call)

    def prepare(self, *args: Any, **kwargs: Any) -> Build:
        """The kernel for a call with these arguments, made if there is none yet, but not called."""
        call = self.subject.bound(args, kwargs)
        builds = self.builds.setdefault(self._key(call), [])
        if not builds:
            builds.append(self._build(call))
        return builds[-1]

    def _key(self, call: Call) -> Any:
        return key_of(call), fingerprint(self.subject.object)

    def _run(self, build: Build, call: Call) -> Any:
        training = isinstance(self.subject.object, nn.Module) and self.subject.object.training
        if build.model.training != training:
            build.model.training = training  # not `train()`: the original stands in it
        return build.model.forward(*call.values)

    def _build(self, call: Call) -> Build:
        task = task_of(self.subject, call)
        chip = self.hardware or ""
        key = content_key("compiled", self.target, chip, torch.__version__, *task.identity)
        folder = cached_folder("compiled", key)
        made_once(folder, lambda place: self._fill(task, key, place))
        kernel = folder / _KERNEL
        module = load_module(kernel / f"{task.name}_dropin.py")
        model = module.ModelNew()
        # The state of the original, as it is at each call.
        setattr(model, task_files.INNER, self.subject.object)
        return Build(kernel, task.name, model)

    def _fill(self, task: task_files.TaskFiles, key: str, place: Path) -> None:
        """Put the drop-in and what belongs to it into `place`: what the user's store has under
        `key`, else a new one, which the store then keeps. Raises `CompileError`."""
        made, store = place / _KERNEL, default_store()
        try:
            found = builds.find_build(store, key) if store.exists() else {}
        except StoreError as error:
            found = {}
            _LOG.warning("%s", error)
        if found:
            _LOG.info("%s: found in %s", self.subject.name, store)
            made.mkdir()
            for name, text in found.items():
                (made / name).write_text(text, "utf-8")
            return
        self._generate(task, place)
        build = builds.Build(key, task.name, self.target, self.hardware or "")
        try:
            builds.keep_build(store, build, task.kept, dict(_texts(made)))
        except StoreError as error:
            _LOG.warning("not recorded: %s", error)

    def _generate(self, task: task_files.TaskFiles, place: Path) -> None:
        """Make the kernel and its drop-in in `place`. Raises `CompileError`."""
        made = place / _KERNEL
        path = task.write(place)
        _LOG.info("%s: making a kernel for %s", self.subject.name, self.target)
        command = [sys.executable, "-P", "-m", "sketchc", "gen", str(path), "-t", self.target]
        command += ["-o", str(made), "--designer", "builtin", "--no-bench", "--json", "-q"]
        command += ["--hardware", self.hardware] if self.hardware else []
        environment = clean_environment({}, PYTHON_NAMES, (*PYTHON_PREFIXES, "SKETCHC_"))
        ran = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        why = _reason(ran)
        if why is None and not (made / f"{task.name}_dropin.py").is_file():
            why = "it returns no tensors, or something besides"
        if why is not None:
            raise CompileError(f"no kernel of `{self.subject.name}` for {self.target}: {why}")


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    """The names and texts of the files in a folder; what was built is none, and is left out."""
    for path in sorted(folder.iterdir()):
        if path.is_file():
            with suppress(UnicodeDecodeError):
                yield path.name, path.read_text("utf-8")


def _reason(ran: subprocess.CompletedProcess[str]) -> str | None:
    """Why a run of `gen` made no verified kernel; None where it did."""
    if ran.returncode == 0:
        return None
    try:
        found = json.loads(ran.stdout)
        said = str(found.get("error", found)["reason"])
    except (ValueError, AttributeError, KeyError, TypeError):
        said = ""
    said = said or ran.stderr.strip() or f"gen ended with status {ran.returncode}"
    return said.removeprefix("error: ")


class CompiledModule(nn.Module):
    """A module whose `forward` is computed by kernels. `module` is the original, whose parameters
    and buffers the kernels read at each call; `compiled` has the kernels."""

    def __init__(self, module: nn.Module, compiled: Compiled) -> None:
        super().__init__()
        self.module = module
        self.compiled = compiled
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the original's `forward`, computed by a kernel."""
        return self.compiled(*args, **kwargs)


def compile(
    function: Callable[..., Any] | nn.Module | None = None,
    *,
    target: str | None = None,
    hardware: str | None = None,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
) -> Any:
    """A function or module of PyTorch, computed by kernels that were verified against it.

    The result is called like the original (`CompiledModule` for a module, else `Compiled`). Kernels
    are made at the first call with arguments of new types, ranks or constants, which takes some 20
    seconds, or at once for `inputs` (by position, or by name). Modules are computed as in
    evaluation mode. There is no backward pass. `target` is by default triton_cuda where torch sees
    a GPU, else cpp. Without a function, `compile` returns a decorator.

    Raises `CompileError`, here or at a call, where there is no verified kernel: nothing is computed
    by PyTorch in its stead.
    """
    if function is None:
        return lambda given: compile(given, target=target, hardware=hardware, inputs=inputs)
    compiled = Compiled(Subject.of(function), target or default_target(), hardware)
    if inputs is not None:
        by_name = dict(inputs) if isinstance(inputs, Mapping) else {}
        compiled.prepare(*(() if isinstance(inputs, Mapping) else inputs), **by_name)
    if isinstance(function, nn.Module):
        return CompiledModule(function, compiled)
    return compiled
