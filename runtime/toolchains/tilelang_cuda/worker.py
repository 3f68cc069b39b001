"""Handlers of the worker processes of `tilelang_cuda`: compile a generated file, or run it.

Generated code is imported only here, in a process of its own.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sketchc.base.types import DType
from sketchc.runtime.guards.host_limit import HOST_SECONDS, HostTimeoutError, host_limit
from sketchc.runtime.process.messages import Arrays, failure
from sketchc.runtime.sandbox.confine import import_file
from sketchc.runtime.toolchains.guarded_call import entry_of, guarded_call, watch_of
from sketchc.runtime.toolchains.tilelang_cuda import execution
from sketchc.runtime.toolchains.tilelang_cuda.execution import CompilationError
from sketchc.runtime.toolchains.tracer import bound_call

_NAME = "generated_kernel"
#: Files that this process has imported, for all runs that it serves.
_MODULES: dict[str, ModuleType] = {}


class WrapperError(Exception):
    """The wrapper, not the compiler, raised an exception."""


def prepare() -> None:
    """In the template: import TileLang, which takes seconds, and have it print errors alone."""
    os.environ.setdefault("TILELANG_DISABLE_CACHE", "1")
    import tilelang.language  # noqa: F401

    from sketchc.runtime.toolchains.tilelang_cuda import standin  # noqa: F401

    logging.getLogger("tilelang").setLevel(logging.CRITICAL + 1)


# ---------------------------------------------------------------- run


def run_kernel(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Call the wrapper on the arrays; returns all out and inout tensors by name.

    The reply is {"device"}, or {"failure": {"stage", "message"}}. On the CPU, kernels run under the
    stand-in (see `execution`). With `request["foreign"]` the wrapper is watched.
    """
    prepare()
    if not request["gpu"]:
        execution.pretend((9, 0))
    watch = watch_of(request)
    execution.count_launches(watch)
    device = "cuda" if request["gpu"] else "cpu"
    return guarded_call(request, arrays, device, watch, lambda: _loaded(request))


def _loaded(request: Mapping[str, Any]) -> ModuleType:
    """The generated file of a request as a module, imported once per process."""
    path = request["source"]
    if path not in _MODULES:
        folder = Path(request["folder"])
        on_gpu = request["gpu"]
        _MODULES[path] = (
            import_file(path, _NAME) if on_gpu else execution.executable(path, _NAME, folder)
        )
    return _MODULES[path]


# ---------------------------------------------------------------- compile


def compile_kernels(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Compile every kernel that the wrapper launches to CUDA source and cubins, without a GPU. The
    reply is {"kernels"} (see `built_cubin`) or {"failure"}."""
    prepare()
    try:
        return {"kernels": _compile_all(request)}, {}
    except HostTimeoutError:
        message = f"the wrapper took more than {HOST_SECONDS:g} s without its kernels"
        return failure("timeout", message), {}


def _compile_all(request: dict[str, Any]) -> list[dict[str, Any]]:
    made: list[execution.Traced] = []
    with host_limit(HOST_SECONDS), execution.replaced(execution.recording(made.append)):
        module = import_file(request["source"], _NAME)
    examples = {
        t["name"]: torch.ones(t["extents"], dtype=getattr(torch, DType(t["dtype"]).numpy_name))
        for t in request["tensors"]
    }
    kernels: list[Future[dict[str, Any]]] = []
    with ThreadPoolExecutor(2) as others:  # nvcc runs beside the compiler
        for architecture in request["architectures"]:
            made.clear()
            pretend(architecture)
            try:
                bound_call(entry_of(module, request), request, examples, needed=True)()
            except CompilationError:
                raise
            except Exception as error:
                raise WrapperError(f"{type(error).__name__}: {error}") from error
            kernels += begun(made, architecture, Path(request["folder"]), others)
        return [each.result() for each in kernels]


def pretend(architecture: str) -> None:
    """Have torch say that there is a GPU of `architecture` ("sm_80", "sm_90a")."""
    execution.pretend(divmod(int(re.sub(r"\D", "", architecture)), 10))


def begun(
    made: Sequence[execution.Traced], architecture: str, folder: Path, others: Executor
) -> Iterator[Future[dict[str, Any]]]:
    """Make CUDA source of each traced kernel, one at a time, and have `others` compile it into
    `folder`; the results are those of `built_cubin`. Kernels of different functions may have one
    name: their files have a number behind it. Raises `CompilationError`."""
    taken: set[str] = set()
    for kernel in made:
        source = str(lowered(kernel, architecture).kernel_source)
        names = (f"{kernel.name}_{number}" for number in itertools.count(2))
        name = next(each for each in itertools.chain([kernel.name], names) if each not in taken)
        taken.add(name)
        yield others.submit(built_cubin, name, source, architecture, folder)


def lowered(kernel: execution.Traced, architecture: str) -> Any:
    """What TileLang makes of a traced kernel for `architecture` ("sm_80", "sm_90a"): `host_mod` and
    `device_mod`, and `kernel_source` in CUDA. Raises `CompilationError`."""
    import tilelang

    target = tilelang.tvm.target.Target({"kind": "cuda", "arch": architecture})
    try:
        with target, tilelang.tvm.transform.PassContext(config=dict(kernel.options)):
            return tilelang.lower(kernel.function, target=target)
    except Exception as error:
        last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise CompilationError(f"{kernel.name} for {architecture}: {last[0]}") from error


def built_cubin(name: str, source: str, architecture: str, folder: Path) -> dict[str, Any]:
    """Compile a CUDA source into `folder`; returns facts for the user, with the files of the source
    and of the cubin."""
    import tilelang

    text, cubin = (folder / f"{name}.{architecture}.{end}" for end in ("cu", "cubin"))
    text.write_text(source, "utf-8")
    headers = Path(tilelang.__file__).parent
    includes = [headers / "src", headers / "3rdparty" / "cutlass" / "include"]
    command = [os.environ.get("NVCC", "nvcc"), "-cubin", f"-arch={architecture}", "-std=c++17"]
    command += ["--expt-relaxed-constexpr", "-w", "-O3", *(f"-I{each}" for each in includes)]
    done = subprocess.run(
        [*command, "-Xptxas=-v", "-o", str(cubin), str(text)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line] or ["nvcc failed"]
        raise CompilationError(f"{name} for {architecture}: {said[0]}")
    return {
        "kernel": name,
        "architecture": architecture,
        "source": str(text),
        "cubin": str(cubin),
        **execution.resources(done.stderr),
    }
