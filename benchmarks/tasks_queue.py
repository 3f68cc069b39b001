"""Measures the drop-ins of `level1_gpu.py build` or `examples_gpu.py build` on this GPU beside
PyTorch, unattended.

    python tasks_queue.py FOLDER RESULTS [NAME ...] [--seconds 500]

It needs torch and Triton, and nothing of sketchc. All kernels are compiled, each in a process of
its own; tasks are measured as soon as theirs are there, one after the other by one process, which
is started again behind a kernel that ends it or takes too long. RESULTS gets a JSON file for each
task, with all samples; a task that has a file is not measured again, and after `--seconds` none is
begun: what was not measured is named.

Inputs are those of the task's own `get_inputs`, drawn on the device after a fixed seed, and the
model is in evaluation mode, without TF32. The outputs of each point are compared with eager's, or
where products are added up with float64 (a convolution: of the first sample), by the tolerance of
`sketchc verify`, as a share of the largest element. The points that are right then race by
successive halving; at last eager and what else is asked for, the plan's own choice ("ours") and
the winner ("tuned") take turns, in queued calls, none of which chose the winner.
With TRITON_INTERPRET=1 all of it runs on the CPU, which shows that it works and times nothing.
"""

# mypy: ignore-errors

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import json
import math
import os
import signal
import statistics
import sys
import time
from pathlib import Path

import torch
import triton
from tasks_compile import (
    DEVICE,
    FORK,
    INTERPRETED,
    Compiler,
    alone,
    drop_in,
    prepared,
    settings,
    synchronize,
)

#: The largest share of whole numbers that may differ: positions of elements that tie.
TIED = 1e-3
#: Elements that are compared at once.
CHUNK = 1 << 26
#: Milliseconds that one sample should take, calls of one sample, rounds, and milliseconds of all.
SAMPLE, CALLS, ROUNDS, BUDGET = 4.0, 10, 11, 900.0
#: Of a race of points: milliseconds of one sample, rounds and milliseconds of one heat; what takes
#: so many times as long as the best one leaves; from so many points on, there is no further heat.
HEAT_SAMPLE, HEAT_ROUNDS, HEAT, HOPELESS, FINALISTS = 2.0, 3, 500.0, 1.5, 3
#: Milliseconds of a call behind which there is none: its one time stands for it.
SLOW = 4000.0
#: Seconds after which what is done with one kernel is ended.
LONGEST = 25.0


# ---------------------------------------------------------------- compare


def flat(value):
    """The tensors of what a model returns."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def error_of(found, wanted):
    """The largest difference of two tensors, over the largest element of the second; of whole
    numbers, the share that differs. Elements that are not finite must be the same."""
    found, wanted = found.reshape(-1), wanted.reshape(-1)
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    worst = largest = 0.0
    for start in range(0, wanted.numel(), CHUNK):
        one, other = found[start : start + CHUNK], wanted[start : start + CHUNK]
        if not other.is_floating_point():
            worst += (one != other).sum().item() / wanted.numel()
            largest = 1.0
            continue
        if not one.dtype == other.dtype == torch.float32:
            one, other = one.double(), other.double()
        same = (one == other) | (one.isnan() & other.isnan())
        worst = max(
            worst, torch.where(same, 0.0, (one - other).abs()).nan_to_num(1e30).max().item()
        )
        largest = max(largest, torch.where(other.isfinite(), other.abs(), 0.0).max().item())
    return worst / (largest or 1.0)


def exact(model, inputs):
    """The model's outputs in float64, and of how many leading elements: a convolution's of the
    first sample."""
    from torch.nn.modules.conv import _ConvNd

    if any(isinstance(layer, _ConvNd) for layer in model.modules()):
        inputs = [inputs[0][:1], *inputs[1:]]
    double = [
        one.double() if torch.is_tensor(one) and one.is_floating_point() else one for one in inputs
    ]
    return flat(copy.deepcopy(model).double()(*double))


def poisoned(outputs):
    """Leave nothing in freed memory that might be right: the next tensors of these shapes are full
    of what no result is."""
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    bad = [float("nan") if one.is_floating_point() else 1 for one in outputs]
    [torch.full_like(one, value) for one, value in zip(outputs, bad, strict=True)]


class Reference:
    """What outputs are compared with: eager's, and where products are added up those in float64,
    as far as memory has room for them."""

    def __init__(self, model, inputs, eager, task):
        self.eager, self.tolerance, self.right = eager, task["tolerance"], None
        if task["products"] and eager[0].is_floating_point():
            with contextlib.suppress(torch.OutOfMemoryError):
                self.right = exact(model, inputs)

    def errors(self, ours):
        """What is known of the errors of our outputs, as JSON data; "wrong" says what is not
        right."""
        told = {"error": max(map(error_of, ours, self.eager)), "wrong": ""}
        off = list(map(error_of, ours, self.eager))
        if self.right is not None:
            off = list(map(error_of, self.leading(ours), self.right))
            told["ours_f64"] = max(off)
            told["eager_f64"] = max(map(error_of, self.leading(self.eager), self.right))
        for share, one in zip(off, self.eager, strict=True):
            if one.is_floating_point() and not share <= self.tolerance:
                told["wrong"] = f"off by {share:.2g} of the largest element"
            elif not one.is_floating_point() and share > TIED:
                told["wrong"] = f"{share:.2g} of all differ"
        return told

    def leading(self, outputs):
        """As much of outputs as there is in float64."""
        return [
            one[: r.shape[0]] if r.dim() else one
            for one, r in zip(outputs, self.right, strict=True)
        ]


# ---------------------------------------------------------------- measure


def once(call):
    """Milliseconds of one call, the host's time included."""
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return (time.perf_counter() - start) * 1e3


def interleaved(calls, sample=SAMPLE, most=ROUNDS, budget=BUDGET):
    """The samples of each of `calls` in milliseconds, in turn, and the calls of one sample."""
    from queued import milliseconds

    alone = {name: once(call) for name, call in calls.items()}
    number = max(1, min(CALLS, int(sample / max(alone.values()))))
    rounds = int(max(3, min(most, budget / (number * sum(alone.values())))))
    samples = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            timed = once(call) if DEVICE == "cpu" else milliseconds(call, number)
            samples[name].append(timed)
    return samples, number


def race(calls, first):
    """The samples of each point, and the fastest point: all of them in turn, then the faster half,
    until few are left. `first` are the milliseconds of a call of each."""
    samples = {name: [] for name in calls}
    best = min(first[name] for name in calls)
    racing = [name for name in calls if first[name] <= 2 * HOPELESS * best]
    while len(racing) > 1:
        # With few calls a sample, since points may differ by far: each is timed by its own.
        found, _ = interleaved({n: calls[n] for n in racing}, HEAT_SAMPLE, HEAT_ROUNDS, HEAT)
        for name in racing:
            samples[name] += found[name]
        order = sorted(racing, key=lambda name: statistics.median(samples[name]))
        if len(racing) <= FINALISTS:
            return samples, order[0]
        limit = HOPELESS * statistics.median(samples[order[0]])
        half = order[: max(FINALISTS, math.ceil(len(order) / 2))]
        racing = [name for name in half if statistics.median(samples[name]) <= limit]
    return samples, racing[0]


def copied(inputs, model, outputs):
    """A copy that moves as many bytes as there are in inputs, parameters and outputs."""
    held = [one for one in inputs if torch.is_tensor(one)]
    held += [*model.parameters(), *model.buffers(), *outputs]
    half = sum(one.numel() * one.element_size() for one in held) // 2
    source, place = (torch.zeros(half, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    return lambda: place.copy_(source)


def measured(folder, task, lost, note):
    """Measure one task; `note` keeps what is known so far, `lost` says by number which points are
    not to be tried, and why."""
    model, inputs = prepared(drop_in(folder, task, 0))
    calls = {"eager": lambda: model(*inputs)}
    told, outputs = {"first": {}, "race": {}}, {}

    def begin(name, call):
        told["first"][name] = once(lambda: outputs.update({name: flat(call())}))
        note(told)

    begin("eager", calls["eager"])
    begin("eager", calls["eager"])
    reference = Reference(model, inputs, outputs["eager"], task)
    points = {}
    for number in range(len(task["points"])):
        name = str(number)
        if name in lost:
            told["race"][name] = {"wrong": lost[name], "samples": []}
            continue
        note({**told, "trying": name})
        module = drop_in(folder, task, number)
        ours = module.ModelNew(*module.get_init_inputs()).to(DEVICE).eval()
        ours.load_state_dict(model.state_dict())
        poisoned(outputs["eager"])
        try:
            begin(name, lambda ours=ours: ours(*inputs))
            told["race"][name] = {**reference.errors(outputs.pop(name)), "samples": []}
        except Exception as error:  # whatever a kernel raises: it is this point's alone
            if is_lost(error):
                raise
            told["race"][name] = {"wrong": said(error), "samples": []}
        if not told["race"][name]["wrong"]:
            points[name] = lambda ours=ours: ours(*inputs)
    told |= {key: told["race"]["0"].get(key) for key in ("wrong", "error", "ours_f64", "eager_f64")}
    if "copy" in task["beside"]:
        calls["copy"] = copied(inputs, model, outputs["eager"])
    del reference
    outputs.clear()
    if "compile" in task["beside"]:
        told["compile"] = lost.get("compile") or with_compile(calls, model, inputs, told["first"])
    return {**told, **timed(calls, points, told)}


def with_compile(calls, model, inputs, first):
    """Add a call of what torch.compile makes of the model; returns why that cannot be called."""
    compiled = torch.compile(model)
    try:
        for _ in range(2):
            first["compile"] = once(lambda: compiled(*inputs))
    except Exception as error:
        if is_lost(error):
            raise
        return said(error)
    calls["compile"] = lambda: compiled(*inputs)
    return ""


def timed(calls, points, told):
    """The race of the points that are right, and the samples of all that take turns at last."""
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    if not points:
        return {"samples": {}, "calls": 0}
    first = told["first"]
    if min(first[name] for name in points) > SLOW:
        return {"samples": {"eager": [first["eager"]], "ours": [first["0"]]}, "calls": 1}
    best = next(iter(points))
    if len(points) > 1:
        again = {name: once(call) for name, call in points.items()}
        found, best = race(points, again)
        for name, each in found.items():
            told["race"][name]["samples"] = each
    if "0" in points:
        calls["ours"] = points["0"]
    if best != "0":
        calls["tuned"] = points[best]
    samples, number = interleaved(calls)
    return {"best": int(best), "samples": samples, "calls": number}


def said(error):
    """An error in a line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


def is_lost(error):
    """Whether the device's context is gone with an error."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)


def work(folder, results, tasks):
    """Measure tasks one after the other, in this process, as soon as they are compiled."""
    settings()
    left = list(tasks)
    while left:
        place = {task["name"]: results / f"{task['name']}.compiled" for task in left}
        ready = [task for task in left if place[task["name"]].exists()]
        if not ready and not INTERPRETED:
            time.sleep(0.1)
            continue
        task = ready[0] if ready else left[0]
        left.remove(task)
        missing = json.loads(place[task["name"]].read_text()) if ready else []
        one(folder, results, task, dict.fromkeys(missing, "cannot be compiled, or not in time"))
        gc.collect()
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


def one(folder, results, task, lost):
    """Measure one task in this process, and keep what was found; ends the process where the
    device's context is lost."""
    name, known = task["name"], results / f"{task['name']}.lost"
    lost |= json.loads(known.read_text()) if known.exists() else {}

    def note(found):
        (results / f"{name}.now").write_text(json.dumps(found))

    note({})
    begun = time.monotonic()
    try:
        if "compile" in task["beside"]:
            torch._dynamo.reset()
        with torch.no_grad():
            found = measured(folder, task, lost, note)
    except Exception as error:  # whatever is raised: it is this task's alone
        found = json.loads((results / f"{name}.now").read_text())
        if is_lost(error):
            note({**found, "raised": said(error)})
            os._exit(1)
        found["wrong"] = said(error)
    keep(results, name, {**found, "seconds": round(time.monotonic() - begun, 1)})


def keep(results, name, found):
    """Write what was found of a task, and say it."""
    device = torch.cuda.get_device_name() if DEVICE == "cuda" and found.get("samples") else ""
    versions = {"device": device, "torch": torch.__version__, "triton": triton.__version__}
    (results / f"{name}.json").write_text(json.dumps({**found, **versions}))
    for ending in ("now", "lost", "compiled"):
        (results / f"{name}.{ending}").unlink(missing_ok=True)
    samples = found.get("samples") or {}
    times = " ".join(f"{key} {statistics.median(each):.3f}" for key, each in samples.items())
    print(f"{name:28} {times} {found.get('wrong') or ''}", flush=True)


# ---------------------------------------------------------------- watch


def watch(folder, results, tasks, seconds, compiler=None):
    """Have all tasks measured. A point that ends the process, or takes too long, is left out when
    its task is tried again, and so is a task without a point to blame. None is begun after so many
    seconds."""
    end = time.monotonic() + seconds
    left, tries = [task for task in tasks if not (results / f"{task['name']}.json").exists()], 0
    while left and time.monotonic() < end and tries < 3:
        process = FORK.Process(target=alone, args=(work, (folder, results, left)))
        process.start()
        slow = attended(process, results, end, compiler)
        over = time.monotonic() > end
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        blamed = False
        for path in results.glob("*.now"):
            if not over:
                blame(path, f"takes more than {LONGEST:.0f} s" if slow else "ended the process")
                blamed = True
            path.unlink()
        before = len(left)
        left = [task for task in tasks if not (results / f"{task['name']}.json").exists()]
        tries = 0 if blamed or len(left) < before else tries + 1
    return [task["name"] for task in left]


def attended(process, results, end, compiler):
    """Wait for the process that measures, until `end`; whether it took too long for one kernel."""
    doing, since = "", time.monotonic()
    while process.is_alive():
        process.join(0.1)
        paths = list(results.glob("*.now"))
        now = ""
        with contextlib.suppress(OSError):  # gone meanwhile
            now = "".join(f"{path.name}{path.stat().st_mtime_ns}" for path in paths)
        if now != doing:
            doing, since = now, time.monotonic()
        if time.monotonic() > end:
            return False
        waits = not doing and compiler is not None and not compiler.done()
        if not waits and time.monotonic() - since > LONGEST + 15 * (doing == ""):
            return True
    return False


def blame(path, reason):
    """Keep that the task at `path` (what is known of it so far) could not be measured: because of
    the point that was being tried, else as a whole."""
    found = {}
    with contextlib.suppress(ValueError):  # the process may have ended while it wrote
        found = json.loads(path.read_text())
    reason = found.pop("raised", reason)
    number, known = found.pop("trying", "0"), path.with_suffix(".lost")
    print(f"{path.stem:28} {number}: {reason}", flush=True)
    if number != "0":
        lost = json.loads(known.read_text()) if known.exists() else {}
        known.write_text(json.dumps({**lost, number: reason}))
    else:  # without the device, which this process must not open
        path.with_suffix(".json").write_text(json.dumps({**found, "wrong": reason}))
        known.unlink(missing_ok=True)


def main():
    """Compile and measure what has no results yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=500.0, help="after which none is begun")
    given = parser.parse_args()
    begun = time.monotonic()
    given.results.mkdir(parents=True, exist_ok=True)
    tasks = json.loads((given.folder / "tasks.json").read_text())
    tasks = [task for task in tasks if not given.names or task["name"] in given.names]
    tasks = [task for task in tasks if not (given.results / f"{task['name']}.json").exists()]
    compiler = None if INTERPRETED else Compiler(given.folder, given.results, tasks)
    if compiler:
        compiler.wait()
    left = given.seconds - (time.monotonic() - begun)
    left = watch(given.folder, given.results, tasks, left, compiler)
    if compiler:
        compiler.close()
    print(f"not measured: {', '.join(left) or 'none'}; {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
