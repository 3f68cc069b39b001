"""The local pool: all results, whatever the jobs do; and as many at once as there are slots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pool_jobs
import pytest
from processes import running

from sketchc.runtime.pool import local
from sketchc.runtime.pool.engine import Event, Job
from sketchc.runtime.pool.local import LocalEngine


@pytest.fixture(autouse=True)
def found_by_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the pool import `pool_jobs` from beside this folder."""
    folder = str(Path(pool_jobs.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", folder)


def job(name: str, argument: object) -> Job:
    return Job(name, f"pool_jobs:{name}", argument)


def test_results_come_with_the_number_of_their_job_and_events_in_between() -> None:
    events: list[Event] = []
    with LocalEngine(2) as engine:
        found = {r.job: r for r in engine.run([job("square", n) for n in range(5)], events.append)}
        again = list(engine.run([job("square", 9)]))
    assert {n: r.value for n, r in found.items()} == {n: n * n for n in range(5)}
    assert sorted(event.job for event in events) == [0, 1, 2, 3, 4]
    assert [r.value for r in again] == [81]


def test_a_job_that_raises_or_dies_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    jobs = [job("fail", 2), job("square", 3), job("die", 4), *[job("square", n) for n in (5, 6)]]
    with LocalEngine(2) as engine:
        found = {result.job: result for result in engine.run(jobs)}
        assert found[0].error == "ValueError: no square of 2"
        assert found[2].error == "the process that ran it ended"
        assert [found[n].value for n in (1, 3, 4)] == [9, 25, 36]
        # What died once may have been somebody else's fault: a machine out of memory.
        once = list(engine.run([job("die_once", str(tmp_path / "tried"))]))
    assert [result.value for result in once] == ["tried"]


def test_compiling_and_running_have_slots_of_their_own(tmp_path: Path) -> None:
    for name in ("compiling", "running"):
        (tmp_path / name).mkdir()
    with LocalEngine(4, compiling=2, devices=["3"]) as engine:
        found = [
            r.value for r in engine.run([job("compile_and_run", str(tmp_path)) for _ in range(8)])
        ]
    assert max(compiling for compiling, _, _ in found) == 2
    assert {ran for _, ran, _ in found} == {1}
    assert {device for _, _, device in found} == {"3"}


def test_devices_are_those_that_the_user_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert local.devices_of(interpreted=False, family="nvidia") == ["2", "5"]
    assert local.devices_of(interpreted=True, family="nvidia") == ["cpu"]
    assert local.devices_of(interpreted=False, family="cpu") == ["cpu"]


INTERRUPTED = """
import sys
from sketchc.runtime.pool.engine import Job
from sketchc.runtime.pool.local import LocalEngine
if __name__ == "__main__":
    with LocalEngine(2) as engine:
        print("ready", flush=True)
        list(engine.run([Job("sleep", "time:sleep", 600.0)] * 4))
"""


def test_nothing_outlives_a_pool_that_is_interrupted(tmp_path: Path) -> None:
    script = tmp_path / f"interrupted_{os.getpid()}.py"
    script.write_text(INTERRUPTED)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    deadline = time.monotonic() + 10
    while (left := group_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    assert not running(script.name)


def group_of(leader: int) -> list[int]:
    """Processes of one session."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(place.parent.name))
    return found
