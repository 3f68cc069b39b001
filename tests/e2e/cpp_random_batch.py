"""Worker handler of the random C++ tests: many calls into one library, in one process."""

from __future__ import annotations

from typing import Any

from sketchc.runtime.process.messages import Raw
from sketchc.runtime.toolchains.native.worker import execute


def run_batch(request: dict[str, Any], arrays: dict[str, Raw]) -> tuple[dict[str, Any], Any]:
    """Run `request["cases"]`; arrays are named `<case>/<tensor>`, what went wrong is a reply."""
    replies: list[str] = []
    results: dict[str, Raw] = {}
    for index, case in enumerate(request["cases"]):
        prefix = f"{index}/"
        given = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        reply, found = execute(case, given)
        wrong = reply.get("missing") or reply["stray"] or (reply["status"] and str(reply["status"]))
        replies.append(str(wrong or ""))
        results |= {f"{prefix}{name}": array for name, array in found.items()}
    return {"replies": replies}, results


run_batch.takes_raw = True  # type: ignore[attr-defined]
