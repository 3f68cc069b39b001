"""Several files in one command: the same outcomes as one by one, in their order, with progress."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import started
from toolchains import require

EXAMPLES = Path(__file__).parents[2] / "examples"
TASK = """
import numpy


def doubled(x):
    return 2 * x


def get_inputs():
    return [numpy.linspace(-3, 3, 37, dtype=numpy.float32)]
"""
KERNEL = """
#include <cstdint>
extern "C" int64_t {name}(const float *X, float *Y, int64_t N)
{{
    for (int64_t i = 0; i < N; ++i) {{ {body} }}
    return 0;
}}
"""
SKETCH = """
sketch doubled {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;

    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, 2, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
#: File, text, what its verdict's class is, and the word in the table.
FILES = {
    "right.cpp": (KERNEL.format(name="doubled", body="Y[i] = X[i] + X[i];"), "", "passed"),
    "wrong.cpp": (KERNEL.format(name="doubled", body="Y[i] = X[i];"), "numerical", "numerical"),
    "broken.cpp": (KERNEL.format(name="doubled", body="Y[i] = ;"), "syntax", "syntax"),
    "crashes.cpp": (
        KERNEL.format(name="doubled", body="*(volatile int *)8 = 1;"),
        "illegal_access",
        "illegal_access",
    ),
    "good.sketch": (SKETCH, "", "passed"),
    "bad.sketch": (SKETCH.replace("mul(", "mull("), None, "does not lower"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("cpp")
    place = tmp_path_factory.mktemp("pool")
    (place / "task.py").write_text(TASK)
    for name, (text, _, _) in FILES.items():
        (place / name).write_text(text)
    return place


def command(folder: Path, *options: str) -> list[str]:
    files = [str(folder / name) for name in FILES]
    task = ["--task", str(folder / "task.py"), "--target", "cpp", "--no-store"]
    return [sys.executable, "-m", "sketchc.cli.main", "verify", *files, *task, *options]


def outcomes(folder: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        command(folder, "--json", "--seed", "7", *options), capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)["verdicts"]


def test_at_once_is_as_one_by_one(folder: Path) -> None:
    status, found = outcomes(folder)
    assert status == 1
    assert [Path(verdict["kernel"]["path"]).name for verdict in found] == list(FILES)
    assert [v["failure"] for v in found] == [f or "" for _, f, _ in FILES.values()]
    assert [v["passed"] for v in found] == [word == "passed" for _, _, word in FILES.values()]
    again, one_by_one = outcomes(folder, "--jobs", "1")
    assert again == status
    for one, other in zip(found, one_by_one, strict=True):
        assert [c["reason"] for c in one.get("cases", [])] == [
            c["reason"] for c in other.get("cases", [])
        ]


def test_a_broken_task_is_reported_once(folder: Path) -> None:
    (folder / "raises.py").write_text(TASK.replace("return 2 * x", "raise ValueError('no luck')"))
    line = [str(folder / "raises.py") if a.endswith("task.py") else a for a in command(folder)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1
    assert "no luck" in done.stderr


def test_a_terminal_shows_progress_and_then_the_table(folder: Path) -> None:
    reader, writer = pty.openpty()
    with started(command(folder), stdout=subprocess.PIPE, stderr=writer) as process:
        os.close(writer)
        shown = b""
        while True:
            try:
                part = os.read(reader, 1 << 16)
            except OSError:  # the other side of a terminal is closed
                break
            if not part:
                break
            shown += part
        assert process.stdout is not None
        table = process.communicate(timeout=300)[0].decode()
    os.close(reader)
    assert b"verify" in shown
    assert b"/6" in shown
    for name, (_, _, word) in FILES.items():
        row = next(line for line in table.splitlines() if line.startswith(str(folder / name) + " "))
        assert word in row
    assert "2 of 6 passed" in table
