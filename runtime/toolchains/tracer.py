"""In a worker: calls of generated wrappers, and what one launches, without launching it.

The wrapper runs on tensors of this process; each launch is written down with its grid and its
arguments, which are parts of buffers and numbers. Whoever executes the launches needs no line of
the generated file. Where the wrapper's own code reads or writes a tensor that a launch may have
written (a loop whose length is data, NaNs put into one form), the trace stops: it is made again
with what the buffers hold by then, and goes on from there.
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

#: What a buffer holds: bytes.
Contents = dict[str, "np.ndarray[Any, Any]"]


class Unfinished(BaseException):
    """The wrapper needs what its launches write."""


class ForeignResultError(Exception):
    """The wrapper returns tensors that it was not given."""


class Tracer(Operations):  # type: ignore[no-untyped-call]
    """Notes the launches of one call; `given` are its tensors by name, `states` the contents of
    buffers at the places where earlier traces of the same call had stopped."""

    def __init__(self, given: Mapping[str, torch.Tensor], states: Sequence[Contents]) -> None:
        super().__init__()
        self._given = given
        self._states = list(states)
        self._names = {_storage(tensor): name for name, tensor in given.items()}
        # A tensor that were freed would lend its memory, and its name, to another one.
        self._kept = dict(given)
        self._touched: dict[str, None] = {}
        self.launches: list[dict[str, Any]] = []

    def argument(self, value: Any, kind: str) -> dict[str, Any]:
        """A launch's argument as it is written down: a place in a buffer, or a number."""
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
        """Write down a launch."""
        self.launches.append(record)

    def trace(self, call: Callable[[], Any], results: Sequence[str]) -> tuple[bool, Contents]:
        """Make the call. Returns whether it came to its end, and the contents of all buffers that
        the launches use, and of `results`, from before `self.launches`.

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
        """Carries out one operation, once it is known what the launches before it have written."""
        if self._touched and not _only_looks(func):
            tensors = (v for v in tree_leaves((args, given)) if isinstance(v, torch.Tensor))
            if any(self._names.get(_storage(tensor)) in self._touched for tensor in tensors):
                self._synchronise()
        return func(*args, **given)

    def _synchronise(self) -> None:
        """Go on with what the launches so far have written, where that is known."""
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
    """The file has no function of the wrapper's name."""


def require_entry(found: Any, name: str) -> Callable[..., Any]:
    """The wrapper, where it is one. Raises `MissingEntryError`."""
    if not callable(found):
        raise MissingEntryError(f"the file defines no function `{name}`")
    wrapper: Callable[..., Any] = found
    return wrapper


def names_of(request: Mapping[str, Any], *roles: str) -> list[str]:
    """The tensors of a call with these roles, in call order; see `launching.call_request`."""
    return [tensor["name"] for tensor in request["tensors"] if tensor["role"] in roles]


def bound_call(
    wrapper: Callable[..., Any],
    request: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    *,
    needed: bool = False,
) -> Callable[[], Any]:
    """The call that a request asks for. Outputs are passed where the wrapper takes them (with
    `needed`: where it cannot do without) and all are there."""
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
    """Arrays of a request: those of the call, and the `count` states, the earliest first, whose
    names begin with their number and a slash."""
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
    """Whether an operation makes a view, and touches no element."""
    infos = [returned.alias_info for returned in function._schema.returns]
    return any(info is not None and not info.is_write for info in infos)


def _bytes(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    storage = tensor.untyped_storage()
    text = ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""
    return np.frombuffer(text, np.uint8)
