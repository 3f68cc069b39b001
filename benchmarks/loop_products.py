"""Products of f16 in CUDA-C beside `torch.matmul`, in turn: milliseconds of a kernel without the
call of a drop-in, by the C entry point of `sketchc lower --emit code`.

python benchmarks/loop_products.py [--sizes 4096,8192] [--json FILE]

A plan for another chip takes the instructions of that chip: `mma.sync` where it has no `wgmma`.
nvcc compiles each for the chip of this machine.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from loop_drop_ins import PRODUCT, milliseconds

from sketchc.runtime.toolchains.cuda_c.toolchain import NVCC_FLAGS

#: Plans, and rows and columns of their tiles.
KERNELS = (
    ("h200", 128, 256),
    ("h200", 128, 128),
    ("b200", 128, 128),
    ("b200", 128, 256),
    ("a100", 128, 128),
)
ROUNDS = 10


def entry(hardware: str, rows: int, columns: int, folder: Path) -> ctypes._CFuncPtr:
    """The C entry point of a product with such tiles, planned for `hardware`."""
    text = PRODUCT
    for old, new in (("i*128:(i+1)*128", f"i*{rows}:(i+1)*{rows}"), ("M, 128", f"M, {rows}")):
        text = text.replace(old, new)
    for old in ("N, 256", "j*256:(j+1)*256", "64, 256", "128, 256"):
        text = text.replace(old, old.replace("256", str(columns)))
    text = text.replace("[128, ", f"[{rows}, ")
    name = folder / f"{hardware}_{rows}_{columns}"
    sketch, source = name.with_suffix(".sketch"), name.with_suffix(".cu")
    sketch.write_text(text, "utf-8")
    lower = [sys.executable, "-m", "sketchc", "lower", str(sketch), "-t", "cuda_c", "-q"]
    subprocess.run(
        [*lower, "--hardware", hardware, "--emit", "code", "-o", str(source)], check=True
    )
    major, minor = torch.cuda.get_device_capability()
    chip = f"{major}{minor}{'a' if major >= 9 else ''}"
    built = ["-gencode", f"arch=compute_{chip},code=sm_{chip}", "-shared", "-Xcompiler", "-fPIC"]
    library = name.with_suffix(".so")
    subprocess.run(["nvcc", *NVCC_FLAGS, *built, "-o", str(library), str(source)], check=True)
    found = ctypes.CDLL(str(library)).product
    found.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3
    found.restype = ctypes.c_int64
    return found


def measured(size: int, entries: dict[str, ctypes._CFuncPtr]) -> dict[str, list[float]]:
    """Samples of every kernel and of PyTorch, which take turns."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    expected, c = a @ b, torch.empty_like(a)
    calls: dict[str, Callable[[], object]] = {"torch": lambda: torch.matmul(a, b, out=expected)}
    for name, function in entries.items():
        c.fill_(float("nan"))
        calls[name] = partial(function, a.data_ptr(), b.data_ptr(), c.data_ptr(), size, size, size)
        assert calls[name]() == 0, name
        assert torch.allclose(c, expected, 1e-2, 1e-1), name
    for call in calls.values():
        milliseconds(call)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            samples[name].append(milliseconds(call))
    return samples


def main() -> int:
    """Measure everything; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="4096,8192")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as made:
        with ThreadPoolExecutor() as pool:
            built = pool.map(lambda kernel: entry(*kernel, Path(made)), KERNELS)
            entries = dict(
                zip(("{} {} x {}".format(*each) for each in KERNELS), built, strict=True)
            )
        for size in map(int, asked.sizes.split(",")):
            samples = found[str(size)] = measured(size, entries)
            torch_ms = statistics.median(samples["torch"])
            for name, each in samples.items():
                middle = statistics.median(each)
                tera = 2 * size**3 / middle / 1e9
                print(f"{size} {name:16} {middle:.4f} ms {tera:.0f} TFLOPS {torch_ms / middle:.3f}")
    if asked.json:
        told = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        asked.json.write_text(json.dumps({**told, "milliseconds": found}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
