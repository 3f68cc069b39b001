"""Worker processes: arrays go both ways, and nothing the handler does reaches the parent."""

from __future__ import annotations

import secrets
import signal
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from processes import running

from sketchc.runtime.process.templates import template
from sketchc.runtime.sandbox.worker import Worker, run_worker

HANDLERS = """
import os, subprocess, sys, time
import numpy as np

def echo(request, arrays):
    return {"request": request, "names": sorted(arrays)}, arrays

def secret(request, arrays):
    return {"names": sorted(os.environ)}, {}

def abort(request, arrays):
    print("about to abort", flush=True)
    os.abort()

def leave(request, arrays):
    sys.exit(3)

def fail(request, arrays):
    raise ValueError("no such luck")

def hang(request, arrays):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", request["mark"]])
    time.sleep(600)

def orphan(request, arrays):
    sleeper = "import time; time.sleep(600)"
    child = [sys.executable, "-c", sleeper, request["mark"]]
    subprocess.Popen(child, start_new_session=True)
    return {}, {}

def busy(request, arrays):
    while True:
        pass

def hungry(request, arrays):
    return {}, {"x": np.ones(request["bytes"], np.uint8)}

def garbled(request, arrays):
    return {"x": 1}, {"x": np.array([object()], dtype=object)}

def misplaced(request, arrays):
    return {"x": {"$array": request["place"], "dtype": "int8", "shape": request["shape"]}}, {}
"""


@pytest.fixture
def handlers(tmp_path: Path) -> str:
    path = tmp_path / "handlers.py"
    path.write_text(HANDLERS)
    return str(path)


@pytest.mark.parametrize("place", [0, -1, 1e400])
@pytest.mark.parametrize("shape", [[0], [1], [1 << 62, 1 << 62], [-1], "x"], ids=str)
def test_an_array_in_an_answer_is_refused(handlers: str, place: float, shape: object) -> None:
    """Whoever reads the answer counts on plain JSON, and on no memory that was not asked for."""
    result = run_worker(f"{handlers}:misplaced", {"place": place, "shape": shape})
    assert not result.ok
    assert "cannot be read" in result.error


PRELOADED = pytest.mark.parametrize("preload", [(), ("numpy",)], ids=["fresh", "forked"])


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int64", "int32", "int8", "uint8", "uint32", "bool"]
)
def test_arrays_come_back_bit_for_bit(handlers: str, dtype: str) -> None:
    array = np.arange(-6, 6).reshape(3, 4).astype(dtype)
    result = run_worker(f"{handlers}:echo", {"a": [1, "b"]}, {"X y": array, "e": array[:, :0]})
    assert result.reply == {"request": {"a": [1, "b"]}, "names": ["X y", "e"]}
    np.testing.assert_array_equal(result.arrays["X y"], array)
    assert result.arrays["X y"].dtype == array.dtype
    assert result.arrays["e"].shape == (3, 0)


def test_bfloat16_keeps_its_type(handlers: str) -> None:
    array = np.array([1.5, -0.0, np.nan, 3e38], ml_dtypes.bfloat16)
    result = run_worker(f"{handlers}:echo", {}, {"x": array})
    assert result.arrays["x"].dtype == array.dtype
    np.testing.assert_array_equal(result.arrays["x"].view(np.uint16), array.view(np.uint16))


def test_rank_zero_and_non_contiguous(handlers: str) -> None:
    strided = np.arange(12.0).reshape(3, 4).T[::2]
    result = run_worker(f"{handlers}:echo", {}, {"a": np.array(2.0), "b": strided})
    assert result.arrays["a"].shape == ()
    np.testing.assert_array_equal(result.arrays["b"], strided)


@PRELOADED
def test_the_environment_holds_no_secrets(
    handlers: str, preload: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hidden")
    result = run_worker(f"{handlers}:secret", {}, environment={"GIVEN": "1"}, preload=preload)
    assert result.reply is not None
    assert "SOME_API_KEY" not in result.reply["names"]
    assert {"GIVEN", "PATH"} <= set(result.reply["names"])


@PRELOADED
def test_an_abort_is_reported_with_what_was_printed(
    handlers: str, preload: tuple[str, ...]
) -> None:
    result = run_worker(f"{handlers}:abort", {}, preload=preload)
    assert not result.ok
    assert result.exit_code < 0
    assert "SIGABRT" in result.describe()
    assert "about to abort" in result.output


@PRELOADED
def test_leaving_and_raising_are_told_apart(handlers: str, preload: tuple[str, ...]) -> None:
    left = run_worker(f"{handlers}:leave", {}, preload=preload)
    assert (left.ok, left.exit_code, left.error) == (False, 3, "")
    raised = run_worker(f"{handlers}:fail", {}, preload=preload)
    assert raised.error == "ValueError: no such luck"
    assert "in fail" in raised.traceback


@PRELOADED
def test_a_timeout_kills_the_whole_group(handlers: str, preload: tuple[str, ...]) -> None:
    mark = secrets.token_hex(8)
    result = run_worker(f"{handlers}:hang", {"mark": mark}, timeout=1.5, preload=preload)
    assert result.timed_out
    assert "no answer within" in result.describe()
    assert not running(mark)


@PRELOADED
def test_what_the_worker_started_ends_with_it(handlers: str, preload: tuple[str, ...]) -> None:
    mark = secrets.token_hex(8)
    result = run_worker(f"{handlers}:orphan", {"mark": mark}, preload=preload)
    assert result.reply is not None
    assert not running(mark)


@PRELOADED
def test_the_memory_cap_holds(handlers: str, preload: tuple[str, ...]) -> None:
    enough = run_worker(
        f"{handlers}:hungry", {"bytes": 1 << 20}, memory_bytes=4 << 30, preload=preload
    )
    assert enough.arrays["x"].size == 1 << 20
    too_much = run_worker(
        f"{handlers}:hungry", {"bytes": 6 << 30}, memory_bytes=4 << 30, preload=preload
    )
    assert not too_much.ok
    assert "Memory" in too_much.describe()


def test_object_arrays_are_refused(handlers: str) -> None:
    result = run_worker(f"{handlers}:garbled", {})
    assert not result.ok


@PRELOADED
def test_scratch_folders_are_removed(
    handlers: str, preload: tuple[str, ...], tmp_path: Path
) -> None:
    place = tmp_path / "scratch"
    place.mkdir()
    run_worker(f"{handlers}:echo", {}, folder=place, preload=preload)
    run_worker(f"{handlers}:abort", {}, folder=place, preload=preload)
    assert list(place.iterdir()) == []


def test_a_server_that_cannot_start_is_no_obstacle(handlers: str) -> None:
    result = run_worker(f"{handlers}:echo", {}, preload=("no_such_module_anywhere",))
    assert result.ok


def test_requests_to_one_server_do_not_see_each_other(handlers: str) -> None:
    for name in ("abort", "echo", "leave", "echo"):
        result = run_worker(f"{handlers}:{name}", {}, preload=("numpy",))
        assert result.ok == (name == "echo")


def test_a_handler_of_an_installed_module() -> None:
    result = run_worker("json:no_such_function", {})
    assert "no_such_function" in result.error


@pytest.mark.usefixtures("own_templates")
def test_the_template_of_compiled_kernels_has_one_thread_and_no_blas() -> None:
    """What starts threads before a fork leaves locks behind; what a kernel finds loaded it may
    use."""
    one = template(sys.executable, ("sketchc.runtime.toolchains.native.worker",))
    assert not one.missing
    assert one.process is not None
    place = Path("/proc") / str(one.process.pid)
    threads = [line for line in (place / "status").read_text().splitlines() if "Threads" in line]
    assert threads[0].split()[1] == "1"
    mapped = (place / "maps").read_text()
    assert not [name for name in ("blas", "mkl", "libtorch", "numpy") if name in mapped]


def test_one_worker_serves_several_calls_and_tells_when_it_is_gone(handlers: str) -> None:
    with Worker(readable=[handlers], preload=("numpy",)) as worker:
        first = worker.call(f"{handlers}:echo", {"a": 1}, {"x": np.arange(3)})
        second = worker.call(f"{handlers}:fail", {})
        third = worker.call(f"{handlers}:echo", {"a": 2}, {"x": np.arange(5)})
        assert first.reply == {"request": {"a": 1}, "names": ["x"]}
        assert second.error == "ValueError: no such luck"
        assert third.arrays["x"].tolist() == [0, 1, 2, 3, 4]
        assert worker.alive
        worker.call(f"{handlers}:abort", {})
        assert not worker.alive


def test_processor_time_is_bounded(handlers: str) -> None:
    result = run_worker(f"{handlers}:busy", {}, cpu_seconds=1, timeout=60)
    assert not result.ok
    assert not result.timed_out
    assert -result.exit_code in (signal.SIGXCPU, signal.SIGKILL)
