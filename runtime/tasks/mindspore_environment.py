"""Where MindSpore's virtual environment is, and how to get it.

MindSpore wants NumPy 1, hence an environment of its own: $SKETCHC_MINDSPORE_ENV, or
<user data>/sketchc/mindspore-2.10.0. Its wheel holds the code for GPUs and NPUs, two thirds of it,
which tasks on the CPU do not need: it is removed after the installation.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sketchc.runtime.process.venvs import (
    InstallError,
    find_python,
    new_environment,
    python_with,
    user_folder,
)

VERSION = "2.10.0"
#: Installed without what it asks for: NumPy 2 would do, and some of its operations then fail.
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


def environment_folder() -> Path:
    """The virtual environment, whether it exists or not."""
    configured = os.environ.get("SKETCHC_MINDSPORE_ENV")
    if configured:
        return Path(configured)
    return user_folder("XDG_DATA_HOME", ".local/share") / f"mindspore-{VERSION}"


def mindspore_python() -> Path | None:
    """The interpreter of a complete environment, or None."""
    return python_with(environment_folder(), f"mindspore-{VERSION}")


def install() -> str:
    """Create the environment; returns what was done. Raises `InstallError` with pip's words."""
    folder = environment_folder()
    if mindspore_python() is not None:
        return f"mindspore {VERSION} is installed in {folder}"
    python = find_python()
    if python is None:
        raise InstallError(f"mindspore {VERSION} needs Python 3.11, and none is on the path")
    with new_environment(folder, python) as pip_install:
        pip_install("--no-cache-dir", "--no-deps", PACKAGE)
        for package in folder.glob("lib/python3*/site-packages/mindspore"):
            _trim(package)
        pip_install("--no-cache-dir", *REQUIREMENTS)
    return f"installed mindspore {VERSION} into {folder}"


def _trim(package: Path) -> None:
    for pattern in _SUPERFLUOUS:
        for path in package.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
