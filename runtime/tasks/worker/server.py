"""The process that runs a task: it loads the user's file and answers requests about it.

`Task` is what is the same for all frameworks; `torch_worker`, `numpy_worker` and `mindspore_worker`
hold the rest. The process is started by `client.TaskClient`: a task may print, hang, or end it.
Requests and replies are messages (`process.messages`); the task's own stdout and stderr go to a
file. Needs NumPy alone: it also runs where sketchc is not installed.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from sketchc.runtime.process import messages
from sketchc.runtime.tasks.layout import flatten
from sketchc.runtime.tasks.repeat import NOT_DETERMINISTIC, ONLY_NAN, difference, later, only_nan
from sketchc.runtime.tasks.worker import rng_audit
from sketchc.runtime.tasks.worker.task_file import Raised, Request, TaskError, TaskFile, user_code

#: How many references of a task that is too large for two runs of its own are computed twice.
_SMALL_RUNS = 3
#: Elements up to which a task that was not run on its own inputs is run to see if it gives numbers.
_NUMBERS_ELEMENTS = 1 << 26
#: Elements up to which a run is sent to another process.
_SENT_ELEMENTS = 1 << 22
#: Elements of inputs up to which a task is run on other values, to see whether shapes follow them,
#: and whether it refuses them.
ASKED_ELEMENTS = 1 << 20
#: The first elements of a weight, which stand for all of it where its scale is asked for.
SCALED = 1 << 20
_SHAPES_FOLLOW = (
    "the shapes of its outputs follow from the values of its inputs ({first} with some, {second} "
    "with others), which no sketch can express"
)
_DRAWS = "{where} draws random numbers ({what}), so two runs on the same inputs differ"


class Task(TaskFile):
    """A loaded task file that answers requests."""

    #: Elements up to which a task is run twice; the cost grows with more than the elements.
    twice_elements = 1 << 22
    #: How many more references are computed twice, and why the task is refused since then.
    unsure = 0
    refusal = ""
    #: Whether the task was run on its own inputs.
    ran = False
    #: Whether it was seen that the shapes of its outputs do not follow values.
    fixed_shapes = False
    #: The random numbers that the last run drew, and whether one of the two first runs drew any.
    events: Sequence[rng_audit.Event] = ()
    drew = False
    #: The own inputs and the parameters beside them, and the outputs of the first run on them.
    _own_values: tuple[list[Any], dict[str, Any]] | None = None
    _first: Sequence[Any] = ()

    # ------------------------------------------------------------ requests

    def describe(self, request: Request) -> dict[str, Any]:
        """The description of the task: shapes and dtypes of all its tensors, and more."""
        self.seed(request["seed"])
        with self.shaped():
            model = self.model({})
        lists, outputs = self.tried(model, request)
        known = list(self.state(model).values())
        self.elements = self.count([*lists[0], *outputs, *known])
        return {
            "inputs": [self.described(value) for value in lists[0]],
            "others": [[self.described(value) for value in one] for one in lists[1:]],
            "init_inputs": [self.described(value) for value in self.init_inputs()],
            "state": [{"name": n, **self.specify(v)} for n, v in self.state(model).items()],
            "unregistered": self.unregistered(model),
            "scalars": self.scalars(model) if self.method else {},
            "constants": self.constants_of(model) if self.method else {},
            "outputs": [self.specify(value) for value in outputs],
            "between": self.between,
            "returns": self.returns,
            "written": sorted(self.written),
            "names": [name for name, _ in self.entries()],
            "defaults": [i for i, (_, p) in enumerate(self.entries()) if p and p.default is None],
            "layout": self.layout,
            "lists": self.list_names,
            "corrects": self._correcting(model) is not None,
            "axes": self._axes(lists[0], request),
            "ranges": self._ranges(model, self.to_ask(lists[0], request)),
        }

    def tried(self, model: Any, request: Request) -> tuple[list[list[Any]], list[Any]]:
        """All lists of inputs, and the outputs of a run on the first."""
        lists = self.input_lists(request)
        given = [self._own(value) for value in lists[0]]
        try:
            outputs = self.forward(self.twin(model), given)
        except TaskError:
            if self.returns != "none" or self.written:
                raise
        else:
            self._require_shapes(model, request, lists[0], outputs)
            return lists, outputs
        # A write may leave an input as it was: `maximum(x, 0)` of positive x.
        given = [self.moved(value) if self.is_tensor(value) else value for value in lists[0]]
        return lists, self.forward(model, given)

    def _require_shapes(
        self, model: Any, request: Request, own: list[Any], outputs: Sequence[Any]
    ) -> None:
        """Raises `TaskError` where other values in inputs of the same shapes give outputs of other
        shapes: the task's inputs after another seed, and tensors with their first element all over.
        Values that the task refuses show nothing."""
        if self.fixed_shapes or self.count(own) > ASKED_ELEMENTS:
            return

        def one_value() -> list[Any]:
            return [self.filled(value) if self.is_tensor(value) else value for value in own]

        tries: list[Callable[[], list[Any]]] = [one_value]
        if self.makes_inputs:
            tries.insert(0, lambda: self.inputs({**request, "seed": request["seed"] + 1}))
        for values in tries:
            try:
                given = values()
                found = self.forward(self.twin(model), [self._own(value) for value in given])
            except Exception:
                continue  # the task need not take these values
            follows = self.extents(found) != self.extents(outputs)
            if follows and self.extents(given) == self.extents(own):
                if self.varies(model, own, outputs):
                    return
                self.require_same_shapes(outputs, found)
        self.fixed_shapes = True

    def to_ask(self, own: list[Any], request: Request) -> list[Any]:
        """The own inputs, with data, to ask the task which others it takes; none where that is much
        work. `request` is that for the description."""
        del request
        return own if self.count(own) <= ASKED_ELEMENTS else []

    def _ranges(self, model: Any, own: list[Any]) -> dict[str, list[float | None]]:
        """[least, most] by the position of each input of floats from 0 on, or from 0 to 1, of which
        the task refuses others: those that are less by 1, or more. None: no such end."""
        found: dict[str, list[float | None]] = {}
        for position, value in enumerate(own):
            values = self.array(value) if self.is_tensor(value) else np.zeros(0)
            if values.dtype.kind != "f" or not values.size or not (values >= 0).all():
                continue
            most = 1.0 if (values <= 1).all() else None
            if any(self._refuses(model, own, position, by) for by in (-1, 1)[: 1 + bool(most)]):
                found[str(position)] = [0.0, most]
        return found

    def _refuses(self, model: Any, own: list[Any], position: int, by: int) -> bool:
        """Whether the task raises where one of its own inputs is larger `by` a number."""
        given = [self._own(value) for value in own]
        given[position] = given[position] + by
        try:
            self.forward(self.twin(model), given)
        except Exception:
            return True
        return False

    def varies(self, model: Any, own: list[Any], outputs: Sequence[Any]) -> bool:
        """Whether shapes differ between runs on the same inputs: then they do not follow values,
        and `determinism` says what is wrong."""
        again = self.forward(self.twin(model), [self._own(value) for value in own])
        return self.extents(again) != self.extents(outputs)

    def require_same_shapes(self, one: Sequence[Any], other: Sequence[Any]) -> None:
        """Raises `TaskError` where two runs gave outputs of different shapes."""
        shapes = self.extents(one), self.extents(other)
        if shapes[0] != shapes[1]:
            first, second = (", ".join(map(str, found)) or "nothing" for found in shapes)
            raise TaskError(_SHAPES_FOLLOW.format(first=first, second=second))

    def filled(self, tensor: Any) -> Any:
        """A tensor whose elements all equal its first one."""
        found = self.copied(tensor)
        if self.count([found]):
            found[...] = found.reshape(-1)[0]
        return found

    def moved(self, tensor: Any) -> Any:
        """A tensor with all elements changed."""
        return ~tensor if "bool" in str(tensor.dtype).lower() else -tensor - 1

    def _own(self, value: Any) -> Any:
        """A copy for one run: what a task writes must not show in the next."""
        return self.copied(value) if self.is_tensor(value) else value

    def count(self, values: Sequence[object]) -> int:
        """The number of elements of all tensors together."""
        return sum(int(np.prod(self.specify(v)["shape"])) for v in values if self.is_tensor(v))

    def described(self, value: object) -> dict[str, Any]:
        """One value as plain data."""
        if self.is_tensor(value):
            return self.specify(value)
        if isinstance(value, bool | int | float):
            return {"value": value}
        return {"repr": repr(value)[:200], "type": type(value).__name__}

    def _axes(self, own: Sequence[Any], request: Request) -> dict[str, list[list[int]]]:
        """Which axes of the inputs follow which of the file's own names (`batch = 16`): found by
        giving the name another value. Names that the file does not hold as numbers are left out."""
        found: dict[str, list[list[int]]] = {}
        before = self.extents(own)
        for name, others in request.get("sizes", {}).items():
            value = getattr(self.module, name, None)
            if type(value) is not int or not self.makes_inputs:
                continue
            other = next(size for size in others if size != value)
            setattr(self.module, name, other)
            try:
                shapes = self.shapes(request)
            except Exception:
                continue
            finally:
                setattr(self.module, name, value)
            found[name] = [
                [place, axis]
                for place, (one, two) in enumerate(zip(before, shapes, strict=False))
                for axis, (size, changed) in enumerate(zip(one, two, strict=False))
                if (size, changed) == (value, other)
            ]
        return found

    def own_inputs(self, request: Request) -> dict[str, Any]:
        """The reply with one list of the task's own inputs."""
        return {"inputs": self._sent(self.inputs(request))}

    def _sent(self, values: Sequence[Any]) -> list[Any]:
        """Tensors as arrays, and numbers; None for what is neither."""
        return [
            self.raw(value)
            if self.is_tensor(value)
            else value
            if isinstance(value, bool | int | float)
            else None
            for value in values
        ]

    def _correcting(self, model: Any) -> Any:
        """`valid_inputs` of the model, else of the file; None without."""
        of_file = getattr(self.module, "valid_inputs", None)
        return getattr(model, "valid_inputs", of_file) if self.method else of_file

    def valid(self, request: Request) -> dict[str, Any]:
        """The inputs of a request as `valid_inputs` corrects them; shapes and types must stay."""
        correcting = self._correcting(self.model(request["substitutes"]))
        own = self.method and hasattr(self.subject, "valid_inputs")
        where = f"{self.name}.valid_inputs" if own else "valid_inputs"
        given = self.given(request["inputs"])
        with user_code(where, self.path), self.running():
            found, layout = flatten(correcting(self.nested(given)), self.is_tensor)
        if layout[: len(self.layout)] != self.layout or len(found) != len(given):
            raise TaskError(f"{where} returns other inputs than it was given")
        for position, (before, after) in enumerate(zip(given, found, strict=True)):
            if not self.is_tensor(before):
                found[position] = before
            elif {**self.specify(before), "value": 0} != {**self.specify(after), "value": 0}:
                raise TaskError(f"{where} changes the shape or type of input {position + 1}")
        return {"inputs": self._sent(found)}

    def built(self, request: Request) -> dict[str, Any]:
        """The shapes, scales and ranges of the parameters, and the numbers among the attributes, of
        a model built with other sizes."""
        self.seed(0)
        with self.shaped():
            model = self.model(request["substitutes"])
        state = self.state(model)
        first = {n: self.array(v).reshape(-1)[:SCALED] for n, v in state.items()}
        ranges = {n: _range(values) for n, values in first.items()}
        return {
            "state": {n: self.specify(v)["shape"] for n, v in state.items()},
            "scales": {n: _scale(values) for n, values in first.items()},
            "ranges": {n: limits for n, limits in ranges.items() if limits is not None},
            "positive": [n for n, values in first.items() if _is_positive(values)],
            "scalars": self.scalars(model) if self.method else {},
        }

    def reference(self, request: Request) -> dict[str, Any]:
        """Outputs on given inputs, in float64 where `double` is asked for.

        A task that was too large to be run twice is run twice here, at the first small sizes; where
        two runs differ, the task refuses every later reference.
        """
        if self.refusal:
            raise TaskError(self.refusal)
        self.written |= set(request.get("written", ()))
        inputs, outputs = self._run_on(request, 0)
        drew = bool(self.events)
        twice = request.get("twice", False)
        few = self.unsure and self.count([*inputs, *outputs]) <= self.twice_elements
        if twice or few:
            self.unsure -= bool(few)
            with later(), self.disturbed():
                again = self._run_on(request, 1)[1]
            arrays = [[self.array(value) for value in run] for run in (outputs, again)]
            if found := difference(*arrays):
                self._refuse(f"two runs on the same inputs differ ({found})")
        if drew:
            self._require_seeded(lambda number: self._run_on(request, number, deep=True))
        return {"outputs": self._sent(outputs)}

    def readings(self, request: Request) -> dict[str, Any]:
        """Other outputs that the task may give on the same inputs, all in float64: of runs made
        once more and otherwise (`runs`), and with what it rounds moved to the other side of borders
        that are within a tolerance (`moved`); see `description.Readings`."""
        runs = [self._run_on(request, 0)[1]]
        with self.disturbed():
            runs.append(self._run_on(request, 0)[1])
        moved, rounded, places = self.explored(request)
        return {
            "runs": [self._sent(run) for run in runs],
            "moved": [self._sent(run) for run in moved],
            "rounded": self._sent(rounded),
            "places": [{"array": self.raw(one.values), "exact": one.exact} for one in places],
        }

    def explored(self, request: Request) -> tuple[list[list[Any]], list[Any], list[Any]]:
        """See `operations.explored`; nothing where a framework does not show its operations."""
        return [], [], []

    def thresholds(self, request: Request) -> dict[str, Any]:
        """The numbers that the task compares with, clamps to and adds on given inputs, and whether
        it does nothing but select (`selects`). `shown`: its operations say so; else these are the
        numbers in its file."""
        return {"numbers": numbers_in(self.path), "selects": False, "shown": False}

    def _refuse(self, why: str) -> None:
        """Refuse this reference and all later ones; see `reference`. Raises `TaskError`."""
        self.refusal = NOT_DETERMINISTIC.format(why=why)
        raise TaskError(self.refusal)

    def _run_on(
        self,
        request: Request,
        number: int,
        *,
        deep: bool = False,
        around: Callable[[list[Any]], AbstractContextManager[Any]] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Inputs and outputs of one run on the inputs of a request; `number` changes the seed.
        `around` gives a context for the run from its tensors: inputs, parameters and buffers."""
        assert self.layout is not None  # finding the layout may make the own inputs, and draw
        self.seed(request["seed"])
        # The drawn weights are replaced by the values that are given.
        with self.shaped() if request["state"] else nullcontext():
            model = self.model(request["substitutes"])
        states = {name: self.load(value) for name, value in request["state"].items()}
        self.set_state(model, states)
        inputs = self.given(request["inputs"])
        if request["double"]:
            model = self.doubled(model)
            inputs = [self.double(value) for value in inputs]
        if number:
            self.seed(request["seed"] + number)
        known = [v for v in (*inputs, *self.state(model).values()) if self.is_tensor(v)]
        with nullcontext() if around is None else around(known):
            outputs = self.watched(model, inputs, deep=deep, double=request["double"])
        if request["double"]:
            outputs = [self.widened(value) for value in outputs]
        return inputs, outputs

    def watched(
        self, model: Any, inputs: Sequence[Any], *, deep: bool = False, double: bool = False
    ) -> list[Any]:
        """The outputs of one run; `events` are what it drew. `deep`: watch each operation, too.
        `double`: model and inputs are in float64, which is not the task's own type."""
        with rng_audit.Watch() as watch:
            outputs = self.forward(model, inputs)
        self.events = watch.events
        return outputs

    def _require_seeded(self, run: Callable[[int], object]) -> None:
        """Raises `TaskError` where a task draws random numbers that it did not seed in the same
        run: two runs (`run` is given their numbers) from other states of the generators tell."""
        found = []
        for number in (1, 2):
            rng_audit.stir()
            run(number)
            found.append(self.events)
        if what := rng_audit.first_that_differs(*found):
            self._refuse(_DRAWS.format(where=self.method or self.name, what=what))

    def probe(self, request: Request) -> dict[str, Any]:
        """Shapes of outputs and parameters for inputs of other shapes."""
        assert self.layout is not None
        model = self.model(request["substitutes"])
        inputs = [
            self.ones(value["shape"], value["dtype"]) if "shape" in value else value["value"]
            for value in request["inputs"]
        ]
        outputs = self.forward(model, inputs)
        return {
            "outputs": [{**self.specify(value), "value": None} for value in outputs],
            "state": {n: self.specify(v)["shape"] for n, v in self.state(model).items()},
        }

    def follow(self, lead: int) -> None:
        """Let list `lead` stand for the own inputs; nothing is known of these yet."""
        super().follow(lead)
        self._own_values, self._first = None, ()
        self.unsure, self.refusal, self.ran, self.fixed_shapes = 0, "", False, False

    # ------------------------------------------------------------ twice the same

    def determinism(self, request: Request) -> dict[str, Any]:
        """Refuse a task whose outputs differ from run to run; small tasks are run twice, and the
        reply holds their first run: its inputs, state and outputs."""
        if self.elements is None:
            self.describe(request)
        assert self.elements is not None
        if self.elements > self.twice_elements:
            self.unsure = _SMALL_RUNS
            return {"notes": [], "written": sorted(self.written)}
        first, second = self.two_runs(request)
        if found := difference(first, second):
            why = f"two runs on the same inputs differ ({found})"
            raise TaskError(NOT_DETERMINISTIC.format(why=why))
        if self.drew:
            self._require_seeded(lambda number: self._own_run(request, number, deep=True))
        self._require_numbers(first)
        noted = {"notes": list(_notes(first)), "written": sorted(self.written)}
        return {**noted, "run": self._first_run()}

    def numbers(self, request: Request) -> dict[str, Any]:
        """Refuse a task that gives no number on its own inputs, where that is not known yet."""
        if not self.ran and (self.elements or 0) <= _NUMBERS_ELEMENTS:
            self._require_numbers([self.array(v) for v in self._own_run(request, 0)])
        return {}

    def _require_numbers(self, outputs: Sequence[np.ndarray[Any, Any]]) -> None:
        self.ran = True
        if only_nan(outputs):
            raise TaskError(ONLY_NAN)

    def two_runs(
        self, request: Request
    ) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
        """Outputs of two fresh models with the same parameters on the same inputs, in float64 as
        the references are; each run finds other random numbers, another time, and other values in
        memory that nobody wrote. `drew`: whether either drew random numbers."""
        first = self._own_run(request, 0)
        arrays, drew = [self.array(value) for value in first], bool(self.events)
        self._first = first
        rng_audit.stir()
        with later(), self.disturbed():
            try:
                second = self._own_run(request, 1, deep=True)
            except Raised:
                second = self._own_run(request, 1)  # it fails while it is watched
        self.drew = drew or bool(self.events)
        return arrays, [self.array(value) for value in second]

    def _own_run(self, request: Request, number: int, *, deep: bool = False) -> list[Any]:
        """The outputs of one run of a fresh model on the own inputs, in float64. All runs have the
        inputs and parameters of the first; `number` changes the seed."""
        inputs = self.inputs(request) if self._own_values is None else self._own_values[0]
        self.seed(request["seed"])
        model = self.model({})
        if self._own_values is None:
            kept = {name: self.copied(value) for name, value in self.state(model).items()}
            self._own_values = inputs, kept
        state = {name: self.copied(value) for name, value in self._own_values[1].items()}
        self.set_state(model, state)
        given = [self.double(self._own(value)) for value in inputs]
        model = self.doubled(model)
        self.seed(request["seed"] + number)
        return self.watched(model, given, deep=deep, double=True)

    def _first_run(self) -> dict[str, Any] | None:
        """The first run, so that another process can repeat it; None for a large one. Inputs that
        are neither tensors nor numbers are not sent: the other process has them, too."""
        assert self._own_values is not None
        inputs, state = self._own_values
        if (self.elements or 0) > _SENT_ELEMENTS:
            return None
        return {
            "inputs": self._sent(inputs),
            "state": {name: self.raw(value) for name, value in state.items()},
            "outputs": self._sent([self.widened(value) for value in self._first]),
        }


def numbers_in(path: Path) -> list[int | float]:
    """The numbers that a file writes down, in its order, without those in functions `get_...`."""
    found: dict[int | float, None] = {}
    pending: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef) and node.name.startswith("get_"):
            continue
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[value] = None
        pending.extend(reversed(list(ast.iter_child_nodes(node))))
    return list(found)


def _scale(values: np.ndarray[Any, Any]) -> float:
    """The root mean square of finite floats; 0 for other values."""
    if values.dtype.kind != "f" or not values.size:
        return 0.0
    finite = values[np.isfinite(values)].astype(np.float64)
    return float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0


def _is_positive(values: np.ndarray[Any, Any]) -> bool:
    """Whether floats differ and none is negative: a root or a logarithm of them may be taken."""
    if values.dtype.kind != "f" or not values.size:
        return False
    return bool(0 <= values.min() < values.max())


def _range(values: np.ndarray[Any, Any]) -> tuple[int, int] | None:
    """The half-open range of integers; None for other values."""
    if values.dtype.kind not in "iu" or not values.size:
        return None
    return int(values.min()), int(values.max()) + 1


def _notes(outputs: Sequence[np.ndarray[Any, Any]]) -> Iterator[str]:
    for position, array in enumerate(outputs):
        if array.dtype.kind == "f" and (count := int(np.isnan(array).sum())):
            elements = "element" if count == 1 else "elements"
            yield (
                f"the task's output {position + 1} holds NaN in {count} of {array.size} {elements} "
                "on its own inputs; a kernel must give NaN there, too"
            )


def answer(
    kind: type[Task], task: Task | None, request: dict[str, Any]
) -> tuple[Task | None, dict[str, Any]]:
    """The reply to one request, and the task from now on."""
    command = request["command"]
    try:
        if command == "load":
            if "beside" in request:
                # A process id that differs from that process's in the last digit, too.
                os.getpid = lambda: request["beside"] + 1
            task = kind(Path(request["path"]), request["subject"], request["makes_inputs"])
            task.follow(request.get("lead", 0))
            return task, {}
        assert task is not None, "a task is loaded first"
        if command == "follow":
            task.follow(request["lead"])
            return task, {}
        return task, getattr(task, command)(request)
    except TaskError as error:
        return task, {"refused": str(error)}
    except Raised as error:
        return task, {"raised": error.report}
    except (RuntimeError, MemoryError, OSError, ValueError, KeyError, TypeError) as error:
        return task, {"refused": f"{type(error).__name__}: {str(error).split(chr(10))[0]}"}
    finally:
        linecache.clearcache()


def serve(kind: type[Task], channel: socket.socket) -> None:
    """Serve requests until the channel is closed."""
    task: Task | None = None
    rng_audit.install()
    with contextlib.suppress(messages.Closed, ConnectionError):
        while True:
            task, reply = answer(kind, task, messages.receive(channel))
            messages.send(channel, reply)
