"""Inside a process that times: it does what the parent says, one sample at a time, and decides
nothing. One such process has the baselines, another one the kernel: the code that is measured never
shares a process with the code that it is compared with.

A sample is made in steps, so that the parent can also measure the time: the parent names a
contender and how the inputs are to be varied; this process writes the inputs, poisons the memory
that outputs will be allocated from, flushes the caches and says "ready"; the parent says "go"; the
call is timed and its outputs copied at once; only then does the parent ask for these copies or not.

A candidate runs in the process that times it. It could replace a clock, make `synchronize` do
nothing, or let torch do its work. So all functions of the modules concerned, and every setting,
are recorded before the candidate is loaded and compared afterwards (`torch_state` for torch).
The clocks themselves are not affected: `timing` holds its own references. The baselines run in
another process.
"""

from __future__ import annotations

import gc
import os
import pickle
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.bench import launcher as launching
from sketchc.runtime.bench import timing
from sketchc.runtime.bench.child import KERNEL, POINTS, Job, StateMismatchError
from sketchc.runtime.bench.launcher import SEED, launcher, model_launcher, native
from sketchc.runtime.bench.schedule import Turn
from sketchc.runtime.bench.timing import Clock, CpuClock, CudaClock, write_varied
from sketchc.runtime.guards.placement import poison
from sketchc.runtime.guards.torch_state import (
    TorchState,
    first_state,
    replaced,
    seen,
    torch_settings,
)
from sketchc.runtime.process import messages
from sketchc.runtime.tasks.worker.module_state import state
from sketchc.runtime.tasks.worker.task_file import Raised, TaskError
from sketchc.runtime.tasks.worker.torch_worker import (
    DTYPES,
    Task,
    as_outputs,
    load_tensor,
    raw_tensor,
)
from sketchc.runtime.toolchains.base import CandidateError, Launch, PreparedLaunch

#: Modules that a `Guard` watches besides torch and the modules that it is given.
_OWNERS: tuple[tuple[str, Any], ...] = (("time", time), ("os", os))


def apply_precision(name: str) -> None:
    """Set torch to the precision class `name`, with sums of f16 and bf16 kept in f32, as kernels
    keep them."""
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"
    cuda: Any = torch.backends.cuda.matmul
    cuda.allow_fp16_reduced_precision_reduction = False
    cuda.allow_bf16_reduced_precision_reduction = False


class Guard:
    """A record of functions and of torch's state before the candidate is loaded."""

    def __init__(self, modules: Mapping[str, ModuleType | type]) -> None:
        """`modules`: further modules and classes whose functions must not be replaced, by the names
        to report."""
        self._owners = (*_OWNERS, *modules.items())
        self._seen = [seen(owner) for _, owner in self._owners]
        self._torch = TorchState(first_state())

    def changes(self, *, whole: bool = False) -> list[str]:
        """Sentences on what was changed since; nothing is restored. `whole`: compares the kernels
        of all operations of the dispatcher, even where no registration was noticed."""
        found = [
            f"it replaced {name}.{key}"
            for (name, owner), before in zip(self._owners, self._seen, strict=True)
            for key in replaced(owner, before)
        ]
        if whole:
            self._torch.registrations()
        return found + self._torch.changes()


#: Calls one contender on the inputs at one place and returns its outputs.
Call = Callable[[int], list[torch.Tensor]]
#: The arrays of a set of inputs, by tensor name.
RawInputs = Mapping[str, messages.Raw]
_now = time.perf_counter_ns
#: Bound here: a candidate may replace the module's attributes.
_receive, _send = messages.receive, messages.send


class Server(ABC):
    """The task, inputs and clock of one side; `Baselines` and `Candidate` add the contenders."""

    def __init__(self, job: Job, inputs: Sequence[RawInputs]) -> None:
        self.job = job
        self.notes: list[str] = []
        torch.set_num_threads(job.threads)
        apply_precision(job.precision)
        bases = [
            {name: load_tensor(raw).to(job.device) for name, raw in one.items()} for one in inputs
        ]
        self.bases = bases
        fixed = dict.fromkeys(job.state.values())
        self.places = [
            {
                name: bases[0][name] if name in fixed else value.clone()
                for name, value in bases[place % len(bases)].items()
            }
            for place in range(job.places)
        ]
        self.parameters = {name: bases[0][name].clone() for name in fixed if name in bases[0]}
        cuda = job.device == "cuda"
        self.clock: Clock = CudaClock(job.flush_bytes) if cuda else CpuClock(job.flush_bytes)
        self.calls: dict[str, Call] = {}
        self.poisoned: list[tuple[int, int]] = []  # (address, bytes)
        self.task = Task(job.task, job.subject, job.makes_inputs)
        self.task.follow(job.lead)

    # ------------------------------------------------------------ contenders

    def _arguments(self, place: int) -> list[Any]:
        values = self.places[place]
        return [values.get(a) if isinstance(a, str) else a for a in self.job.arguments]

    def _run(self, model: Callable[..., Any], given: Mapping[str, torch.Tensor]) -> Any:
        """The result of `model` for the tensors `given` by name, passed as the task takes them."""
        inputs = [given.get(a) if isinstance(a, str) else a for a in self.job.arguments]
        arguments, named = self.task.arguments(inputs)
        return model(*arguments, **named)

    def _warm_up(self, call: Call) -> list[torch.Tensor]:
        """Call for as long as the schedule says, on each place at least once; returns the outputs
        of the last call."""
        started, number = _now(), 0
        while number < self.job.places or (_now() - started) * 1e-9 < self.job.warm_up_seconds:
            outputs = call(number % self.job.places)
            number += 1
        if self.job.device == "cuda":
            torch.cuda.synchronize()
        return outputs

    # ------------------------------------------------------------ samples

    def sample(self, request: Mapping[str, Any], channel: socket.socket) -> None:
        """Take one sample, in the steps of the module's docstring."""
        name, place = request["contender"], request["place"]
        turns = {key: Turn(*turn) for key, turn in request["turns"].items()}
        self._prepare(request["base"], place, turns)
        call = self.calls[name]
        kept: list[list[torch.Tensor]] = []
        copies: list[torch.Tensor] = []
        self._wait_for_go(channel)
        try:
            timed = self.clock.measure_now(
                lambda: kept.append(call(place)),
                lambda: copies.extend(output.clone() for output in kept[0]),
            )
        except Exception as error:
            raise self.blamed(name, error) from error
        _send(channel, {"seconds": timed.seconds, "late": timed.late, "copy": timed.copying})
        # This process rests until the parent has received that: it may wait for this processor.
        keep = _receive(channel)["do"] == "keep"
        reply: dict[str, Any] = {"changes": self.changes()}
        reply["poisoned"] = all(self._was_poisoned(one) for one in kept[0])
        if keep:
            reply["changes"] += self._astray(request["base"], place, turns)
            reply["outputs"] = [raw_tensor(copy) for copy in copies]
        _send(channel, reply)

    def burst(self, request: Mapping[str, Any], channel: socket.socket) -> None:
        """Time many calls without rest; the parent times them as a whole."""
        name, place = request["contender"], request["place"]
        call = self.calls[name]
        self.clock.rest()
        self._wait_for_go(channel)
        try:
            seconds = self.clock.burst(lambda: call(place), request["calls"])
        except Exception as error:
            raise self.blamed(name, error) from error
        _send(channel, {"seconds": seconds})

    def nothing(self, channel: socket.socket) -> None:
        """Take a sample without a call: it shows how late the parent notices a sample's end."""
        self.clock.rest()
        self._wait_for_go(channel)
        _send(channel, {})

    def _prepare(self, base: int, place: int, turns: Mapping[str, Turn]) -> None:
        """Write fresh inputs at the same addresses, poison the memory of outputs, and flush the
        caches, if the schedule says so."""
        for name in self.job.varied:
            write_varied(self.bases[base][name], turns.get(name, Turn()), self.places[place][name])
        self._poison()
        if self.job.flush_bytes:
            self.clock.flush()
        self.clock.rest()

    def _poison(self) -> None:
        """Poison the memory of outputs that a timed call allocates itself: allocate as much, poison
        it and free it, so that the allocator returns the same memory to the call."""
        filled = [
            poison(torch.empty(shape, dtype=DTYPES[dtype], device=self.job.device))
            for dtype, shape in self.job.outputs
        ]
        self.poisoned = [(tensor.data_ptr(), tensor.nbytes) for tensor in filled]

    def _was_poisoned(self, output: torch.Tensor) -> bool:
        """Whether at least half of `output` lies in one block that `_poison` had filled."""
        start, size = output.data_ptr(), output.nbytes
        shared = (min(start + size, p + n) - max(start, p) for p, n in self.poisoned)
        return 2 * max(shared, default=0) >= size

    def blamed(self, name: str, error: Exception) -> Exception:
        """The exception to raise for `error`, raised by a timed call of contender `name`."""
        return RuntimeError(f"{name}: {_raised(error)}")

    @abstractmethod
    def begin(self) -> dict[str, Any]:
        """Load the contenders and warm them up; returns the first message to the parent."""

    def changes(self) -> list[str]:
        """Sentences on what a contender changed in this process."""
        return []

    def _astray(self, base: int, place: int, turns: Mapping[str, Turn]) -> list[str]:
        """Sentences on what a contender did to its inputs, or where the clock does not measure."""
        return []

    def end(self) -> dict[str, Any]:
        """The last message to the parent."""
        return {"changes": []}

    def _wait_for_go(self, channel: socket.socket) -> None:
        _send(channel, {"ready": True})
        _receive(channel)


class Baselines(Server):
    """The task's model with the parameters of the inputs, eager and compiled, warmed up."""

    def __init__(self, job: Job, inputs: Sequence[RawInputs]) -> None:
        super().__init__(job, inputs)
        torch.manual_seed(SEED)
        self.model = self.task.model(dict(job.substitutes))
        if isinstance(self.model, torch.nn.Module):
            self.model.to(job.device)
        own = {} if job.seeded else state(self.model)
        for name, tensor_name in job.state.items() if own else ():
            own[name].data = self.places[0][tensor_name]
        # Shows which inputs the task writes: its outputs, where forward returns None.
        self.task.forward(self.model, self._arguments(0))
        for name in job.baselines:
            if name == "eager":
                self.calls[name] = self._calling(self.model)
            else:
                self._compile(name)
        for call in self.calls.values():
            self._warm_up(call)

    def begin(self) -> dict[str, Any]:
        """The names of the baselines; "idle" are those that compute nothing."""
        idle = [name for name, call in self.calls.items() if self._only_views(call)]
        return {"baselines": list(self.calls), "notes": self.notes, "idle": idle}

    def _compile(self, name: str) -> None:
        """Add a baseline with `torch.compile` with its defaults, for these sizes; a note where it
        fails."""
        try:
            call = self._calling(torch.compile(self.model, dynamic=False))
            for place in range(self.job.places):
                call(place)
        except Exception as error:
            reason = str(error).strip().split("\n")[0][:200]
            self.notes.append(f"torch.compile does not run here: {type(error).__name__}: {reason}")
            return
        self.calls[name] = call

    def _calling(self, model: Callable[..., Any]) -> Call:
        written = sorted(self.task.written)

        def call(place: int) -> list[torch.Tensor]:
            result = self._run(model, self.places[place])
            if result is None:
                inputs = self._arguments(place)
                return [inputs[position] for position in written]
            return as_outputs(result)

        return call

    def _only_views(self, call: Call) -> bool:
        """Whether all outputs lie in the memory of inputs or parameters, and nothing was written
        there."""
        held = list(self.places[0].values())
        own = state(self.model) if isinstance(self.model, torch.nn.Module) else {}
        held += list(own.values())
        before = [tensor._version for tensor in held]
        outputs = call(0)
        if [tensor._version for tensor in held] != before:
            return False
        places = {tensor.untyped_storage().data_ptr() for tensor in held if tensor.nbytes}
        return bool(outputs) and all(
            not one.nbytes or one.untyped_storage().data_ptr() in places for one in outputs
        )

    def end(self) -> dict[str, Any]:
        """The last message to the parent, with torch's settings as the baselines ran."""
        return {"changes": [], "settings": torch_settings()}


class Candidate(Server):
    """The kernel, in a process of its own, with a guard on what it must not change."""

    def __init__(self, job: Job, inputs: Sequence[RawInputs]) -> None:
        super().__init__(job, inputs)
        self.launch: Launch | None = None
        self.guard = Guard(self._watched())

    def _watched(self) -> dict[str, Any]:
        """Modules and classes besides torch that the candidate must not change, by the names to
        report: the task, and the code that times."""
        found: dict[str, Any] = {"the task": self.task.module}
        own = native(self.job.kernel)
        for module in (timing, launching, messages, sys.modules[__name__], own):
            if module is not None:
                found[module.__name__] = module
        return found | {
            "the clock": type(self.clock),
            "every clock": Clock,
            "the server": Server,
            "the candidate": Candidate,
            "the guard": Guard,
        }

    def begin(self) -> dict[str, Any]:
        """Load the candidate and warm it up. Raises `CandidateError`."""
        job = self.job
        try:
            if job.is_model:
                values = self.task.init_inputs()
                for position, value in job.substitutes.items():
                    values[int(position)] = value
                states = {name: self.bases[0][tensor] for name, tensor in job.state.items()}
                given = None if job.seeded else states
                launch = model_launcher(job.code, job.device, values, given, self._run)
            else:
                launch = launcher(job.kernel, job.code, job.symbols, job.params)
            self.launch = launch
            self.calls[KERNEL] = lambda place: launch(self.places[place])
            outputs = self._warm_up(self.calls[KERNEL])
        except (CandidateError, StateMismatchError):
            raise
        except Exception as error:
            raise _raised(error) from error
        if not all(isinstance(one, torch.Tensor) for one in outputs):
            raise CandidateError("it returns something that is no tensor")
        return {"loaded": True, "changes": self.guard.changes(whole=True)}

    def blamed(self, name: str, error: Exception) -> Exception:
        """`error` as a `CandidateError`, since the kernel's code raised it."""
        return _raised(error)

    def changes(self) -> list[str]:
        """Sentences on what the kernel replaced or set in this process."""
        return self.guard.changes()

    def _poison(self) -> None:
        """Poison the outputs that a `PreparedLaunch` is given, else as in `Server`."""
        if isinstance(self.launch, PreparedLaunch):
            self.launch.prepare()
        else:
            super()._poison()

    def _was_poisoned(self, output: torch.Tensor) -> bool:
        return isinstance(self.launch, PreparedLaunch) or super()._was_poisoned(output)

    def _astray(self, base: int, place: int, turns: Mapping[str, Turn]) -> list[str]:
        """Sentences on inputs that the kernel changed, and on work on another stream."""
        found = []
        for name in self.job.varied:
            expected = torch.empty_like(self.places[place][name])
            write_varied(self.bases[base][name], turns.get(name, Turn()), expected)
            if not torch.equal(expected, self.places[place][name]):
                found.append(f"it changed its input {name}")
        launch = self.launch
        assert launch is not None  # a sample of it was taken
        if self.clock.astray(lambda: launch(self.places[place])):
            found.append("it works on another stream than the one timed")
        return found

    def end(self) -> dict[str, Any]:
        """The last message to the parent, after a comparison of everything."""
        changes = self.guard.changes(whole=True)
        for name, before in self.parameters.items():
            if not torch.equal(before, self.bases[0][name]):
                changes.append(f"it changed its input {name}")
        return {"changes": changes}


class Points(Candidate):
    """Many kernels of one sketch, which are loaded as they come."""

    def __init__(self, job: Job, inputs: Sequence[RawInputs]) -> None:
        super().__init__(job, inputs)
        self.launches: dict[str, Launch] = {}

    def begin(self) -> dict[str, Any]:
        """Nothing is loaded yet."""
        return {"loaded": True}

    def load(self, request: Mapping[str, Any], channel: socket.socket) -> None:
        """Load one more kernel as contender `request["contender"]` and warm it up."""
        name, job = request["contender"], self.job
        kernel: Kernel = pickle.loads(request["kernel"].data)
        try:
            launch = launcher(kernel, Path(request["code"]), job.symbols, job.params)
            self.launches[name] = launch
            self.calls[name] = lambda place: launch(self.places[place])
            self._warm_up(self.calls[name])
        except CandidateError:
            raise
        except Exception as error:
            raise _raised(error) from error
        _send(channel, {"loaded": True})

    def sample(self, request: Mapping[str, Any], channel: socket.socket) -> None:
        """See `Server`."""
        self.launch = self.launches[request["contender"]]
        super().sample(request, channel)


def _raised(error: Exception) -> CandidateError:
    text = str(error).strip().split("\n")[0][:300]
    return CandidateError(f"{type(error).__name__}: {text}")


_SIDES: Mapping[str, type[Server]] = {KERNEL: Candidate, POINTS: Points}


def serve(job: Job, inputs: Sequence[RawInputs], side: str, channel: socket.socket) -> None:
    """Answer requests until the parent closes the channel; `side` says which side is timed here. A
    failure is a message with "error" (of the task or of this project's code), "candidate", or
    "mismatch" (of parameters)."""
    try:
        with torch.no_grad():
            server = _SIDES.get(side, Baselines)(job, inputs)
            _send(channel, server.begin())
            gc.collect()
            gc.disable()
            while True:
                request = _receive(channel)
                match request["do"]:
                    case "load":
                        assert isinstance(server, Points)
                        server.load(request, channel)
                    case "sample":
                        server.sample(request, channel)
                    case "burst":
                        server.burst(request, channel)
                    case "nothing":
                        server.nothing(channel)
                    case _:
                        _send(channel, server.end())
    except (messages.Closed, ConnectionError):
        return
    except StateMismatchError:
        _send(channel, {"mismatch": True})
    except CandidateError as error:
        _send(channel, {"candidate": str(error)})
    except Raised as error:
        report = error.report
        said = f"{report['where']} raised {report['type']}: {report['message']}"
        _send(channel, {"error": f"{job.task}: {said}"})
    except TaskError as error:
        _send(channel, {"error": f"{job.task}: {error}"})
    except (RuntimeError, OSError, ValueError, MemoryError, KeyError, TypeError) as error:
        _send(channel, {"error": f"{type(error).__name__}: {str(error)[:300]}"})
