"""Unified Sketches: a compiler for small, readable, hardware-neutral kernel descriptions.

`sketchc.compile` replaces a function or module of PyTorch by verified kernels, `sketchc.kernel`
makes a function of a sketch; `sketchc.api` has the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sketchc.base.version import __version__

if TYPE_CHECKING:
    from sketchc.api import CompileError, compile, kernel

__all__ = ["CompileError", "__version__", "compile", "kernel"]


def __getattr__(name: str) -> Any:
    """What is public besides the version, once it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sketchc import api

    return getattr(api, name)
