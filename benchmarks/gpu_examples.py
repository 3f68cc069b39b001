"""All examples in Triton against PyTorch eager on this GPU.

    python benchmarks/gpu_examples.py FOLDER [--samples N] [--only NAME ...] [--compile]

FOLDER comes from `gpu_export.py`. Needs torch, triton and numpy alone. Every output is verified
against the task in float64 with the strict rule of docs/VERIFICATION.md; times are CUDA events,
interleaved with eager on the same inputs, the L2 flushed before each sample. Matrix products run in
ieee f32 on both sides (TF32 is switched off). `--compile` times torch.compile beside. Writes
`$OUT/gpu_examples.json` (or ./gpu_examples.json) with all raw samples; prints a short table last.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton

REPOSITORY = Path(__file__).resolve().parent.parent
DEVICE = "cuda"
INPUT_SETS = 3
SMALLEST_NORMAL = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}

Call = Callable[[int], list[torch.Tensor]]


def load(path: Path, name: str) -> ModuleType:
    """A Python file as a module."""
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        sys.exit(f"cannot load {path}")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def make_inputs(entry: dict[str, Any], seed: int) -> list[dict[str, torch.Tensor]]:
    """Input sets of signed normal numbers; parameters are the same in all sets."""
    sets: list[dict[str, torch.Tensor]] = []
    for number in range(INPUT_SETS):
        generator = torch.Generator(DEVICE).manual_seed(seed + number)
        one = {}
        for tensor in entry["tensors"]:
            if tensor["state"] and sets:
                one[tensor["name"]] = sets[0][tensor["name"]]
                continue
            dtype = getattr(torch, tensor["dtype"])
            values = torch.randn(tensor["shape"], generator=generator, device=DEVICE)
            one[tensor["name"]] = values.to(dtype)
        sets.append(one)
    return sets


def make_model(entry: dict[str, Any], values: dict[str, torch.Tensor], double: bool) -> Any:
    """The task's model with the given parameters."""
    task = load(REPOSITORY / entry["task"], f"task_{entry['name']}")
    init = list(task.get_init_inputs())
    for position, value in entry["substitutes"].items():
        init[int(position)] = value
    model = task.Model(*init).eval().to(DEVICE)
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for tensor in entry["tensors"]:
        if tensor["state"]:
            own[tensor["state"]].data = values[tensor["name"]]
    return model.double() if double else model


def as_list(outputs: Any) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def judge(output: torch.Tensor, reference: torch.Tensor, spec: dict[str, Any]) -> tuple[str, float]:
    """("" or what is wrong, the largest |error| / tolerance)."""
    if list(output.shape) != list(spec["shape"]) or list(reference.shape) != list(spec["shape"]):
        return f"shape {list(output.shape)}, reference {list(reference.shape)}", float("inf")
    if output.dtype is not getattr(torch, spec["dtype"]):
        return f"dtype {output.dtype}", float("inf")
    finite = reference.isfinite()
    scale = reference[finite].square().mean().sqrt().item() if finite.any() else 0.0
    atol = spec["rtol"] * scale + SMALLEST_NORMAL.get(spec["dtype"], 0.0)
    y = output.double()
    same = (y == reference) | (y.isnan() & reference.isnan())
    ratio = (y - reference).abs() / (atol + spec["rtol"] * reference.abs())
    bad = ~same & ~(ratio <= 1.0)
    worst = ratio[ratio.isfinite()].max().item() if ratio.isfinite().any() else 0.0
    wrong = int(bad.sum().item())
    return (f"{wrong} of {y.numel()} elements wrong" if wrong else ""), worst


def verify(
    entry: dict[str, Any], sets: list[dict[str, torch.Tensor]], call: Call
) -> tuple[str, float]:
    """Compare the outputs of `call` on every input set with float64 references."""
    worst = 0.0
    for position, values in enumerate(sets):
        outputs = call(position)
        model = make_model(entry, values, double=True)
        arguments = [values[a].double() if isinstance(a, str) else a for a in entry["arguments"]]
        with torch.no_grad():
            references = as_list(model(*arguments))
        if len(outputs) != len(references):
            return f"{len(outputs)} outputs instead of {len(references)}", float("inf")
        for output, reference, spec in zip(outputs, references, entry["outputs"], strict=True):
            problem, ratio = judge(output, reference, spec)
            worst = max(worst, ratio)
            if problem:
                return f"{spec['name']}: {problem}", worst
        del references, outputs, arguments, model
    return "", worst


class Clock:
    """CUDA events around one call, the L2 flushed, the GPU busy while the launch is prepared."""

    def __init__(self) -> None:
        self.flush = torch.empty(128 << 20, dtype=torch.int32, device=DEVICE)

    def measure(self, call: Callable[[], Any]) -> tuple[float, Any]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        started = time.perf_counter()
        self.flush.zero_()
        torch.cuda._sleep(2_000_000)
        begin.record()
        outputs = call()
        end.record()
        torch.cuda.synchronize()
        wall = time.perf_counter() - started
        seconds = begin.elapsed_time(end) * 1e-3
        if seconds > wall * 1.01:
            message = f"events say {seconds} s, the wall clock {wall} s"
            raise RuntimeError(message)
        return seconds, outputs


def interleave(
    contenders: dict[str, Call], clock: Clock, samples: int
) -> tuple[dict[str, list[float]], dict[int, list[torch.Tensor]]]:
    """Samples by contender, and the kernel's last timed outputs by input set."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    kept: dict[int, list[torch.Tensor]] = {}
    with torch.no_grad():
        for call in contenders.values():
            until = time.monotonic() + 0.3
            number = 0
            while time.monotonic() < until or number < INPUT_SETS:
                call(number % INPUT_SETS)
                torch.cuda.synchronize()
                number += 1
        names = list(contenders)
        for number in range(samples):
            position = number % INPUT_SETS
            for name in names if number % 2 == 0 else reversed(names):
                call = contenders[name]
                seconds, outputs = clock.measure(lambda c=call, p=position: c(p))
                found[name].append(seconds)
                if name == "kernel":
                    kept[position] = outputs
                del outputs
    return found, kept


def interval(baseline: list[float], candidate: list[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the ratio of medians."""
    random = np.random.default_rng(0)

    def medians(samples: list[float]) -> Any:
        values = np.asarray(samples)
        return np.median(values[random.integers(0, values.size, (2000, values.size))], axis=1)

    low, high = np.quantile(medians(baseline) / medians(candidate), [0.025, 0.975])
    return float(low), float(high)


def bandwidth(clock: Clock) -> float:
    """Bytes/s of the best of copy and add over 1 GiB arrays."""
    a = torch.rand(1 << 28, device=DEVICE)
    b, c = torch.rand_like(a), torch.empty_like(a)
    best = 0.0
    for arrays, operation in ((2, lambda: c.copy_(a)), (3, lambda: torch.add(a, b, out=c))):
        operation()
        seconds = min(clock.measure(operation)[0] for _ in range(10))
        best = max(best, arrays * 4 * a.numel() / seconds)
    return best


def run(
    entry: dict[str, Any], folder: Path, clock: Clock, samples: int, compiled: bool, seed: int
) -> dict[str, Any]:
    """Verify and time one kernel."""
    sets = make_inputs(entry, seed)
    module = load(folder / entry["file"], f"kernel_{Path(entry['file']).stem}")
    wrapper = getattr(module, entry["entry"])
    names = [tensor["name"] for tensor in entry["tensors"]]

    def kernel(position: int) -> list[torch.Tensor]:
        values = sets[position]
        return as_list(wrapper(*(values[name] for name in names), **entry["params"]))

    model = make_model(entry, sets[0], double=False)

    def caller(function: Any) -> Call:
        def call(position: int) -> list[torch.Tensor]:
            values = sets[position]
            arguments = [values[a] if isinstance(a, str) else a for a in entry["arguments"]]
            return as_list(function(*arguments))

        return call

    problem, _ = verify(entry, sets, kernel)
    if problem:
        return {**entry, "problem": problem}
    contenders: dict[str, Call] = {"eager": caller(model), "kernel": kernel}
    if compiled:
        contenders["compile"] = caller(torch.compile(model))
    found, kept = interleave(contenders, clock, samples)
    problem, worst = verify(entry, sets, lambda position: kept[position])
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {
        **entry,
        "problem": problem,
        "worst_of_allowed": worst,
        "seed": seed,
        "samples": found,
        "medians": medians,
        "speedup": medians["eager"] / medians["kernel"],
        "interval": interval(found["eager"], found["kernel"]),
    }


def row(result: dict[str, Any], peak: float) -> str:
    """One line of the table."""
    label = f"{result['name']:17}" + ("" if result["default"] else f" {result['constants']}")
    if result["problem"]:
        return f"{label} FAILED: {result['problem'][:150]}"
    medians = result["medians"]
    low, high = result["interval"]
    share = result["bytes"] / peak / medians["kernel"]
    text = (
        f"{label} eager {medians['eager'] * 1e3:7.3f} ms  triton {medians['kernel'] * 1e3:7.3f} ms "
        f"{result['speedup']:5.2f}x [{low:.2f}, {high:.2f}] roofline {share:4.0%} "
        f"{result['flops'] / medians['kernel'] / 1e12:5.1f} TFLOP/s"
    )
    if "compile" in medians:
        text += f"  compile {medians['compile'] * 1e3:7.3f} ms"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=51)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    entries = json.loads((options.folder / "manifest.json").read_text())
    clock = Clock()
    peak = bandwidth(clock)
    results = []
    for entry in entries:
        if options.only and entry["name"] not in options.only:
            continue
        seed = int.from_bytes(os.urandom(4), "little")
        try:
            result = run(entry, options.folder, clock, options.samples, options.compile, seed)
        except Exception as error:
            traceback.print_exc()
            result = {**entry, "problem": f"{type(error).__name__}: {error}".split("\n")[0]}
        results.append(result)
        print(f"done: {entry['file']}", flush=True)
        torch.cuda.empty_cache()
    device = torch.cuda.get_device_name()
    versions = {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
    }
    data = {"device": device, "bandwidth": peak, "versions": versions, "results": results}
    out = Path(os.environ.get("OUT", "."))
    (out / "gpu_examples.json").write_text(json.dumps(data, indent=1, default=str) + "\n")
    print(f"{device}, {peak / 1e12:.2f} TB/s measured, {versions}")
    for result in results:
        print(row(result, peak))
    defaults = [r["speedup"] for r in results if r["default"] and not r["problem"]]
    if defaults:
        print(f"geometric mean: {statistics.geometric_mean(defaults):.2f}x of eager")
    return 1 if any(result["problem"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
