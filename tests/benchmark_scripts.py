"""Scripts of `benchmarks/` as modules."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@cache
def benchmark(name: str) -> ModuleType:
    """A script, which finds those beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        return importlib.import_module(name)
