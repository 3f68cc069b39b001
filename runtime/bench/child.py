"""A process that times, as `driver` starts it: the template that it is forked from pins itself
before torch starts its threads; the process itself serves requests (`server`).

The first message says what is timed; it holds a `Job`, which the parent made from its own data, and
the inputs.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Mapping
from pathlib import Path

import attrs

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.process import messages

Scalar = int | float | bool
#: The kernel's side of a measurement, and the only contender on that side.
KERNEL = "kernel"
#: The side of a process that times many kernels of one sketch, loaded as they come.
POINTS = "points"
#: The class with the interface of the task's Model, where a kernel's file defines one.
MODEL = "ModelNew"
#: The environment variable with the numbers of the processors to time on, with commas between.
PROCESSORS = "SKETCHC_PROCESSORS"


class StateMismatchError(Exception):
    """The parameters and buffers of a `ModelNew` are not those of the task's model."""


@attrs.frozen
class Job:
    """What is timed: `kernel`, built or written in the file `code`, and as baselines the `subject`
    of the file `task`.

    `places` is how many copies of the inputs there are in memory, each of a set of values, in turn.
    `arguments` are forward's inputs by position: a tensor's name, a number or None; `state` maps
    parameters to tensor names; `varied` names the tensors that change from sample to sample.
    `outputs` are (type, shape) in call order. `precision` is the baselines' class; `is_model`: the
    kernel is a class with the interface of the task's Model. `seeded`: both models keep the
    parameters that they draw themselves, after the same seed. `lead`: the index of the task's list
    of inputs that says how forward takes them.
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


def pin() -> None:
    """In the template: pin this process to the processors that `PROCESSORS` lists."""
    os.sched_setaffinity(0, map(int, os.environ[PROCESSORS].split(",")))


def main(channel: socket.socket) -> None:
    """Receive the job over `channel`, then serve the parent's requests until it ends."""
    asked = messages.receive(channel)
    from sketchc.runtime.bench.server import serve

    job: Job = pickle.loads(asked["job"].data)
    serve(job, asked["inputs"], asked["side"], channel)
