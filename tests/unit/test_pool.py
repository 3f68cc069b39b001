"""The local pool: all results, whatever the jobs do; and as many at once as there are slots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pool_jobs
import pytest
from processes import running

from sketchc.runtime.process import pool
from sketchc.runtime.process.pool import Event, Job, LocalEngine

VISIBLE = "CUDA_VISIBLE_DEVICES"


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
        later: list[Event] = []
        again = list(engine.run([job("square", 9)], later.append))
    assert {n: r.value for n, r in found.items()} == {n: n * n for n in range(5)}
    assert sorted(event.job for event in events) == [0, 1, 2, 3, 4]
    assert [event.text for event in later] == ["squaring"]
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


def test_processes_that_are_ended_while_they_tell_stop_nobody() -> None:
    """When one dies, the pool ends the others, wherever they are."""
    for _ in range(5):
        with LocalEngine(3) as engine:
            jobs = [job("die_later", 0.1), job("chatter", 0.3), job("chatter", 0.3)]
            found = {r.job: r for r in engine.run(jobs, lambda event: None)}
        assert found[1].value > 10
        assert found[2].value > 10
        assert found[0].error == "the process that ran it ended"


def test_what_a_watcher_raises_is_raised_and_jobs_end() -> None:
    def fail(event: Event) -> None:
        msg = f"no more of {event.text}"
        raise ValueError(msg)

    with LocalEngine(2) as engine:
        found = []
        with pytest.raises(ValueError, match=r"no more of (event 0|squaring)"):
            found += engine.run([job("chatter", 0.2), job("square", 3)], fail)
        events: list[Event] = []
        assert [r.value for r in engine.run([job("square", 4)], events.append)] == [16]
    assert [event.text for event in events] == ["squaring"]


def test_compiling_and_running_have_slots_of_their_own(tmp_path: Path) -> None:
    for name in ("compiling", "running"):
        (tmp_path / name).mkdir()
    with LocalEngine(4, compiling=2, devices=pool.Devices(("3",), VISIBLE)) as engine:
        found = [
            r.value for r in engine.run([job("compile_and_run", str(tmp_path)) for _ in range(8)])
        ]
    assert max(compiling for compiling, _, _ in found) == 2
    assert {ran for _, ran, _ in found} == {1}
    assert {device for _, _, device in found} == {"3"}


def test_devices_are_those_that_the_user_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "2,5")
    assert pool.devices_here(VISIBLE, "nvidia") == pool.Devices(("2", "5"), VISIBLE)
    assert pool.devices_here("", "nvidia") == pool.CPU
    monkeypatch.delenv(VISIBLE)
    assert pool.devices_here(VISIBLE, "no_such_files") == pool.CPU


INTERRUPTED = """
import sys
from sketchc.runtime.process.pool import Job, LocalEngine
if __name__ == "__main__":
    with LocalEngine(2) as engine:
        print("ready", flush=True)
        list(engine.run([Job("sleep", "time:sleep", 600.0)] * 4))
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_pool_that_is_ended(tmp_path: Path, end: signal.Signals) -> None:
    script = tmp_path / f"interrupted_{os.getpid()}.py"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        # The script, what counts semaphores, the server, and two that sleep.
        assert wait_until(lambda: len(group_of(process.pid)) == 5)
        process.send_signal(end)
        process.wait(20)
        assert wait_until(lambda: not group_of(process.pid))
        assert not running(script.name)
    finally:
        for left in group_of(process.pid):
            os.kill(left, signal.SIGKILL)
        process.communicate()


def wait_until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


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
