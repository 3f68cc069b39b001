"""Folders that `device/build_cubins.py` makes, one for each kernel: what a worker is asked to
launch of them, and whether the outputs are right; and what a cubin says of its kernel."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cpp_cases import Array, assert_near, numpy_type

from sketchc.base.types import DType


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """What is said of a kernel's tensors and cases, and the cases' arrays."""
    with np.load(folder / "arrays.npz") as arrays:
        return json.loads((folder / "launches.json").read_text()), dict(arrays)


def asked(
    folder: Path, told: Mapping[str, Any], arrays: Mapping[str, Array], number: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The request and the arrays with which `cubin_launches.serve` runs a case."""
    launches = [
        {**launch, "cubin": str(folder / launch["cubin"])}
        for launch in told["cases"][number]["launches"]
    ]
    start = f"{number}/before/"
    before = {
        name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)
    }
    unchanged = [
        name
        for name, tensor in told["tensors"].items()
        if tensor["role"] == "in" and name in before
    ]
    return {"launches": launches, "unchanged": unchanged}, before


def compare(
    told: Mapping[str, Any],
    arrays: Mapping[str, Array],
    number: int,
    found: Mapping[str, Array],
    ulps: float,
) -> None:
    """The outputs of a case are the interpreter's; see `cpp_cases.assert_near`."""
    start = f"{number}/after/"
    expected = {
        name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)
    }
    assert expected
    for name, want in expected.items():
        dtype = DType(told["tensors"][name]["dtype"])
        views = [data.view(numpy_type(dtype)) for data in (found[name], want)]
        assert_near(name, dtype, *views, ulps)


def parameters(cubin: str) -> tuple[list[int], int]:
    """Bytes of the parameters of the kernel in a cubin, in order, and the threads of a block."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    text = subprocess.run(
        [tool, "-elf", cubin], capture_output=True, text=True, check=True, env=dict(os.environ)
    ).stdout
    found = re.findall(r"Ordinal : (\w+)\s+Offset\s+: \w+\s+Size\s+: (\w+)", text)
    sizes = {int(ordinal, 16): int(size, 16) for ordinal, size in found}
    threads = re.search(r"EIATTR_(?:REQNTID|MAX_THREADS)\s+Format:\s+\w+\s+Value:\s+(\w+)", text)
    assert threads is not None
    return [sizes[ordinal] for ordinal in sorted(sizes)], int(threads[1], 16)
