"""The toolchain of the toy target: there is nothing to build, and a worker runs the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    Artefact,
    Toolchain,
    ToolchainError,
    ToolchainStatus,
    check_python,
)
from sketchc.runtime.toolchains.launching import complete

Arrays = dict[str, np.ndarray[Any, Any]]


class ToyToolchain(Toolchain):
    """See `base.Toolchain`."""

    target = "toy"

    def status(self) -> ToolchainStatus:
        """Always here."""
        versions = {"numpy": np.__version__}
        return ToolchainStatus("toy", True, True, "in NumPy", versions, interpreted=True)

    def install(self) -> str:
        """NumPy comes with sketchc."""
        return "Nothing to install."

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Only reads the file."""
        del timeout
        check_python(kernel.source)
        return Artefact(kernel, folder)

    def run(
        self,
        artefact: Artefact,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        timeout: float = 300.0,
    ) -> Arrays:
        """Once, in a worker."""
        sketch = artefact.kernel.sketch
        roles = {t.name: t.role for t in sketch.tensors if t.role is not ir.Role.WORKSPACE}
        request = {
            "source": artefact.kernel.source,
            "entry": artefact.kernel.entry,
            "given": [name for name, role in roles.items() if role is not ir.Role.OUT],
            "out": [name for name, role in roles.items() if role is ir.Role.OUT],
            "params": dict(params),
        }
        handler = "sketchc.runtime.toolchains.toy.toolchain:execute"
        arrays = complete(sketch, symbols, params, tensors)
        result = run_worker(handler, request, arrays, timeout=timeout)
        if result.timed_out:
            raise ToolchainError(stage="timeout", message=f"no answer within {timeout:g} s")
        if result.reply is None:
            raise ToolchainError(
                stage="launch", message=result.describe(), log=result.traceback, kinds=result.kinds
            )
        if refused := result.reply.get("refused"):
            raise ToolchainError(stage="launch", message=refused, kinds=("LaunchError",))
        results = [name for name, role in roles.items() if role is not ir.Role.IN]
        return {name: result.arrays[name] for name in results}


def execute(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """In the worker: run the file's function on these arrays."""
    space: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(request["source"], "kernel.py", "exec"), space)
    copies = {name: np.array(array) for name, array in arrays.items()}
    outputs = [copies[name] for name in request["out"]]
    given = [copies[name] for name in request["given"]]
    keywords = dict(request["params"])
    if outputs:
        keywords["out"] = outputs[0] if len(outputs) == 1 else tuple(outputs)
    try:
        space[request["entry"]](*given, **keywords)
    except space["LaunchError"] as error:
        return {"refused": str(error)}, {}
    return {}, copies


TOOLCHAIN = ToyToolchain()
