"""Functions that generated wrappers carry with them; `library` reads this file as text."""

# mypy: ignore-errors

from __future__ import annotations

import math

import torch


class LaunchError(ValueError):
    """The arguments do not fit the kernel."""


def require(holds: bool, message: str) -> None:
    """Raise `LaunchError` unless `holds`."""
    if not holds:
        raise LaunchError(message)


def check_elements(name: str, shape: tuple[int, ...]) -> None:
    """Raise `LaunchError` for 2**48 elements or more, an extent of 0 counted as 1."""
    elements = 1
    for extent in shape:
        elements *= max(extent, 1)
    require(elements < 2**48, f"{name} of shape {shape} is too large")


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    device: torch.device,
) -> None:
    """Raise `LaunchError` unless the tensor has this type and shape and lies on this device."""
    if (
        tensor.dtype == dtype
        and tensor.shape == shape
        and tensor.device == device
        and 0 < tensor.numel() < 2**48
    ):
        return  # the usual case, in few steps
    if tensor.dtype != dtype:
        require(False, f"{name} has type {tensor.dtype}; the kernel takes {dtype}")
    if tuple(tensor.shape) != shape:
        require(False, f"{name} has shape {tuple(tensor.shape)}; the kernel takes {shape}")
    if tensor.device != device:
        require(False, f"{name} is on {tensor.device}, other arguments on {device}")
    check_elements(name, shape)


def plain(value: object) -> object:
    """A scalar of NumPy or PyTorch as a Python number; any other `value` unchanged."""
    try:
        return value.item()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return value


def check_number(name: str, value: object) -> float:
    """`value` as a float. Raise `LaunchError` for what is no number, or too large for a float."""
    if type(value) is float:
        return value
    number = plain(value)
    require(isinstance(number, int | float), f"{name} = {value!r} is no number")
    fits = isinstance(number, float) or abs(number) < 2**1024 - 2**970
    require(fits, f"{name} = {value!r} is no float")
    return float(number)


def check_integer(name: str, value: object) -> int:
    """`value` as an integer; a bool is 0 or 1. Raise `LaunchError` for anything else, and for
    integers of more than 64 bits."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    number = plain(value)
    require(isinstance(number, int), f"{name} = {value!r} is no integer")
    require(-(2**63) <= number < 2**63, f"{name} = {value!r} does not fit 64 bits")
    return int(number)


def check_bool(name: str, value: object) -> bool:
    """`value` as a bool; 0 and 1 are taken, too. Raise `LaunchError` for anything else."""
    number = plain(value)
    require(isinstance(number, int) and 0 <= number <= 1, f"{name} = {value!r} is no bool")
    return bool(number)


def rounded(value: float, bits: int, least: int, limit: float) -> float:
    """`value` rounded to `bits` significant bits and multiples of 2**least; infinite at `limit`."""
    if not 0 < abs(value) < math.inf:
        return value
    unit = max(math.frexp(value)[1] - bits, least)
    within = abs(value) < limit
    nearest = math.ldexp(round(math.ldexp(value, -unit)), unit) if within else math.inf
    return math.copysign(nearest if abs(nearest) < limit else math.inf, value)


def kind_of(value: object) -> object:
    """What a plan takes of a tensor: its type, shape and device; of several tensors, that of each;
    of anything else, the value."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.device
    if isinstance(value, tuple | list):
        return tuple(map(kind_of, value))
    return value


def remembered(plans: dict, arguments: tuple, plan: tuple) -> tuple:
    """The `plan`, which later calls with `arguments` of this kind find among `plans`."""
    if len(plans) >= 1024:
        plans.clear()
    plans[arguments] = plan
    return plan


def row_major(output: torch.Tensor) -> torch.Tensor:
    """The output itself where it is dense, else a dense buffer to copy back from."""
    if output.is_contiguous():
        return output
    return torch.empty_like(output, memory_format=torch.contiguous_format)


def with_an_element(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or one zero in place of an empty one: void lanes read its first element."""
    return tensor if tensor.numel() else tensor.new_zeros(1)


def absent(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What a kernel takes in place of a tensor that is not given; it is never read."""
    return torch.empty(1, dtype=dtype, device=device)


def check_overlap(outputs: dict[str, torch.Tensor], inputs: dict[str, torch.Tensor]) -> None:
    """Raise `LaunchError` where an output shares memory with another argument."""
    spans = {}
    for name, tensor in (*outputs.items(), *inputs.items()):
        start, reached = tensor.data_ptr(), tensor.numel()
        if reached and not tensor.is_contiguous():
            strides = zip(tensor.shape, tensor.stride(), strict=True)
            reached = 1 + sum((extent - 1) * step for extent, step in strides)
        stop = start + reached * tensor.element_size()
        for other, (low, high) in spans.items():
            if (other in outputs or name in outputs) and start < high and low < stop:
                require(False, f"{name} overlaps {other} in memory")
        spans[name] = (start, stop)


def integer_kind(value: int) -> tuple[bool, bool, bool]:
    """What Triton compiles a kernel apart for, of an integer argument."""
    return value == 1, value % 16 == 0, -(2**31) <= value < 2**31


def launch_kernel(
    launches: dict,
    place: object,
    kernel: object,
    programs: int,
    tensors: list[torch.Tensor],
    numbers: list[float],
    **options: object,
) -> None:
    """Launch `kernel` on the device of its tensors. Where the plan has launched it before, with
    tensors that begin at multiples of 16 bytes as these do, it is among `launches`, as it was
    compiled then, and is launched at once; else Triton finds or compiles it."""
    pointers, joined = [], 0
    for tensor in tensors:
        pointer = tensor.data_ptr()
        pointers.append(pointer)
        joined |= pointer
    known = launches.get(place) if joined % 16 == 0 else None
    if known is not None and torch.cuda.current_device() == tensors[0].device.index:
        compiled, constants, grid, launch = known
        if grid != programs:
            launch = compiled[programs, 1, 1]
            launches[place] = compiled, constants, programs, launch
        launch(*pointers, *numbers, *constants)
        return
    with torch.cuda.device_of(tensors[0]):
        compiled = kernel[(programs,)](*tensors, *numbers, **options)
    names = getattr(kernel, "arg_names", ())[len(tensors) + len(numbers) :]
    if joined % 16 == 0 and hasattr(compiled, "launch_metadata") and set(names) <= set(options):
        launches[place] = compiled, [options[name] for name in names], None, None
