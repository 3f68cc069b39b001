"""Triton on NVIDIA GPUs: cubins for sm_80 and sm_90 without a GPU, runs on one where there is one.

Without a GPU a run goes through Triton's interpreter on the CPU: the same kernel text, one program
after another. Both compile and run happen in worker processes.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc import ir
from sketchc.evaluate import evaluate, host_values
from sketchc.lowering.triton.scope import Names
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    Artefact,
    ToolchainError,
    ToolchainStatus,
    write_source,
)
from sketchc.runtime.worker import WorkerResult, file_limit, run_worker

if TYPE_CHECKING:
    import numpy as np

    from sketchc.lowering.kernel import Kernel

Value = int | float | bool

#: Stages of a `ToolchainError`.
COMPILE, LAUNCH, TIMEOUT, INFRASTRUCTURE = "compile", "launch", "timeout", "infrastructure"

#: Compute capabilities that `compile` builds for: A100 and H100/H200.
ARCHITECTURES = (80, 90)

_WORKER = "sketchc.runtime.toolchains.triton_cuda_worker"
_ADVICE = "pip install torch triton==3.6.0; to run on a GPU: torch for CUDA, an NVIDIA driver"
#: Sizes that example launches try for all symbols together, then for each on its own.
_SIZES = (256, 64, 48, 16, 8, 4, 2, 1, 1024)
_LARGEST_EXAMPLE = 1 << 24  # elements of one tensor
_LOG_LINES = 40


@attrs.frozen
class TritonCuda:
    """The toolchain of `triton_cuda`."""

    target: str = "triton_cuda"

    def status(self) -> ToolchainStatus:
        """Looks for packages and for the driver's device file; imports nothing heavy."""
        versions, missing = {}, []
        for name in ("torch", "triton"):
            if importlib.util.find_spec(name) is None:
                missing.append(name)
            else:
                versions[name] = importlib.metadata.version(name)
        gpu = Path("/dev/nvidiactl").exists() and "+cpu" not in versions.get("torch", "+cpu")
        usable = not missing
        how = "on the GPU" if gpu else "Triton's interpreter on the CPU"
        return ToolchainStatus(
            target=self.target,
            can_compile=usable,
            can_run=usable,
            how_it_runs=how if usable else "nowhere",
            versions=versions,
            missing=tuple(missing),
            advice="" if usable and gpu else _ADVICE,
            interpreted=usable and not gpu,
        )

    def install(self) -> str:
        """Packages come with the extras of sketchc; nothing is done here."""
        status = self.status()
        return "Nothing to install: torch and triton are here." if not status.missing else _ADVICE

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Cubins for every launch of the wrapper, in 32-bit and 64-bit index variants.

        The wrapper runs once on small tensors with its launches recorded, not executed; what it
        would launch is compiled. Raises `ToolchainError` ("compile", "timeout", "infrastructure").
        """
        self._require_packages()
        source = _write(kernel, folder)
        symbols, params = example_values(kernel.sketch)
        request = {
            **_request(kernel, source, symbols, params),
            "architectures": list(ARCHITECTURES),
            "folder": str(folder),
        }
        result = run_worker(
            f"{_WORKER}:compile_kernels",
            request,
            timeout=timeout,
            environment={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder / "cache")},
        )
        reply = _reply(result, COMPILE)
        return Artefact(kernel, folder, details={"kernels": reply["kernels"]})

    def run(
        self,
        artefact: Artefact,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        symbols: Mapping[str, int],
        params: Mapping[str, Value],
        timeout: float = 300.0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """One run in a worker process; see `Toolchain.run`."""
        self._require_packages()
        kernel = artefact.kernel
        source = _write(kernel, artefact.folder)
        request = _request(kernel, source, symbols, params)
        environment = {} if not self.status().interpreted else {"TRITON_INTERPRET": "1"}
        result = run_worker(
            f"{_WORKER}:run_kernel",
            request,
            tensors,
            timeout=timeout,
            environment=environment,
            preload=("torch",),
        )
        _reply(result, LAUNCH)
        return dict(result.arrays)

    def _require_packages(self) -> None:
        missing = self.status().missing
        if missing:
            message = f"{' and '.join(missing)} not installed: {_ADVICE}"
            raise ToolchainError(INFRASTRUCTURE, message)


def _write(kernel: Kernel, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kernel.name}.{kernel.target}.py"
    path.write_text(kernel.source, "utf-8")
    return path


def _request(
    kernel: Kernel, source: Path, symbols: Mapping[str, int], params: Mapping[str, Value]
) -> dict[str, Any]:
    """What the worker needs to call the wrapper: JSON-able."""
    values = host_values(kernel.sketch, symbols, params)
    names = Names(kernel.sketch)
    return {
        "source": str(source),
        "entry": kernel.entry,
        "params": {names[name]: value for name, value in params.items()},
        "tensors": [
            {
                "name": tensor.name,
                "role": tensor.role.value,
                "dtype": tensor.dtype.value,
                "extents": [int(evaluate(extent, values)) for extent in tensor.extents],
            }
            for tensor in kernel.sketch.tensors
            if tensor.role is not ir.Role.WORKSPACE
        ],
    }


def _reply(result: WorkerResult, stage: str) -> dict[str, Any]:
    """The reply, or what went wrong as a `ToolchainError`."""
    if result.reply is not None:
        return dict(result.reply)
    log = "\n".join((result.output + "\n" + result.traceback).strip().splitlines()[-_LOG_LINES:])
    if result.timed_out:
        raise ToolchainError(TIMEOUT, result.describe(), log)
    kind, _, message = result.error.partition(": ")
    if kind == "LaunchError":
        raise ToolchainError(LAUNCH, message, log)
    if kind in ("CompilationError", "UnsupportedLanguageConstruct", "PTXASError", "OutOfResources"):
        raise ToolchainError(COMPILE, result.describe(), log)
    raise ToolchainError(stage if kind else INFRASTRUCTURE, result.describe(), log)


def example_values(
    sketch: ir.Sketch,
) -> tuple[dict[str, int], dict[str, Value]]:
    """Symbols and params at which the wrapper's checks pass, for a launch that only compiles.

    Raises `ToolchainError` when none of the sizes tried satisfies the requires.
    """
    params: dict[str, Value] = {}
    for param in sketch.params:
        example = 1.0 if param.dtype.is_float else 1
        params[param.name] = example if param.default is None else param.default
    names = [symbol.name for symbol in sketch.symbols]
    alike = (dict.fromkeys(names, size) for size in _SIZES)
    few = itertools.islice(itertools.product(_SIZES, repeat=len(names)), 100_000)
    apart = (dict(zip(names, sizes, strict=True)) for sizes in few)
    for symbols in itertools.chain(alike, apart):
        if _admissible(sketch, symbols, params):
            return symbols, params
    message = "no example sizes satisfy the sketch's requires"
    raise ToolchainError(COMPILE, message)


def _admissible(sketch: ir.Sketch, symbols: dict[str, int], params: Mapping[str, Value]) -> bool:
    for symbol in sketch.symbols:
        if symbol.upper_bound is not None and symbols[symbol.name] > symbol.upper_bound:
            return False
    try:
        values = host_values(sketch, symbols, params)
        shapes = [[int(evaluate(e, values)) for e in t.extents] for t in sketch.tensors]
        holds = all(evaluate(require.condition, values) for require in sketch.requires)
    except (ZeroDivisionError, ValueError, OverflowError):
        return False
    return holds and all(0 < math.prod(shape) <= _LARGEST_EXAMPLE for shape in shapes)


TOOLCHAIN = TritonCuda()
