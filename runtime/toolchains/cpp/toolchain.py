"""The C++ toolchain: g++ with OpenMP, a build cache, and kernels called through ctypes.

Builds are kept in the user's cache folder, keyed by source, flags, compiler and CPU; several
processes may build at once (each writes a temporary file and renames it). Generated kernels run in
a worker process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sysconfig
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.base.files import replace_file, user_folder
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_sample, sample_extents
from sketchc.launch.conditions import launch_conditions, may_repeat, refusal
from sketchc.launch.inputs import absent_symbols
from sketchc.lowering.abi import passed
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.process.peer import answer_of, run_compiler
from sketchc.runtime.process.venvs import installed
from sketchc.runtime.sandbox.worker import Limits, PersistentWorker, Worker
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
    place,
    reply_of,
    written,
)
from sketchc.runtime.toolchains.cpp import built
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

#: Flags for Python modules, which export only the symbols that Python looks for.
_MODULE_FLAGS = (*FLAGS, "-fvisibility=hidden")

#: The source of nanobind that all modules share, and the folder of headers that it needs.
_CORE, _ROBIN_MAP = "nb_combined.cpp", "ext/robin_map/include"

#: Vector math and C math, in this order, after the source.
LIBRARIES = ("-lmvec", "-lm")

#: Bytes of address space of the compiler, which bound source that makes it allocate without end.
COMPILER_BYTES = 32 << 30
#: Bytes of address space of a run, for threads' stacks and scratch memory, besides
#: `_BYTES_PER_BYTE` for each byte of its tensors.
RUN_BYTES = 4 << 30
_BYTES_PER_BYTE = 16
COMPILER_FILE_BYTES = 1 << 30

_HANDLER = "sketchc.runtime.toolchains.cpp.worker:execute"

#: The environment of runs that are not timed: threads that wait sleep, since other runs may need
#: the processor.
UNHURRIED = {"OMP_WAIT_POLICY": "passive"}


class CppToolchain(Toolchain):
    """Compiles with g++ (or `$CXX`) and runs kernels through their C entry points."""

    target = "cpp"
    launcher = "sketchc.runtime.toolchains.cpp.launch"
    models_need_torch = True

    def model_run(self, kernel: Kernel) -> ModelRun:
        """A gated `ModelRun`: a `ModelNew` builds its C++ while it is imported, not in forward."""
        return ModelRun(gated=True)

    def status(self) -> ToolchainStatus:
        """See `Toolchain.status`; starts the compiler only to ask for its version and libgomp."""
        compiler = find_compiler()
        usable = compiler is not None and _has_openmp(compiler)
        missing = () if usable else ("g++" if compiler is None else "libgomp (OpenMP)",)
        versions = {
            "g++": "" if compiler is None else compiler_version(compiler),
            "OpenMP": "yes" if usable else "",
            **installed("nanobind"),
            "CPU": " ".join(built.cpu_features()),
        }
        return ToolchainStatus(
            "cpp",
            usable,
            usable,
            "natively, in a worker process",
            {name: version for name, version in versions.items() if version},
            missing,
            "" if usable else "install a C++17 compiler: apt-get install g++",
        )

    def install(self) -> str:
        """Install nothing, since that needs root; returns what the user can do."""
        if self.status().can_compile:
            return "Nothing to install: g++ with OpenMP is here."
        return "Install g++ 11 or later with OpenMP, for instance: sudo apt-get install g++"

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Build `<name>.so` into `folder`; `details` holds warnings and seconds."""
        source = place(kernel, folder, f"{kernel.name}.cpp")
        library = folder / f"{kernel.name}.so"
        started = time.perf_counter()
        warnings, cached = _build([source], FLAGS, library, timeout)
        details = {
            "seconds": round(time.perf_counter() - started, 3),
            "warnings": warnings,
            "cached": cached,
            "flags": " ".join(FLAGS),
        }
        return Artefact(kernel, folder, library, details)

    def open(self, artefact: Artefact) -> Session:
        """A session for several runs of one kernel; see `base.Session`."""
        return CppSession(artefact)

    def build_module(self, kernel: Kernel, folder: Path) -> Path:
        """Build the importable Python module `<name>_module` into `folder`; returns its path.

        Raises `ToolchainError` where nanobind is missing or the compiler refuses.
        """
        if not installed("nanobind"):
            msg = "nanobind is missing: pip install nanobind"
            raise ToolchainError(stage="infrastructure", message=msg)
        import nanobind

        from sketchc.lowering.cpp.python_module import module_source

        glue = f"{kernel.name}_module.cpp"
        if glue not in dict(kernel.extras):  # a kernel by others; our own brings it along
            text = module_source(kernel.sketch, kernel.entry)
            kernel = attrs.evolve(kernel, extras=(*kernel.extras, (glue, text)))
        sources = written(kernel, folder, f"{kernel.name}.cpp")
        suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
        library = folder / f"{kernel.name}_module{suffix}"
        shared = Path(nanobind.source_dir()) / _CORE
        robin_map = shared.parents[1] / _ROBIN_MAP
        includes = (nanobind.include_dir(), robin_map, sysconfig.get_paths()["include"])
        flags = (*_MODULE_FLAGS, *(f"-isystem{path}" for path in includes))
        # The release stands for what the shared part includes.
        flags = (*flags, f"-DNANOBIND_RELEASE={nanobind.__version__}")
        with tempfile.TemporaryDirectory(prefix="core-", dir=folder) as place:
            core = Path(place) / "core.o"
            _build([shared], (*flags, "-O1", "-w", "-c"), core)
            _build(sources, flags, library, own={glue: ("-O1",)}, objects=(core,))
        record = library.with_name(f"{library.name}.cpu")
        record.write_text(" ".join(built.cpu_features()) + "\n", "utf-8")
        return library

    def module_parts(self, kernel: Kernel) -> tuple[Path | None, str]:
        """The functions of `built`, and a `run` whose module is built again where it is missing or
        was built for another CPU."""
        name = f"{kernel.name}_module"
        flags = " ".join(flag for flag in _MODULE_FLAGS if not flag.startswith("-W"))
        lines = [
            f'FILES = ["{kernel.name}.cpp", "{name}.cpp"]',
            "FLAGS = (",
            *(f'    "{line} "' for line in textwrap.wrap(flags, 90, break_on_hyphens=False)),
            ").split()",
            f'file = built(FOLDER, "{name}", FILES, FLAGS)',
            f'run = load_file("{name}", file).{kernel.name}',
        ]
        return Path(built.__file__), "\n".join(lines)


class CppSession(Session):
    """Runs of one kernel in one worker, which keeps the kernel's library loaded."""

    def __init__(self, artefact: Artefact) -> None:
        self._artefact = artefact
        self._worker = PersistentWorker(_HANDLER, self._make)
        self.workers = (self._worker,)

    def run(
        self, tensors: Tensors, symbols: Sizes, params: Params, timeout: float = 300.0
    ) -> Arrays:
        """Call the kernel once in the worker; returns its out and inout tensors by name. Raises
        `ToolchainError`."""
        request = {
            "library": str(self._artefact.library),
            "signature": signature(self._artefact.kernel, symbols, params, tensors),
        }
        result = self._worker.call(request, tensors, timeout)
        reply = reply_of(result, timeout, result.traceback or result.output)
        if "missing" in reply:
            msg, kinds = str(reply["missing"]), ("MissingEntryError",)
            raise ToolchainError(stage="compile", message=msg, kinds=kinds)
        _check_status(self._artefact.kernel, int(reply["status"]), symbols, params)
        if reply["stray"]:
            raise ToolchainError(stage="illegal_access", message=str(reply["stray"]))
        return dict(result.arrays)

    def _make(self, tensor_bytes: int, file_bytes: int) -> Worker:
        assert self._artefact.library is not None
        return Worker(
            limits=Limits(RUN_BYTES + _BYTES_PER_BYTE * tensor_bytes, file_bytes=file_bytes),
            preload=(_HANDLER.partition(":")[0],),
            environment=UNHURRIED,
            readable=[self._artefact.library],
        )


def _check_status(kernel: Kernel, status: int, symbols: Sizes, params: Params) -> None:
    """Raise `ToolchainError` for the entry point's `status`, unless it is 0."""
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


def signature(kernel: Kernel, symbols: Sizes, params: Params, tensors: Tensors) -> dict[str, Any]:
    """Everything a worker needs for one call, JSON-able: pointers of the non-workspace tensors,
    symbols, params, then the actual extents of axes that may broadcast (`X[M|1]`).

    Raises `ToolchainError` ("launch") for a missing param, or a tensor with another shape or type.
    """
    sketch = kernel.sketch
    symbols = {**symbols, **absent_symbols(sketch, tensors)}
    scalars: list[list[Any]] = [["i", int(symbols[symbol.name])] for symbol in sketch.symbols]
    for param in sketch.params:
        given = params.get(param.name, param.default)
        if given is None:
            msg = f"param {param.name} has no value"
            raise ToolchainError(stage="launch", message=msg)
        floats = param.dtype.is_float
        scalars.append(["f", float(given)] if floats else ["i", int(given)])
    # Extents that have no value, or a negative one, are refused by the entry point's checks.
    values = host_sample(sketch, symbols, params)
    shapes: list[list[Any]] = []
    for tensor in passed(sketch):
        shape = sample_extents(tensor, values)
        array = tensors.get(tensor.name)
        if array is None and tensor.optional:
            scalars += [["i", 1] for repeats in tensor.broadcast if repeats]
            shapes.append([tensor.name, "absent", [], tensor.dtype.numpy_name])
            continue
        actual = [max(0, n) for n in shape] if array is None else list(array.shape)
        _check_tensor(sketch, tensor, array, shape)
        for axis, repeats in enumerate(tensor.broadcast):
            if repeats:
                scalars.append(["i", actual[axis]])
        shapes.append([tensor.name, tensor.role.value, actual, tensor.dtype.numpy_name])
    return {"entry": kernel.entry, "tensors": shapes, "scalars": scalars}


def _check_tensor(
    sketch: ir.Sketch, tensor: ir.Tensor, array: np.ndarray[Any, Any] | None, shape: list[int]
) -> None:
    if array is None:
        if tensor.role is ir.Role.OUT:
            return
        msg = f"tensor {tensor.name} was not given"
        raise ToolchainError(stage="launch", message=msg)
    fits = len(array.shape) == len(shape) and all(
        actual == extent or (actual == 1 and may_repeat(sketch, tensor, axis))
        for axis, (actual, extent) in enumerate(zip(array.shape, shape, strict=True))
    )
    if not fits or array.dtype.name != tensor.dtype.numpy_name:
        msg = (
            f"{tensor.name} must be {tensor.dtype.numpy_name} of shape {tuple(shape)},"
            f" not {array.dtype.name} of shape {tuple(array.shape)}"
        )
        raise ToolchainError(stage="launch", message=msg)


# ---------------------------------------------------------------- the compiler


def find_compiler() -> str | None:
    """The path of the C++ compiler: `$CXX`, else g++."""
    return shutil.which(os.environ.get("CXX", "g++"))


@lru_cache(maxsize=8)
def compiler_version(compiler: str) -> str:
    """The first line of the output of `compiler --version`, without the compiler's name."""
    first = (answer_of(compiler, "--version") or "unknown").splitlines()[0]
    return first.removeprefix(f"{Path(compiler).name} ")


@lru_cache(maxsize=8)
def _has_openmp(compiler: str) -> bool:
    return Path(answer_of(compiler, "-print-file-name=libgomp.so").strip()).is_absolute()


def cache_folder() -> Path:
    """The folder where builds are kept."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "cpp"


def _build(
    sources: list[Path],
    flags: tuple[str, ...],
    library: Path,
    timeout: float = COMPILE_TIMEOUT,
    own: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    objects: Sequence[Path] = (),
) -> tuple[str, bool]:
    """Compile `sources` to `library`, through the cache. `own` maps names of sources to additional
    flags; `objects`, which `flags` must identify since the cache's key leaves them out, are linked
    in. Returns the warnings, and whether the library came from the cache."""
    compiler = find_compiler()
    if compiler is None:
        msg = "no C++ compiler: install g++"
        raise ToolchainError(stage="infrastructure", message=msg)
    key = hashlib.sha256()
    machine = (compiler_version(compiler), *built.cpu_features(), *LIBRARIES)
    for part in (*machine, *flags):
        key.update(part.encode() + b"\0")
    for source in sources:
        more = " ".join(own.get(source.name, ()))
        key.update(f"{source.name}\0{more}\0".encode() + source.read_bytes() + b"\0")
    known = cache_folder() / f"{key.hexdigest()[:32]}.so"
    log = known.with_suffix(".log")
    if os.access(known, os.R_OK) and os.access(log, os.R_OK):
        replace_file(library, known.read_bytes(), 0o755)
        return log.read_text(), True
    command = [compiler, *flags]

    def compiled(source: Path, made: Path, last: Sequence[str]) -> str:
        mine = [*command, *own.get(source.name, ())]
        return _compile_source(mine, source, last, made, "\0".join(machine), timeout)

    if len(sources) == 1:
        warnings = compiled(sources[0], library, LIBRARIES)
    else:
        with tempfile.TemporaryDirectory(prefix="objects-", dir=library.parent) as folder:
            made = [Path(folder) / f"{source.name}.o" for source in sources]
            pairs = zip(sources, made, strict=True)
            warnings = "".join(compiled(source, one, ["-c"]) for source, one in pairs)
            linked = map(str, (*made, *objects))
            warnings += _compile([*command, *linked, *LIBRARIES], library, timeout)
    with contextlib.suppress(OSError):  # where nothing can be kept, the next run compiles again
        known.parent.mkdir(parents=True, exist_ok=True)
        replace_file(log, warnings)
        replace_file(known, library.read_bytes(), 0o755)
    return warnings, False


def _compile_source(
    command: list[str], source: Path, last: Sequence[str], made: Path, machine: str, timeout: float
) -> str:
    """Compile one source into `made`, if possible with precompiled headers; returns the warnings.
    `last` are arguments that follow the source."""
    known = precompiled(
        source.read_text(),
        cache_folder() / "headers",
        "\0".join((machine, *command)),
        lambda header, made: _compile_header(command, header, made, timeout),
    )
    return _compile([*command, *known, str(source), *last], made, timeout)


def _compile_header(command: list[str], header: Path, made: Path, timeout: float) -> None:
    try:
        _compile([*command, "-x", "c++-header", str(header)], made, timeout)
    except ToolchainError as error:
        raise OSError(str(error)) from error


def _compile(command: list[str], library: Path, timeout: float) -> str:
    """Run the compiler `command` with the output file `library`; returns its warnings. It reads
    somebody's source: its time, memory and output file are bounded. Raises `ToolchainError`."""
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as name:
        made = Path(name) / library.name
        # The shell sets the limits, so that the compiler's own children inherit them.
        limits = f"ulimit -v {COMPILER_BYTES >> 10}; ulimit -f {COMPILER_FILE_BYTES >> 9}; "
        status, printed = run_compiler(
            ["/bin/sh", "-c", limits + 'exec "$0" "$@"', *command, "-o", str(made)], timeout
        )
        if status is None:
            msg = f"the compiler took more than {timeout:g} s"
            raise ToolchainError(stage="timeout", message=msg)
        if status != 0:
            first = next((x for x in printed.splitlines() if "error:" in x), "g++ failed")
            path, separator, rest = first.partition(":")  # without the folder of the file
            msg = f"{Path(path).name}{separator}{rest}" if separator else first
            raise ToolchainError(stage="compile", message=msg, log=printed)
        made.chmod(0o755)  # workers may be another user
        made.replace(library)
    return printed


TOOLCHAIN = CppToolchain()
