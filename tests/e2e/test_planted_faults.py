"""Faults planted in examples pass on no target, in sketches as in kernels by others.

In C++ all of them are tried, each second one as a kernel of which nothing is known but its text and
what it is called with; on the interpreted targets a sample is, and all with `SKETCHC_PLANTED=all`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
from planted_faults import FAULTS
from toolchains import require

from sketchc.base.diagnostics import Source
from sketchc.cli.verify_files import VerifyRequest, candidate_of
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.task import load_task
from sketchc.runtime.toolchains.base import COMPILE_TIMEOUT, Artefact, toolchain
from sketchc.runtime.toolchains.triton_ascend.toolchain import TritonAscendToolchain
from sketchc.runtime.toolchains.triton_cuda.toolchain import TritonCuda
from sketchc.runtime.verify.verify import Candidate, verify

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: One of so many is tried on each interpreted target.
SHARE = 1 if os.environ.get("SKETCHC_PLANTED") == "all" else 6
ENDINGS = {"cpp": ".cpp", "triton_cuda": ".py", "triton_ascend": ".py"}
#: Whose loops over tiles stand in the sketch, so that each target has them.
NUMBERED = {name: number for number, name in enumerate(sorted(FAULTS))}
CHOSEN = [
    (target, name)
    for name in sorted(FAULTS, key=lambda name: (FAULTS[name].example, name))
    for place, target in enumerate(ENDINGS)
    if target == "cpp" or (NUMBERED[name] + place) % SHARE == 0
]


@pytest.fixture(scope="module")
def tasks() -> Iterator[dict[str, TaskClient]]:
    """Each is loaded once, and only the last one is kept: it is a process that imported torch."""
    with ExitStack() as stack:
        yield Loaded(stack)


class Loaded(dict[str, TaskClient]):
    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self.stack = stack

    def __missing__(self, name: str) -> TaskClient:
        self.stack.close()
        self.clear()
        self[name] = self.stack.enter_context(load_task(str(EXAMPLES / "tasks" / f"{name}.py")))
        return self[name]


class Placed(TritonAscendToolchain):
    """For runs, which build what they launch."""

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        self.place(kernel, folder)
        return Artefact(kernel, folder)


class Interpreted(TritonCuda):
    """For runs in Triton's interpreter, which needs no cubins."""

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        return Artefact(kernel, folder)


def candidate(
    name: str, target: str, task: TaskClient, folder: Path, *, foreign: bool
) -> Candidate:
    """What the fault makes of the example: nobody has checked it."""
    fault = FAULTS[name]
    path = EXAMPLES / f"{fault.example}.sketch"
    tree, found = parse(Source("planted.sketch", fault.planted(path.read_text())))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], target, None, {}).plan
    kernel = load_target(target).emit(plan)
    made = Candidate(plan, kernel, toolchain(target))
    if foreign:
        file = folder / f"theirs{ENDINGS[target]}"
        file.write_text(kernel.source)
        made = candidate_of(
            VerifyRequest(str(file), target, entry=kernel.entry, signature=str(path)), task
        )
    if target == "triton_ascend":
        return attrs.evolve(made, toolchain=Placed())
    if made.toolchain.status().interpreted:
        return attrs.evolve(made, toolchain=Interpreted())
    return made


@pytest.mark.sweep
@pytest.mark.parametrize(("target", "name"), CHOSEN)
def test_a_planted_fault_does_not_pass(
    target: str, name: str, tasks: dict[str, TaskClient], tmp_path: Path
) -> None:
    require(target)
    foreign = NUMBERED[name] % 2 == 1
    task = tasks[FAULTS[name].example]
    made = candidate(name, target, task, tmp_path, foreign=foreign)
    found = verify(made, task, tmp_path / "build", 11)
    assert not found.passed
    # In C++, where a task runs at its own sizes, each fault is seen.
    assert found.failures or target != "cpp", found.gaps
