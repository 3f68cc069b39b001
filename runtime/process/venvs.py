"""Virtual environments that sketchc makes for packages which cannot stand in the user's own; and
what stands in that, and on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

#: Python versions that triton-ascend has wheels for and that worker processes run on.
PYTHONS = ("3.11",)


def installed(*packages: str) -> dict[str, str]:
    """The versions of those of the distributions that are here."""
    from importlib import metadata

    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def user_folder(variable: str, default: str) -> Path:
    """$XDG_… or its default below the home folder, with sketchc's own folder in it."""
    configured = os.environ.get(variable)
    return (Path(configured) if configured else Path.home() / default) / "sketchc"


def processor_says(name: str) -> str:
    """What Linux says of the first processor under this name; "" for nothing."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text()
        found = re.search(rf"^{name}\s*:(.*)$", lines, re.MULTILINE)
        return found[1].strip() if found else ""
    return ""


def find_python() -> str | None:
    """A Python that triton-ascend has wheels for: this one, or one on the path."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" in PYTHONS:
        return sys.executable
    names = (f"python{version}" for version in PYTHONS)
    return next((path for name in names if (path := shutil.which(name))), None)


class InstallError(Exception):
    """An installation failed; the message says why, for the user."""


@contextlib.contextmanager
def new_environment(folder: Path, python: str) -> Iterator[Callable[..., None]]:
    """Make a virtual environment, to be filled by calls of what is given, with arguments of
    `pip install`; it counts as unfinished until that is done. Raises `InstallError`."""
    unfinished = _unfinished(folder)
    if folder.exists() and any(folder.iterdir()) and not unfinished.exists():
        raise InstallError(f"{folder} exists and is not such an environment: move it away")
    folder.mkdir(parents=True, exist_ok=True)
    unfinished.touch()
    _run([python, "-m", "venv", "--clear", str(folder)])
    unfinished.touch()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    yield lambda *arguments: _run([*pip, "--disable-pip-version-check", *arguments])
    unfinished.unlink()


def python_with(folder: Path, distribution: str) -> Path | None:
    """The interpreter of a finished environment that has this distribution ("NAME-VERSION", as its
    folder of metadata begins), or None."""
    python = folder / "bin" / "python"
    pattern = f"lib/python3*/site-packages/{distribution}.dist-info"
    complete = python.exists() and any(folder.glob(pattern)) and not _unfinished(folder).exists()
    return python if complete else None


def _unfinished(folder: Path) -> Path:
    """Present while an installation runs, and after one that failed."""
    return folder / "sketchc-unfinished"


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        tail = (done.stdout + done.stderr).strip()[-1500:]
        raise InstallError(f"{' '.join(command)} failed:\n{tail}")
