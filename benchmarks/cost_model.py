"""The cost model against measured times, over tuning spaces of examples on this CPU.

    python benchmarks/cost_model.py record [NAME ...] [--points N] [--data FILE]
    python benchmarks/cost_model.py show [--data FILE]
    python benchmarks/cost_model.py fit [--data FILE]

`record` compiles points of each space (the tile sizes of a sketch over powers of two, drawn at
random), runs them in turn on one thread, and adds the least of each point's times to FILE:
processor time, so that other work on the machine disturbs little. `show` compares these with the
predictions: Spearman's correlation, the time of the point that the model would pick, and that of
the point that `aims` picks, over the best. `fit` finds cycles for
`lowering/cost/cpu.py` that rank the points better, starting at those there, from all spaces but
those in `HELD_OUT`.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sketchc.base.diagnostics import DiagnosticError, Source
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_values, sample_extents
from sketchc.lowering.abi import passed
from sketchc.lowering.cost import cpu
from sketchc.lowering.cost.cpu import Part
from sketchc.lowering.cost.work import work_of
from sketchc.lowering.hardware import vector_bytes
from sketchc.lowering.passes.pipeline import Planner, planner
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.bench.machine import data_caches

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data" / "cost_model_cpp.json.gz"
Floats = np.ndarray[Any, Any]
#: Sizes, and for each constant the exponents of the least and the largest power of two.
Case = tuple[dict[str, int], dict[str, tuple[int, int]]]
CASES: dict[str, Case] = {
    "activations": ({"M": 1024, "N": 2048}, {"TM": (0, 5), "TN": (5, 11)}),
    "avg_pool2d": ({"N": 4, "C": 32, "H": 56, "W": 56}, {"TH": (0, 6), "TW": (2, 6)}),
    "causal_attention": (
        {"B": 1, "HQ": 4, "HK": 4, "M": 512, "N": 512, "D": 64},
        {"TM": (2, 8), "TN": (2, 8)},
    ),
    "conv2d": (
        {"N": 2, "C": 32, "H": 28, "W": 28, "O": 64, "CG": 32, "KH": 3, "KW": 3},
        {"TP": (4, 8), "TO": (3, 6), "TK": (4, 7)},
    ),
    "embedding": ({"B": 8, "L": 512, "V": 4096, "D": 768}, {"TM": (0, 5), "TD": (3, 9)}),
    "heat": ({"M": 1024, "N": 1024}, {"TM": (0, 6), "TN": (4, 10)}),
    "matmul": ({"M": 768, "N": 768, "K": 768}, {"TM": (3, 8), "TN": (4, 8), "TK": (4, 9)}),
    "matmul_bias_gelu": (
        {"M": 512, "N": 768, "K": 640},
        {"TM": (4, 8), "TN": (4, 8), "TK": (4, 9)},
    ),
    "split_k_matmul": (
        {"M": 256, "N": 256, "K": 4096},
        {"PART": (7, 10), "TM": (4, 7), "TN": (4, 7), "TK": (5, 7)},
    ),
    "sum_middle": ({"B": 8, "M": 1024, "N": 1536}, {"TM": (0, 6), "TN": (4, 11)}),
    "triplet_loss": ({"M": 2048, "N": 1024}, {"TM": (0, 6), "TN": (4, 10)}),
    "unscale_gradients": ({"M": 2048, "N": 1536}, {"TM": (0, 6), "TN": (4, 10)}),
}
#: Spaces that the cycles were not fitted to.
HELD_OUT: dict[str, Case] = {
    "batched_matmul": (
        {"B": 6, "M": 256, "N": 320, "K": 384},
        {"TM": (4, 8), "TN": (4, 8), "TK": (4, 8)},
    ),
    "cumsum_two_phase": ({"M": 256, "N": 8192}, {"T": (4, 11), "TB": (3, 8)}),
    "max_pool2d": ({"N": 4, "C": 24, "H": 64, "W": 48}, {"TH": (0, 6), "TW": (2, 6)}),
}
CASES |= HELD_OUT
_ROUNDS, _SECONDS = 9, 12.0


def planner_of(
    name: str,
    target: str = "cpp",
    constants: Iterable[str] | None = None,
    precision: str = "",
) -> Planner:
    """The planner of an example, without the sets of its tile sizes: of `constants`, or of those
    that its case varies. `precision`: what its products of f32 ask for, if it is something else."""
    text = with_precision((ROOT / "examples" / f"{name}.sketch").read_text(), precision)
    for constant in CASES[name][1] if constants is None else constants:
        text = re.sub(rf"\b{constant} in \[[^\]]*\]", constant, text)
    tree, _ = parse(Source(name, text))
    assert tree is not None
    return planner(tree.sketches[0], target)


def with_precision(text: str, precision: str) -> str:
    """The text of a sketch, whose products ask for `precision` where it is not ""."""
    if not precision:
        return text
    calls = re.compile(r"\b(gemm|matmul|dot)\(([^()]*?)(, precision=\"\w+\")?\)")
    return calls.sub(rf'\1(\2, precision="{precision}")', text)


def values_of(plan: Plan, name: str) -> dict[str, Any]:
    """The host's scalars at the case's sizes; params have their defaults, or 1."""
    params = {p.name: 1 if p.default is None else p.default for p in plan.sketch.params}
    return host_values(plan.sketch, CASES[name][0], params)


# ---------------------------------------------------------------- record


def record(name: str, most: int) -> list[dict[str, Any]]:
    """The points of an example's space with their seconds."""
    from sketchc.runtime.toolchains.base import toolchain
    from sketchc.runtime.toolchains.native.launch import launcher

    made = planner_of(name)
    constants = CASES[name][1]
    aimed = planner_of(name, constants=()).plan({}).plan.sketch.constants
    first = {constant.name: int(constant.value) for constant in aimed if constant.name in constants}
    space = [[1 << e for e in range(low, high + 1)] for low, high in constants.values()]
    points = [dict(zip(constants, values, strict=True)) for values in itertools.product(*space)]
    random.Random(1).shuffle(points)
    points = [first, *(point for point in points if point != first)]
    calls: list[tuple[dict[str, int], Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, point in enumerate(points):
            if len(calls) == most:
                break
            try:
                plan = made.plan(point).plan
            except DiagnosticError:  # this point cannot be proved, or does not fit
                continue
            kernel = load_target("cpp").emit(plan)
            library = toolchain("cpp").compile(kernel, Path(folder) / str(number)).library
            assert library is not None
            values = values_of(plan, name)
            params = {p.name: values[p.name] for p in plan.sketch.params}
            calls.append((point, launcher(kernel, library, CASES[name][0], params)))
        given = inputs(plan, values)
        return timed(calls, given)


def inputs(plan: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors for one call: normally distributed floats, small numbers."""
    import torch

    from sketchc.runtime.tasks.worker.torch_worker import DTYPES

    generator = torch.Generator().manual_seed(0)
    found = {}
    for tensor in passed(plan.sketch):
        if tensor.role in (ir.Role.IN, ir.Role.INOUT):
            shape, dtype = sample_extents(tensor, values), DTYPES[tensor.dtype.value]
            if tensor.dtype.is_float:
                found[tensor.name] = torch.randn(shape, generator=generator).to(dtype)
            else:
                found[tensor.name] = torch.randint(0, 100, shape, generator=generator).to(dtype)
    return found


def timed(
    calls: list[tuple[dict[str, int], Any]], given: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The least processor time of each point, over rounds in which all have a turn."""
    least = [float("inf")] * len(calls)
    started, rounds = time.monotonic(), 0
    order = list(range(len(calls)))
    while rounds < _ROUNDS or (time.monotonic() - started < _SECONDS and rounds < 60):
        random.shuffle(order)
        for index in order:
            begun = time.process_time_ns()
            calls[index][1](given)
            least[index] = min(least[index], (time.process_time_ns() - begun) * 1e-9)
        rounds += 1
    return [
        {"point": point, "seconds": best} for (point, _), best in zip(calls, least, strict=True)
    ]


# ---------------------------------------------------------------- show and fit


def machine_facts() -> dict[str, Any]:
    """The facts of this machine that the model asks for."""
    caches = data_caches()
    return {
        "l1_bytes": caches[1],
        "l2_bytes": caches[2],
        "vector_bytes": vector_bytes(),
        "clock": 2.5e9,
    }


def amounts(
    name: str, rows: list[dict[str, Any]], facts: Mapping[str, Any]
) -> Iterator[dict[Part, float]]:
    """The amounts of each recorded point."""
    made = planner_of(name)
    for row in rows:
        plan = made.plan(row["point"]).plan
        found = dict.fromkeys(Part, 0.0)
        for work in work_of(plan, values_of(plan, name)):
            for part, amount in cpu.amounts(
                work, cpu.memory_traffic(work, facts), facts, 1
            ).items():
                found[part] += amount
        yield found


def predictions(name: str, rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> Floats:
    """The predicted seconds of each recorded point."""
    return np.array([sum(cpu.seconds(each, facts).values()) for each in amounts(name, rows, facts)])


def correlation(one: Floats, other: Floats) -> float:
    """Spearman's correlation: that of the ranks, of which equal values share the mean."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2.0)[places]
    return ranks


def load(path: Path) -> dict[str, Any]:
    """What was recorded: "facts" of the machine, where there are any, and "spaces" by example."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def show(recorded: Mapping[str, Any]) -> None:
    """Print one row for each example: times as multiples of the best, and, last, predicted ones of
    those measured (the median)."""
    head = ("points", "Spearman", "model", "aims", "worst", "predicted")
    print(f"{'':20}{''.join(f'{word:>10}' for word in head)}")
    for held_out in (False, True):
        found = []
        for name, rows in recorded["spaces"].items():
            if (name in HELD_OUT) is held_out:
                times = np.array([row["seconds"] for row in rows])
                guesses = predictions(name, rows, recorded["facts"])
                best = times.min()
                picked = times[np.argmin(guesses)] / best
                found.append((correlation(guesses, times), picked, times[0] / best))
                shares = (*found[-1], times.max() / best, np.median(guesses / times))
                print(f"{name:20}{len(rows):10}{''.join(f'{each:10.2f}' for each in shares)}")
        ranks, picks, aimed = zip(*found, strict=True)
        means = [statistics.geometric_mean(each) for each in (picks, aimed)]
        said = f"correlation: median {statistics.median(ranks):.2f}, least {min(ranks):.2f}; "
        said += f"times over the best: model {means[0]:.3f}, aims {means[1]:.3f}"
        print(f"{'not fitted to' if held_out else 'fitted to'}: {said}\n")


def fit(recorded: Mapping[str, Any]) -> None:
    """Print the cycles that rank the points of all spaces best. The search goes from the cycles as
    they are, one part at a time, by factors, within an eighth and eight times of these."""
    spaces = []
    for name, rows in recorded["spaces"].items():
        if name in HELD_OUT:
            continue
        counted = [list(each.values()) for each in amounts(name, rows, recorded["facts"])]
        spaces.append((np.array(counted), np.array([row["seconds"] for row in rows])))
    first = np.array([cpu.CYCLES[part] for part in Part])
    best, score = first, quality(spaces, first)
    for factor in (2.0, 1.5, 1.2, 1.1) * 2:
        better = True
        while better:
            better = False
            for place in range(len(first)):
                for step in (factor, 1.0 / factor):
                    other = best.copy()
                    other[place] = np.clip(best[place] * step, first[place] / 8, first[place] * 8)
                    if (found := quality(spaces, other)) > score + 1e-6:
                        best, score, better = other, found, True
    for part, cycles in zip(Part, best, strict=True):
        print(f"    Part.{part.name}: {cycles:.2g},")
    print(f"quality {score:.3f}, before {quality(spaces, first):.3f}")


def quality(spaces: list[tuple[Floats, Floats]], cycles: Floats) -> float:
    """The mean over spaces of Spearman's correlation, less a third of the logarithm of the picked
    point's time over the best; the worst space counts half as much again as all together."""
    found = []
    for counted, times in spaces:
        guesses = counted @ cycles
        loss = np.log(times[np.argmin(guesses)] / times.min())
        found.append(correlation(guesses, times) - loss / 3)
    return float(np.mean(found) + min(found) / 2)


def main() -> None:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=["record", "show", "fit"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--points", type=int, default=44)
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    recorded: dict[str, Any] = {"facts": machine_facts(), "spaces": {}}
    if given.data.exists():
        recorded = load(given.data)
    if given.do == "show":
        show(recorded)
    elif given.do == "fit":
        fit(recorded)
    else:
        if os.environ.get("OMP_NUM_THREADS") != "1":
            raise SystemExit("record with OMP_NUM_THREADS=1: processor time of one thread counts")
        for name in given.names or CASES:
            recorded["spaces"][name] = record(name, given.points)
            print(name, len(recorded["spaces"][name]), flush=True)
            text = json.dumps(recorded, indent=0).encode()
            given.data.write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
