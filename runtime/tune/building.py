"""Kernels of many points, built while others are measured where that does not disturb them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import attrs

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.bench.driver import processors
from sketchc.runtime.bench.prepared import build
from sketchc.runtime.toolchains.base import Toolchain


@attrs.frozen
class Built:
    """A built kernel; `code` is its library, or its Python file where its host code is Python."""

    kernel: Kernel
    code: Path


class Builder:
    """Builds kernels into folders below `folder`, several at a time, each once.

    Where kernels are timed on a device of its own, or leave processors to others, builds go on
    `beside` measurements, and never on the processors of these; else measurements wait for them.
    """

    def __init__(self, toolchain: Toolchain, folder: Path, device: str, threads: int) -> None:
        everywhere = sorted(os.sched_getaffinity(0))
        apart = [one for one in everywhere if one not in processors(threads)]
        self.beside = bool(apart) or device != "cpu"
        self._toolchain, self._folder = toolchain, folder
        self._processors = apart or everywhere
        self._pool = ThreadPoolExecutor(len(self._processors), initializer=self._pin)
        self._builds: dict[str, Future[Built]] = {}

    def _pin(self) -> None:
        """Pin this thread, and with it the compilers that it starts."""
        with contextlib.suppress(OSError):  # some containers do not allow it
            os.sched_setaffinity(0, self._processors)

    def start(self, name: str, kernel: Kernel) -> None:
        """Begin to build `kernel`, known by `name` from now on, unless this was begun before."""
        if name not in self._builds:
            place = self._folder / f"point {len(self._builds)}"
            self._builds[name] = self._pool.submit(self._build, kernel, place)

    def _build(self, kernel: Kernel, place: Path) -> Built:
        place.mkdir()
        return Built(kernel, build(self._toolchain, kernel, place))

    def built(self, name: str) -> Built:
        """The kernel of that name, once it is built. Raises `MeasurementFailedError` for one that
        does not compile."""
        return self._builds[name].result()

    def settle(self, names: Sequence[str]) -> None:
        """Wait until no build disturbs a measurement: for all of `names`, unless builds go on
        beside."""
        if not self.beside:
            for name in names:
                if name in self._builds:
                    self._builds[name].exception()

    def close(self) -> None:
        """Begin no further build, and wait for those that run."""
        self._pool.shutdown(cancel_futures=True)
