"""Runs of a task repeated in other processes: what follows from a process's number, or from the
order that Python's hashes give, is the same in every run of one.

Such a process is started when the first run is there to be repeated, and works while the rest of a
verification does; what it found is asked for in the end. Sets of text come in the same order in
two processes often enough, so a file that says `set` is run in more of them.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import attrs

from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import TaskFailure, TaskKilledError
from sketchc.runtime.tasks.repeat import NOT_DETERMINISTIC, difference

#: What depends on hashes or on addresses where a file says it.
_NAMES = frozenset({"set", "frozenset", "hash", "id"})
_MORE_PROCESSES = 3


@attrs.frozen
class Repetition:
    """One run: the request that repeats it, and the outputs it gave."""

    request: Mapping[str, Any]
    outputs: Sequence[Array]


class Repeater(Protocol):
    """A task in a process of its own."""

    def repeat(self, request: Mapping[str, Any]) -> list[Array]: ...

    def close(self) -> None: ...


def hash_seeds(path: Path) -> tuple[str, ...]:
    """A value of PYTHONHASHSEED for each process that a task's file is to be repeated in."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        nodes = []
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    unordered = bool(named & _NAMES) or any(isinstance(n, ast.Set | ast.SetComp) for n in nodes)
    return tuple(str(number) for number in range(1, 1 + (_MORE_PROCESSES if unordered else 1)))


class CrossProcess:
    """The other processes of one task, each asked by a thread."""

    def __init__(self, path: Path, starts: Sequence[Callable[[], Repeater]]) -> None:
        self._path = path
        self._failure: TaskFailure | None = None
        self._closed = False
        self._queues: list[SimpleQueue[Repetition | None]] = [SimpleQueue() for _ in starts]
        self._threads = [
            threading.Thread(target=self._serve, args=(start, queue), daemon=True)
            for start, queue in zip(starts, self._queues, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def repeat(self, run: Repetition) -> None:
        """Have one run repeated, some time."""
        for queue in self._queues:
            queue.put(run)

    def settle(self) -> None:
        """Wait for the answers. Raises `TaskFailure` where one differs."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        for queue in self._queues:
            queue.put(None)

    def _serve(self, start: Callable[[], Repeater], queue: SimpleQueue[Repetition | None]) -> None:
        task: Repeater | None = None
        try:
            while (run := queue.get()) is not None and not self._closed and not self._failure:
                task = start() if task is None else task
                if found := difference(run.outputs, task.repeat(run.request)):
                    why = f"a run in another process differs ({found})"
                    msg = f"{self._path}: {NOT_DETERMINISTIC.format(why=why)}"
                    self._failure = TaskFailure(msg)
        except TaskKilledError:
            pass  # for want of memory: what it would have said nobody knows
        except TaskFailure as error:
            self._failure = self._failure or error
        except (OSError, ValueError) as error:
            self._failure = self._failure or TaskFailure(f"{self._path}: {error}")
        finally:
            if task is not None:
                task.close()
