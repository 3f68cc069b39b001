"""From Linalg text to a shared library that runs the kernel over a grid.

mlir-opt, mlir-translate, opt, llc and gcc, one after another; builds are kept in the user's cache
folder under a key of the text, the launcher and the tools' versions.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from sketchc.runtime.process.environment import compiler_environment
from sketchc.runtime.toolchains.triton_ascend.environment import Tools, cache_folder
from sketchc.runtime.toolchains.triton_ascend.linalg import (
    KERNEL,
    Function,
    normalise,
    read_function,
)

#: Order matters: element-wise tensor operations become linalg before bufferization (it has no rule
#: for them), and bf16 arithmetic is expanded before it reaches LLVM.
PASSES = (
    "-inline",
    "-convert-elementwise-to-linalg",
    "-linalg-fuse-elementwise-ops",
    "-one-shot-bufferize=allow-return-allocs-from-loops",
    "-buffer-loop-hoisting",
    "-canonicalize",
    "-convert-linalg-to-loops",
    "-inline",
    "-expand-strided-metadata",
    "-memref-expand",
    "-lower-affine",
    "-convert-scf-to-cf",
    "-arith-expand=include-bf16=true",
    "-convert-math-to-llvm",
    "-convert-math-to-libm",
    "-convert-arith-to-llvm",
    "-convert-index-to-llvm",
    "-finalize-memref-to-llvm=use-generic-functions",
    "-convert-func-to-llvm",
    "-convert-cf-to-llvm",
    "-convert-arith-to-llvm",
    "-reconcile-unrealized-casts",
)

_C_TYPES = {
    "i1": "_Bool",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "f32": "float",
    "f64": "double",
}
#: A memref<?xT> argument: base, aligned, offset, size, stride.
_MEMREF = "void *, void *, int64_t, int64_t, int64_t"
TIMEOUT = 120.0


class BuildError(Exception):
    """A tool refused its input; `log` is what it printed."""

    def __init__(self, message: str, log: str) -> None:
        self.log = log
        super().__init__(message)


def build(linalg: str, tools: Tools) -> tuple[Path, Function]:
    """The shared library for a kernel's Linalg, and the kernel's signature.

    Raises `BuildError` and `UnsupportedLinalgError`.
    """
    text = normalise(linalg)
    function = read_function(linalg)
    source = glue_source(function)
    launcher = Path(__file__).with_name("launcher.c").read_text()
    parts = (text, source, launcher, " ".join(PASSES), tools.fingerprint, _processor())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    library = cache_folder() / key[:2] / f"{key}.so"
    if library.exists():
        return library, function
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as name:
        folder = Path(name)
        (folder / "kernel.mlir").write_text(text)
        (folder / "launcher.c").write_text(launcher + source)
        _build_in(folder, tools)
        # Atomic: another process may build the same kernel at the same time.
        os.replace(folder / "kernel.so", library)
    return library, function


def _build_in(folder: Path, tools: Tools) -> None:
    commands = (
        (tools.mlir_opt, "--allow-unregistered-dialect", "kernel.mlir", *PASSES, "-o", "low.mlir"),
        (tools.mlir_translate, "--mlir-to-llvmir", "low.mlir", "-o", "kernel.ll"),
        (tools.opt, "-O2", "kernel.ll", "-o", "kernel.bc"),
        (
            *(tools.llc, "-O2", "-mcpu=native", "-filetype=obj", "-relocation-model=pic"),
            *("kernel.bc", "-o", "kernel.o"),
        ),
        (
            *(tools.gcc, "-std=c11", "-O2", "-shared", "-fPIC", "-D_GNU_SOURCE"),
            *("launcher.c", "kernel.o", "-o", "kernel.so", "-lm"),
        ),
    )
    for command in commands:
        program = Path(command[0]).name
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT,
                env=compiler_environment(),
            )
        except subprocess.TimeoutExpired as error:
            message = f"{program} took more than {TIMEOUT:.0f} s"
            raise BuildError(message, "") from error
        if done.returncode < 0:
            message = f"{program} ended with status {done.returncode}"
            raise BuildError(message, done.stderr[-8000:])
        if done.returncode:
            message = f"{program} cannot translate the front end's Linalg"
            raise BuildError(message, done.stderr[-8000:])


def glue_source(function: Function) -> str:
    """C code that calls the kernel for one program of the grid."""
    parameters, values = [_MEMREF, _MEMREF], ["NULL, NULL, 0, 0, 1"] * 2
    for i, argument in enumerate(function.arguments):
        if argument.buffer:
            parameters.append(_MEMREF)
            values.append(f"arguments[{i}], arguments[{i}], 0, lengths[{i}], 1")
        else:
            kind = _C_TYPES[argument.element]
            parameters.append(kind)
            values.append(f"*({kind} *)arguments[{i}]")
    for name in ("programs", "position"):
        parameters += ["int32_t"] * 3
        values += [f"place->{name}[{axis}]" for axis in range(3)]
    return (
        f"\nvoid {KERNEL}({', '.join(parameters)});\n\n"
        "static void sketchc_program(void *const *arguments, const int64_t *lengths,\n"
        "                            const sketchc_place *place) {\n"
        "    (void)arguments;\n    (void)lengths;\n"
        f"    {KERNEL}({', '.join(values)});\n}}\n"
    )


def _processor() -> str:
    """Part of the key: `-mcpu=native` code may not run on another machine with this cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        import platform

        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
