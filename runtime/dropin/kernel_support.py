"""The part of a drop-in module that makes its kernel a function of tensors and arrays, and an
operator of torch. `kernel_module` copies the text between the two marks, which uses nothing of
sketchc, into the drop-in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import torch
from torch import nn

# ---- copied from here ----
#: The library of the operators, which live as long as this object.
OPERATORS = torch.library.Library("sketchc", "FRAGMENT")  # type: ignore[no-untyped-call]

#: The classes of tensors that have nothing of their own to say.
PLAIN = (torch.Tensor, nn.Parameter)

NO_BACKWARD = "this kernel has no backward pass: train with the original"


def device_types(own: str, interpreted_by: str = "") -> str:
    """The device types of the kernel's tensors, separated by a space: `own`, and the CPU as well
    where the environment variable `interpreted_by` is 1, which switches an interpreter on."""
    return f"{own} cpu" if interpreted_by and os.environ.get(interpreted_by) == "1" else own


def ceil_div(a: int, b: int) -> int:
    """A quotient of sizes, rounded up."""
    return -(-a // b)


def number(name: str, value: Any, kind: type) -> Any:
    """The `value` of a param as a Python number of this `kind`; raises `TypeError` for others."""
    if type(value) is kind:
        return value
    try:
        if kind is bool:
            if type(value).__name__ not in ("bool", "bool_"):  # NumPy's
                raise TypeError
            return bool(value)
        return float(value) if kind is float else index(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be {kind.__name__}, not {type(value).__name__}") from error


def is_array(value: Any) -> bool:
    """Whether `value` is an array of NumPy, which need not be installed."""
    return type(value).__name__ == "ndarray"


def as_tensor(name: str, array: Any, device: Any) -> torch.Tensor:
    """A NumPy array as a tensor on `device`, which shares the array's memory where possible."""
    narrow = array.dtype.name == "bfloat16"  # which torch takes for numbers of 16 bits
    plain = array.view("int16") if narrow else array
    if not plain.flags.writeable or any(step < 0 for step in plain.strides):
        plain = plain.copy()
    try:
        tensor = torch.from_numpy(plain)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is of type {array.dtype}, which torch does not know") from error
    return (tensor.view(torch.bfloat16) if narrow else tensor).to(device)


def as_array(tensor: torch.Tensor) -> Any:
    """A tensor as an array of NumPy."""
    plain = tensor.detach().cpu()
    if plain.dtype is not torch.bfloat16:
        return plain.numpy()
    import ml_dtypes

    return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def places(out: Any, count: int) -> list[Any]:
    """The tensors and arrays that `out` gives for `count` results; none where it is None."""
    if out is None:
        return []
    given = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(given) != count:
        wanted = "a tensor" if count == 1 else f"a tuple of {count} tensors"
        raise TypeError(f"out must be {wanted}")
    return given


def checked(name: str, value: Any, dtypes: Sequence[torch.dtype], devices: str) -> torch.Tensor:
    """`value` as a dense tensor, of one of `dtypes` and on one of the device types `devices`;
    arrays are moved there. Raises `TypeError` or `ValueError` for other values, and `RuntimeError`
    for a tensor whose gradient somebody asks for. (A parameter requires one always, and what was
    computed from one, too: for those the backward pass raises.)"""
    if is_array(value):
        value = as_tensor(name, value, "cpu" if "cpu" in devices else devices.split()[0])
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(value).__name__}")
    if value.dtype not in dtypes:
        raise TypeError(f"{name} is {value.dtype}; this kernel was made for {dtypes[0]}")
    if value.layout is not torch.strided:
        raise TypeError(f"{name} has the layout {value.layout}; the kernel takes dense tensors")
    if value.device.type not in (*devices.split(), "meta"):  # which has shapes alone
        msg = f"{name} is on {value.device}; this kernel runs on {devices.replace(' ', ' or ')}"
        raise ValueError(msg)
    asked = value.requires_grad and value.is_leaf and not isinstance(value, nn.Parameter)
    if asked and torch.is_grad_enabled():
        msg = f"{name} requires a gradient, and {NO_BACKWARD}, or call under torch.no_grad()"
        raise RuntimeError(msg)
    return value


def require_place(name: str, place: torch.Tensor, result: torch.Tensor) -> None:
    """Raise `ValueError` for an `out` of another shape, dtype or device type than the result."""
    for what, have, want in (
        ("shape", tuple(place.shape), tuple(result.shape)),
        ("dtype", place.dtype, result.dtype),
        ("device", place.device.type, result.device.type),
    ):
        if have != want:
            raise ValueError(f"out for {name} has {what} {have}, expected {want}")


def deliver(name: str, place: Any, result: torch.Tensor, devices: str) -> None:
    """Copy a result into the tensor or array that the caller gave for it."""
    spot = checked(f"out for {name}", place, [result.dtype], devices)
    require_place(name, spot, result)
    spot.copy_(result)
    write_back(place, spot)


def write_back(value: Any, tensor: torch.Tensor) -> None:
    """Copy `tensor` into the caller's tensor or array `value`, unless it is there already."""
    if is_array(value):
        if tensor.device.type != "cpu" or tensor.data_ptr() != value.ctypes.data:
            value[...] = as_array(tensor)
    elif value is not tensor:
        value.copy_(tensor)


def changed(tensor: Any) -> None:
    """Tell torch that a kernel has written to a tensor: who kept it for a gradient must hear."""
    if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def is_direct(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether a kernel may be called with these tensors, not through its operator: nothing is
    traced, no gradient is wanted, and no tensor is of another class or on the meta device."""
    if torch.compiler.is_compiling():
        return False
    wanted = torch.is_grad_enabled()
    return all(
        type(tensor) in PLAIN
        and tensor.device.type != "meta"
        and not (wanted and tensor.requires_grad)
        for tensor in tensors
        if tensor is not None
    )


def is_compiled_without_gradients() -> bool:
    """Whether torch compiles a call for which gradients are switched off, as it compiles anew for
    one for which they are not. (What it exports is not: that stays as it is.)"""
    exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # from 2.7 on
    return torch.compiler.is_compiling() and not exporting() and not torch.is_grad_enabled()


def modes() -> list[Callable[[], Any]]:
    """Functions that tell whether torch follows what is called: a mode or a transformation is on
    (`FakeTensorMode`, `vmap`), or calls are traced. Only torch's own names tell of all of them."""
    names = ("_len_torch_dispatch_stack", "_len_torch_function_stack", "_get_tracing_state")
    try:
        return [
            *(getattr(torch._C, name) for name in names),
            torch._C._functorch.peek_interpreter_stack,
        ]
    except AttributeError:  # another torch: it may always follow
        return [lambda: True]


class Kernel:
    """A kernel: a function of tensors, arrays and numbers, and an operator of torch.

    `tensors` has (name, dtype, is it updated, may it be None) of each tensor that the kernel takes,
    `params` (name, type) of each param, and `made` (name, dtype, position among `tensors` or None)
    of each result. `run` takes the tensors by position, the params by name, and `out`.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., Any],
        tensors: Sequence[tuple[str, torch.dtype, bool, bool]],
        params: Sequence[tuple[str, type]],
        made: Sequence[tuple[str, torch.dtype, int | None]],
        shapes: Callable[..., Sequence[tuple[int, ...]]],
        devices: str,
    ) -> None:
        self.run, self.tensors, self.params, self.made = run, tensors, params, made
        self.devices = devices
        #: Devices of the kernel's types that tensors have been on.
        self.met: set[torch.device] = set()
        self.param_names = [param for param, _ in params]
        self.updated = [place for place, (_, _, updates, _) in enumerate(tensors) if updates]
        self.names = [made_name for made_name, _, place in made if place is None]
        self.updates = len(self.updated) > 0
        self.fresh = [dtype for _, dtype, place in made if place is None]
        self.dtypes = [*(dtype for _, dtype, _, _ in tensors), *self.fresh]
        self.modes = modes()
        #: In place of `run` in calls at once, where a user asks for it.
        self.graphs: Callable[..., Any] | None = None
        self.operator, self.in_graph = operators(name, self, shapes)

    def __call__(self, values: Sequence[Any], numbers: Sequence[Any], out: Any = None) -> Any:
        """Run the kernel; tensors that it updates are updated in place. The results are arrays
        where `values` and `out` hold arrays only."""
        wanted = places(out, len(self.names))
        kinds = zip(numbers, self.params, strict=True)
        if self.is_usual(values, wanted):
            arrays = False
            given = [number(name, value, kind) for value, (name, kind) in kinds]
            results = self.called(values, given, wanted)
            if not self.updates:
                results = wanted or results
                return results[0] if len(results) == 1 else tuple(results)
        else:
            held = [value for value in (*values, *wanted) if value is not None]
            arrays = len(held) > 0 and all(is_array(value) for value in held)
            tensors = self.taken(values)
            given = [number(name, value, kind) for value, (name, kind) in kinds]
            results = self.computed(tensors, given, wanted, in_place=True)
        returned: list[Any] = []
        fresh = iter(wanted)
        for result, (_, _, place) in zip(results, self.made, strict=True):
            if place is not None:
                write_back(values[place], result)
                returned.append(values[place])
            else:
                returned.append(next(fresh, as_array(result) if arrays else result))
        return returned[0] if len(returned) == 1 else tuple(returned)

    def taken(self, values: Sequence[Any]) -> list[torch.Tensor | None]:
        """Tensors and arrays as `checked` tensors; None where one may be absent and is."""
        tensors: list[torch.Tensor | None] = []
        for value, (name, dtype, updated, optional) in zip(values, self.tensors, strict=True):
            if updated and is_array(value) and not value.flags.writeable:
                raise ValueError(f"{name} is read-only")
            absent = value is None and optional
            tensors.append(None if absent else checked(name, value, [dtype], self.devices))
        return tensors

    def is_usual(self, tensors: Sequence[Any], spots: Sequence[Any]) -> bool:
        """Whether `run` takes all these as they are, and torch need not know: contiguous tensors
        of the kernel's types, on one device of its own, and no gradient is wanted."""
        if torch.compiler.is_compiling() or torch.autograd.forward_ad._current_level >= 0:
            return False
        for mode in self.modes:
            if mode():
                return False
        wanted, device = torch.is_grad_enabled(), None
        for value, dtype in zip((*tensors, *spots), self.dtypes, strict=False):
            if (
                type(value) not in PLAIN
                or value.dtype is not dtype
                or value.layout is not torch.strided
                or not value.is_contiguous()
                or value.is_neg()
                or (wanted and value.requires_grad)
            ):
                return False
            if device is None:
                device = value.device
                if device not in self.met:
                    if device.type not in self.devices.split():
                        return False
                    self.met.add(device)
            elif value.device != device:
                return False
        return device is not None

    def called(
        self, tensors: Sequence[Any], numbers: Sequence[Any], spots: Sequence[Any]
    ) -> list[torch.Tensor]:
        """The results of `run`, which updates the tensors in place and writes into `spots`."""
        named = dict(zip(self.param_names, numbers, strict=True))
        if spots:
            named["out"] = spots[0] if len(spots) == 1 else tuple(spots)
        found = (self.graphs or self.run)(*tensors, **named)
        for place in self.updated:
            changed(tensors[place])
        for spot in spots:
            changed(spot)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    def computed(
        self,
        tensors: Sequence[torch.Tensor | None],
        numbers: Sequence[Any],
        wanted: Sequence[Any] = (),
        *,
        in_place: bool = False,
    ) -> list[torch.Tensor]:
        """All results, as tensors. `wanted` are tensors or arrays to write new results into.
        Tensors that the kernel updates are copied first, unless it may update them `in_place`."""
        if in_place >= self.updates and self.is_usual(tensors, wanted):
            return self.called(tensors, numbers, wanted)
        spots = [
            checked(f"out for {name}", place, [dtype], self.devices)
            for name, dtype, place in zip(self.names, self.fresh, wanted, strict=False)
        ]
        devices = [tensor.device for tensor in (*tensors, *spots) if tensor is not None]
        for device in devices:
            if device.type != devices[0].type:
                raise ValueError(f"tensors are on {devices[0]} and on {device}")
        direct = (spots or self.updates) and in_place >= self.updates
        direct = direct and is_direct([*tensors, *spots])
        if direct:
            results = self.called(tensors, numbers, spots)
        else:
            chosen = self.in_graph if is_compiled_without_gradients() else self.operator
            found = chosen(*tensors, *numbers)
            results = list(found) if isinstance(found, (tuple, list)) else [found]
        fresh = [r for r, (_, _, place) in zip(results, self.made, strict=True) if place is None]
        for name, place, spot, result in zip(self.names, wanted, spots, fresh, strict=False):
            if direct:
                write_back(place, spot)
            else:
                deliver(name, place, result, self.devices)
        return results


def operators(
    name: str, kernel: Kernel, shapes: Callable[..., Sequence[tuple[int, ...]]]
) -> tuple[Any, Any]:
    """The kernel as an operator of torch, which `torch.compile` and `torch.export` take as a whole,
    and as one for graphs without gradients.

    The operators take the tensors, then the params by position; tensors that are updated are copied
    first. `shapes` gives the results' shapes for the same arguments. The first has no derivative:
    asking for one is an error, not a zero. The second knows nothing of gradients: torch asks the
    first whether one is wanted at each call, in Python.
    """
    count, single = len(kernel.tensors), len(kernel.made) == 1
    names = [param for param, _ in kernel.params]

    def compute(*values: Any) -> Any:
        given: list[torch.Tensor | None] = []
        for value, (_, _, updated, _) in zip(values[:count], kernel.tensors, strict=True):
            plain = None if value is None else value.resolve_neg().contiguous()
            given.append(plain.clone() if updated and plain is not None else plain)
        return kernel.run(*given, **dict(zip(names, values[count:], strict=True)))

    def follow(*values: Any) -> Any:
        device = next(value.device for value in values[:count] if value is not None)
        told = zip(shapes(*values), (dtype for _, dtype, _ in kernel.made), strict=True)
        made = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in told]
        return made[0] if single else tuple(made)

    def no_gradients(
        values: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        raise NotImplementedError(NO_BACKWARD)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:count])

    def differentiate(context: Any, *gradients: Any) -> tuple[Any, ...]:
        kept = list(context.saved_tensors)
        there = [tensor for tensor in kept if tensor is not None]
        made = iter(refused(there, [each for each in gradients if each is not None]))
        found = (
            None
            if old is None or (new := next(made)) is None or not old.is_floating_point()
            else new
            for old in kept
        )
        return (*found, *(None for _ in names))

    # The backward pass is an operator, so that it raises when it runs, not when it is compiled. (It
    # takes the gradients: an operator without them would run with the forward pass.)
    refused = defined(
        f"{name}_backward",
        "(Tensor[] values, Tensor[] gradients) -> Tensor[]",
        no_gradients,
        lambda values, _: [torch.empty_like(value) for value in values],
    )
    made = defined(name, schema(kernel), compute, follow)
    told = made.name()
    torch.library.register_autograd(told, differentiate, setup_context=keep, lib=OPERATORS)
    return made, defined(f"{name}_in_graph", schema(kernel), compute, follow)


def schema(kernel: Kernel) -> str:
    """The arguments and results of the kernel's operator, in torch's schema notation."""
    taken = [
        f"Tensor{'?' if optional else ''} t{place}"
        for place, (_, _, _, optional) in enumerate(kernel.tensors)
    ]
    taken += [f"{kind.__name__} p{place}" for place, (_, kind) in enumerate(kernel.params)]
    single = len(kernel.made) == 1
    returned = "Tensor" if single else f"({', '.join('Tensor' for _ in kernel.made)})"
    return f"({', '.join(taken)}) -> {returned}"


def defined(name: str, schema: str, compute: Callable[..., Any], follow: Callable[..., Any]) -> Any:
    """A new operator with the fake implementation `follow`. (Not by `torch.library.custom_op`,
    which takes seconds at the first call: it imports the compiler of torch.)"""
    free, count = name, 1
    while hasattr(torch.ops.sketchc, free):  # this module was loaded before
        count += 1
        free = f"{name}_{count}"
    OPERATORS.define(free + schema)  # type: ignore[no-untyped-call]
    OPERATORS.impl(free, compute, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"sketchc::{free}", follow, lib=OPERATORS)
    return getattr(torch.ops.sketchc, free).default


# ---- to here ----
