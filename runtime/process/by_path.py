"""Modules of sketchc under their own names, in an interpreter where sketchc is not installed.

The environments of Triton-Ascend and MindSpore have no sketchc: what runs there is started by its
path, and shows itself the rooms that need nothing but the standard library (and NumPy).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

_RUNTIME = Path(__file__).resolve().parent.parent


def show_package(name: str, *folders: Path) -> None:
    """A package whose modules lie in these folders; its own `__init__` is not run."""
    package = ModuleType(name)
    package.__path__ = [str(folder) for folder in folders]
    sys.modules[name] = package


def show_rooms() -> None:
    """Make the rooms of `sketchc.runtime` and `sketchc.base` importable, and nothing else of
    sketchc. The two lie beside each other where sketchc is installed, not in a checkout."""
    show_package("sketchc")
    show_package("sketchc.base", _RUNTIME.parent / "base", _RUNTIME.parent / "sketchc" / "base")
    show_package("sketchc.runtime", _RUNTIME)
