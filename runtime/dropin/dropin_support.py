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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

FOLDER = Path(__file__).resolve().parent


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


def bind_arguments(
    base: type[nn.Module], model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], n: int
) -> list[Any]:
    """Forward's arguments by position. The first `n` reach the kernel; others must keep their
    defaults, since the kernel was made for those."""
    signature = inspect.signature(base.forward)
    bound = signature.bind(model, *args, **kwargs)
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
    if value.device.type not in devices.split():
        msg = f"{name} is on {value.device}; this kernel runs on {devices.replace(' ', ' or ')}"
        raise ValueError(msg)
    return value


def require_constant(name: str, value: Any, wanted: Any) -> None:
    """Raise `ValueError` for an input that is no tensor and not what the kernel was made for."""
    if isinstance(value, torch.Tensor) or value != wanted:
        found = type(value).__name__ if isinstance(value, torch.Tensor) else repr(value)
        raise ValueError(f"{name} is {found}; this kernel was made for {wanted!r}")


class ForwardOnly(torch.autograd.Function):
    """The kernel as a function without a derivative: asking for one is an error, not a zero."""

    @staticmethod
    def forward(context: Any, compute: Callable[..., Any], *tensors: torch.Tensor) -> Any:
        """The kernel's result, by `compute`."""
        return compute(*tensors)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        """Raises `NotImplementedError`."""
        raise NotImplementedError("ModelNew has no backward pass: train with the task's Model")


def run_kernel(
    kernel: Callable[..., Any],
    tensors: Sequence[tuple[torch.Tensor, torch.dtype, bool]],
    params: Mapping[str, Any],
    dtypes: Sequence[torch.dtype],
    returns: str,
) -> Any:
    """Call the kernel and return what the task returns.

    `tensors` are (value, the kernel's dtype, whether the kernel writes it) in the kernel's order;
    a tensor that is not dense, of another dtype, or written is copied first, so inputs never
    change. `dtypes` are the outputs' in the task; `returns` is "tensor", "tuple" or "list".
    """

    def compute(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dense = []
        for value, (_, dtype, written) in zip(values, tensors, strict=True):
            plain = value.detach().resolve_neg().to(dtype).contiguous()
            dense.append(plain.clone() if written else plain)
        result = kernel(*dense, **params)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(out.to(dtype) for out, dtype in zip(results, dtypes, strict=True))

    values = [value for value, _, _ in tensors]
    if torch.is_grad_enabled() and any(value.requires_grad for value in values):
        outputs = ForwardOnly.apply(compute, *values)  # type: ignore[no-untyped-call]
    else:
        outputs = compute(*values)
    if returns == "tensor":
        return outputs[0]
    return list(outputs) if returns == "list" else outputs


# ---- to here ----
