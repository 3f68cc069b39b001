"""NumPy arrays that do not compute: what a `ModelNew` gets of NumPy while its forward runs.

They have addresses, shapes and types, and may be copied, so that a model can hand them to a library
of its own; a ufunc, a function of NumPy or a method that computes is refused. NumPy's constructors
give such arrays while a model is watched. (`numpy.ndarray` itself, and a view that C makes, are
beyond this.)
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np


class Watcher(Protocol):
    """Whoever is asked: `computing` says whether to refuse, `refuse` raises."""

    phase: str
    inside: int

    @property
    def computing(self) -> bool: ...

    def refuse(self, name: str) -> None: ...


#: What copies, allocates, or tells something of an array.
_HARMLESS = frozenset(
    {
        *("empty_like", "zeros_like", "ones_like", "full_like", "copyto", "copy", "shape", "ndim"),
        *("size", "may_share_memory", "shares_memory", "reshape", "ravel", "transpose", "squeeze"),
        *("expand_dims", "broadcast_to", "iscomplexobj", "result_type", "can_cast", "array_repr"),
        *("array_str", "array2string", "swapaxes", "moveaxis", "atleast_1d", "atleast_2d"),
    }
)
#: Methods that compute without asking `__array_ufunc__`.
_METHODS = (
    *("dot", "cumsum", "cumprod", "sort", "argsort", "argmax", "argmin", "take", "choose", "trace"),
    *("searchsorted", "partition", "argpartition", "round", "clip", "conj", "conjugate", "nonzero"),
    *("sum", "mean", "std", "var", "prod", "max", "min", "any", "all", "tolist", "item", "repeat"),
    "ptp",
    "compress",
)
_CONSTRUCTORS = (
    *("empty", "zeros", "ones", "full", "array", "asarray", "ascontiguousarray", "asanyarray"),
    *("asfortranarray", "frombuffer", "fromiter", "from_dlpack", "require"),
)
_WATCHERS: list[Watcher] = []


def _refuse(name: str) -> None:
    for watcher in _WATCHERS:
        if watcher.computing:
            watcher.refuse(name)


class GuardedArray(np.ndarray[Any, Any]):
    """See the module."""

    @property
    def base(self) -> None:
        """Hidden: it would be an array that computes."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        _refuse(f"numpy.{ufunc.__name__}")
        return getattr(ufunc, method)(*map(_bare, inputs), **_bared(keywords))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ not in _HARMLESS:
            _refuse(f"numpy.{func.__name__}")
        return super().__array_function__(func, types, args, kwargs)

    def view(self, *arguments: Any, **keywords: Any) -> Any:
        """Of this class, whatever is asked for."""
        kept = [value for value in arguments if not _is_array_type(value)]
        keywords.pop("type", None)
        return super().view(*kept, **keywords)


def _is_array_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, np.ndarray)


def _bare(value: Any) -> Any:
    return np.ndarray.view(value, np.ndarray) if isinstance(value, GuardedArray) else value


def _bared(keywords: dict[str, Any]) -> dict[str, Any]:
    found = {name: _bare(value) for name, value in keywords.items()}
    if isinstance(found.get("out"), tuple):
        found["out"] = tuple(map(_bare, found["out"]))
    return found


def _method(name: str) -> Any:
    original = getattr(np.ndarray, name, None)

    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        _refuse(f"numpy.ndarray.{name}")
        assert original is not None
        return original(_bare(self), *arguments, **keywords)

    return method


for _name in _METHODS:
    if hasattr(np.ndarray, _name):
        setattr(GuardedArray, _name, _method(_name))


def guarded(array: Any, watcher: Watcher) -> Any:
    """The array, of a class that refuses to compute while `watcher` says so."""
    if watcher not in _WATCHERS:
        _WATCHERS.append(watcher)
    return np.ndarray.view(array, GuardedArray) if isinstance(array, np.ndarray) else array


def install(watcher: Watcher) -> None:
    """Let NumPy's constructors give guarded arrays while `watcher` watches, outside of launches."""
    for owner, names in ((np, _CONSTRUCTORS), (np.ctypeslib, ("as_array",))):
        for name in names:
            original = getattr(owner, name)
            setattr(owner, name, _constructor(original, watcher))


def _constructor(original: Any, watcher: Watcher) -> Any:
    @functools.wraps(original)
    def made(*arguments: Any, **keywords: Any) -> Any:
        found = original(*arguments, **keywords)
        if watcher.phase == "off" or watcher.inside:
            return found
        return guarded(found, watcher)

    return made
