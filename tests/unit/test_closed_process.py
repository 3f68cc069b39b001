"""A process whose ways out are closed: no files, no programs; what is loaded already goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sketchc.runtime.sandbox import seccomp

SCRIPT = """
import mmap, os, threading
from sketchc.runtime.sandbox import seccomp
if not seccomp.close_ways_out():
    print("no filter here")
    raise SystemExit
def tried(what):
    try:
        what()
    except PermissionError:
        return "refused"
    return "done"
print(tried(lambda: os.open("/etc/hostname", os.O_RDONLY)))
print(tried(lambda: os.open("/tmp", os.O_TMPFILE | os.O_RDWR)))
print(tried(lambda: os.execv("/bin/true", ["true"])))
print(tried(lambda: os.posix_spawn("/bin/true", ["true"], {})))
print(tried(lambda: mmap.mmap(-1, 1 << 20).write(b"memory")))
worker = threading.Thread(target=lambda: print("thread"))
worker.start()
worker.join()
"""


def test_a_closed_process_opens_and_starts_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.split("\n")
    if lines[0] == "no filter here":
        pytest.skip("no seccomp on this machine")
    assert lines == [*["refused"] * 4, "done", "thread", ""], done.stderr


def test_machines_without_a_table_have_no_filter() -> None:
    assert seccomp.closed_program("sparc") is None
    for machine in ("x86_64", "aarch64"):
        program = seccomp.closed_program(machine)
        assert program is not None
        assert len(program) % 8 == 0
