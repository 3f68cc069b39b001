"""In a worker: calls generated wrappers, and records their launches without executing them.

The wrapper runs on tensors of this process; each launch is recorded with its grid and its
arguments, which are parts of buffers and numbers. The process that executes the launches loads no
code of the generated file. Where the wrapper's own code reads or writes a tensor that a launch may
have written (a loop whose length is data, NaNs put into one form), the trace stops: it is made
again with the buffers' contents after those launches, and goes on from there.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from sketchc.runtime.guards.wrapper_guard import takes_out
from sketchc.runtime.tasks.worker.operations import Operations

#: The contents of buffers, as bytes, by the buffers' names.
Contents = dict[str, "np.ndarray[Any, Any]"]


class Unfinished(BaseException):
    """The trace stops: the wrapper accesses a tensor that its launches write."""


class ForeignResultError(Exception):
    """The wrapper returns tensors other than those it was given."""


class Tracer(Operations):  # type: ignore[no-untyped-call]
    """Records the launches of one call; `given` are its tensors by name, `states` the contents of
    buffers at the places where earlier traces of the same call had stopped."""

    def __init__(self, given: Mapping[str, torch.Tensor], states: Sequence[Contents]) -> None:
        super().__init__()
        self._given = given
        self._states = list(states)
        self._names = {_storage(tensor): name for name, tensor in given.items()}
        # If a tensor were freed, another one could get its memory, and with that its name.
        self._kept = dict(given)
        self._touched: dict[str, None] = {}
        self.launches: list[dict[str, Any]] = []

    def argument(self, value: Any, kind: str) -> dict[str, Any]:
        """The record of a launch's argument: a place in a buffer, or a number of type `kind`."""
        if not isinstance(value, torch.Tensor):
            return {"scalar": kind, "value": value}
        storage = _storage(value)
        if storage not in self._names:
            self._names[storage] = f"workspace {len(self._names)}"
            self._kept[self._names[storage]] = value
        name = self._names[storage]
        self._touched[name] = None
        offset = value.storage_offset() * value.element_size()
        return {"buffer": name, "offset": offset, "item": value.element_size()}

    def launch(self, record: dict[str, Any]) -> None:
        """Append a launch's `record` to `launches`."""
        self.launches.append(record)

    def trace(self, call: Callable[[], Any], results: Sequence[str]) -> tuple[bool, Contents]:
        """Make the call. Returns whether it ran to its end, and the contents, before the launches
        in `self.launches`, of all buffers that these use and, at its end, of `results`.

        Raises `ForeignResultError`, and whatever the wrapper raises.
        """
        previous = torch.are_deterministic_algorithms_enabled()
        # So that `torch.empty` is filled with NaN. The public function would import a Triton.
        torch._C._set_deterministic_algorithms(True, warn_only=True)
        try:
            with self:
                returned = call()
        except Unfinished:
            return False, self._contents(self._touched)
        finally:
            torch._C._set_deterministic_algorithms(previous)
        values = returned if isinstance(returned, tuple | list) else (returned,)
        places = [v.data_ptr() if isinstance(v, torch.Tensor) else None for v in values]
        if places != [self._given[name].data_ptr() for name in results]:
            msg = "the wrapper returns other tensors than those that it was given"
            raise ForeignResultError(msg)
        return True, self._contents({**self._touched, **dict.fromkeys(results)})

    def seen(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Execute one ATen operation; if it accesses a buffer of earlier launches, `_synchronise`
        first."""
        if self._touched and not _only_looks(func):
            tensors = (v for v in tree_leaves((args, given)) if isinstance(v, torch.Tensor))
            if any(self._names.get(_storage(tensor)) in self._touched for tensor in tensors):
                self._synchronise()
        return func(*args, **given)

    def _synchronise(self) -> None:
        """Fill buffers with the next of `states`, the contents after the launches so far. Raises
        `Unfinished` where there is none."""
        if not self._states:
            raise Unfinished
        for name, contents in self._states.pop(0).items():
            storage = self._kept[name].untyped_storage()
            ctypes.memmove(storage.data_ptr(), contents.ctypes.data, storage.nbytes())
        self._touched.clear()
        self.launches.clear()

    def _contents(self, names: Mapping[str, None]) -> Contents:
        return {name: _bytes(self._kept[name]) for name in names}


class MissingEntryError(Exception):
    """The file has no function with the wrapper's name."""


def require_entry(found: Any, name: str) -> Callable[..., Any]:
    """`found`, where it is callable; else raises `MissingEntryError` with the wrapper's `name`."""
    if not callable(found):
        raise MissingEntryError(f"the file defines no function `{name}`")
    wrapper: Callable[..., Any] = found
    return wrapper


def names_of(request: Mapping[str, Any], *roles: str) -> list[str]:
    """Names of a call's tensors with one of `roles`, in call order (`launching.call_request`)."""
    return [tensor["name"] for tensor in request["tensors"] if tensor["role"] in roles]


def bound_call(
    wrapper: Callable[..., Any],
    request: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    *,
    needed: bool = False,
) -> Callable[[], Any]:
    """The call of `wrapper` that a request asks for. Outputs are passed where the wrapper accepts
    them (with `needed`: where it requires them) and `tensors` has all of them."""
    # An optional tensor that is not given is None.
    inputs = [tensors.get(name) for name in names_of(request, "in", "inout")]
    outputs = names_of(request, "out")
    keywords = dict(request["params"])
    given = outputs and all(name in tensors for name in outputs)
    if given and takes_out(wrapper, needed=needed):
        filled = tuple(tensors[name] for name in outputs)
        keywords["out"] = filled if len(filled) > 1 else filled[0]
    return functools.partial(wrapper, *inputs, **keywords)


def states_of(arrays: Contents, count: int) -> tuple[Contents, list[Contents]]:
    """Split the arrays of a request into those of the call and the `count` states, the earliest
    first: names in a state begin with its number and a slash."""
    states: list[Contents] = [{} for _ in range(count)]
    own: Contents = {}
    for name, array in arrays.items():
        number, slash, rest = name.partition("/")
        if slash:
            states[int(number)][rest] = array
        else:
            own[name] = array
    return own, states


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _only_looks(function: Any) -> bool:
    """Whether an ATen operation makes a view, and reads or writes no element."""
    infos = [returned.alias_info for returned in function._schema.returns]
    return any(info is not None and not info.is_write for info in infos)


def _bytes(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    storage = tensor.untyped_storage()
    size = storage.nbytes()  # may be more than the 2 GiB that `string_at` takes
    return np.array(
        (ctypes.c_uint8 * size).from_address(storage.data_ptr()) if size else [], np.uint8
    )
