"""What every drop-in module holds besides its data: `torch_dropin` copies this file's text into it.

So it imports nothing of sketchc. The text between the two marks is what is copied.
"""

# ---- copied from here ----
from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

FOLDER = Path(__file__).resolve().parent
#: The default of an argument that has none.
REQUIRED = inspect.Parameter.empty
#: The operators live as long as this does.
OPERATORS = torch.library.Library("sketchc", "FRAGMENT")  # type: ignore[no-untyped-call]


def load_file(name: str, file: str, rebuild: str = "") -> ModuleType:
    """The module in a file of this folder; `rebuild` says how to make the file again."""
    path = FOLDER / file
    specification = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or specification is None or specification.loader is None:
        raise ImportError(f"{path} is missing{rebuild}")
    module = importlib.util.module_from_spec(specification)
    sys.modules.setdefault(name, module)
    try:
        specification.loader.exec_module(module)
    except ImportError as error:
        raise ImportError(f"{path} cannot be loaded: {error}{rebuild}") from error
    return module


def built_file(name: str) -> str:
    """The file name of an extension module built for this Python."""
    return name + str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def device_types(own: str, interpreted_by: str = "") -> str:
    """Where the kernel's tensors live; an interpreter, which that variable switches on, takes those
    of the CPU as well."""
    return f"{own} cpu" if interpreted_by and os.environ.get(interpreted_by) == "1" else own


def check_construction(
    model: nn.Module,
    base: type[nn.Module],
    given: tuple[Sequence[Any], Mapping[str, Any]],
    made_for: Sequence[Any],
    may_differ: Sequence[int | str],
) -> None:
    """Refuse constructor arguments that the kernel cannot follow.

    `made_for` are the task's init inputs. Positions in `may_differ` are sizes that the kernel takes
    from its inputs' shapes; names are attributes that it reads at every call.
    """
    signature = inspect.signature(base.__init__)
    wanted = signature.bind(model, *made_for)
    found = signature.bind(model, *given[0], **given[1])
    wanted.apply_defaults()
    found.apply_defaults()
    for position, name in enumerate(list(signature.parameters)[1:]):
        have, want = found.arguments[name], wanted.arguments[name]
        # A tensor becomes a parameter or a buffer, which the kernel reads at every call.
        if isinstance(have, torch.Tensor) or have is want or have == want:
            continue
        followed = name in may_differ and getattr(model, name, None) == have
        if position not in may_differ and not followed:
            raise ValueError(f"{name} is {have!r}; this kernel was made and verified for {want!r}")


def arguments_of(forward: Callable[..., Any]) -> list[tuple[str, Any]] | None:
    """(name, default or `REQUIRED`) of what `forward` takes behind self; None where some go by
    name alone, or any number is taken."""
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in parameters):
        return None
    return [(one.name, REQUIRED if one.default is one.empty else one.default) for one in parameters]


def bound_arguments(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], n: int
) -> list[Any]:
    """As `bind_arguments`, of any signature; `torch.compile` cannot follow."""
    signature = inspect.signature(forward)
    bound = signature.bind(None, *args, **kwargs)
    for name in list(bound.arguments):
        parameter = signature.parameters[name]
        position = list(signature.parameters).index(name) - 1
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if position >= n and not variable and bound.arguments[name] is not parameter.default:
            raise TypeError(f"this kernel was made for {name} = {parameter.default!r}")
    bound.apply_defaults()
    values: list[Any] = list(bound.args[1:])
    if len(values) < n:
        raise TypeError(f"forward takes {n} arguments here, and got {len(values)}")
    return values[:n]


def bind_arguments(
    forward: Callable[..., Any],
    known: Sequence[tuple[str, Any]] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    n: int,
) -> list[Any]:
    """Forward's arguments by position. The first `n` reach the kernel; others must keep their
    defaults, since the kernel was made for those. `known` is of `arguments_of`. (In plain steps,
    which `torch.compile` can follow.)"""
    if known is None:
        return bound_arguments(forward, args, kwargs, n)
    names = [name for name, _ in known]
    if len(args) > len(names):
        raise TypeError("too many positional arguments")
    for name in kwargs:
        if name not in names:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        if name in names[: len(args)]:
            raise TypeError(f"multiple values for argument {name!r}")
    values = list(args)
    for name, default in known[len(args) :]:
        value = kwargs.get(name, default)
        if value is REQUIRED:
            raise TypeError(f"missing a required argument: {name!r}")
        values.append(value)
    for (name, default), value in list(zip(known, values, strict=True))[n:]:
        if value is not default:
            raise TypeError(f"this kernel was made for {name} = {default!r}")
    return values[:n]


def state(model: nn.Module, name: str) -> torch.Tensor:
    """A parameter or buffer by its dotted name."""
    owner, _, last = name.rpartition(".")
    value: torch.Tensor = getattr(model.get_submodule(owner), last)
    return value


def check_mode(model: nn.Module) -> None:
    """The kernel computes what the task computes in evaluation mode."""
    for module in model.modules() if model.training else ():
        drops = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        learns = isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
        if drops or learns or isinstance(module, nn.RReLU):
            msg = (
                f"{type(module).__name__} acts differently in training; call .eval() first: the "
                "kernel computes what the task computes in evaluation mode"
            )
            raise RuntimeError(msg)


def checked(name: str, value: Any, dtypes: Sequence[torch.dtype], devices: str) -> torch.Tensor:
    """The value, if it is a dense tensor of the task's dtype on the kernel's kind of device."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(value).__name__}")
    if value.dtype not in dtypes:
        raise TypeError(f"{name} is {value.dtype}; this kernel was made for {dtypes[0]}")
    if value.layout is not torch.strided:
        raise TypeError(f"{name} has the layout {value.layout}; the kernel takes dense tensors")
    if value.device.type not in (*devices.split(), "meta"):  # which has shapes alone
        msg = f"{name} is on {value.device}; this kernel runs on {devices.replace(' ', ' or ')}"
        raise ValueError(msg)
    return value


def require_constant(name: str, value: Any, wanted: Any) -> None:
    """Raise `ValueError` for an input that is no tensor and not what the kernel was made for."""
    if isinstance(value, torch.Tensor) or value != wanted:
        found = type(value).__name__ if isinstance(value, torch.Tensor) else repr(value)
        raise ValueError(f"{name} is {found}; this kernel was made for {wanted!r}")


def number(name: str, value: Any, kind: type) -> Any:
    """The number that a param has, as Python's; raises `TypeError` for anything else."""
    if type(value) is kind:
        return value
    try:
        if kind is bool:
            if type(value).__name__ != "bool_":  # NumPy's
                raise TypeError
            return bool(value)
        return float(value) if kind is float else index(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be {kind.__name__}, not {type(value).__name__}") from error


def ceil_div(a: int, b: int) -> int:
    """A quotient of sizes, rounded up."""
    return -(-a // b)


def operator(
    name: str,
    schema: str,
    kernel: Callable[..., Any],
    written: Sequence[bool | None],
    params: Sequence[str],
    shapes: Callable[..., Sequence[tuple[int, ...]]],
    dtypes: Sequence[torch.dtype],
) -> Any:
    """The kernel as an operator of torch, which `torch.compile` and `torch.export` take as a whole.

    `written` says of the kernel's tensors whether it writes them, and is None for those that the
    task never gives. The operator takes the others, and the params by position; what is written is
    copied first. `shapes`, of the same arguments, and `dtypes` are those of the results. It has no
    derivative: asking for one is an error, not a zero.
    """
    count, single = sum(changes is not None for changes in written), len(dtypes) == 1

    def compute(*values: Any) -> Any:
        tensors: Iterator[torch.Tensor] = iter(values[:count])
        given: list[torch.Tensor | None] = []
        for changes in written:
            if changes is None:
                given.append(None)
                continue
            plain = next(tensors).resolve_neg().contiguous()
            given.append(plain.clone() if changes else plain)
        return kernel(*given, **dict(zip(params, values[count:], strict=True)))

    def follow(*values: Any) -> Any:
        told = zip(shapes(*values), dtypes, strict=True)
        made = [torch.empty(s, dtype=dtype, device=values[0].device) for s, dtype in told]
        return made[0] if single else tuple(made)

    def no_gradients(
        values: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        raise NotImplementedError("ModelNew has no backward pass: train with the task's Model")

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:count])

    def differentiate(context: Any, *gradients: Any) -> tuple[Any, ...]:
        kept = list(context.saved_tensors)
        made = refused(kept, [each for each in gradients if each is not None])
        pairs = zip(kept, made, strict=True)
        found = (new if old.is_floating_point() else None for old, new in pairs)
        return (*found, *(None for _ in params))

    # An operator of its own, so that it is refused when it runs, and not when it is compiled. (With
    # the gradients: what needs none of them would run with the forward pass.)
    refused = defined(
        f"{name}_backward",
        "(Tensor[] values, Tensor[] gradients) -> Tensor[]",
        no_gradients,
        lambda values, _: [torch.empty_like(value) for value in values],
    )
    made = defined(name, schema, compute, follow)
    told = made.name()
    torch.library.register_autograd(told, differentiate, setup_context=keep, lib=OPERATORS)
    return made


def defined(name: str, schema: str, compute: Callable[..., Any], follow: Callable[..., Any]) -> Any:
    """A new operator; `follow` computes its shapes. (Not by `torch.library.custom_op`, which takes
    seconds at the first call: it imports the compiler of torch.)"""
    free, count = name, 1
    while hasattr(torch.ops.sketchc, free):  # this module was loaded before
        count += 1
        free = f"{name}_{count}"
    OPERATORS.define(free + schema)  # type: ignore[no-untyped-call]
    OPERATORS.impl(free, compute, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"sketchc::{free}", follow, lib=OPERATORS)
    return getattr(torch.ops.sketchc, free).default


def run_kernel(
    kernel: Callable[..., Any],
    tensors: Sequence[tuple[torch.Tensor, torch.dtype]],
    params: Sequence[Any],
    dtypes: Sequence[torch.dtype],
    returns: str,
) -> Any:
    """Call the kernel's `operator` and return what the task returns.

    `tensors` are (value, the kernel's dtype) in the kernel's order. `dtypes` are the outputs' in
    the task; `returns` is "tensor", "tuple" or "list".
    """
    for value, _ in tensors:
        if value.device.type != tensors[0][0].device.type:
            raise ValueError(f"tensors are on {tensors[0][0].device} and on {value.device}")
    result = kernel(*(value.to(dtype) for value, dtype in tensors), *params)
    results = result if isinstance(result, (tuple, list)) else (result,)
    outputs = tuple(out.to(dtype) for out, dtype in zip(results, dtypes, strict=True))
    if returns == "tensor":
        return outputs[0]
    return list(outputs) if returns == "list" else outputs


# ---- to here ----
