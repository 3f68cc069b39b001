"""Drop-ins of CUDA-C or TileLang on a GPU beside PyTorch, in turn: milliseconds of a call, as if
many were queued.

python benchmarks/loop_drop_ins.py [--target cuda_c|tilelang_cuda] [--json FILE]

Each is called `CALLS` times between two events of the device, behind a kernel that waits until all
calls are made: the host's time before the first of them would count else. Kernel and PyTorch take
turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from queued import milliseconds

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
#: Elements of what is bound by memory, and those of a row.
ELEMENTS, ROW = 2**28, 4096
ROUNDS, CALLS = 10, 10
PRODUCT = """sketch product {
    symbols: M, N, K;
    tensors: A[M, K]: in f16; B[K, N]: in f16; C[M, N]: out f16;

    @llm_hint("parallel", "grididx.x")
    for i in range(ceil(M, 128)):
        @llm_hint("parallel", "grididx.y")
        for j in range(ceil(N, 256)):
            c = alloc([128, 256], f32, init=0)
            @llm_hint("async", "tensor_core")
            for k in range(ceil(K, 64)):
                a = alloc([128, 64])
                b = alloc([64, 256])
                load(A[i*128:(i+1)*128, k*64:(k+1)*64] -> a)
                load(B[k*64:(k+1)*64, j*256:(j+1)*256] -> b)
                gemm(a, b, c)
            store(c -> C[i*128:(i+1)*128, j*256:(j+1)*256])
}
"""


def drop_in(name: str, text: str, target: str, folder: Path) -> Callable[..., Any]:
    """The function of the drop-in of a sketch's text."""
    (folder / f"{name}.sketch").write_text(text, "utf-8")
    command = [sys.executable, "-m", "sketchc", "lower", str(folder / f"{name}.sketch")]
    command += ["-t", target, "--module", str(folder), "-q", "-o", str(folder / f"{name}.txt")]
    subprocess.run(command, check=True)
    path = next(folder.glob(f"{name}*_dropin.py"))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    found: Callable[..., Any] = getattr(module, path.stem.removesuffix("_dropin"))
    return found


def main() -> int:
    """Measure everything; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda_c")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    x = torch.randn(ELEMENTS // ROW, ROW, device="cuda")
    weight, bias = torch.randn(ROW, device="cuda"), torch.randn(ROW, device="cuda")
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    copied = torch.empty_like(x)
    norm = torch.nn.functional.layer_norm
    cases: dict[str, tuple[str, tuple[Any, ...], Callable[[], Any]]] = {
        "add": ("add", (x, bias), lambda: x + bias),
        "relu": ("relu", (x,), lambda: torch.relu(x)),
        "gelu": ("gelu", (x,), lambda: torch.nn.functional.gelu(x)),
        "softmax": ("softmax", (x,), lambda: torch.softmax(x, -1)),
        "layer_norm": ("layer_norm", (x, weight, bias), lambda: norm(x, (ROW,), weight, bias)),
        "product": ("", (a, b), lambda: a @ b),
    }
    samples: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as made:
        for name, (example, given, other) in cases.items():
            text = (EXAMPLES / f"{example}.sketch").read_text("utf-8") if example else PRODUCT
            function = drop_in(name, text, asked.target, Path(made))
            calls = {
                "sketchc": lambda function=function, given=given: function(*given),
                "torch": other,
                "copy": lambda: copied.copy_(x),
            }
            assert torch.allclose(function(*given), other(), 1e-2, 1e-2), name
            for call in calls.values():
                milliseconds(call, CALLS)
            samples[name] = {key: [] for key in calls}
            for _ in range(ROUNDS):
                for key, call in calls.items():
                    samples[name][key].append(milliseconds(call, CALLS))
            middle = {key: statistics.median(found) for key, found in samples[name].items()}
            ratio = statistics.median(
                t / s for t, s in zip(samples[name]["torch"], samples[name]["sketchc"], strict=True)
            )
            print(name, {key: round(value, 4) for key, value in middle.items()}, round(ratio, 3))
    if asked.json:
        device = torch.cuda.get_device_name()
        told = {"device": device, "torch": torch.__version__, "milliseconds": samples}
        asked.json.write_text(json.dumps(told), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
