"""Where the front end's virtual environment and the MLIR tools are, and how to get them.

`triton-ascend` and `triton` both install a module named `triton`, hence triton-ascend has an
environment of its own: $SKETCHC_ASCEND_ENV, or <user data>/sketchc/triton-ascend-3.2.0.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from sketchc.base.files import user_folder
from sketchc.runtime.process.peer import answer_of
from sketchc.runtime.process.venvs import Environment, InstallError, run_installer

FRONTEND_VERSION = "3.2.0"
FRONTEND = Environment(
    "triton-ascend", FRONTEND_VERSION, variable="SKETCHC_ASCEND_ENV", pythons=("3.11",)
)
REQUIREMENTS = (f"triton-ascend=={FRONTEND_VERSION}", "pybind11", "numpy<2.4")
APT_PACKAGES = ("mlir-19-tools", "llvm-19", "gcc")
APT_LINE = f"apt-get install -y {' '.join(APT_PACKAGES)}"
#: The parser of LLVM 22 does not accept the front end's Linalg text any more.
OLDEST_LLVM, NEWEST_LLVM = 19, 21
INSTALL_LINE = "sketchc toolchain install triton_ascend"


@attrs.frozen
class Tools:
    """The programs that turn Linalg into a shared library; all but gcc from one LLVM."""

    programs: Mapping[str, str]  # name -> path
    version: str  # of LLVM, "19.1.4"
    gcc_version: str

    @property
    def fingerprint(self) -> str:
        """The tools' versions as one text, for the key of the build cache."""
        return f"llvm {self.version}, gcc {self.gcc_version}"


def cache_folder() -> Path:
    """The folder where builds are kept; it may be deleted at any time."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "ascend"


def missing_tools() -> tuple[str, ...]:
    """The names of the tools that `find_tools` does not find."""
    missing = [] if _llvm() else [f"mlir-opt, opt and llc of LLVM {OLDEST_LLVM} to {NEWEST_LLVM}"]
    if shutil.which("gcc") is None:
        missing.append("gcc")
    return tuple(missing)


@functools.cache
def find_tools() -> Tools | None:
    """gcc, and the programs of the first LLVM that has all of them; None where one is missing."""
    llvm = _llvm()
    gcc = shutil.which("gcc")
    if llvm is None or gcc is None:
        return None
    version, paths = llvm
    gcc_version = _version(gcc, "-dumpfullversion", r"(\d+\.\d+\.\d+)") or "unknown"
    return Tools({**paths, "gcc": gcc}, version, gcc_version)


@functools.cache
def _llvm() -> tuple[str, dict[str, str]] | None:
    """(version, program -> path) of the first LLVM with all four programs; None without one."""
    programs = ("mlir-opt", "mlir-translate", "opt", "llc")
    suffixes = [f"-{number}" for number in range(OLDEST_LLVM, NEWEST_LLVM + 1)] + [""]
    for suffix in suffixes:
        paths = {name: shutil.which(f"{name}{suffix}") for name in programs}
        found = {name: path for name, path in paths.items() if path is not None}
        if len(found) < len(programs):
            continue
        version = _version(found["mlir-opt"], "--version", r"LLVM version (\d+\.\d+\.\d+)")
        if version and OLDEST_LLVM <= int(version.split(".")[0]) <= NEWEST_LLVM:
            return version, found
    return None


def _version(program: str, option: str, pattern: str) -> str | None:
    found = re.search(pattern, answer_of(program, option))
    return found.group(1) if found else None


def install_frontend() -> str:
    """Create the front end's environment; returns a message on what was done. Raises `InstallError`
    with pip's output."""
    return FRONTEND.install("triton-ascend", lambda pip_install: pip_install(*REQUIREMENTS))


def install_tools() -> str:
    """Install the system packages with apt-get; returns a message. Raises `InstallError`."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        message = f"installing system packages needs apt-get and root; as root: {APT_LINE}"
        raise InstallError(message)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_installer([apt, "update", "-qq"], quiet)
    run_installer([apt, "install", "-y", "-qq", "--no-install-recommends", *APT_PACKAGES], quiet)
    _llvm.cache_clear()
    find_tools.cache_clear()
    return f"installed {', '.join(APT_PACKAGES)}"


if __name__ == "__main__":
    # For scripts: exit status 0 where the tools that execute the front end's Linalg are installed.
    sys.exit(find_tools() is None)
