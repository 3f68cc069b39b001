"""What `tasks_queue.py` measures: drop-ins with the kernels of their points, loaded and compiled.

Each kernel is compiled in a process of its own, which needs no GPU; so is each model for
torch.compile, which needs one.
"""

# mypy: ignore-errors

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # or each process starts as many more

import torch
import triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
SEED = 20_26
#: Seconds after which the compilation of a model by torch.compile, of a kernel, and all of them are
#: ended.
MODEL, COMPILED, ALL_COMPILED = 40.0, 100.0, 180.0
#: How often what a signal has ended is compiled.
TRIES = 2
#: Of Linux's <linux/prctl.h>.
PR_SET_PDEATHSIG = 1
FORK = multiprocessing.get_context("fork")


# ---------------------------------------------------------------- load


def settings():
    """No TF32: kernels are asked for products of f32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def prepared(module):
    """The task's model and inputs on the device, always the same ones."""
    torch.manual_seed(SEED)
    with torch.device(DEVICE):
        inputs = module.get_inputs()
        return module.Model(*module.get_init_inputs()).eval(), inputs


def synchronize():
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def drop_in(folder, task, number):
    """The module of a task's drop-in, with the kernel of point `number`."""
    module = loaded(folder / task["name"] / task["drop_in"])
    if number:
        points = folder / task["name"] / "points"
        module.KERNEL.run = getattr(loaded(points / f"{number}.py"), task["entry"])
    return module


def loaded(path):
    """A module from a file, always a new one."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


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


def compile_kernels(folder, task, number):
    """Have Triton compile the launches of a point's wrapper, for its cache."""
    from triton.runtime.jit import JITFunction

    triton.runtime.driver.set_active(Sm90())
    run = JITFunction.run
    JITFunction.run = lambda *given, warmup, **named: run(*given, warmup=True, **named)
    # Never touched: the pages are not there.
    given = [torch.empty(shape, dtype=getattr(torch, kind)) for shape, kind in task["tensors"]]
    drop_in(folder, task, number).KERNEL.run(*given, **task["params"])


def compile_model(folder, task):
    """Have torch.compile compile the task's model, for its cache."""
    settings()
    model, inputs = prepared(drop_in(folder, task, 0))
    with torch.no_grad():
        torch.compile(model)(*inputs)
    synchronize()


def ended(function, arguments, seconds):
    """Call a function in a process of its own; returns its status, 0 where it ended well, or None
    where it had not ended within so many seconds."""
    process = FORK.Process(target=alone, args=(function, arguments))
    process.start()
    process.join(seconds)
    status = process.exitcode
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return status


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
    os._exit(0)  # a process that a thread has forked cannot end in the usual way


class Compiler:
    """Compiles what tasks need, in processes beside the one that measures. First the models for
    torch.compile, which the device has to run: until then nothing can be measured (`wait`)."""

    def __init__(self, folder, results, tasks):
        self.folder, self.results, self.begun = folder, results, time.monotonic()
        if any("compile" in task["beside"] for task in tasks):
            importlib.import_module("torch._inductor.compile_fx")  # or each process reads its files
        self.took = []
        self.pool = ThreadPoolExecutor(max((os.cpu_count() or 1) - 2, 1))
        self.models = {
            task["name"]: self.pool.submit(self.within, MODEL, compile_model, task)
            for task in tasks
            if "compile" in task["beside"]
        }
        self.tasks = []
        for task in tasks:
            numbers = range(len(task["points"]))
            own = [
                self.pool.submit(self.within, COMPILED, compile_kernels, task, n) for n in numbers
            ]
            self.tasks.append(self.pool.submit(self.settled, task, own))

    def within(self, most, function, task, *more):
        """Whether a compilation ends well in time. One that is ended by a signal is tried again: a
        process may be forked while another thread has a lock."""
        start, name = time.monotonic(), " ".join(map(str, (task["name"], *more)))
        for _ in range(TRIES):
            seconds = min(most, self.begun + ALL_COMPILED - time.monotonic())
            status = ended(function, (self.folder, task, *more), seconds) if seconds > 0 else None
            if status is None or status >= 0:
                break
        if status != 0:
            print(f"{name}: not compiled, status {status}", flush=True)
        self.took.append((time.monotonic() - start, name))
        return status == 0

    def settled(self, task, futures):
        """Say what of a task is not compiled, once all is tried."""
        missing = [str(number) for number, future in enumerate(futures) if not future.result()]
        model = self.models.get(task["name"])
        missing += ["compile"] if model and not model.result() else []
        place = self.results / f"{task['name']}.compiled"
        place.with_suffix(".writing").write_text(json.dumps(missing))
        place.with_suffix(".writing").rename(place)

    def wait(self):
        """Wait until no model is compiled any more."""
        missing = [name for name, future in self.models.items() if not future.result()]
        self.say(f"all models but {', '.join(missing) or 'none'}")

    def done(self):
        """Whether all is compiled, as far as it can be."""
        return all(future.done() for future in (*self.models.values(), *self.tasks))

    def close(self):
        """Begin nothing more, and wait for what runs."""
        self.pool.shutdown(cancel_futures=True)
        self.say("all")

    def say(self, what):
        """Say what is compiled, and what took longest."""
        longest = ", ".join(f"{name} {took:.0f} s" for took, name in sorted(self.took)[:-4:-1])
        seconds = time.monotonic() - self.begun
        print(f"compiled {what} within {seconds:.0f} s; longest: {longest}", flush=True)
