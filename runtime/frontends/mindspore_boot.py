"""Starts `mindspore_worker` by path, in an environment where sketchc is not installed.

The worker needs a few modules of sketchc that import nothing but NumPy; this shows them to it under
their own names, and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType


def show_package(name: str, *folders: Path) -> None:
    """A package whose modules lie in these folders; its own `__init__` is not run."""
    package = ModuleType(name)
    package.__path__ = [str(folder) for folder in folders]
    sys.modules[name] = package


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    show_package("sketchc")
    show_package("sketchc.runtime", here.parent)
    show_package("sketchc.runtime.frontends", here)
    show_package("sketchc.runtime.sandbox", here.parent / "sandbox")
    importlib.import_module("sketchc.runtime.sandbox.parent").die_with_parent()
    worker = importlib.import_module("sketchc.runtime.frontends.mindspore_worker")
    worker.main(int(sys.argv[1]), int(sys.argv[2]))
