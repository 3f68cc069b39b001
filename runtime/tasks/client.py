"""A task in a process of its own, to which requests are sent: the same for every framework.

The file is the user's code, so another process runs it (`worker.server`), which this module starts,
asks and ends. Replies are plain data: shapes, numbers, and reference outputs in float64. Whatever
goes wrong in the task becomes one `TaskFailure` with the user's own line.

Runs are repeated in other processes: outputs that follow from the process id, or from the order
that hashes give, are the same in every run of one process. Such a process is started when the first
run is there to be repeated, and works while the rest of a verification does; its findings are asked
for in the end (`settle`). Sets of strings come in the same order in two processes often enough, so
a file that says `set` is run in more of them.
"""

from __future__ import annotations

import ast
import copy
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Self

import attrs
import numpy as np

from sketchc.base.types import DType
from sketchc.runtime.process import memory
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.process.messages import MessageError, Raw, array_of, raw_of
from sketchc.runtime.process.peer import (
    Peer,
    PeerEndedError,
    Process,
    Start,
    program,
    python_environment,
    signal_name,
)
from sketchc.runtime.tasks.description import (
    NONE,
    Axis,
    Built,
    Inits,
    InputSpec,
    NamedPlaces,
    OtherSpec,
    Readings,
    Scalar,
    Specs,
    State,
    TaskDescription,
    TaskFailure,
    TaskKilledError,
    TensorSpec,
    Thresholds,
    Values,
    fail,
)
from sketchc.runtime.tasks.inputs import (
    check_declared,
    check_hints,
    declared_inputs,
    other_sizes,
    own_sizes,
)
from sketchc.runtime.tasks.outline import Domain, Hint, Outline, read_outline
from sketchc.runtime.tasks.repeat import NOT_DETERMINISTIC, difference

#: Names in a file whose results depend on hashes or addresses.
_NAMES = frozenset({"set", "frozenset", "hash", "id"})
_MORE_PROCESSES = 3
#: Seconds to wait on a machine that is short of memory before going on all the same.
_PATIENCE = 30.0

#: What the process does in answer to a request.
_DOING = {
    "trace": "while it was traced",
    "load": "while the file was loaded",
    "follow": "while another list of inputs was chosen",
    "describe": "while the model and its inputs were made and forward was run on them",
    "own_inputs": "in get_inputs",
    "valid": "in valid_inputs",
    "built": "in Model.__init__",
    "reference": "in Model.forward",
    "probe": "while it was run at other sizes",
    "determinism": "while forward was run twice on the same inputs",
    "numbers": "while forward was run on its own inputs",
    "readings": "while forward was run again",
    "thresholds": "while forward was run and its numbers were noted",
}
#: Seconds that loading may take at least: it imports the framework, which no limit on a run should
#: bound.
LOAD_TIMEOUT = 120.0
#: Of a task whose own run is too large, so many runs with up to so many elements are repeated in
#: other processes.
_SMALL_RUNS = 3
_SMALL_ELEMENTS = 1 << 22
#: Seeds the random numbers of a run that is repeated.
_OTHER_SEED = 2


@attrs.frozen
class Beside:
    """What a worker that repeats another one's runs must know: the other's process id, a hash seed,
    and which of the task's lists of inputs leads there."""

    process: int
    hash_seed: str
    lead: int = 0


class TaskClient:
    """One task in its worker process; use as a context manager.

    `timeout` bounds each request to it, in seconds; loading the file, which imports a framework,
    may take `LOAD_TIMEOUT` where that is longer. See `tasks.task.Task`.
    """

    is_sketch = False
    slow = False
    framework: ClassVar[str] = ""
    #: What the process calls with its channel ("package.module:function").
    serving: ClassVar[str] = ""

    def __init__(
        self,
        path: Path,
        timeout: float = 300.0,
        outline: Outline | None = None,
        beside: Beside | None = None,
    ) -> None:
        """Start the worker and load the file; with `beside`, it repeats another worker's runs.
        Raises `TaskFailure`."""
        self.path = path
        self.beside = beside
        self.timeout = timeout
        self.outline = read_outline(path) if outline is None else outline
        #: The file as the user named it; `load_task` adds the name of one of several tasks in it.
        self.specification = str(path)
        self.notes: tuple[str, ...] = ()
        self._deterministic = False
        self._peer: Peer | None = None
        self._large = 0
        self.lead = 0
        self._written: Sequence[int] = ()
        self._cross_process: _CrossProcess | None = None
        self._built: dict[tuple[tuple[int, Scalar], ...], Built] = {}
        check_hints(self.outline)
        if not self.outline.makes_inputs:
            check_declared(self.outline)
        self._described: Mapping[str, Any] | None = None
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Start the process and load the file."""
        self._kills = memory.kills()
        self._peer = Peer(self._start())
        request = {
            "command": "load",
            "path": str(self.path.resolve()),
            "subject": self.outline.subject,
            "makes_inputs": self.outline.makes_inputs,
        }
        beside = self.beside
        if beside is not None:
            request |= {"beside": beside.process, "lead": beside.lead}
        self._ask_once(request)

    def _begin_again(self) -> None:
        """Start a process in place of one that was killed, and repeat what it had been told."""
        self._end()
        self._begin()
        if self.lead:
            self._ask_once({"command": "follow", "lead": self.lead})
        if self._described is not None:
            self._ask_once(self._described)

    @property
    def process(self) -> Process:
        """The worker's process."""
        assert self._peer is not None
        return self._peer.process

    def python(self) -> str:
        """The interpreter of the worker."""
        return sys.executable

    def environment(self) -> dict[str, str]:
        """Environment variables for the worker besides those that it may see of this process."""
        return {} if self.beside is None else {"PYTHONHASHSEED": self.beside.hash_seed}

    def prepare_beside(self, hash_seed: str) -> None:
        """Begin to prepare the start of a worker beside this one, without waiting for it."""

    def _start(self) -> Start:
        """A function that starts the worker's process."""
        return program(self.serving, self.python(), python_environment(self.environment()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        if self._cross_process is not None:
            self._cross_process.close()
        self._end()

    def _end(self) -> None:
        if self._peer is not None:
            self._peer.close()

    # ------------------------------------------------------------ requests

    def describe(self, seed: int = 0) -> TaskDescription:
        """Shapes and dtypes at the task's own sizes, made without the data where possible."""
        request = {"command": "describe", "sizes": other_sizes(self.outline), **self._own(seed)}
        reply = self._ask(request)
        self._described = request
        self._written = reply["written"]
        return TaskDescription(
            self.path,
            tuple(_specification(value) for value in reply["inputs"]),
            tuple(_specification(value) for value in reply["init_inputs"]),
            tuple(_tensor(value) for value in reply["state"]),
            reply["scalars"],
            tuple(_tensor(value) for value in reply["outputs"]),
            reply["returns"],
            frozenset(reply["defaults"]),
            reply["corrects"],
            tuple(reply["names"]),
            frozenset(reply["written"]),
            tuple(tuple(_specification(v) for v in values) for values in reply["others"]),
            (*self.outline.hints, *self._ranges(reply)),
            {**_axes(reply["axes"]), **self._declared_axes()},
            self.framework,
            self.outline.subject,
            self.outline.kind,
            reply["layout"],
            tuple(reply["lists"]),
            reply["constants"],
            reply["between"],
            frozenset(reply["unregistered"]),
        )

    def _ranges(self, reply: Mapping[str, Any]) -> Iterator[Hint]:
        """A hint for each input of which the task refuses values that its own ones do not have."""
        told = {hint.name for hint in self.outline.hints}
        for position, (least, most) in reply["ranges"].items():
            name = reply["names"][int(position)]
            if name.partition("[")[0] not in told:
                domain = Domain(least, math.inf if most is None else most)
                yield Hint(name, 0, f"{name} in [{least:g}, {domain.upper:g}]", domain)

    def follow(self, lead: int) -> None:
        """Let list `lead` of the task's inputs stand for its own ones, from the next `describe` on,
        which must be the next request. 0 is the first list."""
        if lead == self.lead:
            return
        self._ask({"command": "follow", "lead": lead})
        self.lead, self._deterministic, self._large, self.notes = lead, False, 0, ()
        if self._cross_process is not None:
            self._cross_process.close()
            self._cross_process = None

    def following(self, sizes: Mapping[str, int]) -> dict[str, tuple[Axis, ...]]:
        """The axes of the own inputs that follow each number of the file, found by setting the
        numbers to those in `sizes`, one by one; without numbers with which `get_inputs` fails."""
        others = {name: [size] for name, size in sizes.items()}
        return _axes(self._ask({"command": "describe", "sizes": others, **self._own(0)})["axes"])

    def _declared_axes(self) -> dict[str, tuple[Axis, ...]]:
        """Which axes the names in declared shapes stand for."""
        found: dict[str, tuple[Axis, ...]] = dict.fromkeys(own_sizes(self.outline), ())
        for place, parameter in enumerate(self.outline.parameters):
            extents = parameter.declared.extents if parameter.declared is not None else None
            for axis, extent in enumerate(extents or ()):
                if isinstance(extent, str):
                    found[extent] = (*found[extent], (place, axis))
        return found

    def _own(self, seed: int) -> dict[str, Any]:
        """What a request about the own inputs needs: the seed, and the inputs themselves where the
        task does not make them."""
        if self.outline.makes_inputs:
            return {"seed": seed}
        values = declared_inputs(self.outline, seed)
        return {"seed": seed, "own": _sent(values)}

    def require_deterministic(self, seed: int = 0, *, wait: bool = True) -> None:
        """Raises `TaskFailure` where the outputs differ between two runs on the same inputs, where
        the task draws random numbers, and where it gives nothing but NaN.

        Differences up to a millionth of an output's largest value pass: threads may add in another
        order. Tasks with millions of elements are not run, but looked at for random operations of
        torch, and run twice at the first small sizes. A run is repeated in another process, too;
        without `wait`, `settle` later raises where that one differed. The answer is kept, so that
        asking again costs nothing; `notes` then say what is odd.
        """
        if not self._deterministic:
            reply = self._ask({"command": "determinism", **self._own(seed)})
            self.notes, self._written = tuple(reply["notes"]), reply["written"]
            self._deterministic = True
            self._large = _SMALL_RUNS
            if run := reply.get("run"):
                self._large = 0
                first = _arrays(run.pop("outputs"))
                self._repeat_cross_process({**run, "substitutes": {}, "double": True}, first)
        if wait:
            self.settle()

    def settle(self) -> None:
        """Raises `TaskFailure` where a run in another process differed; waits for it."""
        if self._cross_process is not None:
            others, self._cross_process = self._cross_process, None
            others.settle()

    def require_numbers(self, seed: int = 0) -> None:
        """Raises `TaskFailure` where the task gives nothing but NaN on its own inputs; also for a
        large task, which `require_deterministic` did not run."""
        self._ask({"command": "numbers", **self._own(seed)})

    def require_same(self, inputs: Values, state: State, substitutes: Inits) -> None:
        """Raises `TaskFailure` where runs on these inputs differ, however large they are."""
        self._large = 0
        request = self._request(inputs, state, substitutes, double=True)
        reply = self._ask({**request, "twice": True})
        self._repeat_cross_process(request, _arrays(reply["outputs"]))
        self.settle()

    def _repeat_cross_process(self, request: Mapping[str, Any], outputs: Sequence[Array]) -> None:
        """Have a run repeated in other processes, whose outputs must be the same."""
        if self._cross_process is None:
            seeds = _hash_seeds(self.path)
            for hash_seed in seeds:
                self.prepare_beside(hash_seed)
            self._cross_process = _CrossProcess(
                self.path,
                [
                    partial(
                        type(self),
                        *(self.path, self.timeout, self.outline),
                        beside=Beside(self.process.pid, hash_seed, self.lead),
                    )
                    for hash_seed in seeds
                ],
            )
        self._cross_process.repeat(({**request, "written": self._written}, outputs))

    def repeat(self, request: Mapping[str, Any]) -> list[Array]:
        """The outputs, in this process, of a run that another process of the task has made."""
        asked = {**request, "command": "reference", "seed": _OTHER_SEED}
        return _arrays(self._ask(asked)["outputs"])

    def own_inputs(self, seed: int, variant: int = 0) -> list[Array | Scalar | None]:
        """The values of the task's `get_inputs` after seeding; None for those that are neither
        tensors nor numbers. `variant` counts the further lists of inputs."""
        if not self.outline.makes_inputs:
            return declared_inputs(self.outline, seed)
        request = {"command": "own_inputs", "seed": seed, "variant": variant}
        return _received(self._ask(request)["inputs"])

    def valid_inputs(self, inputs: Values, substitutes: Inits) -> list[Array | Scalar | None]:
        """The inputs as `valid_inputs` corrects them; `substitutes` as in `reference`."""
        request = {"command": "valid", "inputs": _sent(inputs), "substitutes": dict(substitutes)}
        return _received(self._ask(request)["inputs"])

    def built(self, substitutes: Inits) -> Built:
        """What is known of a model whose init inputs (by position) have other values."""
        key = tuple(sorted(substitutes.items()))
        if key not in self._built:
            reply = self._ask({"command": "built", "substitutes": dict(substitutes)})
            ranges = {name: (low, high) for name, (low, high) in reply["ranges"].items()}
            self._built[key] = Built(
                *(_shapes(reply["state"]), reply["scales"], ranges, reply["scalars"]),
                frozenset(reply["positive"]),
            )
        return self._built[key]

    def probe(
        self, inputs: Specs, substitutes: Inits, *, real: bool = False
    ) -> tuple[tuple[TensorSpec, ...], dict[str, tuple[int, ...]]]:
        """The outputs, and the shapes of parameters and buffers by name, for inputs of other shapes
        and init inputs (by position) of other values; made without data where possible, unless they
        are to be `real`.

        Raises `TaskFailure` when the task does not take them.
        """
        reply = self._ask({**_asked("probe", inputs, substitutes), "real": real})
        return tuple(_tensor(value) for value in reply["outputs"]), _shapes(reply["state"])

    def trace(self, inputs: Specs, substitutes: Inits) -> dict[str, Any]:
        """The operations that the task runs on inputs of these shapes, in the form of
        `worker.trace`. Raises `TaskFailure` where the task cannot be traced."""
        return self._ask(_asked("trace", inputs, substitutes))

    def reference(
        self, inputs: Values, state: State = NONE, substitutes: Inits = NONE, double: bool = True
    ) -> list[Array]:
        """The model's outputs on `inputs`, with parameters and buffers replaced by `state`.

        With `double`, floating-point inputs, parameters and outputs are float64.
        """
        request = self._request(inputs, state, substitutes, double=double)
        outputs = _arrays(self._ask(request)["outputs"])
        elements = sum(v.size for v in (*inputs, *outputs) if isinstance(v, np.ndarray))
        if self._large and double and elements <= _SMALL_ELEMENTS:
            self._large -= 1
            # The caller may write into its arrays before another process has seen them.
            inputs, state = copy.deepcopy((list(inputs), dict(state)))
            kept = self._request(inputs, state, substitutes, double=True)
            self._repeat_cross_process(kept, outputs)
        return outputs

    def readings(
        self, inputs: Values, state: State = NONE, substitutes: Inits = NONE, rtol: float = 0.0
    ) -> Readings:
        """Other outputs that the task may give, if what it rounds is off by up to `rtol`."""
        request = self._request(inputs, state, substitutes, double=True)
        reply = self._ask({**request, "command": "readings", "rtol": rtol})
        return Readings(
            tuple(tuple(_arrays(run)) for run in reply["runs"]),
            tuple(tuple(_arrays(run)) for run in reply["moved"]),
            tuple(_arrays(reply["rounded"])),
            tuple(NamedPlaces(array_of(one["array"]), one["exact"]) for one in reply["places"]),
        )

    def thresholds(
        self, inputs: Values, state: State = NONE, substitutes: Inits = NONE
    ) -> Thresholds:
        """The numbers at which the task's results may change abruptly, seen on these inputs."""
        request = self._request(inputs, state, substitutes, double=True)
        reply = self._ask({**request, "command": "thresholds"})
        return Thresholds(tuple(reply["numbers"]), reply["selects"], reply["shown"])

    def _request(
        self, inputs: Values, state: State, substitutes: Inits, double: bool
    ) -> dict[str, Any]:
        """The request for the task's outputs on these inputs."""
        return {
            "command": "reference",
            "inputs": _sent(inputs),
            "state": {name: raw_of(value) for name, value in state.items()},
            "substitutes": dict(substitutes),
            "double": double,
            "seed": 0,
        }

    # ------------------------------------------------------------ the channel

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request. Where the process is killed, which the kernel does when memory
        runs out, the request goes to another process, once. Raises `TaskFailure`."""
        try:
            return self._ask_once(request)
        except TaskKilledError:
            if self.beside is not None:
                raise
            wait_for_memory()
            self._begin_again()
            return self._ask_once(request)

    def _ask_once(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._peer is not None
        command = str(request["command"])
        limit = max(self.timeout, LOAD_TIMEOUT) if command == "load" else self.timeout
        deadline = time.monotonic() + limit
        try:
            self._peer.tell(request, deadline)
            reply = self._peer.hear(deadline)
        except TimeoutError:
            msg = f"{self.path}: no answer within {limit:g} s ({_DOING[command]})"
            raise TaskFailure(msg) from None
        except PeerEndedError as end:
            short = memory.kills() > self._kills
            raise _ended(self.path, end, command, self._peer.printed, short=short) from None
        except MessageError as error:
            fail(f"{self.path}: what its process said {_DOING[command]} cannot be read", error)
        if "refused" in reply:
            fail(f"{self.path}: {reply['refused']}")
        if "raised" in reply:
            raise TaskFailure(_raised(self.path, reply["raised"]))
        return reply


# ---------------------------------------------------------------- other processes


#: One run: the request that repeats it, and the outputs it gave.
_Run = tuple[Mapping[str, Any], Sequence[Array]]


def _hash_seeds(path: Path) -> tuple[str, ...]:
    """A value of PYTHONHASHSEED for each process that a task's file is to be repeated in."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        nodes = []
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    unordered = bool(named & _NAMES) or any(isinstance(n, ast.Set | ast.SetComp) for n in nodes)
    return tuple(str(number) for number in range(1, 1 + (_MORE_PROCESSES if unordered else 1)))


class _CrossProcess:
    """Repeats runs of a task in other processes, each of which a thread asks and compares."""

    def __init__(self, path: Path, starts: Sequence[Callable[[], TaskClient]]) -> None:
        self._path = path
        self._failure: TaskFailure | None = None
        self._closed = False
        self._queues: list[SimpleQueue[_Run | None]] = [SimpleQueue() for _ in starts]
        self._threads = [
            threading.Thread(target=self._serve, args=(start, queue), daemon=True)
            for start, queue in zip(starts, self._queues, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def repeat(self, run: _Run) -> None:
        """Queue one run to be repeated in all processes."""
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
        """End the processes after their present run, without waiting for them."""
        self._closed = True
        for queue in self._queues:
            queue.put(None)

    def _serve(self, start: Callable[[], TaskClient], queue: SimpleQueue[_Run | None]) -> None:
        task: TaskClient | None = None
        try:
            while (run := queue.get()) is not None and not self._closed and not self._failure:
                task = start() if task is None else task
                if found := difference(run[1], task.repeat(run[0])):
                    why = f"a run in another process differs ({found})"
                    msg = f"{self._path}: {NOT_DETERMINISTIC.format(why=why)}"
                    self._failure = TaskFailure(msg)
        except TaskKilledError:
            pass  # for want of memory: its result is unknown
        except TaskFailure as error:
            self._failure = self._failure or error
        except (OSError, ValueError) as error:
            self._failure = self._failure or TaskFailure(f"{self._path}: {error}")
        finally:
            if task is not None:
                task.close()


# ---------------------------------------------------------------- what is said


def _sent(values: Values) -> list[Raw | Scalar | None]:
    plain = (bool, int, float, type(None))
    return [value if isinstance(value, plain) else raw_of(value) for value in values]


def _received(values: Sequence[Raw | Scalar | None]) -> list[Array | Scalar | None]:
    return [array_of(value) if isinstance(value, Raw) else value for value in values]


def _arrays(raws: Sequence[Raw]) -> list[Array]:
    return [array_of(raw) for raw in raws]


def _asked(command: str, inputs: Specs, substitutes: Inits) -> dict[str, Any]:
    """A request about inputs of other shapes, and init inputs (by position) of other values."""
    described = [
        {"dtype": value.dtype.value, "shape": list(value.shape)}
        if isinstance(value, TensorSpec)
        else {"value": value}
        for value in inputs
    ]
    return {"command": command, "inputs": described, "substitutes": dict(substitutes)}


def _tensor(value: Mapping[str, Any]) -> TensorSpec:
    shape = tuple(int(extent) for extent in value["shape"])
    return TensorSpec(value.get("name", ""), DType(value["dtype"]), shape, value.get("value"))


def _shapes(state: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in state.items()}


def _specification(value: Mapping[str, Any]) -> InputSpec:
    if "dtype" in value:
        return _tensor(value)
    if "value" in value:
        number: Scalar = value["value"]
        return number
    return OtherSpec(value["repr"], value["type"])


def _axes(reply: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, tuple[Axis, ...]]:
    return {name: tuple((p, a) for p, a in axes) for name, axes in reply.items()}


def _raised(path: Path, report: Mapping[str, Any]) -> str:
    """One line for an exception of the task's own code."""
    line = f" (line {report['line']}: {report['text']})" if report["line"] else ""
    said = f": {report['message']}" if report["message"] else ""
    return f"{path}: {report['where']} raised {report['type']}{said}{line}"


def _ended(path: Path, end: PeerEndedError, command: str, log: str, *, short: bool) -> TaskFailure:
    """The failure of a process that ended by `end` while it was at a command and had printed `log`;
    `short`: the kernel has ended processes for want of memory since it started."""
    doing, status = _DOING[command], end.status
    if status == -signal.SIGKILL and end.by_itself:
        left = f"{memory.text(memory.available())} of memory are free now"
        why = f"the machine ran out of memory; {left}" if short else left
        return TaskKilledError(f"{path}: the task's process was killed (SIGKILL) {doing}: {why}")
    how = f"signal {signal_name(-status)}" if status < 0 else f"exit status {status}"
    last = log.strip().split("\n")[-1]
    said = f"; its last line: {last[:300]}" if last else ""
    return TaskFailure(f"{path}: the task ended its process ({how}, {doing}){said}")


def wait_for_memory() -> None:
    """Wait until memory is free, for `_PATIENCE` seconds at most."""
    deadline = time.monotonic() + _PATIENCE
    while memory.is_short(memory.available()) and time.monotonic() < deadline:
        time.sleep(0.25)
