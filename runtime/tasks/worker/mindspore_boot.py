"""Starts `mindspore_worker` by path, in an environment where sketchc is not installed.

The worker needs a few modules of sketchc that import nothing but NumPy; this shows them to it under
their own names, and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "process"))
    by_path = importlib.import_module("by_path")
    sys.path.pop(0)
    by_path.show_rooms()
    importlib.import_module("sketchc.runtime.process.parent").die_with_parent()
    worker = importlib.import_module("sketchc.runtime.tasks.worker.mindspore_worker")
    worker.main(int(sys.argv[1]), int(sys.argv[2]))
