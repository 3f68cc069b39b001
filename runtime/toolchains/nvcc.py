"""Where the CUDA compiler is, and how to get it: as packages, in an environment of their own.

Without a CUDA toolkit, NVIDIA's packages for Python suffice: the compiler, the runtime's headers
and library, and what these include.
"""

from __future__ import annotations

import os
import shutil
from functools import lru_cache

from sketchc.runtime.process.peer import answer_of
from sketchc.runtime.process.venvs import Environment

VERSION = "13.0.88"
COMPILER = Environment(
    "nvidia-cuda-nvcc",
    VERSION,
    variable="SKETCHC_CUDA_ENV",
    pythons=("3.11", "3.12", "3.13", "3.14"),
)
REQUIREMENTS = (
    f"nvidia-cuda-nvcc=={VERSION}",
    f"nvidia-nvvm=={VERSION}",
    f"nvidia-cuda-crt=={VERSION}",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
)


def find_nvcc() -> str | None:
    """The path of the CUDA compiler: `$NVCC`, else nvcc, else that of the environment."""
    if asked := os.environ.get("NVCC"):
        return shutil.which(asked)
    return shutil.which("nvcc") or _installed()


def _installed() -> str | None:
    if COMPILER.python() is None:
        return None
    found = COMPILER.folder().glob("lib/python3*/site-packages/nvidia/cu13/bin/nvcc")
    return next(map(str, found), None)


@lru_cache(maxsize=8)
def nvcc_version(nvcc: str) -> str:
    """The release that `nvcc --version` names, with its patch: "13.0.88"."""
    said = answer_of(nvcc, "--version") or ""
    return said.partition(", V")[2].split("\n")[0].strip() or "unknown"


def install_nvcc() -> str:
    """Install the compiler, unless there is one; returns a message on what was done. Raises
    `InstallError` with pip's output."""
    if (nvcc := find_nvcc()) is not None:
        return f"nvcc {nvcc_version(nvcc)} is here"
    return COMPILER.install("nvcc", lambda pip_install: pip_install(*REQUIREMENTS))
