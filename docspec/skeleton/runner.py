"""A runner (docs/RUNNERS.md): it reads the path of a manifest from a line of its input, calls the
kernel, leaves the memory of every tensor in its file, and answers a line. Any language will do."""

from __future__ import annotations

import ctypes
import json
import sys


def run(manifest):
    """Call the kernel of a manifest once; returns the answer."""
    try:
        library = ctypes.CDLL(manifest["artefact"])
        function = getattr(library, manifest["entry"])
    except OSError as error:
        return {"status": "failed", "stage": "compile", "message": str(error)}
    except AttributeError:
        message = f"the file defines no function {manifest['entry']}"
        return {"status": "failed", "stage": "compile", "message": message}
    arguments, memory = [], []
    for tensor in manifest["tensors"]:
        if tensor["role"] == "absent":
            arguments.append(ctypes.c_void_p(None))
            continue
        with open(tensor["file"], "rb") as file:
            held = ctypes.create_string_buffer(file.read())
        memory.append((tensor["file"], held))
        arguments.append(ctypes.c_void_p(ctypes.addressof(held) + tensor["offset"]))
    for scalar in manifest["scalars"]:
        real = scalar["dtype"].startswith("f")
        arguments.append((ctypes.c_double if real else ctypes.c_int64)(scalar["value"]))
    function.restype = None
    function(*arguments)
    for path, held in memory:
        with open(path, "wb") as file:
            file.write(held.raw[:-1])  # without the zero that ctypes puts behind
    return {"status": "done"}


if __name__ == "__main__":
    for line in sys.stdin:
        with open(line.rstrip("\n"), encoding="utf-8") as file:
            told = json.load(file)
        print(json.dumps(run(told)), flush=True)
