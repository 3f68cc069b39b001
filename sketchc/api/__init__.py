"""The Python API: what scripts, an editor server and the command line itself call.

- `check_file`, `check_text`: the diagnostics and verdicts of sketches (`Request`, `FileReport`).
- `load_sketch`, `plan_sketch`: a sketch of a file, and its plan for a target; `SketchError` has the
  diagnostics of a sketch that is refused.
- `kernel`: a sketch, in a docstring or file, as a function of tensors (`sketchc.kernel`).
- `compile`: a function or module of PyTorch, replaced by verified kernels (`sketchc.compile`);
  `CompileError` says why there is no kernel.

docs/PYTHON.md shows them. Parts that need torch or a compiler are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sketchc.api.checking import FileReport, Names, Request, check_file, check_text

if TYPE_CHECKING:
    from sketchc.api.compiling import compile
    from sketchc.api.kernels import CompileError, kernel
    from sketchc.api.sketches import SketchError, load_sketch, plan_sketch

__all__ = [
    "CompileError",
    "FileReport",
    "Names",
    "Request",
    "SketchError",
    "check_file",
    "check_text",
    "compile",
    "kernel",
    "load_sketch",
    "plan_sketch",
]
_LATER = {
    "compile": "compiling",
    "kernel": "kernels",
    "CompileError": "kernels",
    "SketchError": "sketches",
    "load_sketch": "sketches",
    "plan_sketch": "sketches",
}


def __getattr__(name: str) -> Any:
    """Import a name of `_LATER`, which checking a sketch does not need, at its first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
