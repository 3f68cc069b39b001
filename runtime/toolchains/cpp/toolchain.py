"""The C++ toolchain: g++ with OpenMP, a build cache, and kernels called through ctypes.

Builds are kept in the user's cache folder, keyed by source, flags, compiler and CPU; several
processes may build at once (each writes beside the place and renames). Generated kernels run in a
worker process; `load` gives an in-process function for benchmarks of code that we made ourselves.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchc.launch.conditions import launch_conditions, refusal
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.process.environment import compiler_environment
from sketchc.runtime.sandbox.persistent_worker import KeptWorker
from sketchc.runtime.sandbox.worker import Limits, Worker, WorkerResult, kill_group
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    Artefact,
    ModelRun,
    Session,
    ToolchainError,
    ToolchainStatus,
    write_source,
)
from sketchc.runtime.toolchains.cpp.calls import NativeKernel, signature
from sketchc.runtime.toolchains.cpp.headers import precompiled

if TYPE_CHECKING:
    import numpy as np

#: Never -ffast-math: it drops roundings to f16 and tests for NaN. Reassociation happens only where
#: the code says so (`omp simd reduction`).
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fwrapv",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wconversion",
)

#: Vector math and C math, in this order, after the source.
LIBRARIES = ("-lmvec", "-lm")

#: Address space of the compiler: code that asks for memory without end stops there.
COMPILER_BYTES = 32 << 30
#: Address space of a run, besides what goes with its tensors: threads' stacks, scratch memory.
RUN_BYTES = 4 << 30
_BYTES_PER_BYTE = 16
COMPILER_FILE_BYTES = 1 << 30

_HANDLER = "sketchc.runtime.toolchains.cpp.worker:execute"

#: For runs that nobody measures: threads that wait sleep, since other runs may need the processor.
UNHURRIED = {"OMP_WAIT_POLICY": "passive"}

_CPU_FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16")


class CppToolchain:
    """Compiles with g++ (or `$CXX`) and runs through the C entry point."""

    target = "cpp"
    flags = FLAGS
    models_need_torch = True

    def model_run(self, kernel: Kernel) -> ModelRun:
        """A `ModelNew` builds its C++ while it is imported."""
        del kernel
        return ModelRun(gated=True)

    def status(self) -> ToolchainStatus:
        """What is here; starts the compiler only to ask its version."""
        compiler = find_compiler()
        missing = []
        versions: dict[str, str] = {}
        if compiler is None:
            missing.append("g++")
        else:
            versions["g++"] = compiler_version(compiler)
            if not _has_openmp(compiler):
                missing.append("libgomp (OpenMP)")
            else:
                versions["OpenMP"] = "yes"
        pybind = _pybind11_version()
        if pybind:
            versions["pybind11"] = pybind
        features = cpu_features()
        if features:
            versions["CPU"] = " ".join(features)
        usable = not missing
        return ToolchainStatus(
            "cpp",
            usable,
            usable,
            "natively, in a worker process",
            versions,
            tuple(missing),
            "" if usable else "install a C++17 compiler: apt-get install g++",
        )

    def install(self) -> str:
        """Nothing can be installed without root; says what to do."""
        if self.status().can_compile:
            return "Nothing to install: g++ with OpenMP is here."
        return "Install g++ 11 or later with OpenMP, for instance: sudo apt-get install g++"

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Build `<name>.so` into `folder`; `details` holds warnings and seconds."""
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / f"{kernel.name}.cpp"
        write_source(source, kernel.source)
        for name, text in kernel.extras:
            write_source(folder / name, text)
        library = folder / f"{kernel.name}.so"
        started = time.perf_counter()
        warnings, cached = _build([source], FLAGS, LIBRARIES, library, timeout)
        details = {
            "seconds": round(time.perf_counter() - started, 3),
            "warnings": warnings,
            "cached": cached,
            "flags": " ".join(FLAGS),
        }
        return Artefact(kernel, folder, library, details)

    def run(
        self,
        artefact: Artefact,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        timeout: float = 300.0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run once in a worker process; see `base.Toolchain.run`."""
        with self.open(artefact) as session:
            return session.run(tensors, symbols, params, timeout)

    def open(self, artefact: Artefact) -> Session:
        """For several runs of one kernel; see `base.Session`."""
        return CppSession(artefact)

    def load(self, artefact: Artefact) -> NativeKernel:
        """The kernel as a function of this process: for our own code only."""
        assert artefact.library is not None
        return NativeKernel(artefact.kernel, artefact.library)

    def build_module(self, kernel: Kernel, folder: Path) -> Path:
        """Build the importable Python module `<name>_module` into `folder`; returns its path.

        Raises `ToolchainError` where pybind11 is missing or the compiler refuses.
        """
        if _pybind11_version() is None:
            msg = "pybind11 is missing: pip install pybind11"
            raise ToolchainError(stage="infrastructure", message=msg)
        import pybind11

        folder.mkdir(parents=True, exist_ok=True)
        source = folder / f"{kernel.name}.cpp"
        source.write_text(kernel.source)
        sources = [source]
        for name, text in kernel.extras:
            (folder / name).write_text(text)
            sources.append(folder / name)
        suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
        library = folder / f"{kernel.name}_module{suffix}"
        includes = (pybind11.get_include(), sysconfig.get_paths()["include"])
        flags = (*FLAGS, "-fvisibility=hidden", *(f"-isystem{path}" for path in includes))
        _build(sources, flags, LIBRARIES, library)
        return library


class CppSession(Session):
    """One worker that has one library loaded."""

    def __init__(self, artefact: Artefact) -> None:
        self._artefact = artefact
        self._kept = KeptWorker(_HANDLER, self._make)

    def run(
        self,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        timeout: float = 300.0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """See `base.Toolchain.run`."""
        request = {
            "library": str(self._artefact.library),
            "signature": signature(self._artefact.kernel, symbols, params, tensors),
        }
        result = self._kept.call(request, tensors, timeout)
        kernel = self._artefact.kernel
        return _outputs(
            result, timeout, lambda status: check_status(kernel, status, symbols, params)
        )

    def _make(self, tensor_bytes: int, file_bytes: int) -> Worker:
        assert self._artefact.library is not None
        return Worker(
            limits=Limits(RUN_BYTES + _BYTES_PER_BYTE * tensor_bytes, file_bytes=file_bytes),
            preload=(_HANDLER.partition(":")[0],),
            environment=UNHURRIED,
            readable=[self._artefact.library],
        )

    def close(self) -> None:
        """End the worker."""
        self._kept.close()


def _outputs(
    result: WorkerResult, timeout: float, judge: Callable[[int], None]
) -> dict[str, np.ndarray[Any, Any]]:
    """What a run gave, or what went wrong as a `ToolchainError`; `judge` raises for a status."""
    if result.timed_out:
        msg = f"no answer within {timeout:g} s"
        raise ToolchainError(stage="timeout", message=msg, log=result.output)
    if result.reply is None:
        log = result.traceback or result.output
        raise ToolchainError(stage="launch", message=result.describe(), log=log, kinds=result.kinds)
    if "missing" in result.reply:
        msg, kinds = str(result.reply["missing"]), ("MissingEntryError",)
        raise ToolchainError(stage="compile", message=msg, kinds=kinds)
    judge(int(result.reply["status"]))
    if result.reply["stray"]:
        stray = str(result.reply["stray"])
        raise ToolchainError(stage="illegal_access", message=stray)
    return dict(result.arrays)


def check_status(
    kernel: Kernel,
    status: int,
    symbols: Mapping[str, int],
    params: Mapping[str, int | float | bool],
) -> None:
    """Raise `ToolchainError` for what the entry point returned, unless it is 0."""
    if status == 0:
        return
    if status == -1:
        msg = "the kernel could not allocate its scratch memory"
        raise ToolchainError(stage="launch", message=msg, kinds=("MemoryError",))
    broken = [c for c in launch_conditions(kernel.sketch) if c.number == status]
    if not broken:
        msg = f"the entry point returned {status}, which is no number of a launch condition"
        raise ToolchainError(stage="launch", message=msg)
    msg = refusal(kernel.sketch, broken[0], symbols, params)
    raise ToolchainError(stage="launch", message=msg, kinds=("LaunchError",))


# ---------------------------------------------------------------- the compiler


def find_compiler() -> str | None:
    """The path of the C++ compiler: `$CXX`, else g++."""
    return shutil.which(os.environ.get("CXX", "g++"))


@lru_cache(maxsize=8)
def compiler_version(compiler: str) -> str:
    """The first line of `--version`, less the compiler's own name."""
    done = _ask(compiler, "--version")
    first = done.stdout.splitlines()[0] if done.stdout else "unknown"
    return first.removeprefix(f"{Path(compiler).name} ")


@lru_cache(maxsize=8)
def _has_openmp(compiler: str) -> bool:
    done = _ask(compiler, "-print-file-name=libgomp.so")
    return Path(done.stdout.strip()).is_absolute()


def _ask(compiler: str, question: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [compiler, question],
        capture_output=True,
        text=True,
        check=False,
        env=compiler_environment(),
    )


def _pybind11_version() -> str | None:
    from importlib import metadata

    try:
        return metadata.version("pybind11")
    except metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def cpu_features() -> tuple[str, ...]:
    """The instruction sets of this CPU that matter here, as Linux names them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    flags = set(found.group(1).split()) if found else set()
    return tuple(feature for feature in _CPU_FEATURES if feature in flags)


def cache_folder() -> Path:
    """Where builds are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "sketchc" / "cpp"


def _build(
    sources: list[Path],
    flags: tuple[str, ...],
    libraries: tuple[str, ...],
    library: Path,
    timeout: float = COMPILE_TIMEOUT,
) -> tuple[str, bool]:
    """Compile to `library`, through the cache. Returns the warnings and whether it was cached."""
    compiler = find_compiler()
    if compiler is None:
        msg = "no C++ compiler: install g++"
        raise ToolchainError(stage="infrastructure", message=msg)
    key = hashlib.sha256()
    parts = [compiler_version(compiler), platform.machine(), *cpu_features(), *flags, *libraries]
    for part in parts:
        key.update(part.encode() + b"\0")
    for source in sources:
        key.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    kept = cache_folder() / f"{key.hexdigest()[:32]}.so"
    log = kept.with_suffix(".log")
    if os.access(kept, os.R_OK) and os.access(log, os.R_OK):
        _copy(kept, library)
        return log.read_text(), True
    known: tuple[str, ...] = ()
    if len(sources) == 1:
        known = precompiled(
            sources[0].read_text(),
            cache_folder() / "headers",
            "\0".join(parts),
            lambda header, made: _compile_header([compiler, *flags], header, made, timeout),
        )
    command = [compiler, *flags, *known, *map(str, sources), *libraries]
    warnings = _compile(command, library, timeout)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        _write(log, warnings.encode())
        _copy(library, kept)
    except OSError:
        pass  # A cache that cannot be written: the next run compiles again.
    return warnings, False


def _compile_header(command: list[str], header: Path, made: Path, timeout: float) -> None:
    try:
        _compile([*command, "-x", "c++-header", str(header)], made, timeout)
    except ToolchainError as error:
        raise OSError(str(error)) from error


def _compile(command: list[str], library: Path, timeout: float) -> str:
    """Compile; the warnings. The compiler reads somebody's source: it is bounded in time, memory
    and what it writes."""
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as name:
        made = Path(name) / library.name
        # Limits by a shell: they hold for the compiler's own children as well.
        limits = f"ulimit -v {COMPILER_BYTES >> 10}; ulimit -f {COMPILER_FILE_BYTES >> 9}; "
        status, printed = _run_bounded(
            ["/bin/sh", "-c", limits + 'exec "$0" "$@"', *command, "-o", str(made)], timeout
        )
        if status is None:
            msg = f"the compiler took more than {timeout:g} s"
            raise ToolchainError(stage="timeout", message=msg)
        if status != 0:
            first = next((x for x in printed.splitlines() if "error:" in x), "g++ failed")
            raise ToolchainError(stage="compile", message=_without_place(first), log=printed)
        made.chmod(0o755)  # workers may be another user
        made.replace(library)
    return printed


def _run_bounded(command: list[str], timeout: float) -> tuple[int | None, str]:
    """(exit status, standard error) of a process group; None when its time was up."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**compiler_environment(), "LC_ALL": "C"},  # diagnostics are read by their words
        start_new_session=True,
    )
    try:
        _, printed = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        process.communicate()
        return None, ""
    except BaseException:  # told to end: a compiler would go on for a while
        kill_group(process.pid)
        raise
    return process.returncode, printed.decode("utf-8", "replace")


def _without_place(diagnostic: str) -> str:
    """A diagnostic of g++ without the folder of the file it is about."""
    path, separator, rest = diagnostic.partition(":")
    return f"{Path(path).name}{separator}{rest}" if separator else diagnostic


def _copy(source: Path, target: Path) -> None:
    """Copy so that no reader ever sees half a file."""
    _write(target, source.read_bytes())


def _write(target: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(name).chmod(0o755)
    Path(name).replace(target)


TOOLCHAIN = CppToolchain()
