"""The cost model against measured times, over tuning spaces of examples on a GPU.

    python benchmarks/gpu_spaces.py build FOLDER [NAME ...] [--points N] [--jobs N] [--precision P]
    python FOLDER/gpu_queue.py FOLDER RESULTS            # on the GPU: torch and the driver alone
    python benchmarks/gpu_spaces.py pack RESULTS/all.json.gz [--data FILE]
    python benchmarks/gpu_spaces.py show [--data FILE]

`build` needs no GPU: it lowers points of each space (tile sizes over powers of two, warps and
stages, drawn at random; the plan's own choice first), records the wrapper's launches at the case's
sizes, compiles these as Triton's own launcher would, and leaves cubins and one JSON file for each
space in FOLDER, which is all that `gpu_queue.py` needs. A space that is there already is not built
again. `pack` puts what was measured into FILE, `show` compares it with the predictions, as
`cost_model.py show` does.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import importlib
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from cost_model import ROOT, correlation, load, planner_of
from points import own_choice

from sketchc.base.diagnostics import DiagnosticError
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_values, sample_extents
from sketchc.lowering.abi import passed
from sketchc.lowering.cost.predict import predict
from sketchc.lowering.passes.pipeline import Planner
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target

DATA = ROOT / "docs" / "data" / "cost_model_h200.json.gz"
TARGET, ARCHITECTURE = "triton_cuda", 90
#: Seconds that a point may take to be compiled.
_LONGEST = 25.0


def powers(low: int, high: int) -> tuple[int, ...]:
    """The powers of two with these exponents and those between."""
    return tuple(1 << exponent for exponent in range(low, high + 1))


@attrs.frozen
class Case:
    """A space: an example at `sizes` that fill an H200, with `axes` of its tile sizes and of its
    launches' options. `expression` is what it computes, in torch; `left_out` are optional tensors
    that are not given; `below` names for tensors of whole numbers the size that they stay under."""

    sizes: Mapping[str, int]
    axes: Mapping[str, tuple[int, ...]]
    expression: str
    params: Mapping[str, int | float] = attrs.field(factory=dict)
    left_out: frozenset[str] = frozenset()
    below: Mapping[str, str] = attrs.field(factory=dict)


_PRODUCT = {"num_warps": (4, 8), "num_stages": (2, 3, 4)}
_WARPS = {"num_warps": (1, 2, 4, 8, 16)}
CASES: dict[str, Case] = {
    "bias_activation": Case(
        {"M": 8192, "N": 4096},
        {"TM": powers(0, 4), "TN": powers(6, 12), "num_warps": (1, 2, 4, 8)},
        "F.relu(X + BIAS)",
    ),
    "batched_matmul": Case(
        {"B": 32, "M": 512, "N": 512, "K": 512},
        {"TM": powers(5, 7), "TN": powers(5, 7), "TK": powers(4, 6), **_PRODUCT},
        "X @ W",
    ),
    "causal_attention": Case(
        {"B": 2, "HQ": 16, "HK": 16, "M": 1024, "N": 1024, "D": 64},
        {"TM": powers(4, 7), "TN": powers(4, 7), "num_warps": (2, 4, 8), "num_stages": (1, 2, 3)},
        "F.scaled_dot_product_attention(Q, K, V, is_causal=True)",
        left_out=frozenset({"MASK"}),
    ),
    "conv2d": Case(
        {"N": 32, "C": 64, "H": 56, "W": 56, "O": 128, "CG": 64, "KH": 3, "KW": 3},
        {"TP": powers(5, 8), "TO": powers(4, 7), "TK": powers(4, 6), **_PRODUCT},
        "F.conv2d(X, WEIGHT, padding=1)",
        params={"padding": 1},
        left_out=frozenset({"BIAS"}),
    ),
    "depthwise_conv2d": Case(
        {"N": 8, "C": 64, "H": 128, "W": 512, "KH": 3, "KW": 3},
        {"T": powers(4, 11), **_WARPS},
        "F.conv2d(X, WEIGHT, padding=1, groups=X.shape[1])",
        params={"padding": 1},
    ),
    "matmul": Case(
        {"M": 2048, "N": 2048, "K": 2048},
        {"TM": powers(4, 8), "TN": powers(4, 8), "TK": powers(4, 7), **_PRODUCT},
        "A @ B",
    ),
    "matmul_bias_gelu": Case(
        {"M": 2048, "N": 2048, "K": 2048},
        {"TM": powers(5, 7), "TN": powers(5, 7), "TK": powers(4, 6), **_PRODUCT},
        "F.gelu(F.linear(X, W, BIAS))",
    ),
    "matmul_half": Case(
        {"M": 4096, "N": 4096, "K": 4096},
        {"TM": powers(5, 8), "TN": powers(5, 8), "TK": powers(5, 7), **_PRODUCT},
        "A @ B",
    ),
    "max_pool2d": Case(
        {"N": 32, "C": 64, "H": 112, "W": 112},
        {"TH": powers(0, 5), "TW": powers(3, 6), "num_warps": (1, 2, 4, 8)},
        "F.max_pool2d(X, 2)",
    ),
    "online_softmax": Case(
        {"M": 2048, "N": 32768},
        {"TILE": powers(8, 13), **_WARPS, "num_stages": (1, 2, 4, 6)},
        "torch.softmax(X, 1)",
    ),
    "rms": Case(
        {"B": 16, "F": 64, "D1": 256, "D2": 256},
        {
            "TILE_SIZE": powers(0, 6),
            "D2_BLOCK": powers(5, 8),
            "num_warps": (1, 2, 4, 8),
            "num_stages": (1, 2, 4, 6),
        },
        "X / torch.sqrt((X * X).mean(1, keepdim=True) + eps)",
    ),
    "sum_middle": Case(
        {"B": 32, "M": 2048, "N": 2048},
        {"TM": powers(1, 6), "TN": powers(5, 11), **_WARPS, "num_stages": (1, 2, 4, 6)},
        "X.sum(1)",
    ),
}
#: Spaces that nothing is fitted to.
HELD_OUT: dict[str, Case] = {
    "activations": Case(
        {"M": 4096, "N": 4096},
        {"TM": powers(0, 4), "TN": powers(6, 11), "num_warps": (1, 2, 4, 8)},
        "(torch.sigmoid(X), F.silu(X), F.gelu(X, approximate='tanh'), F.softplus(X), F.softsign(X),"
        " F.hardsigmoid(X), F.hardswish(X), F.elu(X, 0.5), F.selu(X), F.leaky_relu(X, 0.2))",
    ),
    "embedding": Case(
        {"B": 64, "L": 1024, "V": 32768, "D": 1024},
        {"TM": powers(0, 6), "TD": powers(4, 10), "num_warps": (1, 2, 4, 8)},
        "F.embedding(TOKENS, WEIGHT)",
        below={"TOKENS": "V"},
    ),
    "split_k_matmul": Case(
        {"M": 256, "N": 256, "K": 32768},
        {"PART": powers(8, 12), "TM": powers(4, 7), "TN": powers(4, 7), "TK": powers(4, 6)}
        | _PRODUCT,
        "A @ B",
    ),
}
CASES |= HELD_OUT
_OPTIONS = ("num_warps", "num_stages")


def planner_for(name: str, precision: str = "") -> Planner:
    """The planner of a case's example, without the sets of its tile sizes, whose products ask for
    `precision`."""
    constants = [n for n in CASES[name].axes if n not in _OPTIONS]
    return planner_of(name, TARGET, constants, precision)


def host_scalars(plan: Plan, name: str) -> dict[str, Any]:
    """The host's scalars of a case; params have the case's values, their defaults, or 1."""
    own = CASES[name].params
    params = {
        p.name: own.get(p.name, 1 if p.default is None else p.default) for p in plan.sketch.params
    }
    return host_values(plan.sketch, CASES[name].sizes, params)


# ---------------------------------------------------------------- build


def drawn(name: str, precision: str = "") -> list[dict[str, int]]:
    """All points of a case's axes in a random order, always the same; the plan's choice first."""
    axes = CASES[name].axes
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    random.Random(1).shuffle(points)
    chosen = planner_of(name, TARGET, (), precision).plan({}).plan
    return [own_choice(chosen, axes), *points]


def tensors_of(plan: Plan, name: str) -> list[dict[str, Any]]:
    """The tensors of a case as JSON data, in call order."""
    values, case = host_scalars(plan, name), CASES[name]
    return [
        {
            "name": tensor.name,
            "role": tensor.role.value,
            "shape": sample_extents(tensor, values),
            "dtype": tensor.dtype.numpy_name,
            "initial": tensor.initial,
            "below": case.sizes[case.below[tensor.name]] if tensor.name in case.below else 100,
        }
        for tensor in passed(plan.sketch)
        if tensor.name not in case.left_out
    ]


def compiled(made: Planner, name: str, point: Mapping[str, int], folder: Path) -> dict[str, Any]:
    """The record of a point: its launches, whose cubins are in `folder` then. Raises
    `DiagnosticError` for one that does not plan, `ValueError` for one that does not fit."""
    import torch

    from sketchc.runtime.sandbox.confine import import_file
    from sketchc.runtime.toolchains.triton_cuda.worker import Launch, built_launch, recording

    plan = made.plan(point).plan
    kernel = load_target(TARGET).emit(plan)
    values = host_scalars(plan, name)
    given = {  # never touched: the pages are not there
        t["name"]: torch.empty(t["shape"], dtype=getattr(torch, t["dtype"]))
        for t in tensors_of(plan, name)
    }
    params = {p.name: values[p.name] for p in plan.sketch.params}
    ins = [given.get(t.name) for t in passed(plan.sketch) if t.role is not ir.Role.OUT]
    outs = tuple(given[t.name] for t in passed(plan.sketch) if t.role is ir.Role.OUT)
    launches: list[Launch] = []
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "kernel.py"
        source.write_text(kernel.source)
        module = import_file(str(source), "generated_kernel")
        with recording(module, launches.append):
            out = outs if len(outs) > 1 else outs[0]
            getattr(module, kernel.entry)(*ins, **params, out=out)
        named = {tensor.data_ptr(): (key, tensor) for key, tensor in given.items()}
        records = []
        for launch in launches:
            built = built_launch(launch, ARCHITECTURE, Path(place))
            most = made.hardware.facts["memory"]["shared"]["bytes"]
            if built["shared"] > most or built["threads"] > 1024:
                msg = f"{built['shared']} bytes of shared memory, {built['threads']} threads"
                raise ValueError(msg)
            image = Path(built["cubin"]).read_bytes()
            file = f"{hashlib.sha256(image).hexdigest()[:16]}.cubin.gz"
            (folder / file).write_bytes(gzip.compress(image, mtime=0))
            records.append({**launch_record(launch, named), **built, "cubin": file})
    return {"point": dict(point), "launches": records}


def launch_record(launch: Any, named: dict[int, Any]) -> dict[str, Any]:
    """Grid and arguments of a launch as JSON data. `named` has the known tensors by address; what
    else there is are workspaces."""
    import torch

    from sketchc.runtime.toolchains.triton_cuda.worker import argument_type, constants_of

    constants, arguments = constants_of(launch), []
    for name, value in launch.arguments.items():
        if name in constants:
            continue
        if not isinstance(value, torch.Tensor):
            arguments.append({"scalar": argument_type(value)[0], "value": value})
            continue
        storage = value.untyped_storage()
        key, _ = named.setdefault(storage.data_ptr(), (len(named), value))
        offset = value.storage_offset() * value.element_size()
        if isinstance(key, str):
            arguments.append({"tensor": key, "offset": offset})
        else:
            arguments.append({"workspace": key, "bytes": storage.nbytes(), "offset": offset})
    places = launch.grid if isinstance(launch.grid, tuple | list) else (launch.grid,)
    return {"grid": [*places, 1, 1][:3], "arguments": arguments}


def _child(send: Any, made: Planner, name: str, point: dict[str, int], folder: Path) -> None:
    os.setsid()  # with the assembler that Triton starts, a group that can be ended
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what compilers print of points that they refuse
    try:
        send.send(compiled(made, name, point, folder))
    except Exception as error:  # whatever a compiler raises: the point is left out
        send.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def tried(made: Planner, name: str, point: dict[str, int], folder: Path) -> dict[str, Any] | str:
    """The record of a point, made in a process of its own; or why there is none."""
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    process = fork.Process(target=_child, args=(send, made, name, point, folder))
    process.start()
    send.close()
    try:
        found: dict[str, Any] | str = "takes too long to be compiled"
        if receive.poll(_LONGEST):
            found = receive.recv()
    except EOFError:
        found = "the process ended"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return found


def build(name: str, most: int, jobs: int, folder: Path, precision: str = "") -> None:
    """Build one space into `folder`."""
    begun = time.monotonic()
    made = planner_for(name, precision)
    points, left_out = [], []
    waiting = drawn(name, precision)
    load_target(TARGET).emit(made.plan(waiting[0]).plan)  # forked processes have all modules then
    with ThreadPoolExecutor(jobs) as pool:
        while waiting and len(points) < most:
            batch = waiting[: most - len(points)]
            del waiting[: len(batch)]
            for point, found in zip(
                batch, pool.map(lambda each: tried(made, name, each, folder), batch), strict=True
            ):
                if isinstance(found, str):
                    left_out.append({"point": point, "reason": found})
                else:
                    points.append(found)
    if not points:
        print(f"{name}: no point can be built: {left_out[0]['reason']}", flush=True)
        return
    plan, case = made.plan(points[0]["point"]).plan, CASES[name]
    space = {
        "symbols": dict(case.sizes),
        "params": {p.name: host_scalars(plan, name)[p.name] for p in plan.sketch.params},
        "tensors": tensors_of(plan, name),
        "expression": case.expression,
        "seed": 1000,
        "points": points,
        "left_out": left_out,
    }
    (folder / f"{name}.json").write_text(json.dumps(space))
    seconds = time.monotonic() - begun
    print(f"{name}: {len(points)} points, {len(left_out)} left out, {seconds:.0f} s", flush=True)


# ---------------------------------------------------------------- pack and show


def pack(results: Path, data: Path) -> None:
    """Put what `gpu_queue.py` measured into one file, beside the spaces that are there already."""
    spaces = load(data)["spaces"] if data.exists() else {}
    for name, found in load(results).items():
        spaces[name] = found
    text = json.dumps({"spaces": spaces}, indent=0, sort_keys=True)
    data.write_bytes(gzip.compress(text.encode(), mtime=0))


def show(recorded: Mapping[str, Any]) -> None:
    """Print one row for each space: times as multiples of the best, and, last, predicted ones of
    those measured (the median)."""
    head = ("points", "Spearman", "model", "plan", "worst", "predicted")
    print(f"{'':20}{''.join(f'{word:>10}' for word in head)}")
    ranks: dict[bool, list[float]] = {False: [], True: []}
    for held_out in (False, True):
        for name, space in recorded["spaces"].items():
            if (name in HELD_OUT) is held_out:
                ranks[held_out].append(_row(name, space))
        if found := ranks[held_out]:
            said = "not fitted to" if held_out else "fitted to"
            median = statistics.median(found)
            print(f"{said}: correlation: median {median:.2f}, least {min(found):.2f}\n")


def _row(name: str, space: Mapping[str, Any]) -> float:
    """Print one space's row; returns Spearman's correlation."""
    rows = [row for row in space["points"] if row["samples"]]
    times = np.array([statistics.median(row["samples"]) for row in rows])
    guesses = predictions(name, rows)
    best = times.min()
    chosen = times[0] / best if rows[0] is space["points"][0] else math.nan
    rank = correlation(guesses, times)
    shares = (rank, times[np.argmin(guesses)] / best, chosen, times.max() / best)
    shares = (*shares, float(np.median(guesses / times)))
    print(f"{name:20}{len(rows):10}{''.join(f'{each:10.2f}' for each in shares)}")
    return rank


def predictions(name: str, rows: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """The predicted seconds of each recorded point."""
    made = planner_for(name)
    plans = (made.plan(row["point"]).plan for row in rows)
    return np.array([predict(plan, host_scalars(plan, name)).seconds for plan in plans])


def main() -> int:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=["build", "pack", "show"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--precision", default="", help="of products, as in a sketch")
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    if given.do == "show":
        show(load(given.data))
        return 0
    if given.folder is None:
        parser.error(f"{given.do} needs a folder")
    if given.do == "pack":
        pack(given.folder, given.data)
        return 0
    for module in ("triton", "sketchc.runtime.toolchains.triton_cuda.worker"):
        importlib.import_module(module)  # so that forked processes have them already
    given.folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("gpu_queue.py"), given.folder)
    for name in given.names or CASES:
        if not (given.folder / f"{name}.json").exists():
            try:
                build(name, given.points, given.jobs, given.folder, given.precision)
            except DiagnosticError as error:
                print(f"{name}: {error.diagnostics[0].message}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
