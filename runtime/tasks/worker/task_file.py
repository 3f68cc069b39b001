"""A task's file in the process that runs it: loading, its inputs, one run and its outputs.

`TaskFile` is what is the same for all frameworks, with a method for everything that is not. Needs
NumPy alone: it is also used where sketchc is not installed.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from sketchc.runtime.process.messages import Raw
from sketchc.runtime.tasks.input_lists import LIST_MAKERS, OWN_MAKER, list_title
from sketchc.runtime.tasks.layout import Layout, flatten, is_plain, paths, rebuild


class TaskError(Exception):
    """The task is not what it should be; the message is for the user."""


def refuse(text: str) -> NoReturn:
    """Raises `TaskError` with this text."""
    raise TaskError(text)


class Raised(Exception):
    """The task's own code raised: where, what, and the line it happened on."""

    def __init__(self, where: str, error: BaseException, path: Path) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == str(path)]
        line, text = 0, ""
        if own:
            line, text = own[-1].lineno or 0, own[-1].line or ""
        elif isinstance(error, SyntaxError):
            line, text = error.lineno or 0, (error.text or "").strip()
        message = str(error).strip().split("\n")[0]
        if isinstance(error, SyntaxError):
            message = error.msg
        elif isinstance(error, SystemExit):
            message = f"the task ends the process with status {error.code}"
        self.report = {
            "where": where,
            "type": type(error).__name__,
            "message": message[:500],
            "line": line,
            "text": text[:200],
        }
        super().__init__(message)


@contextmanager
def user_code(where: str, path: Path) -> Iterator[None]:
    """Whatever the code inside raises becomes `Raised`."""
    try:
        yield
    except (TaskError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Raised(where, error, path) from None


Request = Mapping[str, Any]


#: The most constants of a model that are listed, and the longest text that is a constant.
_MOST_CONSTANTS = 80
_LONGEST = 40


class TaskFile:
    """One loaded task file."""

    #: What the class of a module is called, the class itself, and the method that is run.
    module_class = "class"
    module_type: ClassVar[type] = object
    methods: ClassVar[tuple[str, ...]] = ("forward",)
    #: The method that names the modules within one; "" where modules have no parts.
    walk = ""
    #: The class of tensors, what one is called, and how a sketch spells the types of its elements.
    tensor_type: ClassVar[type | tuple[type, ...]] = ()
    tensor_name = "a tensor"
    spellings: ClassVar[Mapping[str, str]] = {}

    def __init__(self, path: Path, subject: str, makes_inputs: bool) -> None:
        """Load the file. `makes_inputs` is false where requests bring the task's own inputs."""
        self.path = path
        self.name = subject
        self.makes_inputs = makes_inputs
        specification = importlib.util.spec_from_file_location("sketchc_user_task", path)
        if specification is None or specification.loader is None:
            refuse("it is not a Python file (its name must end in .py)")
        self.module = importlib.util.module_from_spec(specification)
        sys.modules["sketchc_user_task"] = self.module
        sys.path.append(str(path.parent))
        with user_code("loading the file", path):
            specification.loader.exec_module(self.module)
        self.subject = self._attribute(
            subject, f"class Model: {self.module_class}` or `def NAME(...): a function"
        )
        self._check_subject()
        if makes_inputs and not any(hasattr(self.module, name) for name in LIST_MAKERS):
            self._attribute("get_inputs", "def get_inputs(): the list of forward's inputs")
        self.parameters = self._parameters()
        #: Which of the lists of inputs stands for the task's own, and what the lists are called.
        self.lead = 0
        self.list_names: list[str] = []
        #: How the inputs of that list hold its tensors, and its values that are no tensors, by
        #: position; None until the inputs are asked for.
        self._layout: Layout | None = None if makes_inputs else []
        self.constants: dict[int, Any] = {}
        self.returns = "tensor"
        #: Positions of the inputs that the task was seen to write into.
        self.written: set[int] = set()
        #: Elements of all inputs, outputs, parameters and buffers, once the task was described.
        self.elements: int | None = None
        #: The most elements of intermediate tensors alive at once; 0 where that was not seen.
        self.between = 0

    # ------------------------------------------------------------ what a framework says

    def seed(self, number: int) -> None:
        """Seed the random numbers that `get_inputs` and the model's parameters come from."""
        np.random.seed(number % (1 << 32))

    def is_tensor(self, value: object) -> bool:
        """Whether `value` is a tensor of the framework."""
        return isinstance(value, self.tensor_type)

    def is_module(self, value: object) -> bool:
        """Whether `value` is a module of the framework, or a class of such."""
        return issubclass(value if isinstance(value, type) else type(value), self.module_type)

    def type_name(self, tensor: Any) -> str:
        """What the framework calls the type of the elements."""
        return str(tensor.dtype)

    def spelling(self, tensor: Any) -> str:
        """The type as a sketch spells it. Raises `TaskError` for one that sketches do not have."""
        name = self.type_name(tensor)
        if name not in self.spellings:
            refuse(f"{self.tensor_name} of {name} has no counterpart in a sketch")
        return self.spellings[name]

    def specify(self, tensor: Any) -> dict[str, Any]:
        """dtype (see `spelling`), shape, and the value where there are no axes."""
        found = {"dtype": self.spelling(tensor), "shape": list(tensor.shape)}
        if not tensor.shape and not getattr(tensor, "is_meta", False):
            found["value"] = tensor.item()
        return found

    def ones(self, shape: Sequence[int], spelling: str) -> Any:
        """A tensor of ones, of the type that has this `spelling` in a sketch."""
        raise NotImplementedError

    def load(self, raw: Raw) -> Any:
        """A new tensor from an array of a request."""
        raise NotImplementedError

    def raw(self, tensor: Any) -> Raw:
        """A tensor as an array of a reply."""
        raise NotImplementedError

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array; floats that NumPy has no type for are float64."""
        raise NotImplementedError

    def copied(self, tensor: Any) -> Any:
        """A tensor of the same elements, with memory of its own."""
        raise NotImplementedError

    def double(self, value: Any) -> Any:
        """A floating-point tensor in float64; everything else as it is."""
        raise NotImplementedError

    def widened(self, value: Any) -> Any:
        """An output of a reference in float64."""
        return self.double(value)

    def doubled(self, model: Any) -> Any:
        """A model with its parameters in float64, where the framework has a way to convert them."""
        return model

    def shaped(self) -> AbstractContextManager[None]:
        """A context in which a model is built whose weights need not all be drawn."""
        return nullcontext()

    def ready(self, model: Any) -> Any:
        """A model as it is run: in evaluation mode."""
        return model

    def twin(self, model: Any) -> Any:
        """A copy of a model: what a run changes in it must not show in the next. A model that
        cannot be copied is built again, with the same parameters."""
        if not self.method:
            return model
        try:
            return copy.deepcopy(model)
        except Exception:
            found = self.model({})
            self.set_state(found, {n: self.copied(v) for n, v in self.state(model).items()})
            return found

    def scalars(self, model: Any) -> dict[str, Any]:
        """The numbers among a model's attributes."""
        found = self.attributes(model).items()
        return {name: value for name, value in found if isinstance(value, bool | int | float)}

    def attributes(self, part: Any) -> dict[str, Any]:
        """The public attributes of a model, or of a part of one, by name."""
        found = getattr(part, "__dict__", {}).items()
        return {n: value for n, value in found if not n.startswith("_") and n != "training"}

    def parts(self, model: Any) -> dict[str, Any]:
        """The modules within a model, by dotted name."""
        if not self.walk or not isinstance(model, self.module_type):
            return {}
        return {name: part for name, part in getattr(model, self.walk)() if name}

    def constants_of(self, model: Any) -> dict[str, str]:
        """The constants of a model's parts (a stride, a padding, an eps), and those of its own that
        are no numbers, as text."""
        of_parts = {
            f"{name}.{key}": value
            for name, part in self.parts(model).items()
            for key, value in self.attributes(part).items()
        }
        numbers = self.scalars(model)
        own = {key: v for key, v in self.attributes(model).items() if key not in numbers}
        plain = {key: repr(v) for key, v in {**own, **of_parts}.items() if _is_constant(v)}
        return dict(list(plain.items())[:_MOST_CONSTANTS])

    def state(self, model: Any) -> dict[str, Any]:
        """Parameters in their order, then buffers, by dotted name."""
        return {}

    def unregistered(self, model: Any) -> list[str]:
        """The names in `state` of tensors that are plain attributes, known to no module."""
        return []

    def set_state(self, model: Any, values: Mapping[str, Any]) -> None:
        """Replace parameters and buffers, by name."""

    def marks(self, inputs: Sequence[Any]) -> list[Any]:
        """For each input, a mark by which `changed` sees writes: by default, a copy of it."""
        return [self.copied(value) if self.is_tensor(value) else None for value in inputs]

    def changed(self, value: Any, mark: Any) -> bool:
        """Whether an input holds other bytes than it did: NaNs are equal to themselves."""
        now, before = self.array(value), self.array(mark)
        return now.shape != before.shape or now.tobytes() != before.tobytes()

    def aliases(self, output: Any, value: Any) -> bool:
        """Whether an output is an input, or a view of it."""
        return output is value

    def many_made(self, make: Callable[[], Any]) -> Any:
        """The lists of inputs that a function of the task makes."""
        return make()

    def running(self) -> AbstractContextManager[Any]:
        """A context around each run of the task."""
        return nullcontext()

    def disturbed(self) -> AbstractContextManager[Any]:
        """A context for the second of two runs: uninitialised memory holds other values."""
        return nullcontext()

    # ------------------------------------------------------------ the file

    def _attribute(self, name: str, wanted: str) -> Any:
        if not hasattr(self.module, name):
            refuse(f"it defines no `{name}`; a task has `{wanted}`")
        return getattr(self.module, name)

    def _check_subject(self) -> None:
        subject = self.subject
        if isinstance(subject, type):
            if not self.is_module(subject):
                refuse(f"{self.name} must be {self.module_class}")
        elif not self.is_module(subject) and not callable(subject):
            refuse(f"{self.name} is {type(subject).__name__}; a task is a module or a function")

    @property
    def method(self) -> str:
        """The name of the method that is run; "" for a function."""
        if not isinstance(self.subject, type) and not self.is_module(self.subject):
            return ""
        return next((name for name in self.methods if hasattr(self.subject, name)), "")

    @property
    def where(self) -> str:
        """The name of what is run, in messages."""
        return f"{self.name}.{self.method}" if self.method else self.name

    def _parameters(self) -> list[inspect.Parameter]:
        """The arguments of what is run, without self; keyword-only ones last."""
        method = self.method
        called = getattr(self.subject, method) if method else self.subject
        try:
            known = list(inspect.signature(called).parameters.values())
        except (TypeError, ValueError):
            return []
        return known[1:] if isinstance(self.subject, type) and method else known

    def init_inputs(self) -> list[Any]:
        """What `get_init_inputs` gives; nothing when the task has none."""
        if not isinstance(self.subject, type) or not hasattr(self.module, "get_init_inputs"):
            return []
        with user_code("get_init_inputs", self.path):
            values = self.module.get_init_inputs()
        if not isinstance(values, list | tuple):
            refuse(f"get_init_inputs must return a list, and returns {type(values).__name__}")
        return list(values)

    def model(self, substitutes: Mapping[str, int]) -> Any:
        """A fresh model, or the function; `substitutes` maps init inputs (by position) to sizes."""
        if not isinstance(self.subject, type):
            return self.ready(copy.deepcopy(self.subject)) if self.method else self.subject
        values = self.init_inputs()
        for position, value in substitutes.items():
            values[int(position)] = value
        with user_code(f"{self.name}.__init__", self.path):
            return self.ready(self.subject(*values))

    # ------------------------------------------------------------ inputs

    def input_lists(self, request: Request) -> list[list[Any]]:
        """The task's own inputs, and then those of `get_inputs_dyn_list` and `get_input_groups`,
        after seeding; the list that leads comes first. Tensors within containers are inputs of
        their own."""
        if not self.makes_inputs:
            return [self.given(request["own"])]
        self.seed(request["seed"])
        found, names = [], []
        if hasattr(self.module, OWN_MAKER):
            with user_code(OWN_MAKER, self.path):
                found.append(self.ordered(self.module.get_inputs(), OWN_MAKER))
            names.append(OWN_MAKER)
        for name in LIST_MAKERS:
            if not hasattr(self.module, name):
                continue
            with user_code(name, self.path):
                lists = self.many_made(getattr(self.module, name))
                if not isinstance(lists, list | tuple) or not lists:
                    refuse(f"{name} must return a list of lists of inputs")
                found += [self.ordered(values, name) for values in lists]
            names += [list_title(number, name) for number in range(1, len(lists) + 1)]
        order = [self.lead, *(n for n in range(len(found)) if n != self.lead)]
        flat = [flatten(found[number], self.is_tensor) for number in order]
        self.list_names = [names[number] for number in order]
        leaves, self._layout = flat[0]
        self.constants = {p: v for p, v in enumerate(leaves) if not self.is_tensor(v)}
        return [leaves for leaves, _ in flat]

    @property
    def layout(self) -> Layout:
        """How the own inputs hold their tensors."""
        if self._layout is None:
            try:
                self.shapes({"seed": 0})
            except (Raised, TaskError):
                self.inputs({"seed": 0})
        assert self._layout is not None
        return self._layout

    def follow(self, lead: int) -> None:
        """Let list `lead` stand for the task's own inputs."""
        self.lead = lead
        self._layout = None if self.makes_inputs else []
        self.written.clear()
        self.elements = None

    def shapes(self, request: Request) -> list[list[int]]:
        """The shapes of the task's own inputs; none for what is no tensor."""
        return self.extents(self.inputs(request))

    def extents(self, values: Sequence[Any]) -> list[list[int]]:
        """The shape of each value; none for what is no tensor."""
        return [self.specify(v)["shape"] if self.is_tensor(v) else [] for v in values]

    def inputs(self, request: Request) -> list[Any]:
        """The inputs of list number `request["variant"]`, by default of the leading one."""
        lists = self.input_lists(request)
        return lists[request.get("variant", 0)]

    def entries(self) -> list[tuple[str, inspect.Parameter | None]]:
        """The names of the inputs, by position, with the arguments that they are: `x`, or `xs[1]`
        for a part of one. Arguments that the own inputs leave out come last."""
        order = self._in_order()
        more = next((p.name for p in self.parameters if p.kind is p.VAR_POSITIONAL), "")
        found: list[tuple[str, inspect.Parameter | None]] = []
        for place, *path in paths(self.layout):
            argument = order[place] if place < len(order) else None
            name = argument.name if argument is not None else f"{more}[{place - len(order)}]"
            subscripts = "".join(f"[{key!r}]" for key in path)
            found.append((name + subscripts, None if path else argument))
        return [*found, *((p.name, p) for p in order[len(self.layout) :])]

    def ordered(self, values: Any, where: str) -> list[Any]:
        """Inputs by position; given by name, they come in the order of the arguments."""
        if isinstance(values, Mapping):
            return self._by_position(values, where)
        if not isinstance(values, list | tuple):
            refuse(f"{where} must return a list, and returns {type(values).__name__}")
        return list(values)

    def _by_position(self, values: Mapping[str, Any], where: str) -> list[Any]:
        names = [parameter.name for parameter in self._in_order()]
        unknown = [name for name in values if name not in names]
        if unknown:
            refuse(f"{where} gives `{unknown[0]}`; the arguments are {', '.join(names)}")
        last = max((names.index(name) for name in values), default=-1)
        found = []
        for parameter in self._in_order()[: last + 1]:
            if parameter.name in values:
                found.append(values[parameter.name])
            elif parameter.default is not parameter.empty:
                found.append(parameter.default)
            else:
                refuse(f"{where} gives nothing for `{parameter.name}`")
        return found

    def _in_order(self) -> list[inspect.Parameter]:
        """Arguments that inputs go to, by position: keyword-only ones last."""
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        keyword = inspect.Parameter.KEYWORD_ONLY
        found = [p for p in self.parameters if p.kind in plain]
        return found + [p for p in self.parameters if p.kind is keyword]

    def _arranged(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments."""
        order = self._in_order()
        if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in self.parameters):
            return list(inputs), {}
        keyword = {p.name for p in order if p.kind is inspect.Parameter.KEYWORD_ONLY}
        plain = len(order) - len(keyword)
        if len(inputs) > len(order):
            return list(inputs), {}  # Python itself says what is wrong
        named = {p.name: v for p, v in zip(order[plain:], inputs[plain:], strict=False)}
        return list(inputs[:plain]), named

    def given(self, values: Sequence[Any]) -> list[Any]:
        """The inputs of a request, by position: tensors, numbers and None."""
        return [self.load(value) if isinstance(value, Raw) else value for value in values]

    def nested(self, inputs: Sequence[Any]) -> list[Any]:
        """Inputs by position as the task holds them. None stands for what is no tensor in the own
        ones: a text, a tuple of numbers, a number that a kernel does not need."""
        layout = self.layout  # with it, the constants are known
        own = self.constants
        leaves = [own.get(p) if v is None else v for p, v in enumerate(inputs)]
        return leaves if is_plain(layout) else rebuild(layout, leaves)

    def arguments(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of one run, from inputs by position."""
        return self._arranged(self.nested(inputs))

    # ------------------------------------------------------------ one run

    def forward(self, model: Any, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, without gradients; `returns` keeps what held them."""
        marks = self.marks(inputs)
        arguments, named = self.arguments(inputs)
        with user_code(self.where, self.path), self.running():
            result = model(*arguments, **named)
        changed = [
            place
            for place, value in enumerate(inputs)
            if self.is_tensor(value) and self.changed(value, marks[place])
        ]
        return self.outputs(result, inputs, changed)

    def outputs(self, result: object, inputs: Sequence[Any], changed: Sequence[int]) -> list[Any]:
        """What the task returned, as a list of tensors, and then the inputs that it wrote without
        returning them. Raises `TaskError` for anything else."""
        self.written |= set(changed)
        if result is None:
            self.returns = "none"
            if not self.written:
                refuse(f"{self.where} returns nothing and changes none of its inputs")
            return [inputs[place] for place in sorted(self.written)]
        self.returns, outputs = _container(result), list(flat(result))
        for value in outputs:
            if not self.is_tensor(value):
                kind = type(value).__name__
                refuse(f"{self.where} must return a tensor or several, and returns {kind}")
        further = [
            inputs[place]
            for place in sorted(self.written)
            if not any(self.aliases(output, inputs[place]) for output in outputs)
        ]
        if further:
            self.returns = "changes"
        return [*outputs, *further]


def _is_constant(value: object) -> bool:
    """A number, a short text, or a tuple or list of such."""
    if isinstance(value, tuple | list):
        return 0 < len(value) <= _LONGEST and all(_is_constant(part) for part in value)
    return isinstance(value, bool | int | float) or (
        isinstance(value, str) and len(value) <= _LONGEST
    )


def _container(result: object) -> str:
    """What holds the outputs; "nested" for containers of containers."""
    if isinstance(result, Mapping):
        values: list[Any] = list(result.values())
        kind = "dict"
    elif isinstance(result, tuple | list):
        values, kind = list(result), "tuple" if isinstance(result, tuple) else "list"
    else:
        return "tensor"
    inner = any(isinstance(value, Mapping | tuple | list) for value in values)
    return "nested" if inner else kind


def flat(result: object) -> Iterator[object]:
    """The outputs in their order."""
    if isinstance(result, Mapping):
        for value in result.values():
            yield from flat(value)
    elif isinstance(result, tuple | list):
        for value in result:
            yield from flat(value)
    else:
        yield result
