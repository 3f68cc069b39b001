"""Measures a folder of compiled kernels on this GPU, unattended: each space of `gpu_spaces.py`
after the other, in a process of its own.

    python gpu_queue.py FOLDER RESULTS [NAME ...] [--seconds 8]

It needs torch and the CUDA driver, and nothing of sketchc. RESULTS gets one JSON file for each
space, with all samples, and at the end `all.json.gz` with all of them. A space that has a file is
not measured again, and a point that ended the process, or kept it from ending, is left out when the
space is tried again. Each point's outputs are compared with those of a torch expression; a point
that is wrong is told and not timed.

One sample: the second-level cache is overwritten, then the launches of a point run between two
events. All points have a turn in each round, in an order that changes, until the seconds are over.
"""

# mypy: ignore-errors

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gzip
import json
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import torch

SCALARS = {
    "i1": ctypes.c_int8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
}
#: CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, _NUM_REGS, _MAX_DYNAMIC_SHARED_SIZE_BYTES.
LOCAL, REGISTERS, DYNAMIC_SHARED = 3, 4, 8
#: What is overwritten between samples: several times the second-level cache of any GPU so far.
FLUSHED_BYTES = 256 << 20
#: The largest error of an output, over its largest element.
TOLERANCE = {"float16": 5e-3, "float32": 2e-4}
MOST_ROUNDS, SLOW_SECONDS, SLOW_ROUNDS = 25, 0.02, 5
#: Restarts of one space, and the seconds that its process may take beside measuring.
RESTARTS, OVERHEAD = 6, 90


class Driver:
    """The CUDA driver, in torch's context."""

    def __init__(self):
        torch.zeros(1, device="cuda")  # makes the context
        self.library = ctypes.CDLL("libcuda.so.1")

    def check(self, function, *arguments):
        """Call a function of the driver. Raises `RuntimeError` for an error."""
        status = getattr(self.library, function)(*arguments)
        if status:
            name = ctypes.c_char_p()
            self.library.cuGetErrorName(status, ctypes.byref(name))
            msg = f"{function}: {(name.value or b'an unknown error').decode()}"
            raise RuntimeError(msg)

    def function(self, image, name, shared):
        """The kernel `name` of a cubin, allowed so many bytes of shared memory."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("cuModuleLoadData", ctypes.byref(module), image)
        self.check("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared:
            self.check("cuFuncSetAttribute", function, DYNAMIC_SHARED, ctypes.c_int(shared))
        return function

    def attribute(self, function, number):
        """An attribute of a kernel."""
        value = ctypes.c_int()
        self.check("cuFuncGetAttribute", ctypes.byref(value), number, function)
        return value.value

    def launch(self, function, grid, threads, shared, pointers):
        """Put a launch into torch's current stream."""
        extents = map(ctypes.c_uint, (*grid, threads, 1, 1, shared))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check("cuLaunchKernel", function, *extents, stream, pointers, None)


class Point:
    """The launches of one point on given tensors."""

    def __init__(self, driver, folder, record, tensors):
        self.driver, self.launches, self.kept, self.facts = driver, [], [], []
        spaces = {}
        for launch in record["launches"]:
            image = gzip.decompress((folder / launch["cubin"]).read_bytes())
            function = driver.function(image, launch["function"], launch["shared"])
            numbers = [driver.attribute(function, each) for each in (REGISTERS, LOCAL)]
            self.facts.append({"registers": numbers[0], "local_bytes": numbers[1]})
            values = []
            for argument in launch["arguments"]:
                if "tensor" in argument:
                    start = tensors[argument["tensor"]].data_ptr()
                    values.append(ctypes.c_uint64(start + argument["offset"]))
                elif "workspace" in argument:
                    key, size = argument["workspace"], argument["bytes"]
                    if key not in spaces:
                        spaces[key] = torch.zeros(size, dtype=torch.uint8, device="cuda")
                    values.append(ctypes.c_uint64(spaces[key].data_ptr() + argument["offset"]))
                else:
                    values.append(SCALARS[argument["scalar"]](argument["value"]))
            # After the kernel's own arguments: scratch memory, and memory for profiling, unused.
            scratch = launch["scratch"] * math.prod(launch["grid"])
            if scratch:
                held = torch.zeros(scratch, dtype=torch.uint8, device="cuda")
                self.kept.append(held)
            values += [ctypes.c_uint64(held.data_ptr() if scratch else 0), ctypes.c_uint64(0)]
            pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
            self.kept += [values, pointers]
            self.launches.append(
                (function, launch["grid"], launch["threads"], launch["shared"], pointers)
            )
        self.kept.append(spaces)

    def run(self):
        """Start the launches, one after the other."""
        for launch in self.launches:
            self.driver.launch(*launch)


def inputs(space):
    """The tensors of a space by name: normally distributed floats, whole numbers below a limit."""
    found = {}
    for place, tensor in enumerate(space["tensors"]):
        shape, dtype = tensor["shape"], getattr(torch, tensor["dtype"])
        generator = torch.Generator("cuda").manual_seed(space["seed"] + place)
        if tensor["role"] != "in":
            found[tensor["name"]] = torch.empty(shape, dtype=dtype, device="cuda")
        elif dtype.is_floating_point:
            values = torch.randn(shape, generator=generator, device="cuda")
            found[tensor["name"]] = values.to(dtype)
        else:
            found[tensor["name"]] = torch.randint(
                tensor["below"], shape, generator=generator, device="cuda", dtype=dtype
            )
    return found


def expected(space, tensors):
    """The outputs of the space's torch expression, by name."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    names = {"torch": torch, "F": torch.nn.functional, **space["params"], **tensors}
    found = eval(space["expression"], names)  # an expression of gpu_spaces.py
    outputs = [t["name"] for t in space["tensors"] if t["role"] == "out"]
    several = found if isinstance(found, tuple) else (found,)
    return dict(zip(outputs, several, strict=True))


def wrong(point, space, tensors, right):
    """What is wrong with the outputs of a point; "" for nothing."""
    initial = {t["name"]: t["initial"] for t in space["tensors"]}
    for name in right:
        value = initial[name]
        tensors[name].fill_(float("nan") if value is None else value)
    point.run()
    torch.cuda.synchronize()
    for name, wanted in right.items():
        error = (tensors[name].double() - wanted.double()).abs().max().item()
        share = error / max(wanted.abs().max().item(), 1e-30)
        if not share <= TOLERANCE[str(wanted.dtype).removeprefix("torch.")]:
            return f"{name} is off by {share:.2g} of its largest element"
    return ""


def timed(points, seconds):
    """The samples of each point, in seconds."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    samples = {number: [] for number in points}
    begun = time.monotonic()
    for number in range(MOST_ROUNDS):
        order = [n for n in points if number < SLOW_ROUNDS or min(samples[n]) < SLOW_SECONDS]
        random.Random(number).shuffle(order)
        events = []
        for each in order:
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            flushed.zero_()
            pair[0].record()
            points[each].run()
            pair[1].record()
            events.append((each, pair))
        torch.cuda.synchronize()
        for each, (start, end) in events:
            samples[each].append(start.elapsed_time(end) * 1e-3)
        if time.monotonic() - begun > seconds:
            break
    return samples


def measure(folder, results, name, seconds):
    """Measure one space, and write its results."""
    space = json.loads((folder / f"{name}.json").read_text())
    trying = results / f"{name}.trying"
    failures = json.loads(trying.read_text()) if trying.exists() else {}

    def say(number, reason):
        if reason is None:
            del failures[number]
        else:
            failures[number] = reason
        trying.write_text(json.dumps(failures))

    driver, tensors = Driver(), inputs(space)
    right = expected(space, tensors)
    points, rows = {}, []
    for number, record in enumerate(space["points"]):
        key = str(number)
        rows.append({"point": record["point"], "failure": failures.get(key, ""), "samples": []})
        if key in failures:
            continue
        say(key, "ended the process, or took too long")
        point, reason = None, ""
        try:
            point = Point(driver, folder, record, tensors)
            rows[number]["kernels"] = point.facts
            reason = wrong(point, space, tensors, right)
            torch.cuda.synchronize()
        except RuntimeError as error:
            reason = str(error)
        if reason:
            rows[number]["failure"] = reason
            print(f"{name} {record['point']}: {reason}", flush=True)
            say(key, reason)
            try:
                torch.cuda.synchronize()
            except RuntimeError:  # the context is lost: start again without this point
                return 1
        else:
            say(key, None)
            points[number] = point
    if points:
        timed(points, 0.0)  # the clocks rise
        for number, found in timed(points, seconds).items():
            rows[number]["samples"] = found
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    found = {"name": name, "symbols": space["symbols"], "params": space["params"], **facts}
    (results / f"{name}.json").write_text(json.dumps({**found, "points": rows}))
    trying.unlink(missing_ok=True)
    best, number = min(((min(rows[each]["samples"]), each) for each in points), default=(0.0, 0))
    said = f"best {best * 1e6:.1f} us at {rows[number]['point']}" if points else "none is right"
    print(f"{name}: {len(points)} points, {said}", flush=True)
    return 0


def gather(results):
    """Put the results of all spaces into one file, `all.json.gz`, by name."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    text = json.dumps(found).encode()
    (results / "all.json.gz").write_bytes(gzip.compress(text, mtime=0))


def main():
    """Measure all spaces that have no results yet, or one of them in this process (`--one`)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=8.0, help="of measuring, for each space")
    parser.add_argument("--one", action="store_true")
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    if given.one:
        return measure(given.folder, given.results, given.names[0], given.seconds)
    missing = []
    for name in given.names or sorted(path.stem for path in given.folder.glob("*.json")):
        for _ in range(RESTARTS):
            if (given.results / f"{name}.json").exists():
                break
            words = [sys.executable, __file__, str(given.folder), str(given.results), name, "--one"]
            words += ["--seconds", str(given.seconds)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                limit = given.seconds + OVERHEAD
                subprocess.run(words, env=dict(os.environ), timeout=limit, check=False)
        else:
            missing.append(name)
    gather(given.results)
    print("not measured:", ", ".join(missing) or "none")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
