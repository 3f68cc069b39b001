"""In the worker: what a wrapper returned, and whether the kernel did the work.

For kernels that the built-in Coder did not write, `Watch` counts launches and lets the wrapper do
with torch what a wrapper is for (allocate, view, copy, convert, fill) and nothing else. Inside of a
launch anything goes: Triton's interpreter computes with torch itself.

`Writes` knows which tensors a launch has written: a model may not make its outputs of copies alone.
Allocations, fills and copies are allowed outside of launches, and with them all tasks that only
move elements could be done without a kernel. So the memory that forward allocates is looked at
before and after each launch; a tensor that a launch has changed is *written*, and so is a copy of
one. What forward did not allocate (a buffer of NumPy's, or one made with the model) is not judged.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import sys
import types
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from sketchc.base import version
from sketchc.runtime.guards.placement import poison

_CHUNK = 1 << 24
#: What a wrapper may ask of ATen.
ALLOCATIONS = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted"),
        *("new_empty", "new_empty_strided"),
    }
)
FILLS = frozenset(
    {
        *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "zero_", "fill_"),
        *("full", "full_like", "new_full", "scalar_tensor", "constant_pad_nd", "zero", "fill"),
    }
)
VIEWS = frozenset(
    {
        *("alias", "as_strided", "detach", "detach_", "diagonal", "expand", "lift_fresh"),
        *("permute", "t", "transpose", "t_", "transpose_", "reshape", "_reshape_alias"),
        *("select", "slice", "split", "split_with_sizes", "unbind", "unfold", "narrow"),
        *("squeeze", "squeeze_", "unsqueeze", "unsqueeze_", "view", "_unsafe_view", "view_as_real"),
        *("resolve_conj", "resolve_neg", "is_pinned", "sym_size", "sym_stride", "sym_numel"),
    }
)
COPIES = frozenset({"clone", "contiguous", "copy_", "copy", "to", "_to_copy", "_copy_from"})
ALLOWED = ALLOCATIONS | FILLS | VIEWS | COPIES
#: Ways out of torch that pass no dispatcher.
_EXITS = frozenset(
    {
        *("numpy", "__array__", "tolist", "__dlpack__", "untyped_storage", "storage"),
        *("share_memory_", "map_", "map2_", "apply_", "item", "set_"),
    }
)


class PolicyError(RuntimeError):
    """The wrapper computes instead of its kernels."""


class WrongOutputsError(Exception):
    """What a wrapper returned is not its outputs."""


class Watch:
    """What a wrapper did: `launches` of kernels, and the operations `refused` to it.

    Code of the files in `theirs` (paths, or folders that end in a separator) may not tell the watch
    anything: a wrapper that finds it, in a frame or a module, could report launches of its own.
    """

    theirs: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        if self.theirs and self._of_theirs(_asking()):
            self.tampered()
        object.__setattr__(self, name, value)

    def _of_theirs(self, path: str) -> bool:
        return bool(self.theirs) and path.startswith(self.theirs) and not trusted(path)

    def tampered(self) -> None:
        """The wrapper changes what the watch remembers."""
        self.refuse("the guard that watches it")

    def __init__(self) -> None:
        self.launches = 0
        self.refused: list[str] = []
        self.inside = 0
        #: Methods of tensors that are refused.
        self.exits = _EXITS

    def refuse(self, name: str) -> None:
        """Note it (a wrapper may swallow the exception) and raise `PolicyError`."""
        if name not in self.refused:
            self.refused.append(name)
        raise PolicyError(f"the wrapper calls {name}: the kernel must do this itself")

    def handed_out(self, array: Any) -> Any:
        """What the wrapper gets in place of a NumPy array that shares a tensor's memory."""
        return array

    def done(self, name: str, arguments: Sequence[Any], result: object) -> None:
        """An operation that is allowed was carried out."""

    @contextmanager
    def launch(self) -> Iterator[None]:
        """For the time of a launch: counts it, and watches nothing inside."""
        self.launches += 1
        with self._unwatched():
            yield

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Around what is not the wrapper's doing: launches, and what a guard does with tensors."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Around code of the wrapper that runs inside of a launch, such as a grid function."""
        inside, self.inside = self.inside, 0
        try:
            yield
        finally:
            self.inside = inside

    @contextmanager
    def watching(self) -> Iterator[None]:
        """For the time of the wrapper: sees each function and operation of torch."""
        with _Functions(self), _Operations(self):
            yield

    def verdict(self, elements: int) -> str:
        """What speaks against a run whose outputs have so many elements; "" for nothing."""
        if self.refused:
            names = ", ".join(self.refused)
            return f"the wrapper calls {names}: the kernel must do this itself"
        if elements and not self.launches:
            return "outputs were returned and no kernel was launched"
        return ""


#: Functions of watches that act for whoever calls them.
_FOR_OTHERS = frozenset({"__setattr__", "launch", "native", "outside"})


def _asking() -> str:
    """The file of the code that sets an attribute, or enters a context that does."""
    return _first_file(
        lambda code: (
            _of_library(code.co_filename)
            or (code.co_name in _FOR_OTHERS and os.path.dirname(code.co_filename) == _HERE)
        )
    )


def _calling() -> str:
    """The file of the code that calls torch. A launch may call back into the wrapper's own file: a
    hook, an argument with methods, Python in a kernel that is interpreted."""
    return _first_file(
        lambda code: (
            code.co_filename.startswith((_OF_TORCH, __file__)) or _of_library(code.co_filename)
        )
    )


def _first_file(passes: Callable[[types.CodeType], bool]) -> str:
    """The file of the first code, from the caller of a method of this module on, that is none of
    those that only pass calls on."""
    frame: types.FrameType | None = sys._getframe(3)
    while frame is not None and passes(frame.f_code):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def trusted(path: str) -> bool:
    """Whether a file is of sketchc, of torch, or of what is installed beside it: read-only for a
    candidate, wherever it lies (an environment may be below the temporary folder)."""
    return path.startswith(_TRUSTED)


_HERE = os.path.dirname(__file__)
#: `runtime`, the core, and the folder that torch is installed in.
_TRUSTED = tuple(
    spelled + os.sep
    for folder in (
        os.path.dirname(_HERE),
        os.path.dirname(os.path.dirname(version.__file__)),
        os.path.dirname(os.path.dirname(torch.__file__)),
    )
    for spelled in {folder, os.path.realpath(folder)}
)
_OF_TORCH = os.path.dirname(torch.__file__) + os.sep
_LIBRARY = (os.path.dirname(os.__file__) + os.sep, "<frozen ")


def _of_library(path: str) -> bool:
    """Whether a file is of Python's own library, which calls what it is given to call."""
    return path.startswith(_LIBRARY) and "-packages" + os.sep not in path


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of ATen, however it was asked for."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = watch

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler (seconds, and `triton` with it) to keep it away from
        here; nothing is compiled under this mode."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        space, _, name = str(func._schema.name).partition("::")
        if self.watch.inside and not self.watch._of_theirs(_calling()):
            return func(*args, **(kwargs or {}))
        if space not in ("aten", "prim") or name not in ALLOWED:
            self.watch.refuse(f"{space}.{name}")
        result = func(*args, **(kwargs or {}))
        if name in ALLOCATIONS and isinstance(result, torch.Tensor):
            poison(result)
        self.watch.done(name, args, result)
        return result


class _Functions(TorchFunctionMode):
    """Sees methods of tensors that hand the memory to others."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if not self.watch.inside and name in self.watch.exits:
            self.watch.refuse(f"Tensor.{name}")
        result = func(*args, **(kwargs or {}))
        return self.watch.handed_out(result) if name in ("numpy", "__array__") else result


def watched(watch: Watch | None) -> AbstractContextManager[None]:
    """`watch.watching()`, or a context that does nothing where there is no watch."""
    return nullcontext() if watch is None else watch.watching()


def takes_out(wrapper: Callable[..., Any], *, needed: bool = False) -> bool:
    """Whether a wrapper has a parameter `out`; kernels that were not made here may not. `needed`:
    whether it cannot be left out."""
    try:
        parameters = inspect.signature(wrapper).parameters
    except (TypeError, ValueError):
        return True
    if "out" in parameters:
        return not needed or parameters["out"].default is inspect.Parameter.empty
    kinds = {parameter.kind for parameter in parameters.values()}
    return not needed and inspect.Parameter.VAR_KEYWORD in kinds


def named_outputs(names: Sequence[str], returned: object) -> dict[str, torch.Tensor]:
    """What a wrapper returned, by name: one tensor bare, several as a tuple in call order.

    Raises `WrongOutputsError`.
    """
    values = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    if len(values) != len(names):
        results = "1 result" if len(names) == 1 else f"{len(names)} results"
        raise WrongOutputsError(f"the wrapper returns {len(values)} values for {results}")
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, torch.Tensor):
            msg = f"the wrapper returns {type(value).__name__} for {name}, not a tensor"
            raise WrongOutputsError(msg)
    return dict(zip(names, values, strict=True))


def to_numpy(name: str, tensor: torch.Tensor) -> Any:
    """The elements as a NumPy array (bf16 of ml_dtypes). Raises `WrongOutputsError` for a tensor
    that has none, or of a type that no sketch knows."""
    try:
        plain = tensor.detach().cpu().contiguous()
        if plain.dtype == torch.bfloat16:
            import ml_dtypes

            return plain.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return plain.numpy()
    except (RuntimeError, TypeError, NotImplementedError, AttributeError) as error:
        reason = str(error).split("\n")[0]
        msg = f"{name} is a {tensor.dtype} tensor on {tensor.device} that cannot be read: {reason}"
        raise WrongOutputsError(msg) from error


# ---------------------------------------------------------------- what launches write


class Memory:
    """One allocation, as long as it lives."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.storage = weakref.ref(storage)
        self.address, self.size = storage.data_ptr(), storage.nbytes()
        self.device = tensor.device
        self.written = False

    def alive(self) -> bool:
        """Whether the memory still belongs to this allocation."""
        storage = self.storage()
        return storage is not None and storage.data_ptr() == self.address

    def fingerprint(self) -> int:
        """A checksum of the contents."""
        storage = self.storage()
        if storage is None or not self.size:
            return 0
        if self.device.type != "cpu":
            contents = torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage).cpu()
            return _checksum(contents.data_ptr(), self.size)
        return _checksum(self.address, self.size)


def _checksum(address: int, size: int) -> int:
    found = 0
    for start in range(0, size, _CHUNK):
        part = (ctypes.c_uint8 * min(_CHUNK, size - start)).from_address(address + start)
        found = zlib.crc32(part, found)
    return found


class Writes:
    """The allocations of a forward; `enter` and `leave` stand around a launch."""

    def __init__(self) -> None:
        self.memories: dict[int, Memory] = {}
        self._before: list[tuple[Memory, int]] = []
        self._depth = 0

    def begin(self) -> None:
        """A new forward: nothing is written yet."""
        self.memories = {a: m for a, m in self.memories.items() if m.alive()}
        for memory in self.memories.values():
            memory.written = False

    def made(self, tensor: torch.Tensor, sources: Iterable[object] = ()) -> None:
        """Forward has allocated or filled a tensor; `sources` are what it was copied from."""
        address = tensor.untyped_storage().data_ptr()
        written = any(self._written(source) for source in sources)
        known = self.memories.get(address)
        if known is None or not known.alive():
            if address:
                self.memories[address] = Memory(tensor)
                self.memories[address].written = written
        elif tensor.numel() * tensor.element_size() == known.size:
            known.written = written
        else:  # only a part of it
            known.written |= written
        now = self.memories.get(address)
        if self._depth and now is not None and not now.written:
            # A library allocates its result itself: what it writes from now on counts.
            self._before.append((now, now.fingerprint()))

    def _written(self, value: object) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        memory = self.memories.get(value.untyped_storage().data_ptr())
        return memory is not None and memory.written

    def enter(self) -> None:
        """Called before each launch."""
        self._depth += 1
        if self._depth == 1:
            open_ones = [m for m in self.memories.values() if not m.written and m.alive()]
            self._before = [(memory, memory.fingerprint()) for memory in open_ones]

    def leave(self) -> None:
        """Called after each launch: notes which memory the outermost one has written."""
        self._depth -= 1
        if self._depth == 0:
            for memory, before in self._before:
                memory.written |= memory.alive() and memory.fingerprint() != before
            self._before = []

    def unwritten(self, outputs: Mapping[str, torch.Tensor], inputs: Iterable[Any]) -> list[str]:
        """The outputs that forward allocated and no launch has written, and those that are views
        of its inputs."""
        given = {
            value.untyped_storage().data_ptr()
            for value in inputs
            if isinstance(value, torch.Tensor) and value.numel()
        }
        found = []
        for name, output in outputs.items():
            address = output.untyped_storage().data_ptr()
            memory = self.memories.get(address)
            idle = memory is not None and memory.alive() and not memory.written
            if output.numel() and (idle or address in given):
                found.append(name)
        return found
