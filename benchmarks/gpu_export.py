"""Generate the triton_cuda kernels of all examples for a machine that has torch and triton only.

    python benchmarks/gpu_export.py FOLDER [--variants N] [--only NAME ...]

Writes one Python file per kernel and `manifest.json`, which `gpu_examples.py` reads there: sizes,
arguments, tolerances, traffic. `--variants N` adds up to N further points of each sketch's tuning
space, to see what the defaults leave on the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from sketchc.cli import options as sketches
from sketchc.cli.verify import prepare
from sketchc.diagnostics import UsageError
from sketchc.evaluate import constants_of, evaluate, host_values
from sketchc.runtime.bench.bench import arguments_of, sizes_of
from sketchc.runtime.frontends.binding import bind
from sketchc.runtime.frontends.torch_task import TorchTask
from sketchc.runtime.verify.compare import relative_tolerance
from sketchc.runtime.verify.shapes import reduction_length
from sketchc.runtime.verify.verify import Candidate

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

#: Sizes that leave a GPU's L2 (60 MB) by far, and keep it busy for a good part of a millisecond.
SIZES: dict[str, dict[str, int]] = {
    "add": {"M": 16384, "N": 8192},
    "batched_matmul": {"B": 32, "M": 1024, "N": 1024, "K": 1024},
    "gelu": {"M": 16384, "N": 8192},
    "layer_norm": {"M": 32768, "N": 4096},
    "matmul": {"M": 4096, "N": 4096, "K": 4096},
    "matmul_bias_gelu": {"M": 4096, "N": 4096, "K": 4096},
    "online_softmax": {"M": 1024, "N": 131072},
    "relu": {"M": 16384, "N": 8192},
    "rms": {"B": 16, "F": 64, "D1": 256, "D2": 256},
    "softmax": {"M": 32768, "N": 4096},
    "sum_middle": {"B": 32, "M": 2048, "N": 2048},
}


def points(candidate: Candidate, most: int) -> list[dict[str, Any]]:
    """Up to `most` points of the tuning space besides the default, spread over the whole space."""
    constants = [c for c in candidate.plan.sketch.constants if c.choices]
    default = constants_of(candidate.plan.sketch)
    space = [
        dict(zip((c.name for c in constants), values, strict=True))
        for values in itertools.product(*(c.choices for c in constants))
    ]
    others = [point for point in space if any(default[k] != v for k, v in point.items())]
    step = max(1, -(-len(others) // most)) if most else 1
    return others[::step][:most] if constants else []


def export(name: str, folder: Path, variants: int) -> list[dict[str, Any]]:
    """Write the kernels of one example; returns their manifest entries."""
    path = str(EXAMPLES / f"{name}.sketch")
    default = prepare(path, None, "triton_cuda", None, {})
    entries = []
    with TorchTask(EXAMPLES / "tasks" / f"{name}.py") as task:
        for number, point in enumerate([{}, *points(default, variants)]):
            try:
                candidate = prepare(path, None, "triton_cuda", None, point)
            except (UsageError, sketches.SketchError) as error:
                print(f"{name} {point}: {error}")
                continue
            entries.append(entry(name, number, candidate, task, folder))
    return entries


def entry(
    name: str, number: int, candidate: Candidate, task: TorchTask, folder: Path
) -> dict[str, Any]:
    """One kernel's file and what the GPU machine must know about it."""
    plan = candidate.plan
    binding = bind(plan.sketch, task.describe())
    symbols, substitutes = sizes_of(binding, task, SIZES.get(name, {}))
    shapes = binding.shapes(symbols)
    values = host_values(plan.sketch, symbols, binding.params)
    length = reduction_length(plan, binding, symbols)
    kernel_file = folder / (f"{name}.py" if number == 0 else f"{name}_{number}.py")
    kernel_file.write_text(candidate.kernel.source)
    return {
        "name": name,
        "default": number == 0,
        "file": kernel_file.name,
        "entry": candidate.kernel.entry,
        "constants": constants_of(plan.sketch),
        "task": f"examples/tasks/{name}.py",
        "substitutes": substitutes,
        "symbols": symbols,
        "params": dict(binding.params),
        "tensors": [
            {
                "name": source.tensor.name,
                "shape": shapes[source.tensor.name],
                "dtype": source.tensor.dtype.numpy_name,
                "state": source.state,
            }
            for source in binding.tensors
        ],
        "arguments": arguments_of(binding),
        "outputs": [
            {
                "name": tensor.name,
                "shape": shapes[tensor.name],
                "dtype": tensor.dtype.numpy_name,
                "rtol": relative_tolerance(tensor.dtype, length),
            }
            for tensor in binding.outputs
        ],
        "bytes": int(evaluate(plan.bytes_moved, values)) if plan.bytes_moved else 0,
        "flops": int(evaluate(plan.flops, values)) if plan.flops else 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variants", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    names = options.only or sorted(path.stem for path in EXAMPLES.glob("*.sketch"))
    entries = []
    for name in names:
        found = export(name, options.folder, options.variants)
        print(f"{name}: {len(found)} kernels")
        entries += found
    (options.folder / "manifest.json").write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
