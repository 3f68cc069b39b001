"""The pool of this machine: processes that share slots for compiling and for its devices.

The processes are forked from a server that has imported the command line's modules and nothing
else, so that starting one takes a moment. One that dies takes its job along: the job is tried once
more, by itself, in a fresh pool, and then reported; the others go on.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from typing import Any

from sketchc.runtime.process import events, slots
from sketchc.runtime.process.engine import Event, Job, Result

#: Imported once, by the server that the processes come from.
_PRELOADED = ["sketchc.cli.verify_files", "sketchc.runtime.verify.verify"]
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_SAFE_PATH = "PYTHONSAFEPATH"
#: Seconds that a process has to end when it is asked to.
_GRACE = 1.0
#: Seconds between two looks whether a process has died.
_LOOK = 1.0


class _SharedSlots:
    """Slots of all processes of one pool. `devices` holds the names of those that are free: a GPU's
    number, or "cpu"."""

    def __init__(self, context: BaseContext, compiling: int, devices: list[str]) -> None:
        self._compiling = context.BoundedSemaphore(compiling)
        self._most, self._spare = compiling, len(devices) - 1
        self._alone = context.Lock()
        self._devices: Any = context.SimpleQueue()
        for device in devices:
            self._devices.put(device)

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        with self._compiling:
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._alone, contextlib.ExitStack() as held:  # two at once would wait for each other
            for _ in range(self._most):
                held.enter_context(self._compiling)
            for _ in range(self._spare):
                held.callback(self._devices.put, self._devices.get())
            yield

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        device = self._devices.get()
        before = os.environ.get(_VISIBLE)
        if device != "cpu":
            os.environ[_VISIBLE] = device
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_VISIBLE, None)
            else:
                os.environ[_VISIBLE] = before
            self._devices.put(device)


#: In a process of the pool: where events go, and the job that it is at.
_sender: events.Sender | None = None
_job = 0


def tell(text: str, done: int = 0, total: int = 0) -> None:
    """From within a job: let whoever watches know."""
    if _sender is not None:
        _sender.send(Event(_job, text, done, total))


def _begin(
    shared: _SharedSlots, sender: events.Sender, place: str, environment: dict[str, str]
) -> None:
    """In a new process of the pool, which is to stand where the one that asked stands: the server
    that forked it may be older. Ctrl-C is for the process that has the terminal."""
    global _sender
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    slots.use(shared)
    _sender = sender
    sender.end_with_receiver()


def _perform(number: int, function: str, argument: Any) -> Any:
    """In a process of the pool: one job."""
    global _job
    _job = number
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(argument)


class LocalEngine:
    """`workers` processes, of which `compiling` may compile at once, one run for each of `devices`.

    See `engine.Engine`. `devices`: numbers of GPUs as text, or "cpu". By default there is a process
    more than there are cores, so that the cores stay busy while one candidate runs.
    """

    def __init__(
        self,
        workers: int | None = None,
        compiling: int | None = None,
        devices: Iterable[str] = ("cpu",),
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        self._devices = list(devices)
        self._compiling = compiling or cores
        self.workers = workers or cores + len(self._devices)
        self._context: Any = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._executor: ProcessPoolExecutor | None = None
        self._channel = events.Channel()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._channel.close()

    def run(
        self, jobs: Iterable[Job], watch: Callable[[Event], None] | None = None
    ) -> Iterator[Result]:
        """See `engine.Engine.run`."""
        listed = list(jobs)
        with self._channel.watched_by(watch):
            try:
                broken: list[int] = []
                for result in self._all(listed, range(len(listed))):
                    if isinstance(result, int):
                        broken.append(result)
                    else:
                        yield result
                # Whose fault it was nobody knows: each by itself.
                for number in broken:
                    yield from self._again(listed, number)
            except BaseException:  # nobody takes the other results, nor hears of these jobs
                self._stop()
                raise

    def _again(self, jobs: list[Job], number: int) -> Iterator[Result]:
        for result in self._all(jobs, [number]):
            if isinstance(result, int):
                yield Result(number, error="the process that ran it ended")
            else:
                yield result

    def _all(self, jobs: list[Job], numbers: Iterable[int]) -> Iterator[Result | int]:
        """Results, or the number of a job whose process, or whose pool, ended."""
        executor = self._start()
        futures: dict[Future[Any], int] = {}
        left = list(numbers)
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
                    yield number
                except Exception as error:  # a job's own: reported with the job
                    yield Result(number, error=f"{type(error).__name__}: {error}")
        if left or any(isinstance(f.exception(), BrokenProcessPool) for f in futures):
            self._stop()
        yield from left

    def _somebody_died(self) -> bool:
        """Whether a process of the pool has ended. The executor looks at those it knew when it last
        had something to do, which may leave out the one that it started last."""
        processes = (self._executor and self._executor._processes) or {}
        return any(process.exitcode is not None for process in list(processes.values()))

    def _start(self) -> ProcessPoolExecutor:
        if self._executor is None:
            _start_servers()
            shared = _SharedSlots(self._context, self._compiling, self._devices)
            self._executor = ProcessPoolExecutor(
                self.workers,
                mp_context=self._context,
                initializer=_begin,
                initargs=(shared, self._channel.sender, os.getcwd(), dict(os.environ)),
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


def _start_servers() -> None:
    """Start what processes are forked from, and what counts semaphores, unless they run.

    Both are started with `python -c`, which imports from the folder that the user is in before
    anything else: a candidate in it may be called subprocess.py. The variable is for them alone.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        resource_tracker.ensure_running()
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def devices_of(interpreted: bool, family: str) -> list[str]:
    """The devices that kernels for chips of this family run on here."""
    if family != "nvidia" or interpreted:
        return ["cpu"]
    visible = os.environ.get(_VISIBLE)
    if visible:
        return [name for name in visible.split(",") if name]
    found = [n for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()]
    return sorted(name.removeprefix("nvidia") for name in found) or ["cpu"]
