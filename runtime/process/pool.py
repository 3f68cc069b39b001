"""A pool of processes that takes jobs and returns results, in any order, and events meanwhile.

A job is a function by name and one argument: both travel to another process, or another machine, so
the argument and the result are plain data (they are pickled) and the function lives in a module.
The processes of a `LocalEngine` share slots for compiling and for its devices. They are forked from
a server that has imported the command line's modules and nothing else, so that starting one takes a
moment. If a process dies, its job is tried once more, by itself, in a fresh pool, and then reported
as failed; the other jobs go on. Events travel as packets over a socket, which arrive whole or not
at all: a queue of `multiprocessing` has a lock, and a process that is killed while it holds that
lock stops all others, for ever.
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
#: Seconds between two checks whether a process has died.
_LOOK = 1.0
#: The last packet of a run.
_END = b"end"
#: The most characters of an event's text that are sent, and the most bytes of one packet.
_MOST_CHARACTERS = 1000
_MOST_BYTES = 1 << 16


@attrs.frozen
class Job:
    """A call of `function` ("package.module:function") with `argument`; `name` is for people."""

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
    """The locks that a candidate holds while it uses a core or a device. Compiling takes a core,
    running a device; the two are counted apart, so that one candidate compiles while another runs.
    This base class never waits; a pool gives its processes slots that they share."""

    def compiling(self) -> AbstractContextManager[None]:
        """A context to be held while a compiler runs."""
        return nullcontext()

    def running(self) -> AbstractContextManager[None]:
        """A context to be held during a run or measurement: no other process uses the device."""
        return nullcontext()

    def alone(self) -> AbstractContextManager[None]:
        """A context around a run during which no other process may compile, or run on another
        device. The run itself still takes its own device with `running` inside this context."""
        return nullcontext()


_current = Slots()


def slots() -> Slots:
    """The slots that this process waits for before it compiles or runs."""
    return _current


def use(chosen: Slots) -> None:
    """Make `chosen` the slots that this process waits for from now on."""
    global _current
    _current = chosen


@attrs.frozen
class Devices:
    """The devices that kernels run on. `names` are device numbers as text, of which a process sees
    the one that the environment variable `variable` names to the driver; or the CPU alone."""

    names: tuple[str, ...] = ("cpu",)
    variable: str = ""


CPU = Devices()


class _SharedSlots(Slots):
    """The slots that all processes of one pool share; a queue holds the names of free devices."""

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
    """Set the environment variable `name` to `value` within the block, and restore it after."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


#: In a process of the pool: the socket that events go to, and the number of the job that it runs.
_events: socket.socket | None = None
_job = 0


def tell(text: str, done: int = 0, total: int = 0) -> None:
    """Send an `Event` of the current job to the process that watches the pool. An event that does
    not fit into the socket's buffer is lost: a job never waits for the watcher."""
    if _events is not None:
        event = Event(_job, text[:_MOST_CHARACTERS], done, total)
        with contextlib.suppress(OSError):
            _events.send(json.dumps(attrs.astuple(event)).encode(), socket.MSG_DONTWAIT)


def _begin(
    shared: _SharedSlots, events: socket.socket, place: str, environment: dict[str, str]
) -> None:
    """Set up a new process of the pool: it gets the working directory `place` and the `environment`
    of the process that started the pool, since the fork server may be older than both. Ctrl-C is
    ignored here: it is for the process that has the terminal."""
    global _events
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use(shared)
    _events = events
    threading.Thread(target=_end_with_receiver, args=(events,), daemon=True).start()


def _end_with_receiver(events: socket.socket) -> None:
    """End this process when the process with the other end of `events` has ended, for whatever
    reason. The processes that this one has started end with it."""
    ended = select.poll()
    ended.register(events, 0)  # nothing but POLLHUP and POLLERR
    ended.poll()
    os._exit(1)


def _perform(number: int, function: str, argument: Any) -> Any:
    """Run job `number` in a process of the pool: returns `function` of `argument`."""
    global _job
    _job = number
    return named(function)(argument)


class LocalEngine:
    """`workers` processes, of which `compiling` may compile at once, one run for each of `devices`.

    A context manager that ends its processes. By default there is one process for each core and one
    more for each device, so that the cores stay busy while candidates run.
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
        """Yield the results of `jobs` as they come; `watch` is called with events in between."""
        listed = list(jobs)
        with self._watched_by(watch):
            try:
                lost = yield from self._all(listed, range(len(listed)))
                # Nobody knows which job broke the pool: each is tried again by itself.
                for number in lost:
                    for again in (yield from self._all(listed, [number])):
                        yield Result(again, error="the process that ran it ended")
            except BaseException:  # nobody will take the remaining results, nor the events
                self._stop()
                raise

    @contextmanager
    def _watched_by(self, watch: Callable[[Event], None] | None) -> Iterator[None]:
        """Call `watch` with each event sent within the block; what `watch` raises is raised when
        the block ends."""
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
        """Receive events until `_END` or a closed socket, and pass them to `watch` until it raises;
        what it raises goes into `failures`."""
        while (packet := self._ours.recv(_MOST_BYTES)) not in (_END, b""):
            if watch is None or failures:
                continue
            try:
                watch(Event(*json.loads(packet)))
            except Exception as error:
                failures.append(error)

    def _all(self, jobs: list[Job], numbers: Iterable[int]) -> Generator[Result, None, list[int]]:
        """Yield the results of the jobs `numbers` as they come; returns the numbers of the jobs
        that have no result because a process of the pool ended."""
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
        """Whether a process of the pool has ended. The executor itself watches only the processes
        that it knew when it last had work, which may leave out the one that it started last."""
        processes = (self._executor and self._executor._processes) or {}
        return any(process.exitcode is not None for process in list(processes.values()))

    def _start(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # Both are started with `python -c`, which imports from the folder that the user is in
            # before anything else: a candidate in it may be called subprocess.py. The variable is
            # set for the fork server and the resource tracker alone.
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
        """End the processes of the pool, whatever they are doing, with all that they started."""
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
    """The devices that the driver's environment variable `variable` lists; where it is unset, those
    whose files in /dev have names that begin with `files`. The CPU where there are none."""
    if not variable:
        return CPU
    visible = os.environ.get(variable)
    if visible:
        found = [name for name in visible.split(",") if name]
    else:
        numbers = [n[len(files) :] for n in os.listdir("/dev") if n.startswith(files)]
        found = sorted(filter(str.isdigit, numbers))
    return Devices(tuple(found), variable) if found else CPU
