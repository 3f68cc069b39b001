"""In a worker without a GPU: what a wrapper launches, and a cubin for each of its launches.

What a launch specialises on (alignment, arguments that are 1) is what Triton's own launcher would
(triton.runtime.jit), so that it is the users' code that runs.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sketchc.runtime.guards import wrapper_guard
from sketchc.runtime.guards.placement import torch_dtype
from sketchc.runtime.process.array_types import Arrays
from sketchc.runtime.toolchains.tracer import Tracer, states_of
from sketchc.runtime.toolchains.triton_cuda.launches import Launch, argument_type, recording
from sketchc.runtime.toolchains.triton_cuda.worker import entry_of, loaded

#: What was built in this process, by everything that it depends on.
_BUILT: dict[str, dict[str, Any]] = {}


def trace(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """The worker's handler: see `tracer`. `request` is that of `triton_cuda_worker.run_kernel`,
    with "states", "architecture" (90 for sm_90) and "folder" (for cubins). The reply is
    {"launches", "done"}; arrays are the contents of buffers."""
    given, states = states_of(arrays, request["states"])
    tensors = {name: _tensor(array) for name, array in given.items()}
    roles = {tensor["name"]: tensor["role"] for tensor in request["tensors"]}
    inputs = [tensors.get(name) for name, role in roles.items() if role != "out"]
    outs = tuple(tensors[name] for name, role in roles.items() if role == "out")
    module = loaded(request["source"])
    wrapper = entry_of(module, request["entry"])
    keywords = dict(request["params"])
    if outs and wrapper_guard.takes_out(wrapper):
        keywords["out"] = outs if len(outs) > 1 else outs[0]
    tracer = Tracer(tensors, states)
    noted: dict[int, Launch] = {}

    def note(launch: Launch) -> None:
        record = _written(launch, tracer)
        if all(record["grid"]):
            noted[id(record)] = launch
            tracer.launch(record)

    with recording(module, note):
        call = functools.partial(wrapper, *inputs, **keywords)
        done, contents = tracer.trace(call, [n for n, role in roles.items() if role != "in"])
    # Now that kernels find each other in the module again.
    for record in tracer.launches:
        launch = noted[id(record)]
        record["artefact"] = build(launch, request["architecture"], Path(request["folder"]))
    return {"launches": tracer.launches, "done": done}, contents


def _tensor(array: Any) -> torch.Tensor:
    dtype = torch_dtype(array.dtype)
    if not array.size:
        return torch.empty(array.shape, dtype=dtype)
    return torch.from_numpy(array.reshape(-1).view(np.uint8)).view(dtype).reshape(array.shape)


def _written(launch: Launch, tracer: Tracer) -> dict[str, Any]:
    places = launch.grid if isinstance(launch.grid, tuple | list) else (launch.grid,)
    constants, arguments = _constants(launch), []
    for name, value in launch.arguments.items():
        if name not in constants:
            kind, _ = argument_type(value)
            arguments.append({"name": name, **tracer.argument(value, kind)})
    return {
        "kernel": launch.function.__name__,
        "grid": [*places, 1, 1][:3],
        "arguments": arguments,
    }


def _constants(launch: Launch) -> dict[str, Any]:
    """Parameters that the code is compiled for the values of: those that say so, None, and 1."""
    found = {}
    for parameter in launch.function.params:
        value = launch.arguments[parameter.name]
        one = type(value) is int and value == 1 and not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or one:
            found[parameter.name] = value
    return found


def build(launch: Launch, architecture: int, folder: Path) -> dict[str, Any]:
    """The cubin of a launch as {"cubin", "function", "threads", "shared", "scratch"}: a file, a
    name, and bytes (of scratch memory: for each program)."""
    constants = _constants(launch)
    types = launch.types(constants)
    parts = (launch.function.__name__, constants, *types, launch.options, architecture)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    if key not in _BUILT:
        compiled = launch.compile(constants, architecture)
        metadata = compiled.metadata
        if getattr(metadata, "num_ctas", 1) != 1:
            msg = f"{launch.function.__name__}: clusters of blocks are not launched"
            raise NotImplementedError(msg)
        cubin = folder / f"{launch.function.__name__}.{key}.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        _BUILT[key] = {
            "cubin": str(cubin),
            "function": metadata.name,
            "threads": 32 * metadata.num_warps,
            "shared": metadata.shared,
            "scratch": getattr(metadata, "global_scratch_size", 0),
        }
    return _BUILT[key]
