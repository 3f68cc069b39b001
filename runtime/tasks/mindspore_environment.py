"""Where MindSpore's virtual environment is, and how to get it.

MindSpore wants NumPy 1, hence an environment of its own: $SKETCHC_MINDSPORE_ENV, or
<user data>/sketchc/mindspore-2.10.0. Its wheel holds the code for GPUs and NPUs, two thirds of it,
which tasks on the CPU do not need: it is removed after the installation.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from sketchc.runtime.process.venvs import Environment

VERSION = "2.10.0"
#: Installed without its dependencies: they allow NumPy 2, with which some operations fail.
PACKAGE = f"mindspore=={VERSION}"
REQUIREMENTS = (
    *("numpy<2", "scipy<1.17", "pillow", "protobuf>=7.34.1,<8", "asttokens", "astunparse"),
    *("packaging", "psutil", "safetensors", "dill"),
)
INSTALL_LINE = "sketchc toolchain install mindspore"
#: Folders and files of the package, for devices other than the CPU and for building extensions.
_SUPERFLUOUS = (
    *("lib/plugin/gpu*", "lib/plugin/ascend", "lib/plugin/libmindspore_gpu*", "include"),
    *("lib/plugin/libmindspore_ascend*", "lib/plugin/libmindspore_ops_ascend*"),
)


MINDSPORE = Environment("mindspore", VERSION, variable="SKETCHC_MINDSPORE_ENV", pythons=("3.11",))


def install() -> str:
    """Create the environment; returns what was done. Raises `InstallError` with pip's words."""
    return MINDSPORE.install(f"mindspore {VERSION}", _fill)


def _fill(pip_install: Callable[..., None]) -> None:
    pip_install("--no-cache-dir", "--no-deps", PACKAGE)
    for package in MINDSPORE.folder().glob("lib/python3*/site-packages/mindspore"):
        _trim(package)
    pip_install("--no-cache-dir", *REQUIREMENTS)


def _trim(package: Path) -> None:
    for pattern in _SUPERFLUOUS:
        for path in package.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
