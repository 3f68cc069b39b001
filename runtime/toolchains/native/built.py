"""Functions that a drop-in with a C++ kernel contains: they build the kernel's extension module
where it is missing or was built for another CPU. The text between the two marks is copied into the
drop-in, so it imports nothing of sketchc.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

# ---- copied from here ----
#: The instruction sets that compilers use of a CPU, as Linux names them.
FEATURES = (
    "sse4_2 popcnt avx avx2 fma f16c bmi1 bmi2 avx_vnni avx512f avx512dq avx512cd avx512bw",
    "avx512vl avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8 asimd sve sve2",
)
#: Environment variables that a compiler needs.
_NEEDED = ("PATH", "HOME", "LANG", "TMPDIR", "CPATH", "LIBRARY_PATH", "LD_LIBRARY_PATH")


def cpu_features() -> list[str]:
    """The architecture of this CPU and those of `FEATURES` that /proc/cpuinfo lists, if any."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    told = next((line for line in lines if line.startswith(("flags", "Features"))), "").split()
    return [
        platform.machine(),
        *(feature for feature in " ".join(FEATURES).split() if feature in told),
    ]


def built(folder: Path, name: str, sources: Sequence[str], flags: Sequence[str]) -> str:
    """The name of the file in `folder` with the extension module `name`. Where there is none for
    this Python, or one for a CPU with instructions that this CPU lacks, the module is built from
    `sources` first. Raises `ImportError` where that fails."""
    path = folder / (name + str(sysconfig.get_config_var("EXT_SUFFIX") or ".so"))
    record, why = path.with_name(f"{path.name}.cpu"), "is missing"
    if path.is_file():
        wanted = record.read_text("utf-8").split() if record.is_file() else []
        lacking = [feature for feature in wanted if feature not in cpu_features()]
        if not lacking:
            return path.name
        why = f"was built for a CPU with {' '.join(lacking)}"
    try:
        build(path, sources, flags)
        record.write_text(" ".join(cpu_features()) + "\n", "utf-8")
    except (ImportError, OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines() or [""]
        raise ImportError(f"{path} {why}, and cannot be built: {said[0]}") from error
    return path.name


def build(path: Path, sources: Sequence[str], flags: Sequence[str]) -> None:
    """Compile the module's `sources` into `path`, with $CXX or g++, and nanobind."""
    try:
        import nanobind
    except ImportError as error:
        raise ImportError("nanobind is missing: pip install nanobind") from error
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise FileNotFoundError("there is no C++ compiler: install g++")
    own = Path(nanobind.source_dir())
    includes = [nanobind.include_dir(), own.parent / "ext/robin_map/include"]
    includes.append(sysconfig.get_paths()["include"])
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [compiler, *flags, "-w", *(f"-isystem{place}" for place in includes)]
        command += [*sources, str(own / "nb_combined.cpp"), "-lmvec", "-lm", "-o", str(made)]
        around = {name: os.environ[name] for name in _NEEDED if name in os.environ}
        subprocess.run(
            command, cwd=path.parent, check=True, capture_output=True, text=True, env=around
        )
        made.replace(path)  # whole or not at all, for whoever loads it meanwhile


# ---- to here ----
