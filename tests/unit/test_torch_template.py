"""Tasks share a process that has imported torch, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import numpy as np
import pytest

from sketchc.runtime.process import templates
from sketchc.runtime.sandbox import namespaces
from sketchc.runtime.tasks.task import TorchTask

pytestmark = pytest.mark.usefixtures("own_templates")

TASK = """
import sys, torch
from torch import nn

LEFT = "left_behind" in sys.modules
sys.modules["left_behind"] = sys

class Model(nn.Module):
    def forward(self, x):
        return x * {factor} {more}

def get_inputs():
    return [torch.ones(3)]
"""


def write(folder: Path, name: str, factor: float, more: str = "") -> Path:
    path = folder / f"{name}.py"
    path.write_text(TASK.format(factor=factor, more=more))
    return path


def outputs(task: TorchTask) -> list[float]:
    (result,) = task.reference([np.ones(3, np.float32)])
    return [float(value) for value in result]


def test_tasks_live_side_by_side(tmp_path: Path) -> None:
    seen = "+ (1.0 if LEFT else 0.0)"
    with (
        TorchTask(write(tmp_path, "a", 2.0)) as first,
        TorchTask(write(tmp_path, "b", 3.0, seen)) as second,
    ):
        assert first.process.pid != second.process.pid
        assert os.getpgid(first.process.pid) == first.process.pid
        assert outputs(first) == [2.0] * 3
        assert outputs(second) == [3.0] * 3
    assert first.process.wait() == second.process.wait() == -signal.SIGKILL


def test_what_a_process_computes_is_told_when_it_was_waited_for(tmp_path: Path) -> None:
    """To the system it is the template's child; a measurement must not take it for others' work."""
    busy = "+ sum(0.0 for _ in range(8_000_000))"
    before = templates.ForkedProcess.seconds
    with TorchTask(write(tmp_path, "a", 2.0, busy)) as task:
        started = time.process_time()
        assert outputs(task) == [2.0] * 3
        assert time.process_time() - started < 0.1  # it was not this process that computed
    assert templates.ForkedProcess.seconds - before > 0.1


def test_a_first_run_without_data_imports_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch would import dynamo for its own functions, a second of each task's time."""
    monkeypatch.setenv("TORCH_A_TEMPLATE_OF_ITS_OWN", "1")
    seen = "+ (1.0 if 'torch._dynamo' in sys.modules else 0.0)"
    with TorchTask(write(tmp_path, "a", 2.0, seen)) as task:
        wide = attrs.evolve(task.describe().inputs[0], shape=(5,))
        assert [each.shape for each in task.probe([wide], {})[0]] == [(5,)]
        assert outputs(task) == [2.0] * 3


def test_a_template_that_is_gone_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 2.0)
    with TorchTask(path) as task:
        assert isinstance(task.process, templates.ForkedProcess)
        template = task.process.template
        _kill(template)
        assert outputs(task) == [2.0] * 3
        assert task.process.template is not template
    with TorchTask(path) as task:
        assert outputs(task) == [2.0] * 3


def test_a_task_does_not_outlive_its_template(tmp_path: Path) -> None:
    with TorchTask(write(tmp_path, "a", 2.0)) as task:
        process = task.process
        templates.close_templates()
        assert process.wait() == -signal.SIGKILL


# ---------------------------------------------------------------- of other processes

#: Tells whose fork the task's process is, then waits.
OTHER = """
import ctypes, sys
from pathlib import Path
if sys.argv[2:]:
    ctypes.CDLL(None).prctl(int(sys.argv[2]), 1, 0, 0, 0)
from sketchc.runtime.tasks.task import TorchTask
with TorchTask(Path(sys.argv[1])) as task:
    print(task.process.pid, task.process.template.process is None, flush=True)
    sys.stdin.readline()
"""


def _kill(template: templates.Template) -> None:
    assert template.process is not None
    template.process.kill()
    template.process.wait()


def _other(path: Path, *control: str) -> tuple[subprocess.Popen[str], int, bool]:
    """Another process that has loaded the task; the number of the task's, and whether the template
    of that is somebody else's. `control`: what it first does to itself, by prctl's number."""
    command = [sys.executable, "-c", OTHER, str(path), *control]
    other = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
    assert other.stdout is not None
    number, borrowed = other.stdout.readline().split()
    return other, int(number), borrowed == "True"


def _gone(process: int) -> bool:
    end = time.monotonic() + 30
    while os.path.exists(f"/proc/{process}") and time.monotonic() < end:
        time.sleep(0.02)
    return not os.path.exists(f"/proc/{process}")


@pytest.fixture
def shared(
    own_templates: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(templates.SHARED, str(tmp_path_factory.mktemp("t")))


@pytest.mark.usefixtures("shared")
def test_processes_share_a_template_and_end_what_they_started(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 2.0)
    with TorchTask(path) as task:
        assert outputs(task) == [2.0] * 3
        other, process, borrowed = _other(path)
        assert borrowed
        other.kill()  # it has no chance to say that it goes
        other.communicate()
        assert _gone(process)
        assert outputs(task) == [2.0] * 3


@pytest.mark.usefixtures("shared")
def test_a_fork_of_a_template_outlives_it_and_another_takes_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 2.0)
    first, _, borrowed = _other(path)
    assert not borrowed
    with TorchTask(path) as task:
        assert isinstance(task.process, templates.ForkedProcess)
        assert task.process.template.process is None
        first.kill()
        first.communicate()
        assert outputs(task) == [2.0] * 3
        second, process, borrowed = _other(path)
        assert not borrowed
        second.communicate("")
        assert _gone(process)
        assert outputs(task) == [2.0] * 3


@pytest.mark.usefixtures("shared")
def test_who_waits_for_a_template_that_dies_gets_one_of_its_own(tmp_path: Path) -> None:
    """Its imports take a second, in which a process that connects may lose it."""
    path = write(tmp_path, "a", 2.0)
    with TorchTask(path) as task:
        assert isinstance(task.process, templates.ForkedProcess)
        one = task.process.template
        assert one.process is not None
        os.kill(one.process.pid, signal.SIGSTOP)
        other = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(path)], stdin=-1, stdout=-1, text=True
        )
        time.sleep(2)
        _kill(one)
        assert other.stdout is not None
        assert other.stdout.readline().split()[1] == "False"
        other.communicate("")


@pytest.mark.usefixtures("shared")
def test_a_process_that_is_shut_in_is_given_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 2.0)
    with TorchTask(path) as task:
        assert outputs(task) == [2.0] * 3
        other, _, borrowed = _other(path, str(namespaces.PR_SET_NO_NEW_PRIVS))
        other.communicate("")
        assert not borrowed
