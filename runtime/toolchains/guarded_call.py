"""In a worker: one call of a generated wrapper on guarded tensors, under watch, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from sketchc.runtime.guards import wrapper_guard
from sketchc.runtime.guards.placement import placement
from sketchc.runtime.process.messages import Arrays, failure
from sketchc.runtime.toolchains.tracer import bound_call, names_of, require_entry


def entry_of(module: ModuleType, request: Mapping[str, Any]) -> Callable[..., Any]:
    """The wrapper of `module` that `request` names. Raises `MissingEntryError`."""
    return require_entry(getattr(module, request["entry"], None), request["entry"])


def watch_of(request: Mapping[str, Any]) -> wrapper_guard.Watch | None:
    """The watch of the call that `request` asks for; None for kernels of the built-in Coder."""
    if not request.get("foreign"):
        return None
    watch = wrapper_guard.Watch()
    watch.theirs = (request["source"],)
    return watch


def guarded_call(
    request: Mapping[str, Any],
    arrays: Arrays,
    device: str,
    watch: wrapper_guard.Watch | None,
    load: Callable[[], ModuleType],
) -> tuple[dict[str, Any], Arrays]:
    """Call the wrapper of the file that `load` imports on copies of `arrays` on `device` ("cpu" or
    "cuda"); returns all out and inout tensors by name.

    `request` is that of `launching.call_request`. The reply is {"device"}, or {"failure": {"stage",
    "message"}} with no tensors. Raises what the file and the wrapper raise.
    """
    from sketchc.runtime.guards import torch_state

    before = None if watch is None else torch_state.first_state()
    placed = {name: placement(array, device) for name, array in arrays.items()}
    tensors = {name: buffer.tensor for name, buffer in placed.items()}
    try:
        with wrapper_guard.watched(watch):
            returned = bound_call(entry_of(load(), request), request, tensors)()
            if device == "cuda":
                torch.cuda.synchronize()
    except Exception:
        if watch is not None and watch.refused:
            return failure("policy", watch.verdict(0)), {}
        raise
    if before is not None and (changes := before.changes()):
        return failure("policy", "; ".join(changes)), {}
    try:
        outputs = wrapper_guard.named_outputs(names_of(request, "out", "inout"), returned)
        found = {name: wrapper_guard.to_numpy(name, value) for name, value in outputs.items()}
    except wrapper_guard.WrongOutputsError as error:
        return failure("wrong_shape", str(error)), {}
    elements = sum(array.size for array in found.values())
    if watch is not None and (against := watch.verdict(elements)):
        return failure("policy", against), {}
    read = names_of(request, "in")
    for name, buffer in placed.items():
        if stray := buffer.stray(name, unchanged=name in read):
            return failure("illegal_access", stray), {}
    return {"device": device}, found
