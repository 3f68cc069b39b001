"""The CUDA-C toolchain: nvcc makes the chip's code, which a GPU runs; where there is none, the CPU
runs what g++ makes of the same source.

There it is built against the header in `emulator`, which runs the threads of a block as fibers, in
another order at each launch.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from sketchc.base.files import replace_file
from sketchc.lowering.cuda_c.target import LANGUAGE_FLAGS, SHARED_FLAGS, made_for
from sketchc.lowering.hardware import load_hardware
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.guards.binary import Library, inspect_elf
from sketchc.runtime.process.peer import run_compiler
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    Artefact,
    Session,
    Toolchain,
    ToolchainError,
    ToolchainStatus,
    place,
    written,
)
from sketchc.runtime.toolchains.cuda_c.translation import for_cpu
from sketchc.runtime.toolchains.cuda_driver import nvidia_gpu
from sketchc.runtime.toolchains.native.compiler import (
    build,
    cache_folder,
    compiler_version,
    find_compiler,
)
from sketchc.runtime.toolchains.native.session import NativeSession
from sketchc.runtime.toolchains.nvcc import find_nvcc, install_nvcc, nvcc_version

#: The headers in the place of CUDA's own.
EMULATOR = Path(__file__).with_name("emulator")
#: Warnings stay off: nvcc's are the ones that count. A fortified longjmp takes the change from one
#: fiber to another for damage to the stack; some systems fortify whatever they compile.
_FLAGS = (
    *("-std=c++20", "-O1", "-ffp-contract=off", "-fwrapv", "-fPIC", "-shared", "-w"),
    "-U_FORTIFY_SOURCE",
)
NVCC_FLAGS = (*LANGUAGE_FLAGS, "-Werror", "all-warnings")
_ON_DEVICE = "sketchc.runtime.toolchains.cuda_c.device_worker:execute"
_ADVICE = (
    "sketchc toolchain install cuda_c (or nvcc 13 on the path or in $NVCC), and g++ 11 or later; "
    "to run on a GPU: an NVIDIA driver"
)
#: A source that launches as kernels do, and does nothing.
_NOTHING = """#include <cuda_runtime.h>
__global__ void nothing() {}
extern "C" long nothing_done() { nothing<<<1, 1>>>(); return cudaGetLastError(); }
"""


class CudaToolchain(Toolchain):
    """Compiles with nvcc (or `$NVCC`), and runs kernels on the GPU, else on the CPU."""

    target = "cuda_c"
    launcher = "sketchc.runtime.toolchains.native.launch"
    #: What authors of kernels are told.
    flags = LANGUAGE_FLAGS

    def status(self) -> ToolchainStatus:
        """See `Toolchain.status`; starts the compilers only to ask for their versions."""
        nvcc, host, gpu = find_nvcc(), find_compiler(), nvidia_gpu()
        versions = {
            "nvcc": "" if nvcc is None else nvcc_version(nvcc),
            "g++": "" if host is None else compiler_version(host),
        }
        missing = tuple(name for name, version in versions.items() if not version)
        return ToolchainStatus(
            target=self.target,
            can_compile=not missing,
            can_run=not missing,
            how_it_runs="on the GPU" if gpu else "on the CPU, threads as fibers",
            versions={name: version for name, version in versions.items() if version},
            missing=missing,
            advice=_ADVICE if missing else "",
            interpreted=not gpu,
        )

    def install(self) -> str:
        """Install nvcc, unless it is here; returns a message that also says what is missing still.
        Raises `InstallError`."""
        done = install_nvcc()
        return done if find_compiler() else f"{done}\nstill missing: g++ 11 or later"

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Build `<name>.so` for this machine into `folder`, with the chip's code in it where there
        is a GPU, and beside `<name>.cubin` where there is none; `details` holds seconds and what
        nvcc said."""
        source = place(kernel, folder, f"{kernel.name}.cu")
        library = folder / f"{kernel.name}.so"
        started, log, gpu = time.perf_counter(), "", nvidia_gpu()
        if not gpu:
            log = run_nvcc(source, kernel.hardware, library.with_suffix(".cubin"), timeout)
        said, cached = _build_library(source, kernel.hardware, library, timeout, bool(gpu))
        details = {
            "seconds": round(time.perf_counter() - started, 3),
            "warnings": log + said,
            "cached": cached,
            "flags": " ".join(NVCC_FLAGS),
        }
        if not kernel.foreign:
            return Artefact(kernel, folder, library, details)
        own = _brought_along(kernel.hardware, bool(gpu))
        symbols = frozenset(own.undefined)
        return Artefact(kernel, folder, library, details, symbols, own.constructors)

    def build_module(self, kernel: Kernel, folder: Path) -> Path:
        """Put the module with the machine code of its kernels into `folder`; returns its path."""
        source = written(kernel, folder, f"{kernel.name}.cu")[0]
        run_nvcc(source, kernel.hardware, folder / f"{kernel.name}.cubin", COMPILE_TIMEOUT)
        return folder / f"{kernel.name}_host.py"

    def module_parts(self, kernel: Kernel) -> tuple[Path | None, str]:
        """The functions of `loading`, and a `run` that launches the machine code."""
        name = kernel.name
        lines = [
            f'module = load_file("{name}_host", "{name}_host.py")',
            f'module.LOADED = CudaModule(FOLDER / "{name}.cubin")',
            f"run = module.{name}",
        ]
        return Path(__file__).with_name("loading.py"), "\n".join(lines)

    def open(self, artefact: Artefact) -> Session:
        """A session for several runs of one kernel; see `base.Session`."""
        return (
            NativeSession(artefact, _ON_DEVICE, bounded=False)
            if nvidia_gpu()
            else NativeSession(artefact)
        )


def _build_library(
    source: Path, hardware: str, library: Path, timeout: float, gpu: bool
) -> tuple[str, bool]:
    """Build what this machine runs; returns what nvcc said, and whether it was in the cache."""
    if gpu:
        return run_nvcc(source, hardware, library, timeout, SHARED_FLAGS), False
    translated = library.with_suffix(".emulated.cpp")
    translated.write_text(for_cpu(source.read_text("utf-8")), "utf-8")
    return "", build([translated], cpu_flags(), library, timeout)[1]


@lru_cache(maxsize=8)
def _brought_along(hardware: str, gpu: bool) -> Library:
    """What every library has in it that is built here: CUDA's own functions, or the emulator."""
    with tempfile.TemporaryDirectory(prefix="sketchc-") as name:
        source, library = Path(name) / "nothing.cu", Path(name) / "nothing.so"
        source.write_text(_NOTHING, "utf-8")
        _build_library(source, hardware, library, COMPILE_TIMEOUT, gpu)
        return inspect_elf(library)


def cpu_flags() -> tuple[str, ...]:
    """The flags of the C++ compiler for a translated source; they name the emulator's state, so
    that what another one built is not taken from the cache."""
    headers = b"".join(path.read_bytes() for path in sorted(EMULATOR.glob("*.h")))
    known = hashlib.sha256(headers).hexdigest()[:16]
    return (*_FLAGS, f"-I{EMULATOR}", f"-DSKETCH_EMULATOR={known}")


def run_nvcc(
    source: Path, hardware: str, made: Path, timeout: float, kind: Sequence[str] = ("-cubin",)
) -> str:
    """Compile a source for a chip, through the cache, to what the flags `kind` say; returns what
    nvcc said. Raises `ToolchainError`."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise ToolchainError(stage="infrastructure", message=f"no CUDA compiler: {_ADVICE}")
    flags = (*NVCC_FLAGS, made_for(load_hardware(hardware).facts), *kind)
    told = "\0".join((nvcc_version(nvcc), *flags, source.name))
    key = hashlib.sha256(told.encode() + b"\0" + source.read_bytes()).hexdigest()[:32]
    known = cache_folder().with_name("cuda_c") / f"{key}{made.suffix}"
    if known.is_file():
        replace_file(made, known.read_bytes())
        return ""
    status, said = run_compiler([nvcc, *flags, "-o", str(made), str(source)], timeout)
    if status is None:
        raise ToolchainError(stage="timeout", message=f"nvcc took more than {timeout:g} s")
    if status != 0:
        first = next((line for line in said.splitlines() if "error" in line), "nvcc failed")
        message = first.replace(f"{source.parent}/", "")
        raise ToolchainError(stage="compile", message=message, log=said)
    known.parent.mkdir(parents=True, exist_ok=True)
    replace_file(known, made.read_bytes())
    return said


TOOLCHAIN = CudaToolchain()
