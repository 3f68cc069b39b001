"""A process that times, started by `driver` as `python -P -m sketchc.runtime.bench.child FOLDER
READ WRITE PROCESSORS SIDE`: "kernel", or "baselines" for one that never loads the kernel. It pins
itself before torch starts its threads, then serves (`server`).

The folder holds `job.pickle`, made by the parent of the parent's own data, and the inputs.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from sketchc.lowering.kernel import Kernel

Scalar = int | float | bool


@attrs.frozen
class Job:
    """What is timed, and `subject` of the file `task` beside it.

    `inputs[s]` describes set s of values: files by tensor name. `places` is how many copies of them
    there are in memory. `arguments` are forward's inputs by position: a tensor's name, a number or
    None; `state` maps parameters to tensor names; `varied` names the tensors that change from
    sample to sample. `outputs` are (type, shape) in call order. `precision` is the baselines'
    class; `is_model`: the kernel is a class with the interface of the task's Model. `seeded`: both
    models keep the parameters that they draw themselves, after the same seed. `lead`: which of the
    task's lists of inputs says how forward takes them.
    """

    kernel: Kernel
    code: Path
    task: Path
    subject: str
    makes_inputs: bool
    device: str
    threads: int
    symbols: Mapping[str, int]
    params: Mapping[str, Scalar]
    substitutes: Mapping[str, int]
    inputs: tuple[Mapping[str, Mapping[str, Any]], ...]
    places: int
    arguments: tuple[str | Scalar | None, ...]
    state: Mapping[str, str]
    varied: tuple[str, ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    precision: str
    baselines: tuple[str, ...]
    is_model: bool
    seeded: bool
    warm_up_seconds: float
    flush_bytes: int
    lead: int = 0


def main(arguments: list[str]) -> int:
    """Serve until the parent closes the pipe."""
    folder, read_from, write_to, processors, side = arguments
    os.sched_setaffinity(0, {int(one) for one in processors.split(",")})
    from sketchc.runtime.bench.server import serve
    from sketchc.runtime.process.parent import die_with_parent

    die_with_parent()
    job: Job = pickle.loads((Path(folder) / "job.pickle").read_bytes())
    serve(job, Path(folder), side, int(read_from), int(write_to))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
