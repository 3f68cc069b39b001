"""Processes that somebody kills: what is the machine's doing, and what the kernel's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from toolchains import require

from sketchc.cli.verify_files import VerifyRequest, lower
from sketchc.runtime.cases.shapes import OWN
from sketchc.runtime.process import memory
from sketchc.runtime.sandbox.worker import (
    KILLED,
    SHORT,
    Limits,
    Worker,
    WorkerResult,
    outcome_of_end,
    run_inside,
)
from sketchc.runtime.tasks.description import TaskKilledError
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.toolchains.base import Artefact, Session, ToolchainError
from sketchc.runtime.verify import machine
from sketchc.runtime.verify.evidence import classify
from sketchc.runtime.verify.verdict import Verdict
from sketchc.runtime.verify.verify import Candidate, verify

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GIB = 1 << 30
HANDLERS = """
import os, signal
def killed(request, arrays):
    os.kill(os.getpid(), signal.SIGKILL)
def hungry(request, arrays):
    held = []
    for _ in range(request["children"]):
        if os.fork() == 0:
            held.append(bytearray(request["bytes"]))
            held[0][::4096] = bytes(len(held[0][::4096]))
            signal.pause()
    signal.pause()
"""


@pytest.fixture
def handlers(tmp_path: Path) -> str:
    path = tmp_path / "handlers.py"
    path.write_text(HANDLERS)
    return str(path)


def test_what_killed_a_worker_is_told_with_the_memory_there_was(handlers: str) -> None:
    with Worker(readable=[handlers]) as worker:
        found = worker.call(f"{handlers}:killed", {})
    assert found.exit_code == -signal.SIGKILL
    assert found.kinds == (KILLED,)
    assert "of memory free" in found.describe()


def test_children_that_hold_too_much_together_are_ended_at_the_cap(handlers: str) -> None:
    request = {"children": 6, "bytes": 300 << 20}
    with Worker(limits=Limits(memory_bytes=GIB), readable=[handlers]) as worker:
        found = worker.call(f"{handlers}:hungry", request, timeout=60)
    assert found.kinds == ("MemoryError",)
    assert "held more than 1.0 GiB" in found.describe()
    error = ToolchainError("launch", found.describe(), "", found.kinds)
    assert classify(error, "c++") == "resource"


def test_a_process_is_found_below_another_whatever_it_calls_itself() -> None:
    renames = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff) S 1 ', 0, 0, 0)"
    shown = f"{renames}; print(flush=True); input()"
    command = [sys.executable, "-c", shown]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in memory.below(os.getpid())
        process.communicate(b"\n")


#: What the watcher saw -> the kind of the end, its class of failure, and a part of what is said.
ENDS: dict[str, tuple[dict[str, int], str, str, str]] = {
    "memory was free": ({}, KILLED, "launch", "with 8.0 GiB of memory free"),
    "the machine was short": ({"least": 10 << 20}, SHORT, "infrastructure", "short of memory"),
    "the kernel says so": ({"kills": 1}, SHORT, "infrastructure", "short of memory"),
    "at its own cap": ({"own": 1}, "MemoryError", "resource", "held more than"),
    "it took what there was": (
        {"kills": 1, "held": 7 * GIB, "least": 0},
        "MemoryError",
        "resource",
        "held 7.0 GiB of the 9.0 GiB that were free",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_kill_is_the_machines_only_where_that_was_short(name: str) -> None:
    seen, kind, failure, said = ENDS[name]
    told = {"status": -9, "why": "", "held": GIB, "free": 9 * GIB, "least": 8 * GIB}
    told |= {"kills": 0, "own": 0, **seen}
    plain = WorkerResult(-signal.SIGKILL, False, 1.0, "")
    found = outcome_of_end(plain, told, Limits(memory_bytes=2 * GIB))
    assert found.kinds == (kind,)
    assert said in found.describe()
    error = ToolchainError("launch", found.describe(), "", found.kinds)
    assert classify(error, "c++") == failure
    assert machine.was_killed(error) == (kind in (KILLED, SHORT))


def test_a_compiler_that_was_killed_says_nothing_about_the_code() -> None:
    log = "g++: fatal error: Killed signal terminated program cc1plus"
    assert classify(ToolchainError("compile", "g++ failed", log), "c++") == "infrastructure"
    for tool in ("triton-adapter-opt", "llc"):
        error = ToolchainError("compile", f"{tool} ended with status -9: ")
        assert classify(error, "python") == "infrastructure"
    assert classify(ToolchainError("compile", "llc ended with status -6"), "python") == "compile"


def test_a_tool_within_a_worker_that_was_killed_is_told_apart(handlers: str) -> None:
    found = run_inside(f"{handlers}:killed", {}, python=sys.executable, timeout=30.0)
    assert found.kinds == (KILLED,)


# ---------------------------------------------------------------- once more, alone


@attrs.define
class _Killed(Session):
    """Runs of another session, of which some are killed: at the calls of these numbers."""

    inner: Session
    kinds: Mapping[int, str]
    calls: int = 0

    def run(
        self,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        timeout: float = 300.0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        self.calls += 1
        if kind := self.kinds.get(self.calls):
            msg = "the process was ended by SIGKILL"
            raise ToolchainError(stage="launch", message=msg, kinds=(kind,))
        return self.inner.run(tensors, symbols, params, timeout)

    def close(self) -> None:
        self.inner.close()


def verdict_with(kinds: Mapping[int, str], folder: Path) -> Verdict:
    """The verdict on a right kernel of which these runs are killed."""
    require("cpp")
    candidate = lower(VerifyRequest(str(EXAMPLES / "relu.sketch"), "cpp"))

    class Tool:
        """The toolchain with other sessions."""

        def __getattr__(self, name: str) -> Any:
            return getattr(candidate.toolchain, name)

        def open(self, artefact: Artefact) -> Session:

            return _Killed(candidate.toolchain.open(artefact), kinds)

    changed: Candidate = attrs.evolve(candidate, toolchain=Tool())
    with TorchTask(EXAMPLES / "tasks" / "relu.py") as task:
        return verify(changed, task, folder, seed=3, small=True)


@pytest.mark.parametrize("kind", [KILLED, SHORT])
def test_a_case_whose_process_was_killed_is_run_once_more(kind: str, tmp_path: Path) -> None:
    verdict = verdict_with({3: kind}, tmp_path)
    assert verdict.passed, verdict.failures
    assert any("it was run once more, alone, and passed" in note for note in verdict.notes)


@pytest.mark.parametrize(("kind", "failure"), [(KILLED, "launch"), (SHORT, "infrastructure")])
def test_a_second_kill_is_the_kernels_where_memory_is_free(
    kind: str, failure: str, tmp_path: Path
) -> None:
    verdict = verdict_with({3: kind, 4: kind}, tmp_path)
    assert [case.failure for case in verdict.failures] == [failure]
    assert any("alone, and failed" in note for note in verdict.notes)


# ---------------------------------------------------------------- the task's own process

TASK = """import os, pathlib, signal, torch
MARK = pathlib.Path({mark!r})
class Model(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 5 and not MARK.exists():
            {keep}
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.relu(x)
def get_inputs():
    return [torch.randn(3, 4)]
"""


def test_a_task_whose_process_was_killed_is_asked_once_more(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    inputs = [np.full((5, 4), -1.0, np.float32)]
    path.write_text(TASK.format(mark=str(tmp_path / "mark"), keep="MARK.touch()"))
    with TorchTask(path) as task:
        task.describe(0)
        (found,) = task.reference(inputs, {}, {})
        assert found.shape == (5, 4)
        assert not found.any()
    path.write_text(TASK.format(mark=str(tmp_path / "none"), keep="pass"))
    with TorchTask(path) as task:
        task.describe(0)
        with pytest.raises(TaskKilledError, match="of memory are free now"):
            task.reference(inputs, {}, {})


# ---------------------------------------------------------------- bounded before


def test_sizes_are_bounded_by_the_memory_that_is_free() -> None:
    plenty = machine.within_memory(OWN, None, lambda: 1 << 40)
    assert plenty == OWN
    assert machine.memory_note(OWN, plenty) == ""
    few = machine.within_memory(OWN, None, lambda: GIB)
    assert few.elements * memory.ELEMENT_BYTES <= GIB
    assert few.programs == OWN.programs
    assert "GiB of memory are free" in machine.memory_note(OWN, few)
    assert machine.within_memory(OWN, None, lambda: 0) == OWN, "nobody says"


def test_sizes_are_bounded_by_the_memory_that_a_suite_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends a run that holds more."""
    monkeypatch.setattr(memory, "available", lambda: 64 * GIB)
    assert machine.within_memory(OWN) == OWN
    monkeypatch.setenv(memory.BOUND, str(8 * GIB))
    few = machine.within_memory(OWN)
    assert few.elements * memory.ELEMENT_BYTES <= 8 * GIB
    assert "8.0 GiB of memory are free" in machine.memory_note(OWN, few)
    monkeypatch.setattr(memory, "available", lambda: GIB)
    assert machine.within_memory(OWN).elements * memory.ELEMENT_BYTES <= GIB


#: What it makes on its way, and how large its weight is.
WIDE = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = torch.nn.Linear(n, 1 << 14, bias=False)
    def forward(self, x):
        return torch.cat([self.w(x)] * 8, 1).sum(1)
def get_inputs():
    return [torch.rand(32, 2048)]
def get_init_inputs():
    return [2048]
"""


def test_sizes_are_bounded_by_what_a_task_makes_on_its_way(tmp_path: Path) -> None:
    path = tmp_path / "wide.py"
    path.write_text(WIDE)
    with TorchTask(path) as task:
        own = task.describe(0)
        (scale,) = task.built({}).scales.values()
    made = 32 << 14
    assert own.elements == 32 * 2048 + (2048 << 14) + 32
    assert own.between == made * 9 - 32, "one and eight of it; the result counts as an output"
    assert scale == pytest.approx((3 * 2048) ** -0.5, rel=0.01), "as PyTorch draws weights"
    some = machine.within_memory(OWN, own, lambda: 4 * GIB)
    assert some.elements < machine.within_memory(OWN, None, lambda: 4 * GIB).elements
    held = memory.ELEMENT_BYTES * own.elements + machine.BETWEEN_BYTES * own.between
    assert some.elements / own.elements * held <= 4 * GIB


def test_this_machine_says_what_memory_it_has() -> None:
    assert 0 < memory.available() <= memory.total()
    assert memory.total() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory.is_short(0)
    assert not memory.is_short(memory.total())


def test_a_weight_is_not_made_twice(tmp_path: Path) -> None:
    """The most that the task's process ever held, while it was described."""
    size = 8192  # 256 MiB
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        f"        self.weight = torch.nn.Parameter(torch.empty({size}, {size}))\n"
        "    def forward(self, x):\n"
        "        return x @ self.weight * torch.ones((), device=x.device)\n"
        f"def get_inputs():\n    return [torch.randn(3, {size})]\n"
        "def get_init_inputs():\n    return []\n"
    )
    with TorchTask(path) as task:
        before = _most(task.process.pid)
        task.describe(0)
        assert _most(task.process.pid) - before < 1.6 * 4 * size * size


def _most(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmPeak:"):
            return int(line.split()[1]) << 10
    raise AssertionError
