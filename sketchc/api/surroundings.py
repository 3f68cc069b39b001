"""What a kernel of a function or module has as constants, though the object may change it: a kernel
serves while all of it is the same.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

_PLAIN = (bool, int, float, str, type(None), torch.dtype)


def fingerprint(value: Any) -> Any:
    """The numbers and texts that a kernel of the object has as constants: attributes of modules,
    and what functions find around them."""
    if not isinstance(value, nn.Module):
        return tuple(_surroundings(value, set()))
    found: list[Any] = []
    seen: set[int] = set()
    for name, module in value.named_modules():
        found.append((name, id(type(module))))
        for key, one in vars(module).items():
            if not key.startswith("_") and (constant := _constant(one)) is not None:
                found.append((key, constant))
        if not type(module).__module__.startswith("torch."):
            found += _surroundings(type(module).forward, seen)
    return tuple(found)


def _constant(value: Any) -> Any:
    """A hashable form of a number, a text or a list of these; None for anything else."""
    if isinstance(value, _PLAIN):
        return (type(value), repr(value))
    if isinstance(value, list | tuple) and all(isinstance(one, _PLAIN) for one in value):
        return (type(value), repr(value))
    return None


def _surroundings(function: Any, seen: set[int]) -> Iterator[Any]:
    """(name, constant) of the numbers and texts that a function, and those it calls, find in their
    closures and modules."""
    function = inspect.unwrap(function)
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    around: dict[str, Any] = {}
    for name, cell in cells:
        try:
            around[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    for name in _globals(code):
        if name in function.__globals__:
            around[name] = function.__globals__[name]
    for name, one in around.items():
        constant = _constant(one)
        if constant is not None:
            yield name, constant
        elif isinstance(one, FunctionType) and one.__module__.partition(".")[0] != "torch":
            yield from _surroundings(one, seen)


@lru_cache(maxsize=4096)
def _globals(code: CodeType) -> tuple[str, ...]:
    """The names that code, and the code in it, loads from its module."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    names = [str(i.argval) for i in dis.get_instructions(code) if i.opname in loads]
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return tuple(dict.fromkeys([*names, *(name for one in inner for name in _globals(one))]))
