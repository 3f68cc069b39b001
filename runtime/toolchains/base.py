"""The interface of every toolchain (status, installation, compilation, runs), and functions that
several toolchains share."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from typing import Self

    import numpy as np
    import torch

    from sketchc.lowering.kernel import Kernel
    from sketchc.runtime.sandbox.worker import PersistentWorker, WorkerResult

Tensors: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"
Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
Sizes: TypeAlias = Mapping[str, int]
Params: TypeAlias = Mapping[str, int | float | bool]
#: From in and inout tensors (by name) to new outputs, in call order.
Launch: TypeAlias = "Callable[[Mapping[str, torch.Tensor]], list[torch.Tensor]]"

#: Seconds that building one kernel may take.
COMPILE_TIMEOUT = 300.0
#: Called in templates whose processes watch for changes of torch's state: it takes 0.1 seconds.
TORCH_NOTED = "sketchc.runtime.guards.torch_state:first_state"
#: How many of the last lines that a worker printed are kept.
_LOG_LINES = 200


@attrs.frozen
class ToolchainStatus:
    """`can_compile` / `can_run` on this machine, the versions found, and how to get the rest.

    `interpreted`: runs are far slower than the kernel would be on its hardware, so `verify` scales
    large sizes down (and says so), and `bench` declines. `never_built` says why nobody can build
    kernels of this target: what is generated for it is never passed.
    """

    target: str
    can_compile: bool
    can_run: bool
    how_it_runs: str  # "on the GPU", "Triton's interpreter on the CPU", ...
    versions: Mapping[str, str] = attrs.field(factory=dict)
    missing: tuple[str, ...] = ()
    advice: str = ""
    interpreted: bool = False
    never_built: str = ""


class ToolchainError(Exception):
    """A compiler or runner refused: `stage` is "compile", "launch", "timeout", "illegal_access" (a
    write outside the buffers, or into an input), "wrong_shape" (the results are not the outputs),
    "policy" (the kernel lets others do its work), "design" (the sketch itself is at fault) or
    "infrastructure"; `log` is what the compiler or runner printed.

    `kinds` are the type names of the underlying exceptions, the outermost first, if any:
    `runtime.verify.evidence.classify` finds the class of failure from them."""

    def __init__(
        self, stage: str, message: str, log: str = "", kinds: tuple[str, ...] = ()
    ) -> None:
        self.stage = stage
        self.log = log
        self.kinds = kinds
        super().__init__(message)


class CandidateError(Exception):
    """The kernel to be timed cannot be called, or raised an exception."""


class PreparedLaunch(ABC):
    """A `Launch` of a kernel that is given its outputs: `prepare` allocates and poisons the outputs
    of the next call. That call still makes one allocation, as PyTorch's eager mode does."""

    @abstractmethod
    def prepare(self) -> None:
        """Allocate and poison the outputs of the next call."""

    @abstractmethod
    def __call__(self, given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Run the kernel on the tensors `given`; returns its outputs. Raises `CandidateError`."""


@attrs.frozen
class Artefact:
    """A compiled kernel on disk. `details` is for people (registers, shared memory, seconds).

    `own_symbols` and `own_constructors`: what the toolchain itself brings into the library, symbols
    that it imports and functions that run on loading; they are no doing of the kernel's.
    """

    kernel: Kernel
    folder: Path
    library: Path | None = None
    details: Mapping[str, Any] = attrs.field(factory=dict)
    own_symbols: frozenset[str] = frozenset()
    own_constructors: int = 0


@attrs.frozen
class ModelRun:
    """How the worker of a `ModelNew` (`toolchains.torch_module`) runs the model on a target. A
    toolchain's `model_run(kernel)` returns it, where it has that method.

    `prepare` is a function "module:name" that the worker calls with its session and its request,
    which holds `told`, before the file is imported, so that the guard sees launches. `gated`:
    `forward` starts no programs. `on_device`: tensors are not in the host's memory.
    `compiled_by` is a handler of workers that compiles the kernels that `forward` launches, where
    launches are interpreted, with the environment `compiled_in`. `refusals` names the exceptions
    that the target's compilers raise.
    """

    prepare: str = ""
    told: Mapping[str, Any] = attrs.field(factory=dict)
    preload: tuple[str, ...] = (TORCH_NOTED,)
    environment: Mapping[str, str] = attrs.field(factory=dict)
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    gated: bool = False
    on_device: bool = False
    compiled_by: str = ""
    compiled_in: Mapping[str, str] = attrs.field(factory=dict)
    refusals: tuple[str, ...] = ()


class Toolchain(ABC):
    """The compiler and runner of one target; the target's record names a module whose `TOOLCHAIN`
    is an instance. A subclass defines `run`, or `open` where a process can be kept from run to run.
    `launcher` is a module whose function `launcher`, given (kernel, library, symbols, params),
    makes the `Launch` that is timed; a target whose host code is Python needs none."""

    target: str
    launcher: str = ""

    @abstractmethod
    def status(self) -> ToolchainStatus:
        """What of the toolchain is installed and what is missing. Cheap: compiles nothing."""

    @abstractmethod
    def install(self) -> str:
        """Set up what can be set up without root; returns what to do for the rest."""

    @abstractmethod
    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Build `kernel` into `folder` in at most `timeout` seconds. Raises `ToolchainError`."""

    def build_module(self, kernel: Kernel, folder: Path) -> Path:
        """Put the importable module of a kernel into `folder`; returns the file, which need not be
        loaded. Raises `ToolchainError`."""
        return written(kernel, folder, f"{kernel.name}.py")[0]

    def module_parts(self, kernel: Kernel) -> tuple[Path | None, str]:
        """What a drop-in beside the module of `build_module` needs: a file of functions whose part
        between marks the drop-in copies (None: none), and the source of the definition of `run`,
        the kernel's function, in whose scope are `load_file` and `FOLDER`."""
        return None, f'run = load_file("{kernel.name}_kernel", "{kernel.name}.py").{kernel.entry}'

    def run(
        self,
        artefact: Artefact,
        tensors: Tensors,
        symbols: Sizes,
        params: Params,
        timeout: float = 300.0,
    ) -> Arrays:
        """Run once on C-contiguous arrays (bf16 as ml_dtypes.bfloat16). `tensors` holds every in
        and inout tensor; out tensors may be given as pre-filled (poisoned) buffers. Returns all out
        and inout tensors by name; the inputs given are never modified. Runs in a worker process
        unless the docstring of the toolchain says otherwise. Raises `ToolchainError`; a failed
        launch check (`require`) has stage "launch"."""
        with self.open(artefact) as session:
            return session.run(tensors, symbols, params, timeout)

    def open(self, artefact: Artefact) -> Session:
        """A session for several runs of one kernel."""
        return Session(self, artefact)


class Session:
    """Runs of one kernel, one after the other, in one process where the toolchain has a subclass
    for that: a kernel that reuses what it computed before is detected, and the process starts once.
    """

    #: The worker processes that stay from run to run.
    workers: tuple[PersistentWorker, ...] = ()

    def __init__(self, toolchain: Toolchain, artefact: Artefact) -> None:
        self._toolchain = toolchain
        self._artefact = artefact

    def run(
        self, tensors: Tensors, symbols: Sizes, params: Params, timeout: float = 300.0
    ) -> Arrays:
        """Run once, as `Toolchain.run` does."""
        return self._toolchain.run(self._artefact, tensors, symbols, params, timeout)

    def close(self) -> None:
        """End the worker processes."""
        for worker in self.workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reply_of(
    result: WorkerResult, timeout: float, log: str, stage: str = "launch"
) -> dict[str, Any]:
    """The worker's reply. Raises `ToolchainError` for a timeout, for a worker that ended without a
    reply (with `stage`), and for a reply that reports a failure (`messages.failure`)."""
    if result.timed_out:
        msg = f"no answer within {timeout:g} s"
        raise ToolchainError(stage="timeout", message=msg, log=log)
    if result.reply is None:
        raise ToolchainError(stage, result.describe(), log, result.kinds)
    if (failure := result.reply.get("failure")) is not None:
        kinds = tuple(failure.get("kinds", ()))
        raise ToolchainError(failure["stage"], failure["message"], failure.get("log", ""), kinds)
    return dict(result.reply)


def last_lines(result: WorkerResult) -> str:
    """The last `_LOG_LINES` lines of what a worker printed and of its traceback."""
    whole = f"{result.output}\n{result.traceback}".strip()
    return "\n".join(whole.splitlines()[-_LOG_LINES:])


def written(kernel: Kernel, folder: Path, name: str) -> list[Path]:
    """Write a kernel's source, as the file `name`, and its extra files into `folder`, for a user;
    returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: kernel.source, **dict(kernel.extras)}
    for file, text in files.items():
        (folder / file).write_text(text, "utf-8")
    return [folder / file for file in files]


def place(kernel: Kernel, folder: Path, name: str) -> Path:
    """Write a kernel's source, as the file `name`, and its extra files into `folder`, readable for
    workers; returns the source's file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_source(folder / name, kernel.source)
    for other, text in kernel.extras:
        write_source(folder / other, text)
    return folder / name


def write_source(path: Path, text: str) -> None:
    """Write a source file; characters that have no UTF-8 form (a model may send half a surrogate
    pair) become question marks, so that the compiler is the one to complain."""
    path.write_bytes(text.encode("utf-8", "replace"))
    path.chmod(0o644)  # workers may be another user


def toolchain(target: str) -> Toolchain:
    """The toolchain of a target. Raises `UsageError` for an unknown one, `ImportError` where its
    packages are not installed."""
    import importlib

    from sketchc.lowering.registry import load_target

    record = load_target(target)
    module = importlib.import_module(record.toolchain)
    found: Toolchain = module.TOOLCHAIN if record.tools is None else module.toolchain_of(record)
    return found


def check_python(source: str) -> None:
    """Raise `ToolchainError` ("compile", kind SyntaxError) for text that does not parse."""
    # The text as the file will hold it: see `write_source`.
    text = source.encode("utf-8", "replace").decode()
    kinds = ("SyntaxError",)
    try:
        ast.parse(text)
    except SyntaxError as error:
        msg = f"line {error.lineno}: {error.msg}"
        line = (error.text or "").rstrip("\n")
        caret = " " * max((error.offset or 1) - 1, 0) + "^"
        raise ToolchainError(
            stage="compile", message=msg, log=f"{line}\n{caret}", kinds=kinds
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        msg = f"the file is not Python: {error or 'nested too deeply'}"
        raise ToolchainError(stage="compile", message=msg, kinds=kinds) from error
