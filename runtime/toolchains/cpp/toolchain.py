"""The C++ toolchain: g++ with OpenMP, and kernels called through ctypes in a worker process."""

from __future__ import annotations

import sysconfig
import tempfile
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.process.venvs import installed
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    Artefact,
    ModelRun,
    Session,
    Toolchain,
    ToolchainError,
    ToolchainStatus,
    place,
    written,
)
from sketchc.runtime.toolchains.native import built
from sketchc.runtime.toolchains.native.compiler import (
    build,
    compiler_version,
    find_compiler,
    has_openmp,
    tuning,
)
from sketchc.runtime.toolchains.native.session import NativeSession

if TYPE_CHECKING:
    pass
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


class CppToolchain(Toolchain):
    """Compiles with g++ (or `$CXX`) and runs kernels through their C entry points."""

    target = "cpp"
    launcher = "sketchc.runtime.toolchains.native.launch"
    models_need_torch = True

    def model_run(self, kernel: Kernel) -> ModelRun:
        """A gated `ModelRun`: a `ModelNew` builds its C++ while it is imported, not in forward."""
        return ModelRun(gated=True)

    def status(self) -> ToolchainStatus:
        """See `Toolchain.status`; starts the compiler only to ask for its version and libgomp."""
        compiler = find_compiler()
        usable = compiler is not None and has_openmp(compiler)
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
        flags = (*FLAGS, *_tuning())
        warnings, cached = build([source], flags, library, timeout)
        details = {
            "seconds": round(time.perf_counter() - started, 3),
            "warnings": warnings,
            "cached": cached,
            "flags": " ".join(flags),
        }
        return Artefact(kernel, folder, library, details)

    def open(self, artefact: Artefact) -> Session:
        """A session for several runs of one kernel; see `base.Session`."""
        return NativeSession(artefact)

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
        flags = (*_MODULE_FLAGS, *_tuning(), *(f"-isystem{path}" for path in includes))
        # The release stands for what the shared part includes.
        flags = (*flags, f"-DNANOBIND_RELEASE={nanobind.__version__}")
        with tempfile.TemporaryDirectory(prefix="core-", dir=folder) as place:
            core = Path(place) / "core.o"
            build([shared], (*flags, "-O1", "-w", "-c"), core)
            build(sources, flags, library, own={glue: ("-O1",)}, objects=(core,))
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


def _tuning() -> tuple[str, ...]:
    compiler = find_compiler()
    return () if compiler is None else tuning(compiler)


TOOLCHAIN = CppToolchain()
