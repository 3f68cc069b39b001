"""The part of a drop-in module that runs a kernel in place of the task's model. `torch_dropin`
copies the text between the two marks into the drop-in, behind that of `kernel_support`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from sketchc.runtime.dropin.kernel_support import (
    Kernel,
    as_array,
    checked,
    deliver,
    is_array,
    places,
)

# ---- copied from here ----
#: The default of an argument that has none.
REQUIRED = inspect.Parameter.empty


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
    """(name, default or `REQUIRED`) of the parameters of `forward` after self; None where one
    of them is keyword-only, positional-only or variadic."""
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in parameters):
        return None
    return [(one.name, REQUIRED if one.default is one.empty else one.default) for one in parameters]


def bound_arguments(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], n: int
) -> list[Any]:
    """`bind_arguments` for a `forward` of any signature; `torch.compile` cannot trace this."""
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
    """The first `n` of forward's arguments by position, which reach the kernel; others must keep
    their defaults, since the kernel was made for those. `known` is the result of `arguments_of`.
    (In plain steps, which `torch.compile` can trace.)"""
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
    """Raise `RuntimeError` in training mode for a model that acts differently in it."""
    for module in model.modules() if model.training else ():
        drops = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        learns = isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
        if drops or learns or isinstance(module, nn.RReLU):
            msg = (
                f"{type(module).__name__} acts differently in training; call .eval() first: the "
                "kernel computes what the task computes in evaluation mode"
            )
            raise RuntimeError(msg)


def require_constant(name: str, value: Any, wanted: Any) -> None:
    """Raise `ValueError` unless `value` is the constant `wanted` and no tensor."""
    if isinstance(value, torch.Tensor) or value != wanted:
        found = type(value).__name__ if isinstance(value, torch.Tensor) else repr(value)
        raise ValueError(f"{name} is {found}; this kernel was made for {wanted!r}")


def run_model(
    kernel: Kernel,
    tensors: Sequence[tuple[Any, str, Sequence[torch.dtype]]],
    params: Sequence[Any],
    dtypes: list[torch.dtype],
    returns: str,
    given: Sequence[Any],
    out: Any,
) -> Any:
    """What the task returns, computed by the kernel: arrays if `given` has arrays and no tensors.

    `tensors` are (value, its name, the dtypes that it may have, the kernel's last) in the kernel's
    order. `dtypes` are those of the task's outputs; `returns` is "tensor", "tuple" or
    "list".
    """
    wanted = places(out, len(dtypes))
    own = kernel.fresh == dtypes
    values = [value for value, _, _ in tensors]
    if own and not kernel.updates and kernel.is_usual(values, wanted):
        results = kernel.called(values, params, wanted)
    else:
        taken: list[torch.Tensor | None] = []
        for value, name, kinds in tensors:
            tensor = checked(name, value, kinds, kernel.devices) if name else None
            taken.append(None if tensor is None else in_type(tensor, kinds[-1]))
        results = kernel.computed(taken, params, wanted if own else ())
    outputs = [in_type(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]
    if wanted:
        for number, (place, output) in enumerate(zip(wanted, outputs, strict=True)):
            if not own:
                deliver(f"result {number + 1}", place, output, kernel.devices)
        outputs = wanted
    elif only_arrays(given):
        outputs = [as_array(output) for output in outputs]
    if returns == "tensor":
        return outputs[0]
    return outputs if returns == "list" else tuple(outputs)


def in_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor with elements of this type: itself where they are (`to` takes a microsecond)."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def only_arrays(values: Sequence[Any]) -> bool:
    """Whether there are arrays among these values, however deep, and no tensor."""
    found, flat = False, list(values)
    while flat:
        one = flat.pop()
        if isinstance(one, torch.Tensor):
            return False
        found = found or is_array(one)
        if isinstance(one, (list, tuple, dict)):
            flat += one.values() if isinstance(one, dict) else one
    return found


# ---- to here ----
