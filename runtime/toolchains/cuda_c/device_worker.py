"""In a worker on a machine with a GPU: call a compiled CUDA-C kernel on guarded buffers there.

Needs only ctypes, the driver and the kernel's library: nothing else is loaded that could do a
kernel's work.
"""

from __future__ import annotations

import math
from typing import Any

from sketchc.runtime.process.messages import ITEM_BYTES, Raw, failure
from sketchc.runtime.toolchains.cuda_driver import CudaError, DeviceBuffer, collected, driver
from sketchc.runtime.toolchains.native.worker import call, loaded


def execute(request: dict[str, Any], raws: dict[str, Raw]) -> tuple[dict[str, Any], dict[str, Raw]]:
    """The worker's handler: run one call on copies, return the out and inout arrays. The reply is
    that of `native.worker.execute`, or reports a failure, after which the process must not be used.
    """
    try:
        cuda = driver()
        library, missing = loaded(request)
        if library is None:
            return {"missing": missing}, {}
        described = {}
        pointers: list[int | None] = []
        buffers: dict[str, DeviceBuffer] = {}
        for name, role, shape, dtype in request["signature"]["tensors"]:
            if role == "absent":
                pointers.append(None)
                continue
            described[name] = (dtype, tuple(shape))
            if name not in raws:
                size = math.prod(shape) * ITEM_BYTES[dtype]
                raws[name] = Raw(dtype, tuple(shape), memoryview(bytearray(size)))
            buffers[name] = DeviceBuffer(cuda, raws[name])
            pointers.append(buffers[name].start)
        status = call(library, request["signature"], pointers)
        cuda.synchronize(f"launch of {request['signature']['entry']}")
        inputs = [name for name, role, *_ in request["signature"]["tensors"] if role == "in"]
        stray, found = collected(buffers, raws, inputs)
    except CudaError as error:
        return error.reply(), {}
    if stray:
        return failure("illegal_access", stray), {}
    results = {name: Raw(*described[name], memoryview(data)) for name, data in found.items()}
    return {"status": status, "stray": ""}, results


execute.takes_raw = True  # type: ignore[attr-defined]
