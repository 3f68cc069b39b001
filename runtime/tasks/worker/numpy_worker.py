"""The process that runs a NumPy task: see `server`. It imports no torch.

A task is a function of arrays, or a class with `__call__` (or `forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np

from sketchc.base.types import DType, numpy_dtype
from sketchc.runtime.process.messages import Raw, array_of, raw_of
from sketchc.runtime.tasks.worker import server

#: The value of uninitialised bytes in the second run: it gives huge floats, and huge integers.
_STALE = 0x7B


class Task(server.Task):
    """One loaded task file."""

    module_class = "a function, or a class with __call__ or forward"
    methods: ClassVar[tuple[str, ...]] = ("forward", "__call__")
    #: A number of NumPy's own is an array without axes.
    tensor_type = (np.ndarray, np.generic)
    tensor_name = "an array"
    spellings: ClassVar[Mapping[str, str]] = {dtype.numpy_name: dtype.value for dtype in DType}
    #: Only two runs can show that outputs differ, and they cost little.
    twice_elements = 1 << 24

    def is_module(self, value: object) -> bool:
        """Whether `value` is a class of the task's file that can be called, or an instance."""
        kind = value if isinstance(value, type) else type(value)
        plain = kind.__module__ == "sketchc_user_task" or isinstance(value, type)
        return plain and any(callable(getattr(kind, name, None)) for name in self.methods)

    def type_name(self, tensor: Any) -> str:
        """NumPy's name of the type."""
        return str(tensor.dtype.name)

    def ones(self, shape: Sequence[int], spelling: str) -> Any:
        """A tensor of ones."""
        return np.ones(tuple(shape), numpy_dtype(DType(spelling)))

    def load(self, raw: Raw) -> Any:
        """A new tensor from an array of a request."""
        return array_of(raw).copy()

    def raw(self, tensor: Any) -> Raw:
        """A tensor as an array of a reply."""
        return raw_of(np.asarray(tensor))

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array; bf16 as float64."""
        array = np.asarray(tensor)
        return array.astype(np.float64) if array.dtype.name == "bfloat16" else array

    def copied(self, tensor: Any) -> Any:
        """A copy with memory of its own."""
        return tensor.copy()

    def double(self, value: Any) -> Any:
        """A floating-point tensor in float64; everything else as it is."""
        if self.is_tensor(value) and (value.dtype.kind == "f" or value.dtype.name == "bfloat16"):
            return value.astype(np.float64)
        return value

    def changed(self, value: Any, mark: Any) -> bool:
        """Whether an array holds other bytes than it did; a number cannot."""
        return isinstance(value, np.ndarray) and super().changed(value, mark)

    def aliases(self, output: Any, value: Any) -> bool:
        """Whether an output is an input, or shares its memory."""
        return output is value or np.may_share_memory(output, value)

    def running(self) -> AbstractContextManager[Any]:
        """A context for a run, in which NumPy gives no warnings."""
        return np.errstate(all="ignore")

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """A context for a run: the memory that `numpy.empty` gives holds `_STALE` bytes."""
        kept = {name: getattr(np, name) for name in ("empty", "empty_like")}
        for name, make in kept.items():
            setattr(np, name, _stale(make))
        try:
            yield
        finally:
            for name, make in kept.items():
                setattr(np, name, make)


def _stale(make: Callable[..., Any]) -> Callable[..., Any]:
    """`make` (`numpy.empty` or its like), with all bytes of its arrays set to `_STALE`."""

    def made(*arguments: Any, **named: Any) -> Any:
        array = make(*arguments, **named)
        if array.dtype.hasobject or not array.size:
            return array
        pattern = np.full(array.dtype.itemsize, _STALE, np.uint8).view(array.dtype)[0]
        array[...] = bool(pattern) if array.dtype.kind == "b" else pattern
        return array

    return made


#: Serves requests until the channel is closed.
main = partial(server.serve, Task)
