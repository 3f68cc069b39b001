"""Worker handler of the Triton tests: many runs, or many compiles, in one process (starting torch
and Triton costs seconds)."""

from __future__ import annotations

from typing import Any

from sketchc.runtime.process.messages import Arrays
from sketchc.runtime.toolchains.triton_cuda.worker import compile_kernels, run_kernel


def run_batch(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Run `request["cases"]`; arrays are named `<case>/<tensor>`, an exception is a reply."""
    replies: list[str] = []
    results: Arrays = {}
    for index, case in enumerate(request["cases"]):
        prefix = f"{index}/"
        given = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        try:
            reply, found = run_kernel(case, given)
        except Exception as error:
            replies.append(f"{type(error).__name__}: {error}")
            continue
        failure = reply.get("failure")
        replies.append(f"{failure['stage']}: {failure['message']}" if failure else "")
        results |= {f"{prefix}{name}": array for name, array in found.items()}
    return {"replies": replies}, results


def compile_batch(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Compile `request["cases"]`."""
    return {
        "kernels": [compile_kernels(case, arrays)[0]["kernels"] for case in request["cases"]]
    }, {}
