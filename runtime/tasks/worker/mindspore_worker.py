"""The process that runs a MindSpore task: see `server`. It runs in an environment of its own.

A task is a `mindspore.nn.Cell`, or a function on tensors; it runs in PyNative mode on the CPU.
Needs mindspore and NumPy, and nothing of sketchc besides the packages that `process.program` makes
importable.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar

import mindspore
import numpy as np
from mindspore import nn

from sketchc.base.types import DType
from sketchc.runtime.process.messages import BFLOAT16, Raw, array_of, raw_of
from sketchc.runtime.tasks.worker import server
from sketchc.runtime.tasks.worker.task_file import Raised, Request, TaskError

#: spelling in a sketch -> MindSpore's type
DTYPES = {
    dtype.value: mindspore.bool_ if dtype is DType.BOOL else getattr(mindspore, dtype.numpy_name)
    for dtype in DType
}
_SPELLED = {dtype.numpy_name: dtype.value for dtype in DType}
_FLOATS = ("f64", "f32", "bf16", "f16")
#: Methods and operators that change a tensor. For several of these, MindSpore has no kernel for the
#: CPU that works in place: it gives a new tensor, and leaves the old one as it was.
_IN_PLACE = (
    *("add_", "addmm_", "clamp_", "div_", "erfinv_", "exp_", "fill_diagonal_", "floor_"),
    *("floor_divide_", "index_add_", "index_copy_", "index_fill_", "index_put_", "log_"),
    *("masked_fill_", "masked_scatter_", "mul_", "put_", "remainder_", "scatter_", "scatter_add_"),
    *("sigmoid_", "sign_", "sub_", "tanh_"),
    *("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__"),
)
_NARROW = (
    "the references are computed in the task's own precision: MindSpore does not run it in float64"
)


class Task(server.Task):
    """One loaded task file."""

    module_class = "a class derived from mindspore.nn.Cell"
    module_type = nn.Cell
    walk = "cells_and_names"
    tensor_type = mindspore.Tensor
    methods: ClassVar[tuple[str, ...]] = ("construct",)
    spellings: ClassVar[Mapping[str, str]] = {str(dtype): name for name, dtype in DTYPES.items()}
    twice_elements = 1 << 24
    #: Whether the task runs in float64; known once it was described.
    wide = True

    def seed(self, number: int) -> None:
        """Seed all generators, those of MindSpore among them."""
        super().seed(number)
        mindspore.set_seed(number % (1 << 31))

    def ones(self, shape: Sequence[int], spelling: str) -> Any:
        """A tensor of ones."""
        return mindspore.ops.ones(tuple(shape), DTYPES[spelling])

    def load(self, raw: Raw) -> Any:
        """A new tensor from an array of a request."""
        if raw.dtype == BFLOAT16:
            bits = np.frombuffer(raw.data, np.uint16).astype(np.uint32) << 16
            wide = mindspore.Tensor(bits.view(np.float32).reshape(raw.shape))
            return wide.astype(mindspore.bfloat16)
        return mindspore.Tensor(array_of(raw).copy(), DTYPES[_SPELLED[raw.dtype]])

    def raw(self, tensor: Any) -> Raw:
        """A tensor as an array of a reply."""
        if self.spelling(tensor) != "bf16":
            return raw_of(tensor.asnumpy())
        wide = np.ascontiguousarray(tensor.astype(mindspore.float32).asnumpy())
        halves = raw_of((wide.view(np.uint32) >> 16).astype(np.uint16))
        return Raw(BFLOAT16, tuple(tensor.shape), halves.data)

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array; bf16 as float64."""
        wide = tensor.astype(mindspore.float64) if self.spelling(tensor) == "bf16" else tensor
        found: np.ndarray[Any, Any] = wide.asnumpy()
        return found

    def copied(self, tensor: Any) -> Any:
        """A copy with memory of its own."""
        if self.spelling(tensor) == "bf16":
            return tensor.astype(mindspore.float32).astype(mindspore.bfloat16)
        return mindspore.Tensor(tensor.asnumpy().copy(), tensor.dtype)

    def double(self, value: Any) -> Any:
        """A floating-point tensor in float64, if the task runs in it; else `value` itself."""
        return self.widened(value) if self.wide else value

    def widened(self, value: Any) -> Any:
        """A floating-point tensor in float64; any other value as it is."""
        if self.is_tensor(value) and self.spelling(value) in _FLOATS:
            return mindspore.Tensor(self.array(value).astype(np.float64))
        return value

    def doubled(self, model: Any) -> Any:
        """A model with its parameters in float64, if the task runs in it."""
        if self.wide and isinstance(model, nn.Cell):
            for parameter in model.get_parameters():
                if self.spelling(parameter) in _FLOATS:
                    parameter.set_dtype(mindspore.float64)
        return model

    def ready(self, model: Any) -> Any:
        """The model in evaluation mode."""
        return model.set_train(False)

    def twin(self, model: Any) -> Any:
        """The model itself: models are built for each request, and copies share parameters."""
        return model

    def state(self, model: Any) -> dict[str, Any]:
        """Parameters by dotted name."""
        return dict(model.parameters_and_names()) if isinstance(model, nn.Cell) else {}

    def set_state(self, model: Any, values: Mapping[str, Any]) -> None:
        """Replace parameters and buffers, by name."""
        own = self.state(model)
        for name, value in values.items():
            if name in own:
                own[name].set_data(value, slice_shape=True)

    def aliases(self, output: Any, value: Any) -> bool:
        """Whether an output is an input, or shares its memory."""
        if output is value:
            return True
        # Operations in place may return another object for the same memory.
        alike = output.shape == value.shape and output.dtype == value.dtype
        return alike and self.array(output).tobytes() == self.array(value).tobytes()

    def attributes(self, part: Any) -> dict[str, Any]:
        """The attributes that a cell has besides those of every cell, by name."""
        plain = vars(nn.Cell())
        return {name: v for name, v in super().attributes(part).items() if name not in plain}

    def describe(self, request: Request) -> dict[str, Any]:
        """The description of the task; also finds out whether the task runs in float64."""
        found = super().describe(request)
        self.seed(request["seed"])
        inputs = [self.double(self._own(value)) for value in self.inputs(request)]
        try:
            for output in self.forward(self.doubled(self.model({})), inputs):
                self.array(output)  # operations may fail as late as here
        except (Raised, TaskError, RuntimeError, TypeError, ValueError):
            self.wide = False
        return found

    def determinism(self, request: Request) -> dict[str, Any]:
        """Adds a note on a task that does not run in float64."""
        found = super().determinism(request)
        return found if self.wide else {**found, "notes": [*found["notes"], _NARROW]}


def work_in_place() -> None:
    """Have operations in place change their tensor on the CPU, too, as the documentation says."""
    for name in _IN_PLACE:
        if hasattr(mindspore.Tensor, name):
            setattr(mindspore.Tensor, name, _in_place(getattr(mindspore.Tensor, name)))
    mindspore.Tensor.zero_ = lambda self: _filled(self, 0)
    mindspore.Tensor.fill_ = _filled


def _in_place(operation: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(operation)
    def done(self: Any, *arguments: Any, **named: Any) -> Any:
        return _filled(self, operation(self, *arguments, **named))

    return done


def _filled(tensor: Any, value: Any) -> Any:
    """Write `value` into `tensor`, also where it is a slice of another one; returns `tensor`."""
    if value is tensor:
        return tensor
    if tensor.shape:
        tensor[...] = value
    else:
        tensor.copy_(mindspore.ops.cast(mindspore.Tensor(value), tensor.dtype))
    return tensor


def main(channel: socket.socket) -> None:
    """Serve requests until the channel is closed."""
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, device_target="CPU")
    work_in_place()
    server.serve(Task, channel)
    sys.stdout.flush()
    os._exit(0)  # MindSpore's own ending may abort
