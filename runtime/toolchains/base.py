"""What every toolchain offers: is it here, compile, run. One file per target beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

if TYPE_CHECKING:
    from typing import Self

    import numpy as np

    from sketchc.lowering.kernel import Kernel


#: Seconds that building one kernel may take.
COMPILE_TIMEOUT = 300.0


@attrs.frozen
class ToolchainStatus:
    """`can_compile` / `can_run` on this machine, the versions found, and how to get the rest.

    `interpreted`: runs are far slower than the kernel would be on its hardware, so `verify` scales
    large sizes down (and says so), and `bench` declines.
    """

    target: str
    can_compile: bool
    can_run: bool
    how_it_runs: str  # "on the GPU", "Triton's interpreter on the CPU", ...
    versions: Mapping[str, str] = attrs.field(factory=dict)
    missing: tuple[str, ...] = ()
    advice: str = ""
    interpreted: bool = False


class ToolchainError(Exception):
    """A compiler or runner refused: `stage` is "compile", "launch", "timeout", "illegal_access" (a
    write outside the buffers, or into an input), "wrong_shape" (what came back is not the outputs),
    "policy" (the kernel lets others do its work) or "infrastructure"; `log` is what it printed.

    `kinds` are the types of the exceptions behind it, the outermost first, where there were any:
    `runtime.verify.classify` finds the class of failure from them."""

    def __init__(
        self, stage: str, message: str, log: str = "", kinds: tuple[str, ...] = ()
    ) -> None:
        self.stage = stage
        self.log = log
        self.kinds = kinds
        super().__init__(message)


@attrs.frozen
class Artefact:
    """A compiled kernel on disk. `details` is for people (registers, shared memory, seconds)."""

    kernel: Kernel
    folder: Path
    library: Path | None = None
    details: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class ModelRun:
    """How the worker of a `ModelNew` (`toolchains.torch_module`) runs one on a target: what a
    toolchain's `model_run(kernel)` returns, where it has that method.

    `prepare` is a function "module:name" that the worker calls with its session and its request,
    which holds `told`, before the file is imported, so that the guard sees launches. `gated`:
    forward has no need of programs. `on_device`: tensors are not in the host's memory.
    `compiled_by` is a handler of workers that compiles what forward launches, where launches are
    interpreted.
    """

    prepare: str = ""
    told: Mapping[str, Any] = attrs.field(factory=dict)
    preload: tuple[str, ...] = ("torch",)
    environment: Mapping[str, str] = attrs.field(factory=dict)
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    gated: bool = False
    on_device: bool = False
    compiled_by: str = ""


class Toolchain(Protocol):
    """The `TOOLCHAIN` of the module that a target's record names implements this."""

    target: str

    def status(self) -> ToolchainStatus:
        """Cheap: looks, compiles nothing."""

    def install(self) -> str:
        """Set up what can be set up without root; returns what to do for the rest."""

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Build into `folder`, in `timeout` seconds at most. Raises `ToolchainError`."""

    def run(
        self,
        artefact: Artefact,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        timeout: float = 300.0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run once on C-contiguous arrays (bf16 as ml_dtypes.bfloat16). `tensors` holds every in
        and inout tensor; out tensors may be given as pre-filled (poisoned) buffers. Returns all out
        and inout tensors by name; the inputs given are never modified. Runs in a worker process
        unless the docstring of the toolchain says otherwise. Raises `ToolchainError`; a failed
        launch check (`require`) has stage "launch"."""


class Session(ABC):
    """Runs of one kernel, one after the other, in one process where the toolchain offers that: a
    kernel that keeps what it computed before is found out, and starting costs once."""

    @abstractmethod
    def run(
        self,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        timeout: float = 300.0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """As `Toolchain.run`."""

    @abstractmethod
    def close(self) -> None:
        """End what it keeps."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@attrs.frozen
class _Runs(Session):
    """Runs by themselves, of a toolchain that keeps no process."""

    toolchain: Toolchain
    artefact: Artefact

    def run(
        self,
        tensors: Mapping[str, np.ndarray[Any, Any]],
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        timeout: float = 300.0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        return self.toolchain.run(self.artefact, tensors, symbols, params, timeout)

    def close(self) -> None:
        """Nothing is kept."""


def open_session(toolchain: Toolchain, artefact: Artefact) -> Session:
    """A session of this toolchain: its own `open`, where it has one."""
    opened = getattr(toolchain, "open", None)
    session: Session = _Runs(toolchain, artefact) if opened is None else opened(artefact)
    return session


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

    return importlib.import_module(load_target(target).toolchain).TOOLCHAIN  # type: ignore[no-any-return]
