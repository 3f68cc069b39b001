"""Packages that not every installation has."""

from __future__ import annotations

import sys

#: An import's name -> how to get it.
_EXTRAS = {
    "torch": "pip install 'sketchc[torch]'",
    "triton": "pip install 'sketchc[triton]'",
    "pybind11": "pip install 'sketchc[cpp]'",
    "openai": "pip install 'sketchc[llm]'",
}


def lacking(error: ImportError) -> str:
    """What is to be installed, where that is why an import failed; else ""."""
    name = (error.name or "").partition(".")[0]
    if name not in _EXTRAS or sys.modules.get(name) is not None:
        return ""
    return f"this needs {name}, which is not installed: {_EXTRAS[name]}"
