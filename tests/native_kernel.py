"""A compiled C++ kernel as a function of this process: for code that the tests made themselves."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from sketchc.runtime.toolchains.base import Artefact
from sketchc.runtime.toolchains.native.session import signature
from sketchc.runtime.toolchains.native.worker import call

Tensors: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


class NativeKernel:
    """`kernel(tensors, symbols, params)` writes the given arrays, which must be contiguous; all
    must be given, but optional ones. It returns the entry point's status."""

    def __init__(self, artefact: Artefact) -> None:
        self.kernel = artefact.kernel
        self._library = ctypes.CDLL(str(artefact.library))

    def __call__(
        self,
        tensors: Tensors,
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool] | None = None,
    ) -> int:
        return self.requested(signature(self.kernel, symbols, params or {}, tensors), tensors)

    def requested(self, request: Mapping[str, Any], tensors: Tensors) -> int:
        """The same for a worker's request (`toolchain.signature`)."""
        arrays = [tensors.get(name) for name, *_ in request["tensors"]]
        assert all(array is None or array.flags.c_contiguous for array in arrays)
        return call(self._library, request, [None if a is None else a.ctypes.data for a in arrays])
