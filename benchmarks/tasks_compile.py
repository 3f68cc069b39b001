"""What `tasks_queue.py` measures: drop-ins with the kernels of their points, loaded and compiled.

Each kernel is compiled in a process of its own, which needs no GPU; so is each model for
torch.compile, which needs one. All of them are forked by one process that has a single thread: a
process that is forked while another thread holds a lock may wait for it for ever.
"""

# mypy: ignore-errors

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import wait

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # or each process starts as many more

import torch
import triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
SEED = 20_26
#: Seconds after which the compilation of a model by torch.compile and of a kernel are ended, and
#: after which none is begun.
MODEL, COMPILED, ALL_COMPILED = 25.0, 30.0, 180.0
#: How often what has not ended well is compiled; a model that takes too long only once, since all
#: measuring waits for it.
TRIES = 2
#: The file that says that no model is compiled any more.
MODELS_DONE = "models.done"
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
    torch.cuda.current_device = lambda: 0  # which a kernel's second launch asks for
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
    os._exit(0)  # without what the process that has forked this one had to do at its end


class Job:
    """One thing to be compiled: `what` of a task is "compile" or the number of a point."""

    def __init__(self, task, what, function, arguments, most):
        self.task, self.what, self.most, self.tries = task, what, most, 0
        self.function, self.arguments = function, arguments

    def start(self):
        """Begin to compile it, in a process of its own."""
        self.tries += 1
        self.begun = time.monotonic()
        self.process = FORK.Process(target=alone, args=(self.function, self.arguments))
        self.process.start()

    def end(self):
        """End the process, if it still runs; returns the status, None where it had to be ended."""
        self.process.join(0)
        status = self.process.exitcode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        return status


def jobs_of(folder, tasks):
    """What is to be compiled: first the models, which the device has to run."""
    jobs = [
        Job(task["name"], "compile", compile_model, (folder, task), MODEL)
        for task in tasks
        if "compile" in task["beside"]
    ]
    for task in tasks:
        for number in range(len(task["points"])):
            arguments = (folder, task, number)
            jobs.append(Job(task["name"], str(number), compile_kernels, arguments, COMPILED))
    return jobs


def compile_all(folder, results, jobs):
    """Compile everything, as many at a time as there are processors but two, each at most `TRIES`
    times. As soon as all of a task is tried, RESULTS/NAME.compiled says what of it is missing."""
    begun, slots = time.monotonic(), max((os.cpu_count() or 1) - 2, 1)
    waiting, running, took = list(jobs), [], []
    left = {job.task: [other for other in jobs if other.task == job.task] for job in jobs}
    missing = {task: [] for task in left}
    while waiting or running:
        over = time.monotonic() > begun + ALL_COMPILED
        while waiting and len(running) < slots and not over:
            running.append(waiting.pop(0))
            running[-1].start()
        due = min((job.begun + job.most for job in running), default=0.0) - time.monotonic()
        wait([job.process.sentinel for job in running], max(due, 0.0))
        late = time.monotonic()
        for job in [j for j in running if not j.process.is_alive() or late > j.begun + j.most]:
            running.remove(job)
            status = job.end()
            took.append((time.monotonic() - job.begun, f"{job.task} {job.what}"))
            if status == 0:
                left[job.task].remove(job)
            elif job.tries < TRIES and not over and (status is not None or job.what != "compile"):
                print(f"{job.task} {job.what}: status {status}, tried again", flush=True)
                waiting.insert(0, job)
            else:
                print(f"{job.task} {job.what}: not compiled, status {status}", flush=True)
                left[job.task].remove(job)
                missing[job.task].append(job.what)
        if over:
            for job in waiting:
                left[job.task].remove(job)
                missing[job.task].append(job.what)
            waiting = []
        say_settled(results, left, missing)
    longest = ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(took)[:-4:-1])
    print(f"compiled within {time.monotonic() - begun:.0f} s; longest: {longest}", flush=True)


def say_settled(results, left, missing):
    """Write the files of the tasks of which nothing is `left`, and of all models."""
    if not any(job.what == "compile" for jobs in left.values() for job in jobs):
        (results / MODELS_DONE).touch()
    for task in [task for task, jobs in left.items() if not jobs]:
        del left[task]
        place = results / f"{task}.compiled"
        place.with_suffix(".writing").write_text(json.dumps(missing[task]))
        place.with_suffix(".writing").rename(place)


class Compiler:
    """The process that has everything compiled, beside the one that measures."""

    def __init__(self, folder, results, tasks):
        self.results = results
        # Torch.compile's compiler is not imported here, so that each process reads it for itself:
        # where it was (torch 2.11 on an H200), none forked from this one could use the device.
        jobs = jobs_of(folder, tasks)
        for path in (*results.glob("*.compiled"), results / MODELS_DONE):
            path.unlink(missing_ok=True)  # of a run that was ended: its cache may be gone
        self.process = FORK.Process(target=alone, args=(compile_all, (folder, results, jobs)))
        self.process.start()

    def wait(self):
        """Wait until no model is compiled any more: the device is free then."""
        while not (self.done() or (self.results / MODELS_DONE).exists()):
            time.sleep(0.1)

    def done(self):
        """Whether all is compiled, as far as it can be."""
        return not self.process.is_alive()

    def close(self):
        """End what still runs."""
        self.process.kill()
        self.process.join()
        for path in (*self.results.glob("*.compiled"), self.results / MODELS_DONE):
            path.unlink(missing_ok=True)
