"""In the worker: what a wrapper returned, and whether the kernel did the work.

For kernels that the built-in Coder did not write, `Watch` counts launches and lets the wrapper do
with torch what a wrapper is for (allocate, view, copy, convert, fill) and nothing else. Inside of a
launch every operation is allowed: Triton's interpreter computes with torch itself.

`Writes` knows which tensors a launch has written: a model may not make its outputs of copies alone.
Allocations, fills and copies are allowed outside of launches, and with them all tasks that only
move elements could be done without a kernel. So the memory that forward allocates is compared
before and after each launch; a tensor that a launch has changed is *written*, and so is a copy of
one. Memory that forward did not allocate (of a NumPy array, or made with the model) is not judged.
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
#: ATen operations that a wrapper may call, in four groups.
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
#: Methods of tensors that give access to elements without torch's dispatcher.
_EXITS = frozenset(
    {
        *("numpy", "__array__", "tolist", "__dlpack__", "untyped_storage", "storage"),
        *("share_memory_", "map_", "map2_", "apply_", "item", "set_"),
    }
)


class PolicyError(RuntimeError):
    """The wrapper computes instead of its kernels."""


class WrongOutputsError(Exception):
    """The values that a wrapper returned are not the expected outputs."""


class Watch:
    """A record of a wrapper's `launches` of kernels, and of the operations `refused` to it.

    Code of the files in `theirs` (paths, or folders that end in a separator) may not set the
    watch's attributes: a wrapper that finds the watch, in a frame or a module, could add launches.
    """

    theirs: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        if self.theirs and self._of_theirs(_asking()):
            self.tampered()
        object.__setattr__(self, name, value)

    def _of_theirs(self, path: str) -> bool:
        return bool(self.theirs) and path.startswith(self.theirs) and not trusted(path)

    def tampered(self) -> None:
        """Report that the wrapper changes the watch's attributes; raises `PolicyError`."""
        self.refuse("the guard that watches it")

    def __init__(self) -> None:
        self.launches = 0
        self.refused: list[str] = []
        self.inside = 0
        #: Methods of tensors that are refused.
        self.exits = _EXITS

    def refuse(self, name: str) -> None:
        """Note the operation `name` (a wrapper may swallow the exception); raise `PolicyError`."""
        if name not in self.refused:
            self.refused.append(name)
        raise PolicyError(f"the wrapper calls {name}: the kernel must do this itself")

    def handed_out(self, array: Any) -> Any:
        """The object that the wrapper gets in place of `array`, which shares a tensor's memory."""
        return array

    def done(self, name: str, arguments: Sequence[Any], result: object) -> None:
        """Called after each allowed operation `name` outside of launches; does nothing here."""

    @contextmanager
    def launch(self) -> Iterator[None]:
        """A context around a launch: counts the launch, and watches nothing inside."""
        self.launches += 1
        with self._unwatched():
            yield

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """A context around code that is not the wrapper's: launches, and a guard's operations."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    @contextmanager
    def outside(self) -> Iterator[None]:
        """A context that watches code of the wrapper inside a launch, such as a grid function."""
        inside, self.inside = self.inside, 0
        try:
            yield
        finally:
            self.inside = inside

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A context around the wrapper: sees each function and operation of torch."""
        with _Functions(self), _Operations(self):
            yield

    def verdict(self, elements: int) -> str:
        """A sentence on breaches in a run whose outputs have so many `elements`; "" for none."""
        if self.refused:
            names = ", ".join(self.refused)
            return f"the wrapper calls {names}: the kernel must do this itself"
        if elements and not self.launches:
            return "outputs were returned and no kernel was launched"
        return ""


#: Methods of watches that set attributes on behalf of their callers.
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
    """The file of the code that calls torch. Inside a launch this may be the wrapper's own file: a
    hook, an argument with methods, Python in a kernel that is interpreted."""
    return _first_file(
        lambda code: (
            code.co_filename.startswith((_OF_TORCH, __file__)) or _of_library(code.co_filename)
        )
    )


def _first_file(passes: Callable[[types.CodeType], bool]) -> str:
    """The file of the first frame for which `passes` is false, counted outwards from the caller of
    a method of this module; "" if there is none. `passes` is true of code that forwards calls."""
    frame: types.FrameType | None = sys._getframe(3)
    while frame is not None and passes(frame.f_code):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def trusted(path: str) -> bool:
    """Whether a file belongs to sketchc, to torch, or to packages installed beside torch: these are
    read-only for a candidate, wherever they lie (an environment may be below /tmp)."""
    return path.startswith(_TRUSTED)


_HERE = os.path.dirname(__file__)
#: The folders of `sketchc.runtime`, of `sketchc`, and the one that torch is installed in.
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
    """Whether a file belongs to Python's standard library, which calls functions for others."""
    return path.startswith(_LIBRARY) and "-packages" + os.sep not in path


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Checks every ATen operation, however it was called, against what `watch` allows."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = watch

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: otherwise torch would import its compiler (seconds, and `triton` with it), only to
        disable it here. Nothing is compiled under this mode."""
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
    """Refuses methods of tensors in `watch.exits`, which give others access to the memory."""

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
    """Whether a wrapper takes a keyword `out`; kernels by others may not. With `needed`: whether
    `out` is required."""
    try:
        parameters = inspect.signature(wrapper).parameters
    except (TypeError, ValueError):
        return True
    if "out" in parameters:
        return not needed or parameters["out"].default is inspect.Parameter.empty
    kinds = {parameter.kind for parameter in parameters.values()}
    return not needed and inspect.Parameter.VAR_KEYWORD in kinds


def named_outputs(names: Sequence[str], returned: object) -> dict[str, torch.Tensor]:
    """The tensors that a wrapper returned, by name: a single tensor, or several as a tuple or list
    in call order.

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
    """The elements of `tensor` as a NumPy array (bf16 of ml_dtypes). Raises `WrongOutputsError` for
    a tensor without memory, or of a type that NumPy does not have."""
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
    """The storage of `tensor`, held weakly, and whether a launch has `written` it."""

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
    """The allocations of a forward; `enter` and `leave` are called before and after a launch."""

    def __init__(self) -> None:
        self.memories: dict[int, Memory] = {}
        self._before: list[tuple[Memory, int]] = []
        self._depth = 0

    def begin(self) -> None:
        """Begin a new forward, in which nothing is written yet."""
        self.memories = {a: m for a, m in self.memories.items() if m.alive()}
        for memory in self.memories.values():
            memory.written = False

    def made(self, tensor: torch.Tensor, sources: Iterable[object] = ()) -> None:
        """Note that forward has allocated or filled `tensor`, or copied it from `sources`."""
        address = tensor.untyped_storage().data_ptr()
        written = any(self._written(source) for source in sources)
        known = self.memories.get(address)
        if known is None or not known.alive():
            if address:
                self.memories[address] = Memory(tensor)
                self.memories[address].written = written
        elif tensor.numel() * tensor.element_size() == known.size:
            known.written = written
        else:  # only a part of the memory
            known.written |= written
        now = self.memories.get(address)
        if self._depth and now is not None and not now.written:
            # Inside a launch, as where a library allocates its result: later writes count.
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
        """Called after each launch: after the outermost one, notes the memory that has changed."""
        self._depth -= 1
        if self._depth == 0:
            for memory, before in self._before:
                memory.written |= memory.alive() and memory.fingerprint() != before
            self._before = []

    def unwritten(self, outputs: Mapping[str, torch.Tensor], inputs: Iterable[Any]) -> list[str]:
        """The names of outputs that forward allocated and no launch has written, and of those that
        are views of its inputs."""
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
