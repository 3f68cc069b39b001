"""TileLang for NVIDIA GPUs: builds CUDA source and cubins for sm_80 and the chip without a GPU, and
runs on a GPU if present.

Without a GPU the text of a kernel runs on the CPU: `standin` takes the place of
`tilelang.language`, and TileLang's C backend and g++ make a function of each kernel. Everything
happens in workers.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sketchc.lowering.hardware import architecture, load_hardware
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.process.venvs import installed, run_installer
from sketchc.runtime.sandbox.worker import (
    Limits,
    PersistentWorker,
    Worker,
    run_worker,
)
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
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
    built_folder,
    call_request,
    example_values,
    placed,
    wrapper_reply,
)
from sketchc.runtime.toolchains.nvcc import find_nvcc, install_nvcc, nvcc_version

#: Stages of a `ToolchainError`.
COMPILE, LAUNCH, INFRASTRUCTURE = "compile", "launch", "infrastructure"
#: Compute capabilities that `compile` builds for besides the chip's own: A100.
ARCHITECTURES = ("sm_80",)
#: Packages that must be there, and the one version of TileLang that kernels are written for.
VERSION = "0.1.15"
_PACKAGES = ("torch", "tilelang")
_ADVICE = (
    f"sketchc toolchain install tilelang_cuda (tilelang {VERSION}, and nvcc where there is none), "
    "torch, g++; to run on a GPU: torch for CUDA, an NVIDIA driver"
)
_WORKER = "sketchc.runtime.toolchains.tilelang_cuda.worker"
_MODELS = "sketchc.runtime.toolchains.tilelang_cuda.models"
#: Modules and functions that the template of all workers loads.
_IMPORTED = ("torch", f"{_WORKER}:prepare")
#: The same where there is a GPU: TileLang's import reaches for it, and no fork can after that.
_IMPORTED_BESIDE_GPU = ("torch",)
#: Bytes of address space of the compiler and of runs; bytes of one file of the compiler's.
MEMORY_BYTES = 32 << 30
_COMPILER_FILE_BYTES = 1 << 30
_COMPILER_ERRORS = frozenset({"CompilationError"})


class TileLangCuda(Toolchain):
    """The toolchain of `tilelang_cuda`."""

    target = "tilelang_cuda"

    def model_run(self, kernel: Kernel) -> ModelRun:
        """How a `ModelNew` runs: its kernels run on the GPU; without one, on the CPU under the
        stand-in, and another worker compiles them for the chip."""
        prepare, refusals = f"{_MODELS}:prepare", tuple(_COMPILER_ERRORS)
        if not self.status().interpreted:
            return ModelRun(
                prepare,
                told={"gpu": True},
                preload=_IMPORTED_BESIDE_GPU,
                environment=environment(),
                on_device=True,
                refusals=refusals,
            )
        return ModelRun(
            prepare,
            told={"gpu": False},
            preload=_IMPORTED,
            environment=environment(),
            gated=True,
            compiled_by=f"{_MODELS}:compile_launches",
            compiled_in=environment(),
            refusals=refusals,
        )

    def status(self) -> ToolchainStatus:
        """See `Toolchain.status`; looks for packages, compilers and the driver's device file."""
        versions, nvcc = installed(*_PACKAGES), find_nvcc()
        missing = [name for name in _PACKAGES if name not in versions]
        if versions.get("tilelang", VERSION) != VERSION:
            missing.append(f"tilelang {VERSION}")
        missing += [] if shutil.which("g++") else ["g++"]
        if nvcc is None:
            missing.append("nvcc")
        else:
            versions["nvcc"] = nvcc_version(nvcc)
        gpu = nvidia_gpu() and "+cpu" not in versions.get("torch", "+cpu")
        usable = not missing
        how = "on the GPU" if gpu else "its text on the CPU, through TileLang's C backend"
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
        """Install TileLang beside sketchc, and nvcc, unless they are here; returns a message that
        also says what is missing still. Raises `InstallError`."""
        done = [install_nvcc()]
        if installed("tilelang").get("tilelang") != VERSION:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run_installer([*pip, f"tilelang=={VERSION}"])
            done.append(f"installed tilelang {VERSION}")
        missing = self.status().missing
        done += [f"still missing: {', '.join(missing)}; {_ADVICE}"] if missing else []
        return "\n".join(done)

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Build CUDA source and a cubin of every kernel that the wrapper launches.

        The wrapper runs once on small tensors with its launches recorded, not executed. Raises
        `ToolchainError` ("compile", "launch", "timeout", "infrastructure").
        """
        self._require_packages()
        check_python(kernel.source)
        source = placed(kernel, folder)
        built = built_folder(folder)
        symbols, params = example_values(kernel.sketch)
        own = architecture(load_hardware(kernel.hardware).facts)
        others = () if kernel.foreign else ARCHITECTURES
        request = {
            **call_request(kernel, source, symbols, params),
            "architectures": sorted({*others, own}),
            "folder": str(built),
        }
        result = run_worker(
            f"{_WORKER}:compile_kernels",
            request,
            timeout=timeout,
            environment=environment(built),
            readable=[source],
            writable=[built],
            preload=_IMPORTED if self.status().interpreted else _IMPORTED_BESIDE_GPU,
            memory_bytes=MEMORY_BYTES,
            file_bytes=_COMPILER_FILE_BYTES,
        )
        reply = wrapper_reply(result, COMPILE, timeout, _COMPILER_ERRORS)
        return Artefact(kernel, folder, details={"kernels": reply["kernels"]})

    def open(self, artefact: Artefact) -> Session:
        """A session for several runs of one kernel; see `base.Session`."""
        self._require_packages()
        return TileLangSession(artefact, gpu=not self.status().interpreted)

    def _require_packages(self) -> None:
        missing = self.status().missing
        if missing:
            message = f"{' and '.join(missing)} not installed: {_ADVICE}"
            raise ToolchainError(INFRASTRUCTURE, message)


class TileLangSession(Session):
    """Runs of one kernel in one worker, which imports the kernel's file once."""

    def __init__(self, artefact: Artefact, gpu: bool) -> None:
        self._artefact, self._gpu = artefact, gpu
        self._source = placed(artefact.kernel, artefact.folder)
        self._built = built_folder(artefact.folder)
        self._worker = PersistentWorker(f"{_WORKER}:run_kernel", self._make)
        self.workers = (self._worker,)

    def run(
        self, tensors: Tensors, symbols: Sizes, params: Params, timeout: float = 300.0
    ) -> Arrays:
        """See `base.Toolchain.run`."""
        request = {
            **call_request(self._artefact.kernel, self._source, symbols, params),
            "gpu": self._gpu,
            "folder": str(self._built),
        }
        result = self._worker.call(request, tensors, timeout)
        wrapper_reply(result, LAUNCH, timeout, _COMPILER_ERRORS)
        return dict(result.arrays)

    def _make(self, tensor_bytes: int, file_bytes: int) -> Worker:
        """A worker that runs the wrapper. On a GPU its address space has no bound: the driver
        reserves some for all of the GPU's memory."""
        bounded = Limits(MEMORY_BYTES, file_bytes=file_bytes)
        return Worker(
            environment=environment(self._built),
            preload=_IMPORTED_BESIDE_GPU if self._gpu else _IMPORTED,
            readable=[self._source],
            writable=[self._built],
            limits=Limits() if self._gpu else bounded,
        )


def environment(built: Path | None = None) -> dict[str, str]:
    """The variables of a worker. TileLang keeps its files in the folder `built`; without one, the
    worker chooses a folder of its own."""
    nvcc = find_nvcc() or "nvcc"
    # TileLang itself looks on the path, or in the folder of a CUDA toolkit.
    home = {} if shutil.which("nvcc") else {"CUDA_HOME": str(Path(nvcc).parents[1])}
    kept = {} if built is None else {"TILELANG_CACHE_DIR": str(built / "cache")}
    return {**kept, "TILELANG_DISABLE_CACHE": "1", "NVCC": nvcc, **home}


TOOLCHAIN = TileLangCuda()
