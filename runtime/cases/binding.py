"""How a task's values reach a sketch: inputs and parameters by position, symbols from shapes.

Forward's tensors fill the sketch's `in` and `inout` tensors in call order; the model's parameters
and buffers fill those that are left, by name where names agree and else by position. Forward's
numbers (tensors without axes among them, where no tensor of the sketch is one) fill the sketch's
params (`numbers`); a param that is left takes the value of `--set`, else the model's attribute of
its name, else its default. Forward's other arguments are constants of the task. The task's hints
restrict symbols and inputs. Every mismatch raises one `UsageError`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from sketchc.base.diagnostics import UsageError, refuse
from sketchc.base.types import DType, numpy_dtype
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.launch.conditions import broken
from sketchc.launch.inputs import absent_symbols, solve_symbols
from sketchc.runtime.cases.numbers import Number, bind_params, numbers_of, suits
from sketchc.runtime.cases.sizes import tensor_shapes
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import (
    HintError,
    InputSpec,
    OtherSpec,
    Scalar,
    TaskDescription,
    TensorSpec,
    fail,
)
from sketchc.runtime.tasks.outline import Domain, Hint


def _symbol_domains(
    sketch: ir.Sketch,
    task: TaskDescription,
    tensors: Sequence[TensorSource],
    symbols: Mapping[str, int],
) -> tuple[dict[str, Domain], list[str]]:
    """The sizes that the task's hints allow, by symbol, and notes on hints that restrict no symbol.

    Raises `HintError` for an unknown name or a second hint on a symbol, and `TaskFailure` where the
    task's own sizes break a hint.
    """
    found: dict[str, Domain] = {}
    said: dict[str, Hint] = {}
    notes = []
    for hint in task.hints:
        if hint.domain is None or task.positions_of(hint.name):
            continue
        names = _meant(sketch, task, tensors, hint)
        if not names:
            notes.append(f"the hint `{hint.text}` restricts no size of the sketch {sketch.name}")
        for name in names:
            where = f"{task.path}, line {hint.line}: the hint `{hint.text}`"
            if name in said:
                msg = f"{where} and `{said[name].text}` both speak of the sketch's {name}"
                raise HintError(msg)
            if not hint.domain.holds(symbols[name]):
                fail(f"{where} does not allow the task's own size {symbols[name]}")
            found[name], said[name] = hint.domain, hint
    return found, notes


def _meant(
    sketch: ir.Sketch, task: TaskDescription, tensors: Sequence[TensorSource], hint: Hint
) -> list[str]:
    """The symbols that `hint` restricts: those of the axes that `task.axes` has for its name, else
    the sketch's symbol of that name; none where these axes are no symbols. Raises `HintError`."""
    filled = {source.position: source.tensor for source in tensors}
    extents = [
        filled[position].extents[axis]
        for position, axis in task.axes.get(hint.name, ())
        if position in filled and axis < len(filled[position].extents)
    ]
    found = [
        extent.name
        for extent in extents
        if isinstance(extent, ir.Ref) and extent.kind is ir.NameKind.SYMBOL
    ]
    if found or hint.name in task.axes:
        return list(dict.fromkeys(found))
    symbols = [symbol.name for symbol in sketch.symbols]
    if hint.name in symbols:
        return [hint.name]
    if any(constant.name == hint.name for constant in sketch.constants):
        return []
    msg = (
        f"{task.path}, line {hint.line}: the hint `{hint.text}` speaks of {hint.name}, which is no "
        f"argument of the task ({', '.join(task.names) or 'none'}), no size of its inputs, and no "
        f"symbol of the sketch {sketch.name} ({', '.join(symbols)})"
    )
    raise HintError(msg)


class OtherSignatureError(UsageError):
    """A list of inputs for another kernel: of another length, other types or other ranks."""


_CHANGES = (
    "the task changes inputs that it does not return: these are outputs, too, after the others"
)


@attrs.frozen
class TensorSource:
    """Where one tensor of the sketch comes from: position `position` of forward's inputs, or the
    parameter or buffer `state`."""

    tensor: ir.Tensor
    specification: TensorSpec
    position: int | None = None
    state: str | None = None

    @property
    def text(self) -> str:
        """The tensor as messages name it."""
        if self.state is not None:
            return f"the model's {self.state}"
        return f"input {(self.position or 0) + 1}"


@attrs.frozen
class Binding:
    """A sketch bound to a task at the task's own sizes.

    `symbols` and `params` hold every symbol and param; `param_inputs` maps positions of forward's
    inputs to params; `nothing` holds the positions of inputs that fill no tensor and no param
    (None, a string, a number that the sketch leaves out): the task is given None there, and uses
    its own value; `notes` report choices that raise no error. Optional tensors that the task never
    gives are not in `tensors`. `receivers` maps positions of inputs that the task only writes into
    to `out` tensors. `sizes` (by symbol) and `values` (by input position) are the domains that the
    task's hints allow. `other_types` describes tensors whose type differs from the task's: no
    kernel of the sketch is right. `marks` are the outliers among the integers of inputs, by
    position (`marks.py`).
    """

    sketch: ir.Sketch
    description: TaskDescription
    tensors: tuple[TensorSource, ...]
    outputs: tuple[ir.Tensor, ...]
    symbols: Mapping[str, int]
    params: Mapping[str, Scalar]
    param_inputs: Mapping[int, str]
    notes: tuple[str, ...] = ()
    nothing: frozenset[int] = frozenset()
    receivers: Mapping[int, str] = attrs.field(factory=dict)
    sizes: Mapping[str, Domain] = attrs.field(factory=dict)
    values: Mapping[int, Domain] = attrs.field(factory=dict)
    other_types: tuple[str, ...] = ()
    marks: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)

    def number(self, position: int) -> Array | Scalar:
        """The value of the param that the input at `position` fills, as the task takes it: a
        number, or a tensor without axes."""
        value = self.params[self.param_inputs[position]]
        specification = self.description.inputs[position]
        if isinstance(specification, TensorSpec):
            return np.asarray(value, numpy_dtype(specification.dtype))
        return value

    def domain(self, name: str) -> Domain:
        """The sizes that the task's hints allow for a symbol."""
        return self.sizes.get(name, Domain())

    def allows(self, symbols: Mapping[str, int]) -> bool:
        """Whether the task's hints allow the sizes `symbols`."""
        return all(domain.holds(symbols[name]) for name, domain in self.sizes.items())

    @property
    def omissible(self) -> tuple[str, ...]:
        """The optional tensors that the task gives and that its forward can be called without."""
        return tuple(
            source.tensor.name
            for source in self.tensors
            if source.tensor.optional and source.position in self.description.defaults
        )

    def with_numbers(self, numbers: Mapping[str, Scalar]) -> Binding:
        """This binding with the values in `numbers` for some params."""
        return attrs.evolve(self, params={**self.params, **numbers}) if numbers else self

    def numbers_of(self, inputs: Sequence[InputSpec]) -> dict[str, Scalar]:
        """The params that have other values in `inputs`, another list of inputs of the task."""
        found: dict[str, Scalar] = {}
        for position, name in self.param_inputs.items():
            given = inputs[position] if position < len(inputs) else None
            value = given.value if isinstance(given, TensorSpec) else given
            if isinstance(value, bool | int | float) and value != self.params[name]:
                found[name] = value
        return found

    def symbols_of(self, inputs: Sequence[InputSpec]) -> dict[str, int]:
        """The symbols' values in another list of the task's inputs. Raises `OtherSignatureError`
        where its length, types or ranks differ, and `UsageError` where it does not fit the
        sketch."""
        shapes = {s.tensor.name: s.specification.shape for s in self.tensors}
        if len(inputs) != len(self.description.inputs):
            msg = f"it has {len(inputs)} inputs, and {len(self.description.inputs)} in the first"
            raise OtherSignatureError(msg)
        for source in self.tensors:
            if source.position is None:
                continue
            given = inputs[source.position] if source.position < len(inputs) else None
            if not isinstance(given, TensorSpec) or len(given.shape) != len(source.tensor.extents):
                msg = f"{source.text} is no tensor of rank {len(source.tensor.extents)} there"
                raise OtherSignatureError(msg)
            if given.dtype is not source.specification.dtype:
                msg = (
                    f"{source.text} is {given.dtype.value} there, and "
                    f"{source.specification.dtype.value} in the first"
                )
                raise OtherSignatureError(msg)
            shapes[source.tensor.name] = given.shape
        for position in self.nothing:
            value, first = inputs[position], self.description.inputs[position]
            if value != first:
                where = self.description.name_of(position)
                refuse(f"{where} is {_shown(value)} there, and {_shown(first)} in the first")
        for position, name in self.param_inputs.items():
            found = inputs[position]
            number = found.value if isinstance(found, TensorSpec) else found
            param = next(param for param in self.sketch.params if param.name == name)
            if not isinstance(number, bool | int | float) or not suits(number, param):
                refuse(f"{name} is {_shown(found)} there, and {self.params[name]!r} in the first")
        symbols = bind_symbols(self.sketch, shapes, {s.tensor.name: s.text for s in self.tensors})
        params = {**self.params, **self.numbers_of(inputs)}
        _check_extents(self.sketch, symbols, params, shapes)
        return symbols

    def fits(self, symbols: Mapping[str, int]) -> bool:
        """Whether the sketch may be launched at the sizes `symbols` without an empty tensor."""
        try:
            if broken(self.sketch, symbols, self.params):
                return False
            return all(extent > 0 for shape in self.shapes(symbols).values() for extent in shape)
        except (ArithmeticError, ValueError):
            return False

    def shapes(self, symbols: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shape of every in, inout and out tensor at the sizes `symbols`, even where a launch
        must be refused there."""
        return tensor_shapes(self.sketch, symbols, self.params)


def bind(
    sketch: ir.Sketch, task: TaskDescription, settings: Mapping[str, Scalar] | None = None
) -> Binding:
    """Bind `sketch` to `task`; `settings` are the user's `--set` values. Raises `UsageError`."""
    numbers = numbers_of(sketch, task)
    tensors, constants, receivers = _tensor_sources(sketch, task, numbers)
    notes = [note for source in tensors if (note := _conversion(source))]
    if task.returns == "changes":
        notes.append(_CHANGES)
    bound = bind_params(sketch, task, settings or {}, numbers)
    _require_plain(task, bound.left_out)
    shapes = {source.tensor.name: source.specification.shape for source in tensors}
    symbols = bind_symbols(sketch, shapes, {s.tensor.name: s.text for s in tensors})
    _check_extents(sketch, symbols, bound.values, shapes)
    outputs = tuple(t for t in sketch.tensors if t.role in (ir.Role.OUT, ir.Role.INOUT))
    if len(outputs) != len(task.outputs):
        refuse(
            f"the task returns {_count(len(task.outputs), 'tensor')} and the sketch "
            f"{sketch.name} has {_count(len(outputs), 'output')} ({_names(outputs)})"
        )
    sizes, unused = _symbol_domains(sketch, task, tensors, symbols)
    return Binding(
        sketch,
        task,
        tensors,
        outputs,
        symbols,
        bound.values,
        bound.positions,
        (*notes, *bound.notes, *_left_out(task), *_refused(task), *unused),
        constants | bound.left_out,
        receivers,
        sizes,
        # A hint on an argument restricts all its parts.
        {p: h.domain for h in task.hints if h.domain for p in task.positions_of(h.name)},
        _other_types(tensors, outputs, task.outputs),
    )


def _refused(task: TaskDescription) -> Iterable[str]:
    """A note on each input of which the task takes no values but such as its own ones."""
    for hint in task.hints:
        if hint.line == 0:
            yield f"{hint.text}: the task refuses other values"


def _left_out(task: TaskDescription) -> Iterable[str]:
    """A note on arguments that the task's own inputs leave to their defaults."""
    names = task.names[len(task.inputs) :]
    if names:
        verb = "takes its default" if len(names) == 1 else "take their defaults"
        yield f"{', '.join(names)} of {task.subject} {verb} in all runs: no input gives a value"


def _require_plain(task: TaskDescription, positions: Iterable[int]) -> None:
    """Raise `UsageError` where a number that fills no param is a tensor without axes."""
    for position in positions:
        value = task.inputs[position]
        if isinstance(value, TensorSpec):
            refuse(
                f"{task.name_of(position)} of the task is the number {value.value} in a tensor, "
                "and the sketch has neither a param nor a tensor for it"
            )


def _shown(value: InputSpec) -> str:
    return value.text if isinstance(value, OtherSpec) else repr(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _names(tensors: Sequence[ir.Tensor]) -> str:
    return ", ".join(tensor.name for tensor in tensors) or "none"


def _receivers(
    sketch: ir.Sketch, task: TaskDescription, given: Sequence[int], wanted: int
) -> dict[int, str]:
    """The inputs that the task only writes outputs into, with the sketch's `out` tensors for them;
    none unless the task gives just so many tensors more than the `wanted` ones of the sketch."""
    surplus = len(given) - wanted
    if surplus <= 0 or task.returns != "none":
        return {}
    outputs = [t for t in sketch.tensors if t.role in (ir.Role.OUT, ir.Role.INOUT)]
    pairs = zip(sorted(task.written), outputs, strict=False)
    found = {place: t.name for place, t in pairs if t.role is ir.Role.OUT and place in given}
    return found if len(found) == surplus else {}


def _tensor_sources(
    sketch: ir.Sketch, task: TaskDescription, numbers: Sequence[Number]
) -> tuple[tuple[TensorSource, ...], frozenset[int], dict[int, str]]:
    """The source of each tensor, the positions of inputs that are neither tensor nor number (None,
    a string), and the inputs that are only written."""
    wanted = [t for t in sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
    given: list[tuple[int, TensorSpec | None]] = []
    as_numbers = {position for position, _ in numbers}
    for position, value in enumerate(task.inputs):
        if position in as_numbers:
            continue
        if isinstance(value, TensorSpec):
            given.append((position, value))
        elif isinstance(value, OtherSpec) and value.is_none:
            given.append((position, None))
    tensors = [place for place, value in given if value is not None]
    receivers = _receivers(sketch, task, tensors, len(wanted))
    given = [(place, value) for place, value in given if place not in receivers]
    if len(tensors) - len(receivers) > len(wanted):
        refuse(
            f"the task's forward takes {_count(len(tensors), 'tensor')} and the sketch "
            f"{sketch.name} has {_count(len(wanted), 'input')} ({_names(wanted)})"
        )
    given = _aligned(wanted, given, len(task.state))
    sources = []
    for tensor, (position, specification) in zip(wanted, given, strict=False):
        if specification is not None:
            sources.append(TensorSource(tensor, specification, position=position))
        elif not tensor.optional:
            refuse(f"input {position + 1} of the task is None, and {tensor.name} is not optional")
    sources += _state_sources(sketch, wanted[len(given) :], task, len(given))
    for source in sources:
        shape, want = list(source.specification.shape), len(source.tensor.extents)
        if len(shape) != want:
            refuse(
                f"{source.text} of the task has rank {len(shape)} (shape {shape}) and "
                f"{source.tensor.name} has rank {want}"
            )
    constants = {p for p, value in enumerate(task.inputs) if isinstance(value, OtherSpec)}
    return tuple(sources), frozenset(constants), receivers


def _aligned(
    wanted: Sequence[ir.Tensor], given: list[tuple[int, TensorSpec | None]], more: int
) -> list[tuple[int, TensorSpec | None]]:
    """The inputs `given` without each None that stands for no tensor. As many None as possible
    stand for optional tensors; all are kept where nothing fits. The model has `more` tensors."""
    absent = [place for place, value in given if value is None]
    for count in range(len(absent), -1, -1):
        for kept in itertools.combinations(absent, count):
            found = [(p, value) for p, value in given if value is not None or p in kept]
            left = [tensor for tensor in wanted[len(found) :] if not tensor.optional]
            pairs = zip(wanted, (value for _, value in found), strict=False)
            fits = all(
                tensor.optional if value is None else len(value.shape) == len(tensor.extents)
                for tensor, value in pairs
            )
            if fits and len(found) <= len(wanted) and len(left) <= more:
                return found
    return given


def _state_sources(
    sketch: ir.Sketch, wanted: Sequence[ir.Tensor], task: TaskDescription, given: int
) -> list[TensorSource]:
    """Parameters and buffers for the tensors in `wanted`, which forward's inputs do not fill; where
    the model has too few, optional tensors get none."""
    if len(wanted) > len(task.state):
        wanted = [tensor for tensor in wanted if not tensor.optional]
    if len(wanted) > len(task.state):
        total = given + len(wanted)
        refuse(
            f"the sketch {sketch.name} has {_count(total, 'input')}; the task's forward takes "
            f"{_count(given, 'tensor')} and its model has "
            f"{len(task.state)} parameters and buffers"
        )
    by_name = {spec.name.rpartition(".")[2].lower(): spec for spec in reversed(task.state)}
    named = {t.name: by_name[t.name.lower()] for t in wanted if t.name.lower() in by_name}
    taken = {spec.name for spec in named.values()}
    others = iter([spec for spec in task.state if spec.name not in taken])
    sources = []
    for tensor in wanted:
        spec = named.get(tensor.name) or next(others)
        sources.append(TensorSource(tensor, spec, state=spec.name))
    return sources


def _conversion(source: TensorSource) -> str:
    """A note on how the elements of `source` are rounded; "" where the types agree. Raises
    `UsageError` for float <-> integer."""
    have, want = source.specification.dtype, source.tensor.dtype
    if have is want:
        return ""
    if _kind(have) != _kind(want):
        refuse(
            f"{source.text} of the task is {have.value} and {source.tensor.name} is {want.value}; "
            "declare the tensor with the task's type"
        )
    return (
        f"{source.text} of the task is {have.value}; {source.tensor.name} is {want.value}, "
        "so inputs are rounded to it before both sides get them"
    )


def _other_types(
    sources: Sequence[TensorSource], outputs: Sequence[ir.Tensor], given: Sequence[TensorSpec]
) -> tuple[str, ...]:
    """Messages on tensors whose type differs from the task's: a kernel that reads or writes such a
    tensor is wrong for the task. Integers that are only read may have another width."""
    found = [
        f"{s.tensor.name} is {s.tensor.dtype.value}, and {s.text} of the task "
        f"{s.specification.dtype.value}"
        for s in sources
        if s.tensor.dtype.is_float and s.tensor.dtype is not s.specification.dtype
    ]
    return (
        *found,
        *(
            f"{tensor.name} is {tensor.dtype.value}, and the task returns {value.dtype.value}"
            for tensor, value in zip(outputs, given, strict=True)
            if tensor.dtype is not value.dtype
        ),
    )


def _kind(dtype: DType) -> str:
    return "float" if dtype.is_float else "integer" if dtype.is_integer else "bool"


def bind_symbols(
    sketch: ir.Sketch,
    shapes: Mapping[str, Sequence[int]],
    sources: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """The symbols' values from the shapes of the given tensors. Raises `UsageError`, with the axis
    (no launch knows it), when shapes disagree, a bound is exceeded, or a symbol is in no shape."""
    found: dict[str, tuple[int, str]] = {}
    for tensor in sketch.tensors:
        if tensor.name not in shapes:
            continue
        for axis, (extent, size) in enumerate(
            zip(tensor.extents, shapes[tensor.name], strict=True)
        ):
            if not (isinstance(extent, ir.Ref) and extent.kind is ir.NameKind.SYMBOL):
                continue
            if tensor.broadcast and tensor.broadcast[axis] and size == 1:
                continue
            where = f"axis {axis} of {(sources or {}).get(tensor.name, tensor.name)}"
            if extent.name in found and found[extent.name][0] != size:
                value, other = found[extent.name]
                refuse(f"{extent.name} is {value} by {other} and {size} by {where}")
            found.setdefault(extent.name, (size, where))
    bare = {name: size for name, (size, _) in found.items()}
    values = solve_symbols(sketch, shapes, {**absent_symbols(sketch, shapes), **bare})
    for symbol in sketch.symbols:
        if symbol.name not in values:
            refuse(f"no shape of an input gives the symbol {symbol.name}")
        value = values[symbol.name]
        if symbol.upper_bound is not None and value > symbol.upper_bound:
            where = f" by {found[symbol.name][1]}" if symbol.name in found else ""
            refuse(f"{symbol.name} is {value}{where}; the sketch allows {symbol.upper_bound}")
    return {symbol.name: values[symbol.name] for symbol in sketch.symbols}


def _check_extents(
    sketch: ir.Sketch,
    symbols: Mapping[str, int],
    params: Mapping[str, Scalar],
    shapes: Mapping[str, Sequence[int]],
) -> None:
    """Raise `UsageError` where a launch condition or an extent's expression is broken."""
    refused = broken(sketch, symbols, params)
    if refused is not None:
        refuse(f"the task's sizes break what the sketch needs: {refused}")
    values = host_values(sketch, symbols, params)
    for tensor in sketch.tensors:
        for axis, extent in enumerate(tensor.extents if tensor.name in shapes else ()):
            size, wanted = shapes[tensor.name][axis], int(evaluate(extent, values))
            broadcast = bool(tensor.broadcast) and tensor.broadcast[axis] and size == 1
            if size != wanted and not broadcast:
                refuse(f"axis {axis} of {tensor.name} is {size}; the sketch says {wanted}")
