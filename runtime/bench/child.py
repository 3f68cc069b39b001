"""The process that times: it runs the task and the kernel turn about, and verifies nothing.

Started by `bench` as `python -P -m sketchc.runtime.bench.child FOLDER`. The folder holds
`job.pickle` (made by the parent, of the parent's own data) and the inputs; `samples.json` and the
outputs of timed runs are written there.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.bench.launcher import launcher
from sketchc.runtime.bench.timing import Call, Clock, CpuClock, CudaClock, Schedule, interleave
from sketchc.runtime.frontends.torch_worker import (
    Raised,
    Task,
    TaskError,
    as_outputs,
    load_tensor,
    save_tensor,
    state,
)

Scalar = int | float | bool


@attrs.frozen
class Job:
    """What is timed. `inputs[s]` describes input set s: files by tensor name, and forward's inputs
    by position (a tensor's name, or a number); `state` maps parameters to tensor names."""

    kernel: Kernel
    code: Path
    task: Path
    device: str
    threads: int
    symbols: Mapping[str, int]
    params: Mapping[str, Scalar]
    substitutes: Mapping[str, int]
    inputs: tuple[Mapping[str, Mapping[str, Any]], ...]
    arguments: tuple[str | Scalar, ...]
    state: Mapping[str, str]
    schedule: Schedule


def run(job: Job, folder: Path) -> dict[str, Any]:
    """Time both; returns samples and where the outputs are."""
    torch.set_num_threads(job.threads)
    sets = [
        {name: load_tensor(dict(file)).to(job.device) for name, file in one.items()}
        for one in job.inputs
    ]
    launch = launcher(job.kernel, job.code, job.symbols, job.params)
    contenders: dict[str, Call] = {
        "eager": _eager(job, sets),
        "kernel": lambda position: launch(sets[position]),
    }
    clock: Clock = CudaClock() if job.device == "cuda" else CpuClock()
    samples, outputs = interleave(contenders, len(sets), clock, job.schedule)
    files = {
        name: {
            str(position): [
                save_tensor(str(folder / f"{name}_{position}_{number}.bin"), tensor)
                for number, tensor in enumerate(tensors)
            ]
            for position, tensors in by_set.items()
        }
        for name, by_set in outputs.items()
    }
    return {"samples": samples, "outputs": files}


def _eager(job: Job, sets: list[dict[str, torch.Tensor]]) -> Call:
    """The task's model with the first set's parameters; forward's inputs follow the set."""
    task = Task(job.task)
    model = task.model(dict(job.substitutes)).to(job.device)
    own = state(model)
    for name, tensor_name in job.state.items():
        own[name].data = sets[0][tensor_name]

    def call(position: int) -> list[torch.Tensor]:
        values = sets[position]
        arguments = [values[a] if isinstance(a, str) else a for a in job.arguments]
        return as_outputs(model(*arguments))

    return call


def main(folder: Path) -> int:
    """Run the job of a folder; a failure is a JSON object with "error"."""
    job: Job = pickle.loads((folder / "job.pickle").read_bytes())
    try:
        reply = run(job, folder)
    except Raised as error:
        report = error.report
        where, kind = report["where"], report["type"]
        reply = {"error": f"{job.task}: {where} raised {kind}: {report['message']}"}
    except TaskError as error:
        reply = {"error": f"{job.task}: {error}"}
    except (RuntimeError, OSError, ValueError, MemoryError) as error:
        reply = {"error": f"{type(error).__name__}: {error}"}
    (folder / "samples.json").write_text(json.dumps(reply))
    return 1 if "error" in reply else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
