"""A pool of processes: jobs in, results out, in any order, and events on the way.

A job is a function by name and one argument: both travel to another process, or another machine, so
the argument and the result are plain data (they are pickled) and the function lives in a module.
The processes of a `LocalEngine` share slots for compiling and for its devices. They are forked from
a server that has imported the command line's modules and nothing else, so that starting one takes a
moment. One that dies takes its job along: the job is tried once more, by itself, in a fresh pool,
and then reported; the others go on. Events travel as packets over a socket, which arrive whole or
not at all: a queue of `multiprocessing` has a lock, and a process that is killed while it holds
that lock stops all others, for ever.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import select
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from typing import Any

import attrs

from sketchc.runtime.process.program import named
from sketchc.runtime.process.templates import SHARED

#: Imported once, by the server that the processes come from.
_PRELOADED = ["sketchc.cli.verify_files", "sketchc.runtime.verify.verify"]
_SAFE_PATH = "PYTHONSAFEPATH"
#: Seconds that a process has to end when it is asked to.
_GRACE = 1.0
#: Seconds between two looks whether a process has died.
_LOOK = 1.0
#: The last packet of a run.
_END = b"end"
#: What is shown of a text, and the longest packet.
_MOST_CHARACTERS = 1000
_MOST_BYTES = 1 << 16


@attrs.frozen
class Job:
    """`function` ("package.module:function") of one argument; `name` is for people."""

    name: str
    function: str
    argument: Any


@attrs.frozen
class Event:
    """Something to show while a job runs: `text` for people, `done` of `total` parts."""

    job: int
    text: str
    done: int = 0
    total: int = 0


@attrs.frozen
class Result:
    """The result of the job at place `job` of the list: its value, or why there is none.

    `error` is one line, "" for none: the process that ran it ended, or the function raised.
    """

    job: int
    value: Any = None
    error: str = ""


# ---------------------------------------------------------------- slots


class Slots:
    """What a candidate asks for before it takes a core or a device. Compiling takes a core, running
    a device: they are counted apart, so that one candidate compiles while another runs. Here nobody
    waits; a pool gives its processes slots that they share."""

    def compiling(self) -> AbstractContextManager[None]:
        """For the time that a compiler runs."""
        return nullcontext()

    def running(self) -> AbstractContextManager[None]:
        """For the time of a run or measurement: nobody else uses the device meanwhile."""
        return nullcontext()

    def alone(self) -> AbstractContextManager[None]:
        """Around a run for which nobody else may compile, or run on another device. A device is
        asked for within, as ever."""
        return nullcontext()


_current = Slots()


def slots() -> Slots:
    """What this process waits for."""
    return _current


def use(chosen: Slots) -> None:
    """From now on this process waits for these."""
    global _current
    _current = chosen


@attrs.frozen
class Devices:
    """What kernels run on: numbers of devices, as text, of which a process sees the one that
    `variable` names to the driver; or the CPU, where there is none."""

    names: tuple[str, ...] = ("cpu",)
    variable: str = ""


CPU = Devices()


class _SharedSlots(Slots):
    """Slots of all processes of one pool. Its queue holds the names of free devices."""

    def __init__(self, context: BaseContext, compiling: int, devices: Devices) -> None:
        self._compiling = context.BoundedSemaphore(compiling)
        self._variable = devices.variable
        self._most, self._spare = compiling, len(devices.names) - 1
        self._alone = context.Lock()
        self._devices: Any = context.SimpleQueue()
        for device in devices.names:
            self._devices.put(device)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        with self._compiling:
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._alone, contextlib.ExitStack() as held:  # two at once would wait for each other
            for _ in range(self._most):
                held.enter_context(self._compiling)
            for _ in range(self._spare):
                held.callback(self._devices.put, self._devices.get())
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        device = self._devices.get()
        try:
            with _variable(self._variable, device) if self._variable else nullcontext():
                yield
        finally:
            self._devices.put(device)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """A variable of the environment has this value for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


#: In a process of the pool: where events go, and the job that it is at.
_events: socket.socket | None = None
_job = 0


def tell(text: str, done: int = 0, total: int = 0) -> None:
    """From within a job: let whoever watches know. What that has no room for is lost: a job never
    waits for it."""
    if _events is not None:
        event = Event(_job, text[:_MOST_CHARACTERS], done, total)
        with contextlib.suppress(OSError):
            _events.send(json.dumps(attrs.astuple(event)).encode(), socket.MSG_DONTWAIT)


def _begin(
    shared: _SharedSlots, events: socket.socket, place: str, environment: dict[str, str]
) -> None:
    """In a new process of the pool, which is to stand where the one that asked stands: the server
    that forked it may be older. Ctrl-C is for the process that has the terminal."""
    global _events
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use(shared)
    _events = events
    threading.Thread(target=_end_with_receiver, args=(events,), daemon=True).start()


def _end_with_receiver(events: socket.socket) -> None:
    """End this process when the one with the other end has ended, however that was. What it has
    started ends with it."""
    ended = select.poll()
    ended.register(events, 0)  # nothing but POLLHUP and POLLERR
    ended.poll()
    os._exit(1)


def _perform(number: int, function: str, argument: Any) -> Any:
    """In a process of the pool: one job."""
    global _job
    _job = number
    return named(function)(argument)


class LocalEngine:
    """`workers` processes, of which `compiling` may compile at once, one run for each of `devices`.

    A context manager that ends what it started. By default there is a process more than there are
    cores, so that the cores stay busy while one candidate runs.
    """

    def __init__(
        self,
        workers: int | None = None,
        compiling: int | None = None,
        devices: Devices = CPU,
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        self._devices = devices
        self._compiling = compiling or cores
        self.workers = workers or cores + len(devices.names)
        self._context: Any = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._executor: ProcessPoolExecutor | None = None
        # Where events arrive, and the end that travels to the processes when they start.
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # What one process has imported serves the others.
        self._templates = tempfile.TemporaryDirectory(prefix="sketchc-")

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._ours.shutdown(socket.SHUT_RDWR)  # what still listens ends: processes, a thread
        self._ours.close()
        self._theirs.close()
        self._templates.cleanup()

    def run(
        self, jobs: Iterable[Job], watch: Callable[[Event], None] | None = None
    ) -> Iterator[Result]:
        """The results as they come; `watch` hears of progress in between."""
        listed = list(jobs)
        with self._watched_by(watch):
            try:
                lost = yield from self._all(listed, range(len(listed)))
                # Whose fault it was nobody knows: each by itself.
                for number in lost:
                    for again in (yield from self._all(listed, [number])):
                        yield Result(again, error="the process that ran it ended")
            except BaseException:  # nobody takes the other results, nor hears of these jobs
                self._stop()
                raise

    @contextmanager
    def _watched_by(self, watch: Callable[[Event], None] | None) -> Iterator[None]:
        """`watch` hears of what is sent; what it raises is raised when the block ends."""
        failures: list[Exception] = []
        listener = threading.Thread(target=self._listen, args=(watch, failures), daemon=True)
        listener.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # closed: whoever listened knows
                self._theirs.send(_END)
            listener.join()
        if failures:
            raise failures[0]

    def _listen(self, watch: Callable[[Event], None] | None, failures: list[Exception]) -> None:
        """Take events until the end, also when nobody wants them any more."""
        while (packet := self._ours.recv(_MOST_BYTES)) not in (_END, b""):
            if watch is None or failures:
                continue
            try:
                watch(Event(*json.loads(packet)))
            except Exception as error:
                failures.append(error)

    def _all(self, jobs: list[Job], numbers: Iterable[int]) -> Generator[Result, None, list[int]]:
        """The results as they come; returns the numbers of jobs whose process or pool ended."""
        executor = self._start()
        futures: dict[Future[Any], int] = {}
        left, lost = list(numbers), []
        with contextlib.suppress(BrokenProcessPool):
            while left:
                job = jobs[left[0]]
                future = executor.submit(_perform, left[0], job.function, job.argument)
                futures[future] = left.pop(0)
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, _LOOK, FIRST_COMPLETED)
            if not done and self._somebody_died():
                left += [futures[future] for future in waiting]
                break
            for future in done:
                number = futures[future]
                try:
                    yield Result(number, future.result())
                except BrokenProcessPool:
                    lost.append(number)
                except Exception as error:  # a job's own: reported with the job
                    yield Result(number, error=f"{type(error).__name__}: {error}")
        if left or any(isinstance(f.exception(), BrokenProcessPool) for f in futures):
            self._stop()
        return lost + left

    def _somebody_died(self) -> bool:
        """Whether a process of the pool has ended. The executor looks at those it knew when it last
        had something to do, which may leave out the one that it started last."""
        processes = (self._executor and self._executor._processes) or {}
        return any(process.exitcode is not None for process in list(processes.values()))

    def _start(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # Both are started with `python -c`, which imports from the folder that the user is in
            # before anything else: a candidate in it may be called subprocess.py. The variable is
            # for what processes are forked from, and for what counts semaphores, alone.
            with _variable(_SAFE_PATH, "1"):
                resource_tracker.ensure_running()
                forkserver.ensure_running()
            shared = _SharedSlots(self._context, self._compiling, self._devices)
            environment = {SHARED: self._templates.name, **os.environ}
            self._executor = ProcessPoolExecutor(
                self.workers,
                mp_context=self._context,
                initializer=_begin,
                initargs=(shared, self._theirs, os.getcwd(), environment),
            )
        return self._executor

    def _stop(self) -> None:
        """End the processes, whatever they are doing; what they started ends with them."""
        executor, self._executor = self._executor, None
        if executor is None:
            return
        running = list((executor._processes or {}).values())
        results: Any = executor._result_queue
        executor.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()
        for process in running:
            process.join(_GRACE)
            if process.is_alive():
                process.kill()
                process.join()
        # A thread of the executor may be reading a result of which nobody sends the rest.
        results._writer.close()


def devices_here(variable: str, files: str) -> Devices:
    """The devices of this machine whose driver hides some by `variable`, and whose files in /dev
    begin with `files`; the CPU where there are none."""
    if not variable:
        return CPU
    visible = os.environ.get(variable)
    if visible:
        found = [name for name in visible.split(",") if name]
    else:
        numbers = [n[len(files) :] for n in os.listdir("/dev") if n.startswith(files)]
        found = sorted(filter(str.isdigit, numbers))
    return Devices(tuple(found), variable) if found else CPU
