"""Measures the drop-ins of `level1_gpu.py build` on this GPU beside PyTorch, unattended.

    python level1_queue.py FOLDER RESULTS [NAME ...] [--seconds 500]

It needs torch and Triton, and nothing of sketchc. First all kernels are compiled, each in a process
of its own; then the tasks are measured one after the other by one process, which is started again
behind a task that ends it or takes too long. RESULTS gets a JSON file for each task, with all
samples; a task that has a file is not measured again, and after `--seconds` none is begun.

Inputs are those of the task's own `get_inputs`, drawn on the device after a fixed seed, and the
model is in evaluation mode, without TF32. Ours is compared with eager, or where products are added
up with float64 (a convolution: of the first sample), by the tolerance of `sketchc verify`, as a
share of the largest element. Then both take turns, in queued calls.
With TRITON_INTERPRET=1 all of it runs on the CPU, which shows that it works and times nothing.
"""

# mypy: ignore-errors

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import statistics
import sys
import time
import traceback
from pathlib import Path

import torch
import triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
SEED = 20_26
#: The largest share of whole numbers that may differ: positions of elements that tie.
TIED = 1e-3
#: Elements that are compared at once.
CHUNK = 1 << 26
#: Milliseconds that one sample should take, calls of one sample, rounds, and milliseconds of all.
SAMPLE, CALLS, ROUNDS, BUDGET = 4.0, 10, 11, 900.0
#: Milliseconds of a call behind which there is none: its one time stands for it.
SLOW = 4000.0
#: Seconds after which a compilation, all of them, and the measuring of a task are ended.
COMPILED, ALL_COMPILED, LONGEST = 100.0, 180.0, 25.0
#: Of Linux's <linux/prctl.h>.
PR_SET_PDEATHSIG = 1
FORK = multiprocessing.get_context("fork")


# ---------------------------------------------------------------- compile


class Sm90:
    """What Triton asks a driver for when it compiles: an H200, which need not be there."""

    def get_current_device(self):
        """The number of the device."""
        return 0

    def get_current_stream(self, device):
        """A stream, which nothing is launched on."""
        return 0

    def get_current_target(self):
        """What kernels are compiled for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def compile_kernels(folder, task):
    """Have Triton compile the launches of a drop-in's wrapper, for its cache."""
    from triton.runtime.jit import JITFunction

    triton.runtime.driver.set_active(Sm90())
    run = JITFunction.run
    JITFunction.run = lambda *given, warmup, **named: run(*given, warmup=True, **named)
    # Never touched: the pages are not there.
    given = [torch.empty(shape, dtype=getattr(torch, kind)) for shape, kind in task["tensors"]]
    drop_in(folder, task["name"]).KERNEL.run(*given, **task["params"])


def drop_in(folder, name):
    """The module of a task's drop-in."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(f"{name}_dropin")
    finally:
        del sys.path[0]


def alone(function, arguments):
    """Call a function in a group of processes that can be ended as a whole, and that ends with the
    process that has started it."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        function(*arguments)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # nothing of the process that was forked is to end with this one


def compile_all(folder, tasks):
    """Compile the kernels of all tasks; returns the names of those that are not compiled."""
    begun = time.monotonic()
    left, running, found = list(tasks), {}, []
    while left or running:
        while left and len(running) < os.cpu_count():
            # Forked by this thread, the only one: a process has no lock that another thread holds.
            task = left.pop(0)
            process = FORK.Process(target=alone, args=(compile_kernels, (folder, task)))
            process.start()
            running[process.sentinel] = (task["name"], process, time.monotonic())
        ready = multiprocessing.connection.wait(running, 1.0)
        for sentinel, (name, process, start) in [*running.items()]:
            now = time.monotonic()
            over = now - start > COMPILED or now - begun > ALL_COMPILED
            if sentinel not in ready and not over:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
            found.append((name, process.exitcode == 0, now - start))
            del running[sentinel]
    missing = [name for name, well, _ in found if not well]
    longest = sorted(((took, name) for name, _, took in found), reverse=True)[:3]
    said = ", ".join(f"{name} {took:.0f} s" for took, name in longest)
    print(f"compiled in {time.monotonic() - begun:.0f} s; longest: {said}", flush=True)
    return missing


# ---------------------------------------------------------------- measure


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
        one, other = one.double(), other.double()
        same = (one == other) | (one.isnan() & other.isnan())
        worst = max(
            worst, torch.where(same, 0.0, (one - other).abs()).nan_to_num(1e300).max().item()
        )
        largest = max(largest, torch.where(other.isfinite(), other.abs(), 0.0).max().item())
    return worst / (largest or 1.0)


def exact(model, inputs):
    """The model's outputs in float64, and of how many leading elements: a convolution's of the
    first sample."""
    from torch.nn.modules.conv import _ConvNd

    if any(isinstance(layer, _ConvNd) for layer in model.modules()):
        inputs = [inputs[0][:1], *inputs[1:]]
    double = [one.double() if torch.is_tensor(one) else one for one in inputs]
    return flat(model.double()(*double))


def poisoned(outputs):
    """Leave nothing in freed memory that might be right: the next tensors of these shapes are full
    of what no result is."""
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    bad = [float("nan") if one.is_floating_point() else -1 for one in outputs]
    [torch.full_like(one, value) for one, value in zip(outputs, bad, strict=True)]


def errors(model, inputs, ours, eager, task):
    """What is known of the errors of our outputs, as JSON data; "wrong" says what is not right."""
    told = {"error": max(map(error_of, ours, eager)), "wrong": ""}
    if not eager[0].is_floating_point():
        told["wrong"] = f"{told['error']:.2g} of all differ" if told["error"] > TIED else ""
        return told
    off = told["error"]
    if task["products"]:
        with contextlib.suppress(torch.OutOfMemoryError):
            right = exact(model, inputs)
            parts = [
                [one[: r.shape[0]] for one, r in zip(each, right, strict=True)]
                for each in (ours, eager)
            ]
            told["ours_f64"], told["eager_f64"] = (max(map(error_of, p, right)) for p in parts)
            off = told["ours_f64"]
    if not off <= task["tolerance"]:
        told["wrong"] = f"off by {off:.2g} of the largest element"
    return told


def once(call):
    """Milliseconds of one call, the host's time included."""
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return (time.perf_counter() - start) * 1e3


def synchronize():
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def interleaved(calls):
    """The samples of each of `calls` in milliseconds, in turn, and the calls of one sample."""
    from queued import milliseconds

    alone = {name: once(call) for name, call in calls.items()}
    number = max(1, min(CALLS, int(SAMPLE / max(alone.values()))))
    rounds = int(max(3, min(ROUNDS, BUDGET / (number * sum(alone.values())))))
    samples = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            timed = once(call) if DEVICE == "cpu" else milliseconds(call, number)
            samples[name].append(timed)
    return samples, number


def measured(folder, task, write):
    """Measure one task; `write` keeps what is known so far."""
    module = drop_in(folder, task["name"])
    torch.manual_seed(SEED)
    with torch.device(DEVICE):
        inputs = module.get_inputs()
        given = module.get_init_inputs()
        model = module.Model(*given).eval()
        ours = module.ModelNew(*given).eval()
    ours.load_state_dict(model.state_dict())
    calls = {"eager": lambda: model(*inputs), "ours": lambda: ours(*inputs)}
    synchronize()
    first, outputs = {}, {}
    for name in ("eager", "eager", "ours"):  # so much is known when ours never ends
        if name == "ours":
            poisoned(flat(outputs["eager"]))
        first[name] = once(lambda name=name: outputs.update({name: calls[name]()}))
        write({"first": first})
    told = errors(model, inputs, flat(outputs["ours"]), flat(outputs["eager"]), task)
    outputs.clear()
    model.float()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    if first["ours"] > SLOW:
        samples, number = {name: [taken] for name, taken in first.items()}, 1
    else:
        samples, number = interleaved(calls)
    return {"first": first, **told, "samples": samples, "calls": number}


def work(folder, results, tasks):
    """Measure tasks one after the other, in this process."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for task in tasks:
        name = task["name"]

        def write(found, name=name):
            (results / f"{name}.now").write_text(json.dumps(found))

        write({})
        found, lost = {}, False
        begun = time.monotonic()
        try:
            with torch.no_grad():
                found = measured(folder, task, write)
        except Exception as error:  # whatever a kernel raises: it is this task's alone
            said = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"
            found = {**json.loads((results / f"{name}.now").read_text()), "wrong": said}
            lost = isinstance(error, RuntimeError) and "CUDA error" in str(error)
        seconds = round(time.monotonic() - begun, 1)
        keep(results, name, {**found, "seconds": seconds})
        if lost:  # the context is gone with it
            os._exit(1)
        gc.collect()
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


def keep(results, name, found):
    """Write what was found of a task, and say it."""
    device = torch.cuda.get_device_name() if DEVICE == "cuda" and found.get("samples") else ""
    versions = {"device": device, "torch": torch.__version__, "triton": triton.__version__}
    (results / f"{name}.json").write_text(json.dumps({**found, **versions}))
    (results / f"{name}.now").unlink(missing_ok=True)
    said = found.get("wrong", "")
    if samples := found.get("samples"):
        eager, ours = (statistics.median(samples[key]) for key in ("eager", "ours"))
        said = f"eager {eager:9.3f} ms, ours {ours:9.3f} ms, {eager / ours:6.2f} {said}"
    print(f"{name:34} {said}", flush=True)


def watch(folder, results, tasks, seconds):
    """Have all tasks measured; a task that ends the process, or takes too long, has a file that
    says so. None is begun after so many seconds."""
    end = time.monotonic() + seconds
    left, tries = [task for task in tasks if not (results / f"{task['name']}.json").exists()], 0
    while left and time.monotonic() < end and tries < 3:
        process = FORK.Process(target=alone, args=(work, (folder, results, left)))
        process.start()
        doing, since = "", time.monotonic()
        while process.is_alive():
            process.join(0.1)
            now = next((path.stem for path in results.glob("*.now")), "")
            if now != doing:
                doing, since = now, time.monotonic()
                if since > end:
                    break
            if time.monotonic() - since > LONGEST + 15 * (doing == ""):
                break
        over = time.monotonic() > end
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        for path in results.glob("*.now"):
            if over:
                path.unlink()
                continue
            slow = time.monotonic() - since > LONGEST
            found = {}
            with contextlib.suppress(ValueError):  # the process may have ended while it wrote
                found = json.loads(path.read_text())
            reason = f"takes more than {LONGEST:.0f} s" if slow else "ended the process"
            # Without the device, which this process must not open.
            (results / f"{path.stem}.json").write_text(json.dumps({**found, "wrong": reason}))
            print(f"{path.stem:34} {reason}", flush=True)
            path.unlink()
        before = len(left)
        left = [task for task in tasks if not (results / f"{task['name']}.json").exists()]
        tries = tries + 1 if len(left) == before else 0
    return [task["name"] for task in left]


def main():
    """Compile and measure what has no results yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=500.0, help="after which none is begun")
    parser.add_argument("--compile-only", action="store_true")
    given = parser.parse_args()
    begun = time.monotonic()
    given.results.mkdir(parents=True, exist_ok=True)
    tasks = json.loads((given.folder / "tasks.json").read_text())
    tasks = [task for task in tasks if not given.names or task["name"] in given.names]
    tasks = [task for task in tasks if not (given.results / f"{task['name']}.json").exists()]
    missing = [] if INTERPRETED else compile_all(given.folder, tasks)
    if missing:
        print("not compiled:", ", ".join(missing), flush=True)
    if given.compile_only:
        return 0
    for task in tasks:
        if task["name"] in missing:
            found = {"wrong": f"is not compiled within {COMPILED:.0f} s"}
            (given.results / f"{task['name']}.json").write_text(json.dumps(found))
    left = given.seconds - (time.monotonic() - begun)
    left = watch(given.folder, given.results, tasks, left)
    print(f"not measured: {', '.join(left) or 'none'}; {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
