"""Triton on NVIDIA GPUs: builds cubins for sm_80 and sm_90 without a GPU, runs on a GPU if present.

Without a GPU a run goes through Triton's interpreter on the CPU: the same kernel text, one program
after another. Everything happens in worker processes; on a GPU, the process that launches a kernel
which this project lowered loads only its cubins.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sketchc.lowering.hardware import load_hardware
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.process.venvs import installed
from sketchc.runtime.sandbox.worker import (
    Limits,
    PersistentWorker,
    Worker,
    run_worker,
)
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    TORCH_NOTED,
    Arrays,
    Artefact,
    ModelRun,
    Params,
    Session,
    Sizes,
    Tensors,
    Toolchain,
    ToolchainError,
    ToolchainStatus,
    check_python,
)
from sketchc.runtime.toolchains.cuda_driver import nvidia_gpu
from sketchc.runtime.toolchains.launching import (
    Call,
    Reply,
    built_folder,
    call_request,
    complete,
    example_values,
    placed,
    run_launches,
    workspace_bytes,
    wrapper_reply,
)

#: Stages of a `ToolchainError`.
COMPILE, LAUNCH, INFRASTRUCTURE = "compile", "launch", "infrastructure"

#: Compute capabilities that `compile` builds for besides the chip's own: A100 and H100/H200.
ARCHITECTURES = (80, 90)

_WORKER = "sketchc.runtime.toolchains.triton_cuda.worker"
_MODELS = "sketchc.runtime.toolchains.triton_cuda.models"
_TRACE = f"{_WORKER}:trace"
_LAUNCH = "sketchc.runtime.toolchains.triton_cuda.cuda_launcher:serve"
#: Modules and functions that the template of all runs in Triton's interpreter loads.
INTERPRETED = (
    "sketchc.runtime.toolchains.triton_cuda.interpreted",
    TORCH_NOTED,
)
_ADVICE = "pip install torch triton==3.6.0; to run on a GPU: torch for CUDA, an NVIDIA driver"
#: Modules and functions that the template of all other workers with Triton loads.
_IMPORTED = ("torch", "triton", "sketchc.runtime.toolchains.triton_cuda.worker:prepare")
#: Bytes of address space of the compiler and the interpreter; bytes of one file of the compiler's.
MEMORY_BYTES = 32 << 30
_COMPILER_FILE_BYTES = 1 << 30
_COMPILER_ERRORS = frozenset(
    {"CompilationError", "UnsupportedLanguageConstruct", "PTXASError", "OutOfResources"}
)


class TritonCuda(Toolchain):
    """The toolchain of `triton_cuda`."""

    target = "triton_cuda"

    def model_run(self, kernel: Kernel) -> ModelRun:
        """How a `ModelNew` runs: its launches run on the GPU; without one, they are interpreted,
        and compiled in another worker."""
        prepare, refusals = f"{_MODELS}:prepare", tuple(_COMPILER_ERRORS)
        if not self.status().interpreted:
            return ModelRun(prepare, on_device=True, refusals=refusals)
        return ModelRun(
            prepare,
            preload=INTERPRETED,
            environment={"TRITON_INTERPRET": "1"},
            gated=True,
            compiled_by=f"{_MODELS}:compile_launches",
            compiled_in={"TRITON_INTERPRET": "0"},
            refusals=refusals,
        )

    def status(self) -> ToolchainStatus:
        """See `Toolchain.status`; looks for packages and for the driver's device file."""
        versions = installed("torch", "triton")
        missing = tuple(name for name in ("torch", "triton") if name not in versions)
        gpu = nvidia_gpu() and "+cpu" not in versions.get("torch", "+cpu")
        usable = not missing
        how = "on the GPU" if gpu else "Triton's interpreter on the CPU"
        return ToolchainStatus(
            target=self.target,
            can_compile=usable,
            can_run=usable,
            how_it_runs=how if usable else "nowhere",
            versions=versions,
            missing=missing,
            advice="" if usable and gpu else _ADVICE,
            interpreted=usable and not gpu,
        )

    def install(self) -> str:
        """Install nothing, as the packages are extras of sketchc; returns what the user can do."""
        status = self.status()
        return "Nothing to install: torch and triton are here." if not status.missing else _ADVICE

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Build cubins for every launch of the wrapper, in 32-bit and 64-bit index variants.

        The wrapper runs once on small tensors with its launches recorded, not executed; then the
        recorded launches are compiled. Raises `ToolchainError` ("compile", "launch", "timeout",
        "infrastructure").
        """
        self._require_packages()
        check_python(kernel.source)
        source = placed(kernel, folder)
        built = built_folder(folder)
        symbols, params = example_values(kernel.sketch)
        facts = load_hardware(kernel.hardware).facts
        own = int(facts["chip"].removeprefix("sm_"))
        others = () if kernel.foreign else ARCHITECTURES
        request = {
            **call_request(kernel, source, symbols, params),
            "architectures": sorted({*others, own}),
            "chip": facts["chip"],
            "shared": facts["memory"]["shared"]["bytes"],
            "folder": str(built),
        }
        result = run_worker(
            f"{_WORKER}:compile_kernels",
            request,
            timeout=timeout,
            environment={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(built / "cache")},
            readable=[source],
            writable=[built],
            preload=_IMPORTED,
            memory_bytes=MEMORY_BYTES,
            file_bytes=_COMPILER_FILE_BYTES,
        )
        reply = wrapper_reply(result, COMPILE, timeout, _COMPILER_ERRORS)
        return Artefact(kernel, folder, details={"kernels": reply["kernels"]})

    def open(self, artefact: Artefact) -> Session:
        """A session for several runs of one kernel; see `base.Session`."""
        self._require_packages()
        interpreted = self.status().interpreted
        if not interpreted and not artefact.kernel.foreign:
            return LaunchedSession(artefact)
        return TritonSession(artefact, interpreted)

    def _require_packages(self) -> None:
        missing = self.status().missing
        if missing:
            message = f"{' and '.join(missing)} not installed: {_ADVICE}"
            raise ToolchainError(INFRASTRUCTURE, message)


class TritonSession(Session):
    """Runs of one kernel in one worker, which imports the kernel's file once. On a GPU the worker
    sets the driver up once for all runs, which takes seconds."""

    def __init__(self, artefact: Artefact, interpreted: bool) -> None:
        self._artefact = artefact
        self._source = placed(artefact.kernel, artefact.folder)
        make = self._interpreting if interpreted else self._on_the_gpu
        self._worker = PersistentWorker(f"{_WORKER}:run_kernel", make)
        self.workers = (self._worker,)

    def run(
        self, tensors: Tensors, symbols: Sizes, params: Params, timeout: float = 300.0
    ) -> Arrays:
        """See `base.Toolchain.run`."""
        request = call_request(self._artefact.kernel, self._source, symbols, params)
        result = self._worker.call(request, tensors, timeout)
        wrapper_reply(result, LAUNCH, timeout, _COMPILER_ERRORS)
        return dict(result.arrays)

    def _interpreting(self, tensor_bytes: int, file_bytes: int) -> Worker:
        return Worker(
            limits=Limits(MEMORY_BYTES, file_bytes=file_bytes),
            environment={"TRITON_INTERPRET": "1"},
            preload=INTERPRETED,
            readable=[self._source],
        )

    def _on_the_gpu(self, tensor_bytes: int, file_bytes: int) -> Worker:
        """A worker that runs the wrapper on the GPU. Its address space has no bound: the driver
        reserves some for all of the GPU's memory."""
        # Triton's cache: kernels compile once for all runs.
        built = built_folder(self._artefact.folder)
        return Worker(
            # An original that is its own task has Triton interpret in the command's process.
            environment={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(built / "cache")},
            preload=_IMPORTED,
            readable=[self._source],
            writable=[built],
        )


class LaunchedSession(Session):
    """Runs on a GPU of a kernel that this project lowered: one worker runs the wrapper, without a
    GPU, another one launches the cubins, without the wrapper (see `launching`).

    `launch`, if given, launches the cubins, for the `architecture` (90 for sm_90), instead of a
    worker on this machine's GPU.
    """

    def __init__(
        self, artefact: Artefact, architecture: int = 0, launch: Call | None = None
    ) -> None:
        self._artefact = artefact
        self._source = placed(artefact.kernel, artefact.folder)
        self._built = built_folder(artefact.folder)
        self._tracer = PersistentWorker(_TRACE, self._tracing)
        self._launcher = PersistentWorker(_LAUNCH, self._launching)
        self.workers = (self._tracer, self._launcher)
        self._launch = launch or self._on_the_gpu
        self._architecture = architecture
        #: Bytes of workspaces that the tracer's replies may have besides the tensors of the call.
        self._workspaces = 0

    def run(
        self, tensors: Tensors, symbols: Sizes, params: Params, timeout: float = 300.0
    ) -> Arrays:
        """See `base.Toolchain.run`."""
        sketch = self._artefact.kernel.sketch
        if not self._architecture:
            described = self._launch({"describe": True}, {}, timeout)[0]
            self._architecture = int(described["capability"])
        request = {
            **call_request(self._artefact.kernel, self._source, symbols, params),
            "architecture": self._architecture,
            "folder": str(self._built),
        }

        def trace(more: Mapping[str, Any], arrays: Arrays, left: float) -> Reply:
            result = self._tracer.call({**request, **more}, arrays, left)
            return wrapper_reply(result, LAUNCH, timeout, _COMPILER_ERRORS), dict(result.arrays)

        workspaces = workspace_bytes(sketch, symbols, params)
        if workspaces > self._workspaces:
            self._tracer.close()
            self._workspaces = 2 * workspaces
        arrays = complete(sketch, symbols, params, tensors)
        return run_launches(sketch, arrays, trace, self._launch, timeout)

    def _on_the_gpu(self, asked: Mapping[str, Any], arrays: Arrays, left: float) -> Reply:
        result = self._launcher.call(asked, arrays, left)
        try:
            return wrapper_reply(result, LAUNCH, round(left), _COMPILER_ERRORS), dict(result.arrays)
        except ToolchainError:
            self._launcher.close()  # its CUDA context is unusable after an error
            raise

    def _tracing(self, tensor_bytes: int, file_bytes: int) -> Worker:
        return Worker(
            limits=Limits(
                MEMORY_BYTES, file_bytes=file_bytes + self._workspaces + _COMPILER_FILE_BYTES
            ),
            environment={
                "TRITON_INTERPRET": "0",
                "TRITON_CACHE_DIR": str(self._built / "cache"),
                "CUDA_VISIBLE_DEVICES": "",
            },
            preload=_IMPORTED,
            readable=[self._source],
            writable=[self._built],
        )

    def _launching(self, tensor_bytes: int, file_bytes: int) -> Worker:
        """A worker that launches cubins. Its address space has no bound: the driver reserves some
        for all of the GPU's memory."""
        return Worker(preload=(_LAUNCH.partition(":")[0],), readable=[self._built])


TOOLCHAIN = TritonCuda()
