"""Fingerprints of the code and the constants that a kernel of a function or module is made from.
The user may change them: a kernel serves while the fingerprint is the same.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

_OTHER = (torch.Tensor, nn.Module, type, FunctionType, ModuleType)
#: How far into objects a number is looked for.
_DEEPEST = 3
_PLAIN = (bool, int, float, str, type(None), torch.dtype)


def fingerprint(value: Any) -> Any:
    """A value that changes with anything that a kernel of the object rests on: the code of the
    user's functions and classes, and the numbers and texts in their surroundings and attributes."""
    seen: set[int] = set()
    if not isinstance(value, nn.Module):
        return tuple(_surroundings(value, seen))
    found: list[Any] = []
    for name, module in value.named_modules():
        found.append((name, type(module).__module__, type(module).__qualname__))
        for key, one in vars(module).items():
            if not key.startswith("_") and (constant := _constant(one)) is not None:
                found.append((key, constant))
        found += _methods(type(module), seen)
    return tuple(found)


def _is_users(thing: Any) -> bool:
    """Whether a function or class is the user's; installed ones are taken not to change."""
    module = getattr(thing, "__module__", None)
    return module in (None, "__main__") or is_own(sys.modules.get(module))


def _methods(kind: type, seen: set[int]) -> Iterator[Any]:
    """The `_surroundings` of the methods and properties of a class that are the user's."""
    for base in kind.__mro__:
        if _is_users(base) and id(base) not in seen:
            seen.add(id(base))
            for one in vars(base).values():
                yield from _surroundings(getattr(one, "fget", one), seen)


def _constant(value: Any, depth: int = 0) -> Any:
    """A hashable form of a number or text, or of what holds some: lists, dictionaries, and plain
    objects such as a configuration; None for anything else."""
    if isinstance(value, _PLAIN):
        return (type(value), repr(value))
    if isinstance(value, _OTHER) or depth > _DEEPEST:
        return None
    if isinstance(value, Mapping):
        parts = [(repr(key), _constant(one, depth + 1)) for key, one in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = [("", _constant(one, depth + 1)) for one in value]
    else:
        held = getattr(value, "__dict__", None)
        if not isinstance(held, dict):
            return None
        parts = [(key, _constant(one, depth + 1)) for key, one in held.items()]
    return (type(value), tuple(part for part in parts if part[1] is not None))


def _surroundings(function: Any, seen: set[int]) -> Iterator[Any]:
    """The code of a function and those it calls, and (name, constant) of the numbers and texts that
    they find in their closures and modules."""
    function = inspect.unwrap(function)
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    code = function.__code__
    yield function.__qualname__, _told(code), _constant(function.__defaults__ or ())
    yield _constant(function.__kwdefaults__ or {})
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
        if isinstance(one, FunctionType):
            if _is_users(one):
                yield from _surroundings(one, seen)
        elif isinstance(one, ModuleType):
            if is_own(one):
                plain = ((key, value) for key, value in vars(one).items() if key[:1] != "_")
                yield from ((key, repr(v)) for key, v in plain if isinstance(v, _PLAIN))
        elif (constant := _constant(one)) is not None:
            yield name, constant
            yield from _methods(type(one), seen)


@lru_cache(maxsize=4096)
def _told(code: CodeType) -> str:
    """A hash of a code object that is the same for code that does the same, wherever it stands."""
    consts = [_told(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    parts = (code.co_code.hex(), *consts, *code.co_names, *code.co_varnames, str(code.co_flags))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@lru_cache(maxsize=4096)
def _globals(code: CodeType) -> tuple[str, ...]:
    """The names that code, and the code in it, loads from its module."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    names = [str(i.argval) for i in dis.get_instructions(code) if i.opname in loads]
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return tuple(dict.fromkeys([*names, *(name for one in inner for name in _globals(one))]))


@lru_cache(maxsize=4096)
def is_own(module: Any) -> bool:
    """Whether a module is the user's: not installed, not of the standard library or sketchc, and
    not `__main__`."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or not file or module.__name__ == "__main__":
        return False
    path = str(file)
    if module.__name__.partition(".")[0] == "sketchc":
        return False
    roots = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= {*site.getsitepackages(), site.getusersitepackages()}
    return not any(path.startswith(root) for root in roots) and "site-packages" not in path
