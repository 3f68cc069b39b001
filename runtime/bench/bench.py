"""Measure a kernel against its task in PyTorch eager: interleaved, verified, against the roofline.

The parent makes the inputs and checks the outputs of timed runs against float64 references; a child
process with pinned threads times both sides on the same inputs.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from sketchc.diagnostics import UsageError
from sketchc.evaluate import constants_of, evaluate, host_values
from sketchc.runtime.bench.child import Job
from sketchc.runtime.bench.machine import Machine
from sketchc.runtime.bench.statistics import Speedup, Summary, speedup, summarise
from sketchc.runtime.bench.timing import Schedule
from sketchc.runtime.frontends.arrays import Array, read_array, write_array
from sketchc.runtime.frontends.binding import Binding, bind
from sketchc.runtime.frontends.torch_task import Scalar, TorchTask
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.verify.chains import reduction_length
from sketchc.runtime.verify.compare import Comparison, compare
from sketchc.runtime.verify.free import find_freedom
from sketchc.runtime.verify.inputs import generate
from sketchc.runtime.verify.verify import Candidate
from sketchc.runtime.worker import python_environment

#: Input sets in rotation, and the most bytes that all of them may take together.
INPUT_SETS = 3
_INPUT_BYTES = 4 << 30
#: A time below this share of the physical floor is not believed.
_FLOOR = 0.5


@attrs.frozen
class Measurement:
    """What was measured. Times in seconds; `bytes` and `flops` are the sketch's compulsory traffic
    and work; `roofline` is bytes / bandwidth / median. `comparisons` are of timed outputs."""

    sketch: str
    target: str
    hardware: str
    task: str
    machine: Machine
    symbols: Mapping[str, int]
    constants: Mapping[str, Scalar]
    params: Mapping[str, Scalar]
    seed: int
    input_sets: int
    eager: Summary
    kernel: Summary
    speedup: Speedup
    bytes: int
    flops: int
    roofline: float
    eager_roofline: float
    comparisons: tuple[Comparison, ...]
    eager_comparisons: tuple[Comparison, ...]
    samples: Mapping[str, list[float]]
    notes: tuple[str, ...] = ()

    @property
    def believable(self) -> bool:
        """False for a time that the memory cannot deliver; unknown (True) for cached data."""
        return self.bytes < 4 * self.machine.cache_bytes or self.roofline * _FLOOR <= 1.0

    @property
    def passed(self) -> bool:
        return self.believable and all(comparison.passed for comparison in self.comparisons)


@attrs.frozen
class Settings:
    """How to measure. `sizes` replaces symbols of the task."""

    seed: int
    threads: int
    schedule: Schedule = Schedule()
    sizes: Mapping[str, int] = attrs.field(factory=dict)
    values: Mapping[str, Scalar] = attrs.field(factory=dict)
    device: str = "cpu"
    timeout: float = 600.0


def bench(
    candidate: Candidate, task: TorchTask, folder: Path, settings: Settings, machine: Machine
) -> Measurement:
    """Compile, time and verify. Raises `UsageError` for what does not fit or cannot run."""
    plan = candidate.plan
    binding = bind(plan.sketch, task.describe(settings.seed), settings.values)
    symbols, substitutes = sizes_of(binding, task, settings.sizes)
    try:
        artefact = candidate.toolchain.compile(candidate.kernel, folder / "build")
    except ToolchainError as error:
        msg = f"the generated code does not compile: {error}"
        raise UsageError(msg) from error
    sets = _input_sets(binding, symbols, settings.seed)
    arguments = arguments_of(binding)
    code = artefact.library
    if candidate.kernel.language == "python":
        code = folder / f"{candidate.kernel.name}.py"
        code.write_text(candidate.kernel.source)
    assert code is not None
    job = Job(
        candidate.kernel,
        code,
        task.path.resolve(),
        settings.device,
        settings.threads,
        symbols,
        binding.params,
        {str(position): value for position, value in substitutes.items()},
        tuple(_write_set(folder, number, binding, one) for number, one in enumerate(sets)),
        arguments,
        {s.state: s.tensor.name for s in binding.tensors if s.state is not None},
        settings.schedule,
    )
    reply = _run_child(job, folder, settings.timeout)
    references = [_reference(task, binding, one, arguments, substitutes) for one in sets]
    return _measurement(candidate, task, binding, symbols, settings, machine, references, reply)


def _measurement(
    candidate: Candidate,
    task: TorchTask,
    binding: Binding,
    symbols: Mapping[str, int],
    settings: Settings,
    machine: Machine,
    references: list[list[Array]],
    reply: Mapping[str, Any],
) -> Measurement:
    """Reduce the samples, compare the outputs, and work out the roofline."""
    plan = candidate.plan
    samples: dict[str, list[float]] = reply["samples"]
    length = reduction_length(plan, binding, symbols)
    values = host_values(plan.sketch, symbols, binding.params)
    traffic = int(evaluate(plan.bytes_moved, values)) if plan.bytes_moved is not None else 0
    work = int(evaluate(plan.flops, values)) if plan.flops is not None else 0
    eager, kernel = (summarise(samples[name]) for name in ("eager", "kernel"))
    return Measurement(
        plan.sketch.name,
        plan.target,
        plan.hardware.name,
        str(task.path),
        machine,
        symbols,
        constants_of(plan.sketch),
        dict(binding.params),
        settings.seed,
        len(references),
        eager,
        kernel,
        speedup(samples["eager"], samples["kernel"]),
        traffic,
        work,
        traffic / machine.bandwidth / kernel.median,
        traffic / machine.bandwidth / eager.median,
        _compare(binding, reply["outputs"]["kernel"], references, length),
        _compare(binding, reply["outputs"]["eager"], references, length),
        samples,
        binding.notes,
    )


def sizes_of(
    binding: Binding, task: TorchTask, sizes: Mapping[str, int]
) -> tuple[dict[str, int], dict[int, int]]:
    """The symbols to measure at, and the init inputs that go with them."""
    if not sizes:
        return dict(binding.symbols), {}
    unknown = [name for name in sizes if name not in binding.symbols]
    if unknown:
        msg = f"--symbols {unknown[0]}: the sketch's symbols are {', '.join(binding.symbols)}"
        raise UsageError(msg)
    freedom = find_freedom(binding, task)
    tied = [n for n, v in sizes.items() if n not in freedom.free and v != binding.symbols[n]]
    if tied:
        msg = f"--symbols {tied[0]}: the task's model fixes this size"
        raise UsageError(msg)
    for symbol in binding.sketch.symbols:
        limit = symbol.upper_bound
        if limit is not None and sizes.get(symbol.name, 0) > limit:
            msg = f"--symbols {symbol.name}: the sketch allows at most {limit}"
            raise UsageError(msg)
    symbols = {**binding.symbols, **sizes}
    return symbols, freedom.substitutes(symbols)


def _input_sets(binding: Binding, symbols: Mapping[str, int], seed: int) -> list[dict[str, Array]]:
    """Normal inputs. Parameters are the same in all sets: a model has one set of them."""
    shapes = binding.shapes(symbols)
    total = sum(int(np.prod(shapes[s.tensor.name])) * s.tensor.dtype.bytes for s in binding.tensors)
    count = max(1, min(INPUT_SETS, _INPUT_BYTES // max(total, 1)))
    sets: list[dict[str, Array]] = []
    for number in range(count):
        random = np.random.default_rng(seed + number)
        one = {}
        for source in binding.tensors:
            tensor = source.tensor
            if source.state is not None and sets:
                one[tensor.name] = sets[0][tensor.name]
            else:
                one[tensor.name] = generate("normal", tensor.dtype, shapes[tensor.name], random)
        sets.append(one)
    return sets


def _write_set(
    folder: Path, number: int, binding: Binding, one: Mapping[str, Array]
) -> dict[str, dict[str, Any]]:
    return {
        source.tensor.name: write_array(
            folder / f"input_{number}_{source.tensor.name}.bin",
            one[source.tensor.name],
            source.tensor.dtype,
        )
        for source in binding.tensors
    }


def arguments_of(binding: Binding) -> tuple[str | Scalar, ...]:
    """Forward's inputs by position: the name of a tensor, or a number."""
    found: dict[int, str | Scalar] = {
        source.position: source.tensor.name
        for source in binding.tensors
        if source.position is not None
    }
    found |= {position: binding.params[name] for position, name in binding.param_inputs.items()}
    return tuple(found[position] for position in sorted(found))


def _reference(
    task: TorchTask,
    binding: Binding,
    one: Mapping[str, Array],
    arguments: tuple[str | Scalar, ...],
    substitutes: Mapping[int, int],
) -> list[Array]:
    values = [one[a] if isinstance(a, str) else a for a in arguments]
    state = {s.state: one[s.tensor.name] for s in binding.tensors if s.state is not None}
    return task.reference(values, state, substitutes)


def _compare(
    binding: Binding, outputs: Mapping[str, Any], references: list[list[Array]], length: int
) -> tuple[Comparison, ...]:
    """Every output of every input set that was timed."""
    found = []
    for position, files in outputs.items():
        arrays = [read_array(file) for file in files]
        for tensor, array, reference in zip(
            binding.outputs, arrays, references[int(position)], strict=True
        ):
            found.append(compare(tensor.name, array, reference, tensor.dtype, length))
    return tuple(found)


def environment(threads: int) -> dict[str, str]:
    """The child's environment: pinned threads, and a heap that keeps its pages.

    glibc would give large outputs back to the system after every call and fault each page in again
    at the next, on both sides; that measures the kernel's page clearing rather than the code.
    """
    return python_environment(
        {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "OMP_PROC_BIND": "true",
            "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
            "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
            "MALLOC_TOP_PAD_": str(64 << 20),
        }
    )


def _run_child(job: Job, folder: Path, timeout: float) -> dict[str, Any]:
    """Time in a fresh process. Raises `UsageError` with its one-line reason."""
    (folder / "job.pickle").write_bytes(pickle.dumps(job))
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sketchc.runtime.bench.child", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(job.threads),
            start_new_session=True,
        )
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            msg = f"the measurement did not end within {timeout:g} s"
            raise UsageError(msg) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    try:
        reply: dict[str, Any] = json.loads((folder / "samples.json").read_text())
    except (OSError, ValueError):
        tail = (folder / "log.txt").read_text(errors="replace").strip().split("\n")[-1][:300]
        msg = f"the measuring process ended with status {status}; its last line: {tail or 'none'}"
        raise UsageError(msg) from None
    if "error" in reply:
        raise UsageError(reply["error"])
    return reply
