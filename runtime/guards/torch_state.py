"""Detects changes that a kernel's file makes to torch, in the processes that run or time kernels.

Recorded before the file is imported, and compared afterwards: the functions and classes of torch's
public modules (with the code of Python functions), `Tensor`, modules and hooks, the kernels that
the dispatcher has for each operation, and every setting that times and precision depend on. A file
may add attributes under new names, except where they hide others.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from gc import get_referents
from operator import attrgetter, is_
from typing import Any

import torch
import torch.nn.modules.module

#: Modules whose attributes are made when they are looked up for the first time.
_NAMESPACES = frozenset({"torch.ops", "torch.classes"})
_DESCRIPTORS = (property, classmethod, staticmethod, types.MemberDescriptorType)
#: One recorded value: itself, and of a Python function also its code and defaults.
_Seen = tuple[Any, ...]
#: How many kernels were registered from Python, and the files with executable mappings.
_Registered = tuple[int, frozenset[str]]
_PARTS = attrgetter("__code__", "__defaults__", "__kwdefaults__")


def torch_settings() -> dict[str, str]:
    """The settings of torch and of this process that times and precision depend on, as text."""
    cuda: Any = torch.backends.cuda.matmul
    readers: dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "gradients": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "anomaly detection": torch.is_anomaly_enabled,
        "autocast": lambda: [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        "default type": torch.get_default_dtype,
        "default device": torch.get_default_device,
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "cuda.matmul.allow_tf32": lambda: cuda.allow_tf32,
        "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
        "cudnn": lambda: torch.backends.cudnn.enabled,
        "reduced f16 reduction": lambda: cuda.allow_fp16_reduced_precision_reduction,
        "reduced bf16 reduction": lambda: cuda.allow_bf16_reduced_precision_reduction,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "mkldnn": lambda: getattr(torch.backends.mkldnn, "enabled", None),
        "modes of functions": lambda: torch._C._len_torch_function_stack(),
        "modes of operations": lambda: torch._C._len_torch_dispatch_stack(),
        "hooks of all modules": _hooks,
        "processors": lambda: sorted(os.sched_getaffinity(0)),
        "niceness": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    }
    found = {}
    for name, read in readers.items():
        try:
            found[name] = str(read())
        except (RuntimeError, AttributeError, TypeError) as error:
            # torch refuses to answer where two of its APIs were mixed, or has no such setting.
            found[name] = type(error).__name__
    return found


def _hooks() -> int:
    """The number of global hooks, which every module calls."""
    held = vars(torch.nn.modules.module)
    found = (value for name, value in held.items() if name.startswith("_global_"))
    return sum(len(value) for value in found if isinstance(value, dict))


class TorchState:
    """The state of torch when the object was made. Modules and classes that are unchanged since an
    `earlier` state, of a process that this one was forked from, are not recorded again."""

    def __init__(self, earlier: TorchState | None = None) -> None:
        known = {} if earlier is None else earlier._found
        self._found: dict[str, _Found] = {}
        for name, owner in _owners().items():
            found = known.get(name)
            if found is None or found.owner is not owner or not found.still():
                found = _Found(owner)
            self._found[name] = found
        self.settings = torch_settings()
        self._registered = _registered()
        self._kernels: dict[str, int]
        if earlier is not None and not _may_differ(earlier._registered, self._registered):
            self._kernels = earlier._kernels
        else:
            self._kernels = _kernels()
        self._told: list[str] = []

    def changes(self, without: Iterable[str] = (), loaded: Iterable[str] = ()) -> list[str]:
        """Sentences on what was changed since; nothing is restored. `without` names settings to be
        ignored, `loaded` libraries that the caller has loaded and that register no kernels."""
        found = []
        for name, known in self._found.items():
            if not known.still():
                if others := replaced(known.owner, known.seen):
                    found += [f"it replaced {name}.{key}" for key in others]
                else:
                    self._found[name] = _Found(known.owner)
        ignored = frozenset(without)
        for name, value in torch_settings().items():
            if value != self.settings[name] and name not in ignored:
                found.append(f"it changed {name} from {self.settings[name]} to {value}")
        if _may_differ(self._registered, _registered(), loaded):
            self.registrations()
        return found + self._told

    def registrations(self) -> list[str]:
        """Sentences on operations that torch had before and that have other kernels now. This
        compares all operations, which takes 0.1 seconds; `changes` calls it only where a kernel was
        registered from Python, or code was loaded from a file that this process could have written.
        """
        self._registered = _registered()
        now = _kernels()
        changed = sorted(n for n, kernels in self._kernels.items() if now.get(n) != kernels)
        self._told = [f"it registered another kernel for {name}" for name in changed]
        return self._told


class _Found:
    """A record of all attributes of a module or class, which is compared without loops in Python:
    torch has some twenty thousand names, and all are compared for each run of a file."""

    def __init__(self, owner: Any) -> None:
        self.owner, self.seen = owner, seen(owner)
        self._now = vars(owner)
        self._names, self._values = tuple(self._now), tuple(self._now.values())
        self._functions = [one for one in self._values if type(one) is types.FunctionType]
        self._parts = get_referents(*self._functions)

    def still(self) -> bool:
        """Whether all names of the owner have the recorded values, with functions unchanged."""
        return (
            tuple(self._now) == self._names
            and all(map(is_, self._now.values(), self._values))
            and self._same_parts()
        )

    def _same_parts(self) -> bool:
        """Whether functions refer to the recorded objects: code, defaults, and others that do not
        matter. Reading these attributes by name would cause an audit event for each."""
        now = get_referents(*self._functions)
        return len(now) == len(self._parts) and all(map(is_, now, self._parts))


@cache
def first_state() -> TorchState:
    """The state of torch when this function was first called in this process."""
    return TorchState()


def seen(owner: Any) -> dict[str, _Seen]:
    """A record of the functions, classes and descriptors of a module or class, by name."""
    return {name: _as_seen(value) for name, value in list(vars(owner).items()) if _counts(value)}


def replaced(owner: Any, before: Mapping[str, _Seen]) -> list[str]:
    """Names of `owner` whose values are not those of `before`, or are gone. Also new names that can
    hide others: all of a class, which may hide those of its bases, and builtins' in a module."""
    now = vars(owner)
    found = [name for name, known in before.items() if not _same(now.get(name), known)]
    is_class = isinstance(owner, type)
    for name in [name for name in list(now) if name not in before]:
        hides = is_class or hasattr(builtins, name)
        if hides and _counts(now[name]) and not name.startswith("__abstract"):
            found.append(name)
    return found


def _counts(value: Any) -> bool:
    return callable(value) or isinstance(value, _DESCRIPTORS)


def _as_seen(value: Any) -> _Seen:
    if type(value) is types.FunctionType:
        return (value, *_PARTS(value))
    return (value,)


def _same(value: Any, known: _Seen) -> bool:
    if value is not known[0]:
        return False
    return all(one is other for one, other in zip(_as_seen(value), known, strict=True))


def _owners() -> dict[str, Any]:
    """torch's public modules that are loaded, and its commonly used classes, by name."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        parts = name.split(".")
        if parts[0] != "torch" or any(part.startswith("_") for part in parts):
            continue
        if isinstance(module, types.ModuleType) and name not in _NAMESPACES:
            found[name] = module
    classes: list[type] = [
        *torch.Tensor.__mro__[:-1],
        *(torch.nn.Parameter, torch.autograd.Function, torch.autograd.grad_mode.no_grad),
        *(value for value in vars(torch.nn).values() if isinstance(value, type)),
        *(torch.cuda.Event, torch.cuda.Stream),
    ]
    for one in classes:
        place = "torch.nn" if issubclass(one, torch.nn.Module) else one.__module__
        found[f"{place}.{one.__qualname__}"] = one
    return found


def _kernels() -> dict[str, int]:
    """A hash of the dispatcher's kernels for each operation, by the operation's name."""
    names = torch._C._dispatch_get_all_op_names()
    return {name: hash(torch._C._dispatch_dump(name)) for name in names}


def _registered() -> _Registered:
    """The number of kernels registered from Python, and the files with executable mappings: one of
    them changes when kernels are registered."""
    import torch.library

    files: frozenset[str] = frozenset()
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        mapped = (line.rstrip("\n").split(maxsplit=5) for line in lines)
        files = frozenset(m[5] for m in mapped if "x" in m[1] and len(m) == 6 and m[4] != "0")
    return len(torch.library._impls), files


def _may_differ(before: _Registered, now: _Registered, loaded: Iterable[str] = ()) -> bool:
    """Whether kernels may have been registered between `before` and `now`. A library that this
    process could not have written is an installed one, which registers only its own kernels."""
    new = now[1] - before[1] - frozenset(loaded)
    return before[0] != now[0] or any(map(_written_here, new))


def _written_here(path: str) -> bool:
    """Whether this process could have written the file, or the file is gone."""
    folder = os.path.dirname(path)
    return not os.path.exists(path) or os.access(path, os.W_OK) or os.access(folder, os.W_OK)
