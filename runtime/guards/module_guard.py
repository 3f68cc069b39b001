"""In the worker: watches what a `ModelNew` does, and whether its kernels do the work.

Beyond `wrapper_guard`, which sees every operation of torch, this guard listens to Python's audit
events, which no code can suppress: programs that are started, threads, libraries that are loaded,
files that are opened, modules that are imported. NumPy arrays that a model gets refuse to compute;
calls into libraries that the model has built are counted as launches; functions of `time` and of
this guard must not have been replaced, nor torch changed (`torch_state`). A refusal is remembered,
whether or not the model swallows the exception.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import os
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils._python_dispatch

from sketchc.runtime.guards import binary, wrapper_guard
from sketchc.runtime.guards.torch_state import TorchState, first_state
from sketchc.runtime.guards.wrapper_guard import PolicyError, Writes

#: Programs that may be started: compilers, and tools that they and torch use.
_PROGRAMS = frozenset(
    {
        *("g++", "gcc", "c++", "cc", "clang", "clang++", "ld", "ar", "as", "nvcc", "ninja"),
        *("which", "where", "ldconfig", "uname", "make", "cmake", "ptxas", "objdump", "cuobjdump"),
    }
)
_SHELLS = frozenset({"sh", "bash", "dash"})
_STARTS = frozenset(
    {
        *("os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn"),
        *("pty.spawn", "os.startfile"),
    }
)
#: Modules that compute, or that reach into the interpreter.
_MODULES = frozenset(
    {
        *("scipy", "sklearn", "pandas", "cupy", "numba", "jax", "tensorflow", "onnxruntime", "mkl"),
        *("numexpr", "cffi", "tinygrad", "mlx", "dask", "bottleneck", "polars", "pyarrow"),
        *("torch._inductor", "torch.onnx", "torch.distributed.rpc"),
    }
)
#: Prefixes of system libraries that may be opened; symbols looked up in them are checked, too.
_SYSTEM = ("libc.so", "libm.so", "libmvec.so", "libgomp.so", "libstdc++.so", "libpthread.so")
#: In the first of every so many runs, all kernels of torch's dispatcher are compared.
_WHOLE = 8
#: Attributes from which the frames of callers can be reached.
_LEAD_TO_FRAMES = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})
#: Modules whose functions must not be replaced.
_KEPT = (
    *("torch._C", "torch.utils._python_dispatch", "time"),
    *("builtins", "os", "sys", "gc", "subprocess", "threading", "_thread"),
)
#: NumPy functions that copy, allocate or describe an array, which are allowed.
_HARMLESS = frozenset(
    {
        *("empty_like", "zeros_like", "ones_like", "full_like", "copyto", "copy", "shape", "ndim"),
        *("size", "may_share_memory", "shares_memory", "reshape", "ravel", "transpose", "squeeze"),
        *("expand_dims", "broadcast_to", "iscomplexobj", "result_type", "can_cast", "array_repr"),
        *("array_str", "array2string", "swapaxes", "moveaxis", "atleast_1d", "atleast_2d"),
    }
)
#: Methods of arrays that compute without a call of `__array_ufunc__`.
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
_GUARDS: list[Guard] = []


class Guard(wrapper_guard.Watch):
    """Watches the model file `source`. `forbidden` are files that the model must not open,
    `extensions` the extension modules that its DSL builds for itself.

    `phase` is "off", "load" (while the file is imported and its models are built: compilers may
    run) or "forward".
    """

    def __init__(self, source: str, forbidden: Sequence[str], extensions: Sequence[str]) -> None:
        super().__init__()
        self.exits = self.exits - {"numpy", "__array__"}
        self.source = source
        self.forbidden = frozenset(os.path.realpath(path) for path in forbidden)
        self.extensions = frozenset(extensions)
        self.phase = "off"
        self.sentences: list[str] = []
        #: Whether no program may be started now, and the compiler that forward then tried to start.
        self.shut = False
        self.building = ""
        self.testing = False
        self.answered = False
        self.hearing = False
        self.own = os.path.realpath(tempfile.gettempdir())
        self.kept: dict[str, dict[str, Any]] = {}
        self.torch: TorchState | None = None
        self.runs = 0
        self.writes = Writes()
        self.theirs = (source, self.own + os.sep)

    # ------------------------------------------------------------ what is refused

    def say(self, sentence: str) -> None:
        """Remember `sentence`, a breach of the policy, and raise `PolicyError`."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)
        raise PolicyError(sentence)

    def tampered(self) -> None:
        """Report that the model changes the guard's attributes; raises `PolicyError`."""
        self.say("it changes what the guard remembers")

    def refuse(self, name: str) -> None:
        """Refuse the operation `name` of torch or NumPy: raises `PolicyError`."""
        if self.testing:
            self.answered = True
            raise PolicyError(name)
        self.say(f"forward calls {name}: the kernels must do this themselves")

    def verdict(self, elements: int) -> str:
        """The breaches of policy in a run whose outputs have so many `elements`; "" for none."""
        if self.sentences:
            return "; ".join(self.sentences[:5])
        if elements and not self.launches:
            return "outputs were returned, and no kernel was launched and no library called"
        return ""

    def handed_out(self, array: Any) -> Any:
        """`array` as one that refuses to compute; see `GuardedArray`."""
        return guarded(array, self)

    @property
    def computing(self) -> bool:
        """Whether the model's forward is running now, outside of its launches."""
        return self.phase == "forward" and not self.inside

    def done(self, name: str, arguments: Sequence[Any], result: object) -> None:
        """Note the memory that the allowed operation `name` has allocated, filled or copied."""
        if not isinstance(result, torch.Tensor) or self.testing:
            return
        with self._unwatched():
            if name in wrapper_guard.COPIES:
                # The first argument of `copy_` is its target; of all other copies, the source.
                self.writes.made(result, arguments[1:] if name == "copy_" else arguments)
            elif name in wrapper_guard.ALLOCATIONS | wrapper_guard.FILLS:
                self.writes.made(result)

    @contextmanager
    def launch(self) -> Iterator[None]:
        """A context around a launch: counts it, and notes the memory that it writes."""
        with self._looking(), super().launch():
            yield

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """A context that compares forward's memory before and after the block."""
        with self._unwatched():
            self.writes.enter()
        try:
            yield
        finally:
            with self._unwatched():
                self.writes.leave()

    @contextmanager
    def native(self) -> Iterator[None]:
        """A context around a call into a library that the model has built; counts as a launch."""
        self.launches += 1
        with self._looking():
            yield

    # ------------------------------------------------------------ phases

    @contextmanager
    def loading(self) -> Iterator[None]:
        """A context around the import of the file, and around building a model."""
        with self._during("load"):
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context around forward. At its end, an operation is tried that must be refused."""
        self.writes.begin()
        self.runs += 1
        with self._during("forward"), self.watching():
            yield
            self._try()

    @contextmanager
    def _during(self, phase: str) -> Iterator[None]:
        self.phase, before = phase, self.phase
        try:
            yield
        finally:
            self.phase = before
            found = [*filter(None, [self._replaced()]), *self._changed(phase)]
            self.sentences += [one for one in found if one not in self.sentences]

    def _changed(self, phase: str) -> list[str]:
        """Sentences on what of torch has changed. In one of `_WHOLE` runs of forward, the kernels
        of all operations are compared, whoever registered them."""
        if self.torch is None:
            return []
        if phase == "load":
            return self.torch.changes()
        if self.runs % _WHOLE == 1:
            self.torch.registrations()
        return self.torch.changes(("gradients",))  # forward runs without gradients

    def _try(self) -> None:
        self.testing, self.answered = True, False
        with contextlib.suppress(PolicyError):
            torch._C._VariableFunctions.add(_ONE, _ONE)
        self.testing = False
        if not self.answered:
            self.sentences.append("forward takes off the guard that watches what torch computes")

    # ------------------------------------------------------------ set-up

    def install(self) -> None:
        """Start watching: once per process, before the file is imported."""
        _count_calls(self)
        _count_extensions(self)
        _stop_threads(self)
        _keep_modes(self)
        _guard_arrays(self)
        self.kept = {name: _callables(vars(sys.modules[name])) for name in _KEPT}
        for name, owner in _CLASSES.items():
            self.kept[name] = _callables(vars(owner))
        self.torch = TorchState(first_state())
        sys.addaudithook(self.heard)

    def _replaced(self) -> str:
        """A sentence on a function that was replaced since `install`; "" for none."""
        for name, kept in self.kept.items():
            owner: Any = _CLASSES.get(name) or sys.modules.get(name)
            now: Mapping[str, Any] = vars(owner) if owner is not None else {}
            for attribute, value in kept.items():
                if now.get(attribute) is not value:
                    return f"it replaced {name}.{attribute}"
        return ""

    # ------------------------------------------------------------ audit events

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's audit hook; raises `PolicyError` for what a model must not do."""
        if self.phase == "off" or self.inside or self.hearing:
            return
        # The checks below cause events themselves; so does finding out who sets an attribute.
        object.__setattr__(self, "hearing", True)
        try:
            self._judge(event, arguments)
        finally:
            object.__setattr__(self, "hearing", False)

    def _judge(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self._started(arguments[0], arguments[1])
        elif event in _STARTS:
            self.say(f"it calls {event}")
        elif event.startswith("socket."):
            self.say("it uses the network")
        elif event == "open":
            self._opened(arguments[0])
        elif event == "import":
            self._imported(str(arguments[0]), arguments[1])
        elif event == "ctypes.dlopen":
            self._loaded(arguments[0])
        elif event in ("ctypes.dlsym", "ctypes.dlsym/handle"):
            self._asked(arguments[0], str(arguments[1]))
        elif event in ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._getframe"):
            self._looked(event)
        elif event == "object.__getattr__" and str(arguments[1]) in _LEAD_TO_FRAMES:
            self._looked(str(arguments[1]))
        elif event == "object.__setattr__" and str(arguments[1]) == "__code__":
            self._looked("__code__")

    def _started(self, executable: Any, command: Any) -> None:
        given = [command] if isinstance(command, str | bytes | os.PathLike) else command or ()
        words = [os.fsdecode(word) for word in given] or [os.fsdecode(executable)]
        name = Path(os.fsdecode(executable or words[0])).name
        if name in _SHELLS and len(words) >= 3 and words[1] == "-c":
            line = words[2]
            name = Path((line.split() or [""])[0]).name
            if any(mark in line for mark in ";|&`$<\n"):
                self.say(f"it starts a shell with `{line[:80]}`")
        if _plain(name) not in _PROGRAMS:
            self.say(f"it starts the program {name}")
        if self.shut:  # not remembered as a breach: `rehearse` lets forward build with other inputs
            self.building = name
            raise PolicyError(building(name))

    def _opened(self, path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            real = os.path.realpath(os.fsdecode(path))
            if real in self.forbidden:
                self.say("it opens the file of the task")

    def _imported(self, name: str, filename: Any) -> None:
        top = name.partition(".")[0]
        if top in _MODULES or name in _MODULES:
            self.say(f"it imports {name}")
        if filename is not None and top not in self.extensions:
            path = Path(os.fsdecode(filename))
            if self._is_own(path):
                self._look(path, extension=True)

    def _loaded(self, name: Any) -> None:
        if name is None:
            return  # the process itself: `_asked` checks the functions looked up in it
        path = Path(os.fsdecode(name))
        if self._is_own(path):
            self._look(path, extension=False)
        elif not path.name.startswith(_SYSTEM):
            self.say(f"it loads {path.name}, which it has not built")

    def _asked(self, library: Any, name: str) -> None:
        path = getattr(library, "_name", None)
        if path is not None and self._is_own(Path(os.fsdecode(path))):
            return
        if not binary.allowed_symbol(name):
            self.say(f"it calls `{name}` of a library that it has not built")

    def _looked(self, event: str) -> None:
        """Refuse an event that inspects frames or objects, where the model's own file causes it,
        itself or through `inspect`; libraries may inspect frames."""
        frame: types.FrameType | None = sys._getframe(3)
        for _ in range(2):
            if frame is None:
                return
            if frame.f_code.co_filename == self.source:
                self.say(f"it calls {event}")
            if Path(frame.f_code.co_filename).name != "inspect.py":
                return
            frame = frame.f_back

    def _is_own(self, path: Path) -> bool:
        real = os.path.realpath(path)
        return real.startswith(self.own + os.sep) and not wrapper_guard.trusted(real)

    def _look(self, path: Path, *, extension: bool) -> None:
        """Check a library that the model has built, and refuse it before any of its code runs."""
        try:
            library = binary.inspect_elf(path)
            found = binary.refusal(library, extension=extension, exists=binary.in_libc)
        except (OSError, binary.NotElfError):
            return  # the loader will report what is wrong with the file
        if found:
            self.say(f"in {path.name}: {found}")


def building(name: str) -> str:
    """The sentence on a compiler `name` that forward starts."""
    return f"forward starts the program {name}"


_ONE = torch.ones(1)
#: Classes whose methods must not be replaced.
_CLASSES: dict[str, type] = {
    "ctypes.CDLL": ctypes.CDLL,
    "the guard": Guard,
    "the watch": wrapper_guard.Watch,
}


def _plain(name: str) -> str:
    """The program's name without version and target: `g++` for `g++-12`, `x86_64-linux-gnu-g++`."""
    stem = name.rstrip("0123456789.")
    stem = stem.removesuffix("-")
    return stem.rpartition("-")[2] if stem.rpartition("-")[2] in _PROGRAMS else stem


def _callables(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in attributes.items()
        if callable(value) or isinstance(value, types.ModuleType | property)
    }


def _stop_threads(guard: Guard) -> None:
    """Refuse to start threads: the dispatch modes that watch the model hold for one thread only."""
    original = _thread.start_new_thread

    def start(*arguments: Any, **keywords: Any) -> Any:
        if guard.phase != "off" and not guard.inside:
            guard.say("it starts a thread, where nobody sees what is computed")
        return original(*arguments, **keywords)

    for owner, name in (
        (_thread, "start_new_thread"),
        (_thread, "start_new"),
        (threading, "_start_new_thread"),
    ):
        setattr(owner, name, start)


#: Functions that remove a dispatch mode, with their modules. torch's own files have imported them.
_TAKES_OFF = (
    (torch._C, "_DisableTorchDispatch"),
    (torch._C, "_pop_torch_dispatch_stack"),
    (torch._C, "_set_torch_dispatch_mode"),
    (torch._C, "_unset_dispatch_mode"),
    (torch._C, "_dispatch_tls_set_dispatch_key_excluded"),
    (torch._C, "_ExcludeDispatchKeyGuard"),
    (torch._C, "_AutoDispatchBelowAutograd"),
    (torch.utils._python_dispatch, "_disable_current_modes"),
    (torch.utils._python_dispatch, "_pop_mode"),
    (torch.utils._python_dispatch, "_pop_mode_temporarily"),
)
_OF_TORCH = os.path.dirname(torch.__file__) + os.sep


def _keep_modes(guard: Guard) -> None:
    """Let only torch itself and the guard remove the dispatch modes that see torch's operations."""
    for owner, name in _TAKES_OFF:
        original = getattr(owner, name, None)
        if original is not None:
            setattr(owner, name, _of_torch_only(guard, name, original))


def _of_torch_only(guard: Guard, name: str, original: Any) -> Any:
    def call(*arguments: Any, **keywords: Any) -> Any:
        if guard.computing:
            caller = sys._getframe(1).f_code.co_filename
            if not caller.startswith(_OF_TORCH) and caller != wrapper_guard.__file__:
                guard.say(f"it calls {name}, which takes off the guard")
        return original(*arguments, **keywords)

    return call


def _count_calls(guard: Guard) -> None:
    """Let `guard` count calls through ctypes of functions of libraries that the model has built."""
    original = ctypes.CDLL.__init__

    def made(self: Any, name: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, name, *arguments, **keywords)
        if name is None or not guard._is_own(Path(os.fsdecode(name))):
            return

        class Counted(self._FuncPtr):  # type: ignore[misc]
            _flags_ = self._FuncPtr._flags_
            _restype_ = self._FuncPtr._restype_

            def __call__(self, *values: Any, **named: Any) -> Any:
                with guard.native():
                    return super().__call__(*values, **named)

        self._FuncPtr = Counted

    ctypes.CDLL.__init__ = made  # type: ignore[method-assign]


def _count_extensions(guard: Guard) -> None:
    """Let `guard` count calls of functions of extension modules that the model builds."""
    if "torch.utils.cpp_extension" not in sys.modules:
        return
    from torch.utils import cpp_extension

    original: Any = cpp_extension._import_module_from_library

    def imported(*arguments: Any, **keywords: Any) -> Any:
        module = original(*arguments, **keywords)
        if isinstance(module, types.ModuleType):
            for name, value in list(vars(module).items()):
                if isinstance(value, types.BuiltinFunctionType):
                    setattr(module, name, _counted(guard, value))
        return module

    cpp_extension._import_module_from_library = imported


def _counted(guard: Guard, function: Any) -> Any:
    def call(*arguments: Any, **keywords: Any) -> Any:
        with guard.native():
            return function(*arguments, **keywords)

    return call


# ---------------------------------------------------------------- arrays of NumPy


def _refuse(name: str) -> None:
    for guard in _GUARDS:
        if guard.computing:
            guard.refuse(name)


class GuardedArray(np.ndarray[Any, Any]):
    """An array that refuses to compute: the kind of array that NumPy gives a model in its forward.

    It has an address, a shape and a type, and may be copied, so that a model can pass it to a
    library that it has built; a ufunc, a function of NumPy or a method that computes is refused.
    (Methods called on `numpy.ndarray` itself, and views made in C, are not covered.)
    """

    @property
    def base(self) -> None:
        """None: the real base would be an array that computes."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        _refuse(f"numpy.{ufunc.__name__}")
        return getattr(ufunc, method)(*map(_bare, inputs), **_bared(keywords))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ not in _HARMLESS:
            _refuse(f"numpy.{func.__name__}")
        return super().__array_function__(func, types, args, kwargs)

    def view(self, *arguments: Any, **keywords: Any) -> Any:
        """A view of this class, whatever class is asked for."""
        kept = [v for v in arguments if not (isinstance(v, type) and issubclass(v, np.ndarray))]
        keywords.pop("type", None)
        return super().view(*kept, **keywords)


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


def guarded(array: Any, guard: Guard) -> Any:
    """`array` as a `GuardedArray`, which refuses to compute while `guard.computing`."""
    if guard not in _GUARDS:
        _GUARDS.append(guard)
    return np.ndarray.view(array, GuardedArray) if isinstance(array, np.ndarray) else array


def _guard_arrays(guard: Guard) -> None:
    """Let NumPy's constructors return guarded arrays while `guard` watches, outside of launches."""
    for owner, names in ((np, _CONSTRUCTORS), (np.ctypeslib, ("as_array",))):
        for name in names:
            original = getattr(owner, name)
            setattr(owner, name, _constructor(original, guard))


def _constructor(original: Any, guard: Guard) -> Any:
    @functools.wraps(original)
    def made(*arguments: Any, **keywords: Any) -> Any:
        found = original(*arguments, **keywords)
        if guard.phase == "off" or guard.inside:
            return found
        return guarded(found, guard)

    return made
