"""Rows for tests of the store, and a process that writes them: `python store_cases.py FILE N COUNT`
writes COUNT verdicts as writer N and prints each id once it is committed."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any, cast

from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.store import writing
from sketchc.runtime.store.database import open_store, transaction
from sketchc.runtime.store.recording import sketch_text
from sketchc.runtime.store.schema import APPLICATION_ID as APPLICATION_ID


def verdict(
    passed: bool = True, failure: str = "", seed: int = 1, cases: int = 2
) -> dict[str, Any]:
    """In the form of `runtime.verify.verdict.to_json`."""
    shape = {"symbols": {"M": 3}}
    one = {"shape": shape, "kind": "normal", "seed": seed, "failure": failure, "reason": ""}
    return {
        "passed": passed,
        "failure": failure,
        "cases": [dict(one) for _ in range(cases)],
        "how_it_runs": "natively",
        "seed": seed,
        "versions": {"g++": "12"},
    }


def measurement(
    median: float, passed: bool = True, device: str = "a chip", m: int = 3
) -> dict[str, Any]:
    """In the form of `runtime.bench.report.to_json`."""
    return {
        "passed": passed,
        "failure": "" if passed else "numerical",
        "machine": {"name": device, "versions": {}},
        "symbols": {"M": m},
        "precision": {"name": "ieee f32"},
        "kernel": {"median": median},
        "speedup": {"of_medians": 2.0},
        "samples": {"kernel": [median] * 3, "eager": [2 * median] * 3},
        "seed": 7,
    }


def kernel(source: str, target: str = "cpp", sketch: str = "") -> writing.KernelRow:
    """A kernel with this code, made from a sketch where one is given."""
    text = sketch_text(sketch, "one") if sketch else None
    code = Kernel(target, "a chip", "one", "one", "c++", source, cast(ir.Sketch, None))
    return writing.KernelRow(code, "builtin", {"T": 16}, text)


def put(
    connection: sqlite3.Connection,
    task: str,
    source: str,
    *found: dict[str, Any],
    target: str = "cpp",
) -> list[str]:
    """Record verdicts and measurements of a kernel for a task, by their texts; returns the ids."""
    ids = []
    with transaction(connection):
        task_id = writing.put_task(connection, writing.TaskText(f"{task}.py", f"# {task}"))
        kernel_id = writing.put_kernel(connection, kernel(source, target))
        environment = writing.put_environment(connection, {"g++": "12"})
        for one in found:
            kind = "measurement" if "machine" in one else "verdict"
            ids.append(writing.put_claim(connection, kind, kernel_id, task_id, environment, one))
    return ids


def unsound(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """What SQLite finds wrong with the file and its references."""
    checks = ("PRAGMA integrity_check", "PRAGMA foreign_key_check")
    found = [tuple(row) for check in checks for row in connection.execute(check)]
    return [row for row in found if row[0] != "ok"]


def write(path: Path, writer: int, count: int) -> None:
    """As a command does it: a connection and a transaction for each verdict."""
    print("ready", flush=True)
    for number in range(count):
        with open_store(path) as connection:
            # Texts of different length, some of many pages; one for all writers.
            source = f"// {writer} {number}\n" + "x = 1;\n" * (number % 7 * 900)
            ids = put(connection, f"task {number % 3}", source, verdict(seed=number, cases=5))
        print(ids[0], flush=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
