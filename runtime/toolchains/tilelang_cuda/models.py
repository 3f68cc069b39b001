"""TileLang's launches of a `ModelNew`: on the GPU, or on the CPU under the stand-in; there, all
kernels can be compiled for a chip besides.

The file is imported with what stands in for TileLang in its place, as a generated file is
(`execution`); the guard counts launches where kernels are called.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sketchc.lowering.hardware import architecture
from sketchc.runtime.toolchains.tilelang_cuda import execution, worker
from sketchc.runtime.toolchains.torch_module.worker import (
    SESSIONS,
    Arrays,
    LoadedModule,
    raised,
    recorded,
)

#: The kernels that a file has made, where launches are only recorded.
_MADE: list[execution.Traced] = []


def prepare(session: LoadedModule, request: dict[str, Any]) -> None:
    """`ModelRun.prepare`: chooses the device, and reports launches to the session's guard. Where
    there is no GPU ("gpu" of the request), what stands in for TileLang takes its place for good:
    kernels run on the CPU or, if the request is "dry", are noted."""
    folder = Path(tempfile.mkdtemp(prefix="tilelang-"))
    os.environ.setdefault("TILELANG_CACHE_DIR", str(folder))
    worker.prepare()
    if request["dry"]:
        worker.pretend(architecture(request["hardware"]))
        execution.replace(execution.recording(_MADE.append))
        return
    execution.count_launches(session.guard)
    if request["gpu"]:
        session.device = "cuda"
        return
    from sketchc.runtime.toolchains.tilelang_cuda import standin

    execution.pretend((9, 0))
    execution.replace(execution.executing(folder), standin)


def compile_launches(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Compile the kernels that the file makes until forward has run once, without a GPU.

    `request`: that of `torch_module.worker.recorded`, and "hardware" (the facts of the chip). The
    reply holds "kernels", see `tilelang_cuda.worker.compile_kernels`, or {"failure"}.
    """
    if failed := recorded(request, nullcontext()):
        return failed, {}
    chip, folder = architecture(request["hardware"]), Path(tempfile.mkdtemp())
    try:
        with ThreadPoolExecutor(2) as others:
            kernels = list(worker.begun(_MADE, chip, folder, others))
            return {"kernels": [kernel.result() for kernel in kernels]}, {}
    except execution.CompilationError as error:
        return raised(SESSIONS[0], "compile", error), {}
