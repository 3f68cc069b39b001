"""Virtual environments that sketchc makes for packages that cannot be installed into the user's;
and queries for installed packages and the machine's processor."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

from sketchc.base.files import user_folder


def installed(*packages: str) -> dict[str, str]:
    """The versions of those distributions of `packages` that this interpreter has installed."""
    from importlib import metadata

    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def processor_says(name: str) -> str:
    """The field `name` of the first processor in /proc/cpuinfo; "" where there is none."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text()
        found = re.search(rf"^{name}\s*:(.*)$", lines, re.MULTILINE)
        return found[1].strip() if found else ""
    return ""


def canonical(distribution: str) -> str:
    """The one spelling of a distribution's name, as package indexes compare it: `Py.Open_CL` is
    `py-open-cl`."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


class InstallError(Exception):
    """An installation failed; the message says why, for the user."""


@attrs.frozen
class Environment:
    """The virtual environment of one distribution, at one version: in the folder that the
    environment variable `variable` names, else among the user's data. `pythons` are the versions of
    Python that there are wheels for. A `mark` in the folder's name tells environments apart that
    have other packages beside the distribution."""

    distribution: str
    version: str
    variable: str
    pythons: tuple[str, ...]
    mark: str = ""

    def folder(self) -> Path:
        """The folder of the environment, whether it exists or not."""
        name = "-".join(filter(None, (canonical(self.distribution), self.version, self.mark)))
        own = user_folder("XDG_DATA_HOME", ".local/share") / name
        return Path(os.environ.get(self.variable) or own)

    def python(self) -> Path | None:
        """The interpreter, where the environment is finished and has the distribution, or None."""
        python = self.folder() / "bin" / "python"
        there = self._has_distribution()
        return python if python.exists() and there and not self._unfinished().exists() else None

    def _has_distribution(self) -> bool:
        """Whether the distribution is there at its version, however its files spell the name."""
        from importlib import metadata

        places = [str(place) for place in self.folder().glob("lib/python3*/site-packages")]
        found = metadata.distributions(name=self.distribution, path=places)
        return any(one.version == self.version for one in found)

    def install(self, wanted: str, fill: Callable[[Callable[..., None]], None]) -> str:
        """Make the environment, unless it exists; returns a message on what was done. `fill` is
        called with a function that runs `pip install` with its arguments; until `fill` returns, the
        environment counts as unfinished. Raises `InstallError` with pip's output, and where there
        is no suitable Python for `wanted`."""
        folder, unfinished = self.folder(), self._unfinished()
        if self.python() is not None:
            return f"{self.distribution} {self.version} is installed in {folder}"
        python = self._base_python()
        if python is None:
            versions = " or ".join(self.pythons)
            raise InstallError(f"{wanted} needs Python {versions}, and none is on the path")
        if folder.exists() and any(folder.iterdir()) and not unfinished.exists():
            raise InstallError(f"{folder} exists and is not such an environment: move it away")
        folder.mkdir(parents=True, exist_ok=True)
        unfinished.touch()
        run_installer([python, "-m", "venv", "--clear", str(folder)])
        unfinished.touch()
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        fill(lambda *arguments: run_installer([*pip, "--disable-pip-version-check", *arguments]))
        unfinished.unlink()
        return f"installed {self.distribution} {self.version} into {folder}"

    def _unfinished(self) -> Path:
        """The path of a file that exists while an installation runs, and after one that failed."""
        return self.folder() / "sketchc-unfinished"

    def _base_python(self) -> str | None:
        """A Python of one of the versions in `pythons`: this one, or one on the path."""
        if f"{sys.version_info.major}.{sys.version_info.minor}" in self.pythons:
            return sys.executable
        found = (shutil.which(f"python{version}") for version in self.pythons)
        return next((path for path in found if path), None)


def run_installer(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run `command`, one step of an installation. Raises `InstallError` with the end of its output
    where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        tail = (done.stdout + done.stderr).strip()[-1500:]
        raise InstallError(f"{' '.join(command)} failed:\n{tail}")
