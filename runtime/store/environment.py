"""With what a result was made: versions of sketchc, of the compilers, of drivers, and the machine.

Everything is read from files and package metadata: nothing is imported or started, so that noting
it takes milliseconds.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from sketchc import __version__
from sketchc.runtime.bench.machine import processor_name

_PACKAGES = ("torch", "triton", "triton-ascend", "numpy")
#: What a driver says of itself: file, and the pattern of its version there.
_DRIVERS = {
    "nvidia driver": ("/proc/driver/nvidia/version", r"Kernel Module\D*([\d.]+)"),
    "ascend driver": ("/usr/local/Ascend/driver/version.info", r"(?i)version=([\w.]+)"),
}


def environment(versions: Mapping[str, str]) -> dict[str, str]:
    """This machine's versions, with those that the toolchain or the task's process told."""
    return {**_machine(), **{str(name): str(value) for name, value in versions.items()}}


@lru_cache(maxsize=1)
def _machine() -> Mapping[str, str]:
    found = {
        "sketchc": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor_name(),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    for name, (path, pattern) in _DRIVERS.items():
        try:
            match = re.search(pattern, Path(path).read_text("utf-8", "replace"))
        except OSError:
            continue
        if match:
            found[name] = match[1]
    return found
