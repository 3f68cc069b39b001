"""The C++ compiler of native code, and a cache of what it built.

Builds are kept in the user's cache folder, keyed by source, flags, compiler and CPU; several
processes may build at once (each writes a temporary file and renames it).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from sketchc.base.files import replace_file, user_folder
from sketchc.runtime.process.peer import answer_of, run_compiler
from sketchc.runtime.toolchains.base import COMPILE_TIMEOUT, ToolchainError
from sketchc.runtime.toolchains.native import built
from sketchc.runtime.toolchains.native.headers import precompiled

#: Vector math and C math, in this order, after the source.
LIBRARIES = ("-lmvec", "-lm")

#: Bytes of address space of the compiler, which bound source that makes it allocate without end.
COMPILER_BYTES = 32 << 30
COMPILER_FILE_BYTES = 1 << 30


def find_compiler() -> str | None:
    """The path of the C++ compiler: `$CXX`, else g++."""
    return shutil.which(os.environ.get("CXX", "g++"))


@lru_cache(maxsize=8)
def compiler_version(compiler: str) -> str:
    """The first line of the output of `compiler --version`, without the compiler's name."""
    first = (answer_of(compiler, "--version") or "unknown").splitlines()[0]
    return first.removeprefix(f"{Path(compiler).name} ")


@lru_cache(maxsize=8)
def has_openmp(compiler: str) -> bool:
    """Whether the compiler has OpenMP's library."""
    return Path(answer_of(compiler, "-print-file-name=libgomp.so").strip()).is_absolute()


@lru_cache(maxsize=8)
def tuning(compiler: str) -> tuple[str, ...]:
    """Flags for a CPU that is newer than the compiler: `-march=native` finds its instructions, but
    tunes for any CPU, for which g++ neither gathers elements nor reads under masks. Those with
    AVX-512 are tuned as the first servers that had all of it, and with whole vectors."""
    told = answer_of(compiler, "-march=native", "-Q", "--help=target")
    if "avx512f" not in built.cpu_features() or not re.search(r"-mtune=\s+generic\b", told):
        return ()
    return "-mtune=icelake-server", "-mprefer-vector-width=512"


def cache_folder() -> Path:
    """The folder where builds are kept."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "cpp"


def build(
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
