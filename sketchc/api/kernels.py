"""`sketchc.kernel`: a sketch, in a docstring or a file, as a function of tensors and arrays."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sketchc.api.sketches import SketchError, plan_sketch, pointing_into, the_sketches
from sketchc.base.diagnostics import Source, UsageError
from sketchc.base.types import Scalar
from sketchc.base.version import __version__
from sketchc.reporting.text import render_text

if TYPE_CHECKING:
    from sketchc.lowering.kernel import Kernel


class CompileError(Exception):
    """There is no kernel; the message says why, with the diagnostics where a sketch is refused."""


@contextmanager
def _explained() -> Iterator[None]:
    """Raises `CompileError` for a `SketchError` inside, with its diagnostics rendered, and for a
    `UsageError`."""
    try:
        yield
    except SketchError as error:
        rendered = render_text(list(error.diagnostics), [error.source], False)
        raise CompileError(rendered.strip()) from None
    except UsageError as error:
        raise CompileError(str(error)) from None


class SketchKernel:
    """A sketch as a function: called with its `in` and `inout` tensors in order, its params by
    name, and `out=`. Compiled when it is first called, or asked for its `code`; one with `types:`
    for all of them, and each call takes the kernel for the types of its tensors.

    Raises `CompileError` for a sketch that does not check or lower, TypeError and ValueError for
    arguments that do not fit.
    """

    def __init__(
        self, source: Source, target: str, hardware: str | None, constants: dict[str, Scalar]
    ) -> None:
        self.source, self.target = source, target
        with _explained():
            trees = the_sketches(source)
            self._planned = [
                plan_sketch(source, tree, target, hardware, constants) for tree in trees
            ]
        self.__name__ = self.__qualname__ = trees[0].written_name
        self._generic = trees[0].generic is not None
        self.__doc__ = source.text

    def __repr__(self) -> str:
        return f"<sketch {self.__name__} for {self.target}>"

    @cached_property
    def _kernels(self) -> list[Kernel]:
        from sketchc.lowering.registry import load_target

        with _explained(), pointing_into(self.source):
            emit = load_target(self.target).emit
            return [emit(planned.plan) for planned in self._planned]

    @property
    def code(self) -> str:
        """The target's source code; of a sketch with `types:`, that of each kernel."""
        return "\n\n".join(kernel.source for kernel in self._kernels)

    @cached_property
    def module(self) -> ModuleType:
        """The drop-in module of the kernel (docs/PYTHON.md), which lies in the user's cache."""
        from sketchc.runtime.dropin.generic_dropin import write_generic_module
        from sketchc.runtime.dropin.kernel_module import write_module
        from sketchc.runtime.toolchains.base import ToolchainError

        kernels, name = self._kernels, self.__name__
        parts = [self.target, name]
        for kernel in kernels:
            parts += [kernel.name, kernel.source, *(text for _, text in kernel.extras)]
        folder = cached_folder("kernels", content_key(*parts))

        def make(place: Path) -> Path:
            if self._generic:
                return write_generic_module(place, name, kernels)
            return write_module(place, kernels[0])

        try:
            made_once(folder, make)
        except ToolchainError as error:
            raise CompileError(f"{error}\n{error.log}".strip()) from None
        return load_module(folder / f"{name}_dropin.py")

    @cached_property
    def _function(self) -> Callable[..., Any]:
        from sketchc.runtime.dropin import generic_dropin, kernel_module

        if self._generic:
            name = generic_dropin.function_name(self.__name__, self._kernels)
        else:
            name = kernel_module.function_name(self._kernels[0])
        found: Callable[..., Any] = getattr(self.module, name)
        return found

    def __call__(self, *tensors: Any, **named: Any) -> Any:
        """Run the kernel; returns the outputs in call order: one, or a tuple."""
        return self._function(*tensors, **named)


def kernel(
    sketch: Callable[..., Any] | str | Path | None = None,
    *,
    target: str | None = None,
    hardware: str | None = None,
    **constants: Scalar,
) -> Any:
    """A sketch as a function. `sketch` is a function with the sketch as its docstring (as a
    decorator, with or without arguments), the path of a file, or the text of the sketch.

    `target` is by default triton_cuda where torch sees a GPU, else cpp; `hardware` is the chip, by
    default the target's; `constants` bind constexprs, and defaults of params. A function that names
    arguments has to name those of the sketch. Raises `CompileError` with all diagnostics.
    """
    if sketch is None:
        return lambda function: kernel(function, target=target, hardware=hardware, **constants)
    made = SketchKernel(_source(sketch), target or default_target(), hardware, constants)
    if callable(sketch):
        _same_names(sketch, made)
        made.__module__ = sketch.__module__
    return made


def _source(sketch: Callable[..., Any] | str | Path) -> Source:
    """The source of a sketch: a docstring, the text itself, or a file. Raises `CompileError` where
    there is none."""
    if callable(sketch):
        text = inspect.getdoc(sketch)
        if not text:
            raise CompileError(f"`{sketch.__name__}` has no docstring, which would be its sketch")
        return Source(f"the docstring of {sketch.__qualname__}", text + "\n")
    if isinstance(sketch, str) and "{" in sketch:
        return Source("the sketch", sketch)
    from sketchc.parsing.parser import read

    with _explained():
        return read(str(sketch))


def _same_names(function: Callable[..., Any], made: SketchKernel) -> None:
    """Raise `CompileError` for a function that names arguments, but not those of the sketch."""
    from sketchc.lowering.python_host import abi

    sketch = made._planned[0].plan.sketch
    wanted = [tensor.name for tensor in abi.given(sketch)] + [p.name for p in sketch.params]
    parameters = inspect.signature(function).parameters.values()
    named = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if named and [name for name in named if name != "out"] != wanted:
        raise CompileError(
            f"`{function.__name__}` takes {', '.join(named)}, and its sketch takes "
            f"{', '.join(wanted)}: name these, or none"
        )


def default_target() -> str:
    """The first target of the registry whose device torch sees here, else the first for the CPU."""
    from sketchc.lowering.registry import built_in_targets

    targets = sorted(built_in_targets(), key=lambda target: target.device == "cpu")
    return next(target.name for target in targets if _is_here(target.device))


def _is_here(device: str) -> bool:
    """Whether torch sees a device of this type; the CPU is there without torch, too."""
    if device == "cpu":
        return True
    try:
        import torch
    except ImportError:
        return False
    module = getattr(torch, device, None)
    return module is not None and bool(module.is_available())


# ---------------------------------------------------------------- what is made once


def content_key(*parts: str) -> str:
    """A name for what this sketchc and this Python make of the content `parts`."""
    content = "\0".join((_own_code(), sys.implementation.cache_tag or "", *parts))
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def cached_folder(kind: str, key: str) -> Path:
    """The folder of the user's cache for the content with this `content_key`."""
    from sketchc.base.files import user_folder

    return user_folder("XDG_CACHE_HOME", ".cache") / kind / key


@lru_cache(maxsize=1)
def _own_code() -> str:
    """A digest of the version and of every source file, which tells this sketchc from another: a
    checkout changes without a new version, and two machines may have the same."""
    rooms = ("sketchc", "sketchc.agents", "sketchc.grammar", "sketchc.lowering", "sketchc.runtime")
    places = (importlib.util.find_spec(room) for room in rooms)
    roots = {path for found in places if found for path in found.submodule_search_locations or ()}
    texts = (path.read_bytes() for root in roots for path in Path(root).rglob("*.[ph]*[yp]"))
    told = sorted(hashlib.sha256(text).hexdigest() for text in texts)
    return "\0".join((__version__, *told))


def made_once(folder: Path, make: Callable[[Path], object]) -> None:
    """Have `make` fill a folder, whole or not at all; another process may do so at the same time.
    Raises `CompileError` where the folder cannot be written, and what `make` raises."""
    if folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    except OSError as error:
        raise CompileError(f"cannot write to {folder.parent}: {error.strerror}") from None
    try:
        make(place)
        try:
            place.rename(folder)
        except OSError:  # made meanwhile
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


@cache
def load_module(path: Path) -> ModuleType:
    """The module of a Python file in a `cached_folder`, imported once per process."""
    from sketchc.runtime.sandbox.confine import import_file

    return import_file(path, "_".join(path.with_suffix("").parts[-3:]))
