"""What a file may not change of torch: in the processes that run somebody's kernels, and in those
that time them.

Noted before the file is imported, and compared afterwards: the functions and classes of torch's
public modules (with the code of those in Python), `Tensor`, modules and hooks, the kernels that the
dispatcher knows for each operation, and every setting that times and precision depend on. What a
file adds under names of its own is its own affair.
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

#: What is looked up by name, and made when it is asked for the first time.
_NAMESPACES = frozenset({"torch.ops", "torch.classes"})
_DESCRIPTORS = (property, classmethod, staticmethod, types.MemberDescriptorType)
#: One value as it was: itself, and of a function in Python what it runs.
_Seen = tuple[Any, ...]
#: How many kernels were registered from Python, and the files that code is mapped from.
_Registered = tuple[int, frozenset[str]]
_PARTS = attrgetter("__code__", "__defaults__", "__kwdefaults__")


def torch_settings() -> dict[str, str]:
    """What a baseline's time and precision depend on, as text."""
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
    """How many hooks there are that every module calls."""
    held = vars(torch.nn.modules.module)
    found = (value for name, value in held.items() if name.startswith("_global_"))
    return sum(len(value) for value in found if isinstance(value, dict))


class TorchState:
    """torch as it was when this was made. What still stands as in an `earlier` state, of a process
    that this one was forked from, is not noted again."""

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
        """What was changed since, in words; nothing is put back. `without` names settings that do
        not matter, `loaded` the libraries that the caller has loaded, and that register nothing."""
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
        """Operations that were torch's before and have other kernels now. This looks at all there
        are, which takes a tenth of a second; `changes` does it where anything was registered from
        Python, or code was loaded from a file that this process could have written."""
        self._registered = _registered()
        now = _kernels()
        changed = sorted(n for n, kernels in self._kernels.items() if now.get(n) != kernels)
        self._told = [f"it registered another kernel for {name}" for name in changed]
        return self._told


class _Found:
    """All that stands in a module or class, to see without loops in Python whether it still does:
    there are some twenty thousand names in torch, and they are looked at for each run of a file."""

    def __init__(self, owner: Any) -> None:
        self.owner, self.seen = owner, seen(owner)
        self._now = vars(owner)
        self._names, self._values = tuple(self._now), tuple(self._now.values())
        self._functions = [one for one in self._values if type(one) is types.FunctionType]
        self._parts = get_referents(*self._functions)

    def still(self) -> bool:
        """Whether all names have the values they had, and its functions do what they did."""
        return (
            tuple(self._now) == self._names
            and all(map(is_, self._now.values(), self._values))
            and self._same_parts()
        )

    def _same_parts(self) -> bool:
        """Whether functions hold what they held: code, defaults, and more that does not matter.
        Asked by name, each would be an event for the guard that listens."""
        now = get_referents(*self._functions)
        return len(now) == len(self._parts) and all(map(is_, now, self._parts))


@cache
def first_state() -> TorchState:
    """torch as it was when this was first asked for in this process."""
    return TorchState()


def seen(owner: Any) -> dict[str, _Seen]:
    """What there is to be replaced of a module or class."""
    return {name: _as_seen(value) for name, value in list(vars(owner).items()) if _counts(value)}


def replaced(owner: Any, before: Mapping[str, _Seen]) -> list[str]:
    """Names that have other values than before, or none; of a class, also those that are new: they
    hide what its bases have, as a new name of a module hides what is built in."""
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
    """torch's public modules that are loaded, and classes whose methods everybody calls."""
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
    """Each operation with a number that stands for the kernels it has."""
    names = torch._C._dispatch_get_all_op_names()
    return {name: hash(torch._C._dispatch_dump(name)) for name in names}


def _registered() -> _Registered:
    """What changes when somebody registers kernels: how many were registered from Python, and which
    files there is code from."""
    import torch.library

    files: frozenset[str] = frozenset()
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        mapped = (line.rstrip("\n").split(maxsplit=5) for line in lines)
        files = frozenset(m[5] for m in mapped if "x" in m[1] and len(m) == 6 and m[4] != "0")
    return len(torch.library._impls), files


def _may_differ(before: _Registered, now: _Registered, loaded: Iterable[str] = ()) -> bool:
    """Whether kernels may have been registered in between. What this process could not have written
    is somebody's installed library: it registers what it always does, where it is used."""
    new = now[1] - before[1] - frozenset(loaded)
    return before[0] != now[0] or any(map(_written_here, new))


def _written_here(path: str) -> bool:
    """Whether this process may have written the file, or it is gone."""
    folder = os.path.dirname(path)
    return not os.path.exists(path) or os.access(path, os.W_OK) or os.access(folder, os.W_OK)
