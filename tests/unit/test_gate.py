"""A worker that is told when it may start programs; nothing that it does by itself changes that."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sketchc.runtime.sandbox import confine, seccomp, worker
from sketchc.runtime.sandbox.worker import Worker

HANDLERS = """
import ctypes, os, subprocess, threading, time

KEPT = []
GO = threading.Event()
SAID = []

def start(request, arrays):
    try:
        return {"said": subprocess.run(["echo", "here"], capture_output=True).stdout.decode()}, {}
    except PermissionError:
        return {"said": "refused"}, {}

def become(request, arrays):
    try:
        os.execv("/bin/true", ["true"])
    except PermissionError:
        return {"said": "refused"}, {}

def keep(request, arrays):
    KEPT.append(subprocess.Popen(["sleep", "600"]))
    KEPT.append(subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True))
    def later():
        GO.wait()
        SAID.append(start({}, {})[0]["said"])
    KEPT.append(threading.Thread(target=later))
    KEPT[-1].start()
    return {"said": str([one.poll() for one in KEPT[:2]])}, {}

def look(request, arrays):
    GO.set()
    KEPT[2].join()
    return {"said": [[one.wait(5) for one in KEPT[:2]], SAID]}, {}

def own_filter(request, arrays):
    # A filter that allows everything, and one that would have this process answer itself.
    libc = ctypes.CDLL(None, use_errno=True)
    class Line(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte),
                    ("k", ctypes.c_uint)]
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.POINTER(Line))]
    line = Line(6, 0, 0, 0x7FFF0000)
    program = Program(1, ctypes.pointer(line))
    allowed = libc.prctl(22, 2, ctypes.byref(program), 0, 0)
    listener = libc.syscall(ctypes.c_long(request["number"]), 1, 8, ctypes.byref(program))
    return {"said": [allowed, listener]}, {}

def leave(request, arrays):
    os._exit(0)

def forks(request, arrays):
    # Processes that go on forking, from a thread that has no time for anything else.
    for _ in range(4):
        if os.fork() == 0:
            while True:
                if os.fork():
                    os._exit(0)
    return {"said": ""}, {}
"""
MODES = (confine.NAMESPACES, confine.PLAIN)
pytestmark = pytest.mark.skipif(seccomp._SECCOMP.get(os.uname().machine) is None, reason="no table")


@pytest.fixture(params=MODES)
def gated(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Worker]:
    path = tmp_path / "handlers.py"
    path.write_text(HANDLERS)
    if request.param == confine.PLAIN:
        monkeypatch.setattr(worker, "_found", worker.Isolation(confine.PLAIN, "a test says so"))
    with Worker(gated=True, readable=[path], folder=tmp_path) as made:
        made.handlers = str(path)  # type: ignore[attr-defined]
        assert said(made, "start") == "here\n"
        if not made.let_start(True):
            pytest.skip("this kernel lets nobody answer for a system call")
        yield made


def said(made: Worker, handler: str, **request: object) -> object:
    result = made.call(f"{made.handlers}:{handler}", request, timeout=20.0)  # type: ignore[attr-defined]
    assert result.reply is not None, result
    return result.reply["said"]


def test_programs_start_while_it_is_open(gated: Worker) -> None:
    for _ in range(3):
        assert gated.let_start(False)
        assert said(gated, "start") == "refused"
        assert gated.let_start(True)
        assert said(gated, "start") == "here\n"


def test_the_worker_never_becomes_another_program(gated: Worker) -> None:
    assert said(gated, "become") == "refused"
    assert said(gated, "start") == "here\n"


def test_what_was_started_ends_and_threads_are_not_exempt(gated: Worker) -> None:
    assert said(gated, "keep") == "[None, None]"
    assert gated.let_start(False)
    assert said(gated, "look") == [[-9, -9], ["refused"]]


def test_filters_of_its_own_open_nothing(gated: Worker) -> None:
    number = seccomp._SECCOMP[os.uname().machine]
    allowed, listener = said(gated, "own_filter", number=number)  # type: ignore[misc]
    assert (allowed, listener) == (0, -1)
    assert gated.let_start(False)
    assert said(gated, "start") == "refused"


def test_whoever_forks_without_end_is_ended(gated: Worker) -> None:
    assert said(gated, "forks") == ""
    assert gated.let_start(False)
    result = gated.call(f"{gated.handlers}:start", {}, timeout=20.0)  # type: ignore[attr-defined]
    assert result.reply is None or result.reply["said"] == "refused"


def test_a_worker_that_has_died_is_not_waited_for(gated: Worker) -> None:
    gated.call(f"{gated.handlers}:leave", {}, timeout=20.0)  # type: ignore[attr-defined]
    assert not gated.alive
    assert gated.let_start(False)


def test_where_there_is_no_filter_it_says_so() -> None:
    assert seccomp.asking_program("sparc") is None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = seccomp.Gate(None, theirs.fileno(), 1, lambda: iter(())).start()
        ours.sendall(seccomp.SHUT)
        ours.settimeout(10.0)
        assert ours.recv(100) == b'{"gate": "none"}\n'
        ours.shutdown(socket.SHUT_WR)
        thread.join(10.0)
        assert not thread.is_alive()
