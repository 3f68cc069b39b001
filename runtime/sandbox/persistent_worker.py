"""A worker that is kept from run to run of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sketchc.runtime.sandbox.worker import Worker, WorkerResult

if TYPE_CHECKING:
    import numpy as np

#: What a run may print, and the size of tensors up to which one worker serves them all.
_PRINTED_BYTES = 64 << 20
_SMALL_BYTES = 64 << 20


class KeptWorker:
    """Calls one handler, in a worker that `make` makes: of the bytes that its tensors may have, and
    that it may write. A run that ends it, or tensors that outgrow it, are followed by a new one."""

    def __init__(self, handler: str, make: Callable[[int, int], Worker]) -> None:
        self._handler = handler
        self._make = make
        self._worker: Worker | None = None
        self._bytes = 0

    def call(
        self,
        request: Mapping[str, Any],
        tensors: Mapping[str, np.ndarray[Any, Any]],
        timeout: float,
    ) -> WorkerResult:
        """See `Worker.call`."""
        size = sum(array.nbytes for array in tensors.values())
        if self._worker is None or not self._worker.alive or size > self._bytes:
            self.close()
            self._bytes = max(2 * size, _SMALL_BYTES)
            self._worker = self._make(self._bytes, _PRINTED_BYTES + 2 * self._bytes)
        return self._worker.call(self._handler, request, tensors, timeout)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
