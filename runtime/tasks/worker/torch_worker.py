"""The process that runs a PyTorch task: see `server`.

Started for `task.TorchTask`, as a fork of a template (`process.templates`); sketchc itself never
imports this module. Large tasks are described on meta tensors, which have no data.
"""

from __future__ import annotations

import copy
import gc
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from sketchc.base.types import DType
from sketchc.runtime.guards.placement import raw_bytes
from sketchc.runtime.process import memory
from sketchc.runtime.process.messages import Raw
from sketchc.runtime.tasks.repeat import NOT_DETERMINISTIC
from sketchc.runtime.tasks.worker import convolutions, server
from sketchc.runtime.tasks.worker.counting import Counted
from sketchc.runtime.tasks.worker.functions import Formulas
from sketchc.runtime.tasks.worker.module_state import state, unregistered
from sketchc.runtime.tasks.worker.operations import (
    Operations,
    RandomOperations,
    Reads,
    Thresholds,
    explored,
    random_operation,
    shared_state,
)
from sketchc.runtime.tasks.worker.orders import InOrder
from sketchc.runtime.tasks.worker.precision import JoinsFloat64
from sketchc.runtime.tasks.worker.recurrent import LAYERS
from sketchc.runtime.tasks.worker.rng_audit import Watch
from sketchc.runtime.tasks.worker.server import SCALED
from sketchc.runtime.tasks.worker.task_file import Raised, Request, TaskError, flat, refuse

#: spelling in a sketch -> torch type
DTYPES = {dtype.value: getattr(torch, dtype.numpy_name) for dtype in DType}

#: With up to so many elements of inputs and state, a run takes less time than one without data.
_SMALL_ELEMENTS = 1 << 16
#: Elements that a task may make on its way, up to which it is run to see what values it refuses.
_BETWEEN_ELEMENTS = 1 << 22
#: Where a task is tried at small sizes, sizes up to the first stay; inputs are drawn so many times.
_LAST, _DRAWN = 8, 4
#: Elements up to which a probe may use real tensors where meta tensors do not do.
_PROBE_ELEMENTS = 1 << 22
#: A probe may make so many calls of PyTorch, or so many times those at the task's own sizes.
_LEAST_CALLS, _MORE_CALLS = 1 << 14, 4
#: Functions that make a tensor from its size.
_MAKERS = frozenset({"empty", "full", "normal", "ones", "rand", "randint", "randn", "zeros"})
#: Bytes from which on a weight is large. The system gives out such memory as pages of zeros.
_LARGE_WEIGHT = 1 << 26
#: The same limit where only shapes are wanted.
_SHAPED_WEIGHT = 1 << 16


@contextmanager
def drawn_in_front(least: int = _LARGE_WEIGHT) -> Iterator[None]:
    """A context in which `uniform_` and `normal_` draw only the first elements (`SCALED`) of a
    tensor of at least `least` bytes. The others are 0; those of a large one take neither time nor
    memory: nobody wrote the pages that they are in."""

    def drawing(name: str) -> Callable[..., torch.Tensor]:
        draw = getattr(torch.Tensor, name)

        def drawn(tensor: torch.Tensor, *values: Any, **named: Any) -> torch.Tensor:
            held = tensor.numel() * tensor.element_size()
            if held >= least and tensor.is_contiguous() and not tensor.is_meta:
                whole = tensor.detach().view(-1)
                draw(whole[:SCALED], *values, **named)
                if held < _LARGE_WEIGHT:
                    whole[SCALED:] = 0
                return tensor
            found: torch.Tensor = draw(tensor, *values, **named)
            return found

        return drawn

    with ExitStack() as stack:
        for name in ("uniform_", "normal_"):
            stack.callback(setattr, torch.Tensor, name, getattr(torch.Tensor, name))
            setattr(torch.Tensor, name, drawing(name))
        yield


class WithoutData(TorchFunctionMode):
    """New tensors of more than `most` elements have a shape and a type, and no data."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The function's result."""
        named = dict(kwargs or {})
        if getattr(func, "__name__", "") in _MAKERS and named.get("device") is None:
            drawn = {name: value for name, value in named.items() if name != "generator"}
            drawn["device"] = "meta"
            empty = func(*args, **drawn)
            if empty.numel() > self.most:
                return empty
        return func(*args, **named)


def load_tensor(raw: Raw) -> torch.Tensor:
    """A new tensor from an array of a request."""
    dtype: torch.dtype = getattr(torch, raw.dtype)
    if not raw.data.nbytes:
        return torch.empty(raw.shape, dtype=dtype)
    return torch.frombuffer(raw.data, dtype=dtype).reshape(raw.shape).clone()


def raw_tensor(tensor: torch.Tensor) -> Raw:
    """A tensor as an array of a reply."""
    data = raw_bytes(tensor.cpu()).numpy().data
    return Raw(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), data)


def as_outputs(result: object) -> list[torch.Tensor]:
    """What `forward` returned, as a list of tensors. Raises `TaskError` for anything else."""
    outputs = list(flat(result))
    for value in outputs:
        if not isinstance(value, torch.Tensor):
            msg = (
                f"Model.forward must return a tensor or several, and returns {type(value).__name__}"
            )
            raise TaskError(msg)
    return outputs  # type: ignore[return-value]


@cache
def _seeder() -> Callable[[int], object]:
    """The function that seeds torch. Where it was built for no device, there is one generator;
    `manual_seed` notes the stack for each of the others, which takes milliseconds."""
    backends: Any = torch.backends
    others = (backends.cuda.is_built(), backends.mps.is_built(), torch.xpu._is_compiled())
    if any(others):
        return torch.manual_seed
    return torch.default_generator.manual_seed


class Task(server.Task):
    """One loaded task file."""

    module_class = "a class derived from torch.nn.Module"
    module_type = torch.nn.Module
    walk = "named_modules"
    tensor_type = torch.Tensor
    spellings: ClassVar[Mapping[str, str]] = {str(dtype): name for name, dtype in DTYPES.items()}
    #: The most calls of PyTorch in a probe, once one made many.
    most_calls = 0

    def seed(self, number: int) -> None:
        """Seed torch's generator."""
        _seeder()(number)

    def ones(self, shape: Sequence[int], spelling: str) -> torch.Tensor:
        """A tensor of ones."""
        return torch.ones(tuple(shape), dtype=DTYPES[spelling])

    def load(self, raw: Raw) -> torch.Tensor:
        """A new tensor from an array of a request."""
        return load_tensor(raw)

    def raw(self, tensor: Any) -> Raw:
        """A tensor as an array of a reply."""
        return raw_tensor(tensor)

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array; bf16 as float64."""
        plain = tensor.detach().cpu()
        plain = plain.double() if plain.dtype is torch.bfloat16 else plain
        found: np.ndarray[Any, Any] = plain.numpy()
        return found

    def copied(self, tensor: Any) -> torch.Tensor:
        """A copy with memory of its own."""
        found: torch.Tensor = tensor.detach().clone()
        return found

    def double(self, value: Any) -> Any:
        """A floating-point tensor in float64; everything else as it is."""
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.double()
        return value

    def doubled(self, model: Any) -> Any:
        """A model with its parameters in float64."""
        for name, (module, value) in unregistered(model).items():
            setattr(module, name.rpartition(".")[2], self.double(value))
        return model.double() if isinstance(model, torch.nn.Module) else model

    def shaped(self) -> AbstractContextManager[None]:
        """A context in which large weights are drawn in their first elements only."""
        return drawn_in_front()

    def ready(self, model: Any) -> Any:
        """The model in evaluation mode."""
        return model.eval()

    def state(self, model: Any) -> dict[str, Any]:
        """The tensors of a model by name; see `module_state.state`."""
        return state(model)

    def unregistered(self, model: Any) -> list[str]:
        """The names in `state` of tensors that are plain attributes, known to no module."""
        return list(unregistered(model))

    def set_state(self, model: Any, values: Mapping[str, Any]) -> None:
        """Replace parameters and buffers, by name."""
        own = state(model)
        for name, value in values.items():
            if name in own:
                own[name].data = value

    def marks(self, inputs: Sequence[Any]) -> list[Any]:
        """How often each input has been written, in all."""
        return [_version(value) for value in inputs]

    def changed(self, value: Any, mark: Any) -> bool:
        """Whether an input was written since its `mark` was made."""
        return bool(_version(value) != mark)

    def aliases(self, output: Any, value: Any) -> bool:
        """Whether an output is an input, or shares its memory."""
        whole = value if value._base is None else value._base
        return bool(output is value or output is whole or output._base is whole)

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context for a run, in which torch records no gradients, and sorts are stable."""
        with torch.no_grad(), InOrder():
            yield

    def watched(
        self, model: Any, inputs: Sequence[Any], *, deep: bool = False, double: bool = False
    ) -> list[Any]:
        """Run the task and watch for random draws, also those of torch's generators."""
        with (
            Watch(("torch", shared_state)) as watch,
            RandomOperations() if deep else nullcontext() as seen,
            JoinsFloat64() if double else nullcontext(),
            convolutions.InParts(),
        ):
            outputs = self.forward(model, inputs)
        self.events = [*(() if seen is None else seen.events), *watch.events]
        return outputs

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """A context with NaN in uninitialised memory, and another number of threads."""
        # torch then fills what `torch.empty` gives with NaN. `torch.use_deterministic_algorithms`
        # would import torch's compiler, for more than a second, and do this.
        choose = torch._C._set_deterministic_algorithms
        before = torch.are_deterministic_algorithms_enabled()
        warned = torch.is_deterministic_algorithms_warn_only_enabled()
        choose(True, warn_only=True)
        # Results of threads that write into one place at once change with the number of threads.
        threads = torch.get_num_threads()
        torch.set_num_threads(1 if threads > 1 else 2)
        try:
            yield
        finally:
            choose(before, warn_only=warned)
            torch.set_num_threads(threads)

    def explored(self, request: Request) -> tuple[list[list[Any]], list[Any], list[Any]]:
        """See `operations.explored`; nothing for a task that fails while it is watched."""

        try:
            return explored(
                lambda around: self._run_on(request, 0, around=around)[1], request["rtol"]
            )
        except (Raised, TaskError):
            return [], [], []  # it fails while it is watched

    def thresholds(self, request: Request) -> dict[str, Any]:
        """The numbers that the task's operations show; else those of its file."""
        made: list[Thresholds] = []

        def around(known: list[Any]) -> Thresholds:
            made.append(Thresholds(known))
            return made[-1]

        try:
            self._run_on(request, 0, around=around)
        except (Raised, TaskError):
            return super().thresholds(request)  # it fails while it is watched
        numbers = [value for value in made[-1].values if math.isfinite(value)]
        return {"numbers": numbers, "selects": made[-1].selecting, "shown": True}

    # ------------------------------------------------------------ large tasks

    def many_made(self, make: Callable[[], Any]) -> Any:
        """The lists of inputs that `make` gives, all at once in memory: tensors that are too large
        for any run here have no data, where the task can make the lists so."""
        most = memory.elements(memory.allowed())
        if not most:
            return make()
        with WithoutData(most), suppress(Exception):  # `torch.normal(mean, std)` takes no device
            return make()
        return make()

    def tried(self, model: Any, request: Request) -> tuple[list[list[Any]], list[Any]]:
        """All lists of inputs and the outputs on the first, without data where that is possible."""
        with Reads() as reads:
            found = self._on_meta(model, request)
        if found is None and reads.names:
            self._try_small(model, request)
        return found or super().tried(model, request)

    def _try_small(self, model: Any, request: Request) -> None:
        """Raises `TaskError` where inputs of small sizes and different values give outputs of
        different shapes, before large ones are made."""
        try:
            with torch.device("meta"):
                own = self.inputs(request)
        except Exception:
            return  # the inputs need data to be made
        sizes = sorted({size for v in own if self.is_tensor(v) for size in v.shape if size > _LAST})
        small = {size: _LAST + place for place, size in enumerate(sizes, 1)}
        first: list[torch.Tensor] | None = None
        for number in range(_DRAWN):
            self.seed(number)
            given = [self._random(v, small, number) if self.is_tensor(v) else v for v in own]
            same = [v.clone() if self.is_tensor(v) else v for v in given]
            try:
                found = self.forward(self.twin(model), given)
            except (Raised, TaskError):
                continue
            if first is not None and self.extents(first) != self.extents(found):
                if self.varies(model, same, found):
                    return
                self.require_same_shapes(first, found)
            first = found

    def _random(self, like: torch.Tensor, sizes: Mapping[int, int], number: int) -> torch.Tensor:
        """Random values; integers are all 0 in draw 0, and each draw has one value more."""
        shape = [sizes.get(size, size) for size in like.shape]
        if like.is_floating_point():
            return torch.randn(shape).to(like.dtype)
        return torch.randint(0, number + 1, shape).to(like.dtype)

    def _on_meta(
        self, model: Any, request: Request
    ) -> tuple[list[list[Any]], list[torch.Tensor]] | None:
        """Inputs and outputs as meta tensors, which have no data. None for a task that looks at
        values or whose code is wrong, since only real tensors tell which, for numbers as tensors,
        and for a small one: torch imports much for the first run without data."""
        try:
            with _without_data():
                lists = self.input_lists(request)
                inputs = lists[0]
                if self.count([*inputs, *state(model).values()]) <= _SMALL_ELEMENTS:
                    return None
                if any(isinstance(value, torch.Tensor) and not value.shape for value in inputs):
                    return None
                empty = _copied_to_meta(model)
                with Held() as held:
                    outputs = self.forward(empty, inputs)
                self.between = max(0, held.most - self.count(outputs))
                return lists, outputs
        except Exception:
            self.written.clear()
            return None

    def to_ask(self, own: list[Any], request: Request) -> list[Any]:
        """As `server.Task.to_ask`; inputs without data are made where a run is little work, too."""
        own = super().to_ask(own, request)
        if not any(isinstance(value, torch.Tensor) and value.is_meta for value in own):
            return own
        return self.inputs(request) if self.between <= _BETWEEN_ELEMENTS else []

    def shapes(self, request: Request) -> list[list[int]]:
        """The shapes of the own inputs, found without data where that is possible."""
        with _without_data():
            return super().shapes(request)

    def probe(self, request: Request) -> dict[str, Any]:
        """As `server.Task.probe`, but without data where that is possible."""
        if request.get("real"):
            return self._probe_with_data(request)
        elements = sum(math.prod(v["shape"]) for v in request["inputs"] if "shape" in v)
        counted = Counted(self.most_calls or _LEAST_CALLS)
        try:
            with _without_data(), convolutions.AsWithData(), counted:
                return super().probe(request)
        except Exception:
            if counted.calls > counted.most:
                if self._most_calls() > counted.most:
                    return self.probe(request)
                refuse("the task makes too many calls of PyTorch at these sizes")
            # The task looks at values, or does not take these shapes: real tensors tell which.
            if elements > _PROBE_ELEMENTS:
                raise
            return self._probe_with_data(request)

    def _most_calls(self) -> int:
        """The most calls of PyTorch in a probe: a loop of loops over a size takes minutes where the
        size is a few times the task's own."""
        if not self.most_calls:
            own = Counted(math.inf)
            with suppress(Exception), _without_data(), own:
                model = _copied_to_meta(self.model({}))
                self.forward(model, self.input_lists({"seed": 0})[0])
            self.most_calls = max(_LEAST_CALLS, _MORE_CALLS * own.calls)
        return self.most_calls

    def _probe_with_data(self, request: Request) -> dict[str, Any]:
        with drawn_in_front(_SHAPED_WEIGHT):
            return super().probe(request)

    def trace(self, request: Request) -> dict[str, Any]:
        """The operations that the task runs on inputs of these shapes; see `trace`."""
        from torch.nn.utils.stateless import _reparametrize_module

        from sketchc.runtime.tasks.worker.trace import trace

        with drawn_in_front(_SHAPED_WEIGHT):
            model = self.model(request["substitutes"])
        inputs = [
            torch.empty(value["shape"], dtype=DTYPES[value["dtype"]], device="meta")
            if "shape" in value
            else value["value"]
            for value in request["inputs"]
        ]

        def run(state_now: Mapping[str, torch.Tensor], given: Sequence[Any]) -> list[torch.Tensor]:
            if not state_now:
                return self.forward(model, list(given))
            with _reparametrize_module(model, dict(state_now)):
                return self.forward(model, list(given))

        return trace(run, state(model), inputs)

    def determinism(self, request: Request) -> dict[str, Any]:
        """As `server.Task.determinism`; large tasks run on meta tensors, where drawing with torch
        shows. Other differences show at smaller sizes: two runs could outlast the verification."""
        if self.elements is None:
            self.describe(request)
        assert self.elements is not None
        if self.elements > self.twice_elements and (drawn := self._drawn(request)):
            why = f"forward draws random numbers ({drawn}), so two runs on the same inputs differ"
            raise TaskError(NOT_DETERMINISTIC.format(why=why))
        return super().determinism(request)

    def _drawn(self, request: Request) -> str:
        """The operation with which `forward` draws random numbers; "" where none was seen."""
        try:
            torch.manual_seed(request["seed"])
            with self.shaped():
                model = _copied_to_meta(self.model({}))
            with _without_data():
                inputs = self.inputs(request)
                return random_operation(lambda: self.forward(model, inputs))
        except Exception:
            return ""  # it needs real data


@contextmanager
def _without_data() -> Iterator[None]:
    """Tensors that are made within have shapes and no data, for which a recurrent layer makes one
    step."""
    with torch.device("meta"), Formulas(LAYERS):
        yield


class Held(Operations):  # type: ignore[no-untyped-call]
    """Notes in `most` how many elements of tensors made by operations were alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        #: The storages that are known, by their address, and how many elements count for each.
        self.known: dict[int, tuple[Any, int]] = {}

    def seen(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Runs one operation, and notes the tensors that are alive."""
        self._note((args, given), counted=False)
        found = func(*args, **given)
        self._note(found, counted=True)
        return found

    def _note(self, values: Any, *, counted: bool) -> None:
        """Count the tensors in `values`, with elements if `counted`; drop those that are gone."""
        self.known = {place: one for place, one in self.known.items() if not one[0].expired()}
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                elements = storage.nbytes() // value.element_size() if counted else 0
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self.known.setdefault(storage._cdata, (reference, elements))
        self.most = max(self.most, sum(elements for _, elements in self.known.values()))


def _copied_to_meta(model: Any) -> Any:
    """A copy of a model without data; on the way to it, no weight's data is copied."""
    if not isinstance(model, torch.nn.Module):
        return model
    known: dict[int, Any] = {}
    for own in model.parameters():
        empty = torch.empty_like(own, device="meta")
        known[id(own)] = torch.nn.Parameter(empty, requires_grad=own.requires_grad)
    known |= {id(own): torch.empty_like(own, device="meta") for own in model.buffers()}
    return copy.deepcopy(model, known).to("meta")


def _version(value: object) -> int:
    """How often a tensor was written; it also counts without data."""
    return value._version if isinstance(value, torch.Tensor) else 0


#: Serves requests until the channel is closed.
main = partial(server.serve, Task)


def prepare() -> None:
    """In the template: do what torch would do in each process when it first meets a meta tensor. It
    imports sympy (half a second), and dynamo (a second), only to mark its own functions as not to
    be compiled. In these processes nothing is compiled: they are marked as they are."""
    import torch._compile
    import torch.fx.experimental.symbolic_shapes

    marking: Any = torch._compile._disable_dynamo(print)
    place = marking.__code__.co_freevars.index("fn")
    for one in gc.get_objects():
        if type(one) is types.FunctionType and one.__code__ is marking.__code__ and one.__closure__:
            function = one.__closure__[place].cell_contents
            if isinstance(function, types.FunctionType):
                vars(function).setdefault("__dynamo_disable", function)
