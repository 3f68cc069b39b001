"""Runs a `ModelNew` (KernelBench's format) for any target, in one worker process per file.

Unlike other toolchains, it takes no tensors by the names of a sketch, but the inputs of forward,
and the model's parameters by the model's names: see `Call`. One object serves one candidate.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.lowering.registry import load_target
from sketchc.runtime.process.venvs import installed
from sketchc.runtime.sandbox.worker import Limits, Worker, WorkerResult
from sketchc.runtime.tasks.description import OtherSpec
from sketchc.runtime.tasks.layout import Layout
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    Arrays,
    Artefact,
    ModelRun,
    Tensors,
    Toolchain,
    ToolchainError,
    ToolchainStatus,
    check_python,
    last_lines,
    reply_of,
    toolchain,
)

if TYPE_CHECKING:
    from sketchc.lowering.kernel import Kernel

_WORKER = "sketchc.runtime.toolchains.torch_module.worker"
#: The kind of a failure: forward tried to start a compiler, and could not (see `TorchModules`).
BUILDS = "BuildsInForwardError"
#: Bytes of address space of a model that runs on the CPU.
_MEMORY_BYTES = 32 << 30
#: A line in which a C++ compiler reports an error.
COMPILER_ERROR = re.compile(r"^\S+\.(cpp|cc|cxx|cu|h|hpp):\d+.*\berror: .*$", re.MULTILINE)


@attrs.frozen
class Call:
    """One run of forward. `init` are the init inputs as Python text; `inputs` forward's inputs by
    position, those that are neither arrays nor numbers as Python text, and `layout` how forward
    takes them; `state` parameters and buffers by the model's names; `outputs` the names of what
    forward returns.

    `fresh`: the inputs lie at addresses that no call has used. `strided`: the inputs are not
    contiguous. `turn`: the number of the case, by which tuned kernels choose their configuration.
    `judge_writes`: launches must have written the tensors that forward returns.
    """

    init: Sequence[str]
    inputs: Sequence[Any]
    state: Tensors
    outputs: Sequence[str]
    fresh: bool = False
    strided: bool = False
    turn: int = 0
    judge_writes: bool = False
    layout: Layout = attrs.field(factory=list)


@attrs.define(eq=False)
class TorchModules(Toolchain):
    """The toolchain of one `ModelNew`. `forbidden` are files that the model must not open.

    A gated worker (`ModelRun.gated`) can start programs while the file is imported and models are
    built, and none while forward runs, by whatever means; programs that were started before have
    ended then. (Not gated: on a GPU, Triton compiles in forward; the Ascend front end is a
    program.) Outside of `rehearse`, a forward that starts compilers fails with the kind `BUILDS`.
    """

    target: str
    forbidden: tuple[str, ...] = ()
    _worker: Worker | None = None
    _how: ModelRun = attrs.field(factory=ModelRun)
    #: False where this machine cannot keep a worker from starting programs.
    shuts: bool = True
    #: The init inputs whose models the worker has.
    _models: set[tuple[str, ...]] = attrs.field(factory=set)
    #: Shapes of the model's parameters and buffers by name, set by `load`.
    state: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
    #: The names of tuned kernels, with their numbers of configurations.
    tuned: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def base(self) -> Toolchain:
        """The target's own toolchain."""
        return toolchain(self.target)

    def status(self) -> ToolchainStatus:
        """The status of the target's toolchain; C++ in a model needs torch, too."""
        status = self.base.status()
        if not getattr(self.base, "models_need_torch", False):
            return status
        versions = {**status.versions, **installed("torch")}
        if "torch" not in versions:
            advice = "pip install torch"
            missing = (*status.missing, "torch")
            return attrs.evolve(status, can_run=False, missing=missing, advice=advice)
        return attrs.evolve(status, versions=versions)

    def install(self) -> str:
        """Install the toolchain of the target."""
        return self.base.install()

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Check only that the source parses; `load` imports it, which needs the init inputs."""
        check_python(kernel.source)
        return Artefact(kernel, folder)

    # ------------------------------------------------------------ what is offered instead of `run`

    def load(self, kernel: Kernel, init: Sequence[str], timeout: float) -> None:
        """Import the file, which may build C++, and build a model at the task's own sizes.

        Raises `ToolchainError`.
        """
        self.close()
        how = self._how = self._run_of(kernel)
        request = self._request(kernel, init)
        self._worker = Worker(
            limits=Limits(None if how.on_device else _MEMORY_BYTES),
            preload=how.preload,
            gated=how.gated,
            environment={"OMP_WAIT_POLICY": "passive", **how.environment},
            readable=how.readable,
            writable=how.writable,
        )
        result = self._worker.call(f"{_WORKER}:load", request, timeout=timeout)
        try:
            reply = _reply(result, "compile", timeout)
            if how.gated:
                self.shuts = self._worker.let_start(False)
        except BaseException:
            self.close()
            raise
        self.state = {name: tuple(shape) for name, shape in reply["state"].items()}
        self.tuned = dict(reply["tuned"])
        self._models = {tuple(init)}

    def build_launches(
        self,
        kernel: Kernel,
        init: Sequence[str],
        inputs: Sequence[Mapping[str, Any]],
        layout: Layout,
        timeout: float,
    ) -> None:
        """Compile the kernels that forward launches for the kernel's chip, where launches are
        interpreted; `inputs` are {"shape", "dtype"} (torch's name), {"value"} or {"text"}. Raises
        `ToolchainError`."""
        from sketchc.lowering.hardware import load_hardware

        how = self._run_of(kernel)
        if not how.compiled_by:
            return
        request = {
            **self._request(kernel, init),
            "dry": True,
            "inputs": list(inputs),
            "layout": layout,
            "hardware": load_hardware(kernel.hardware).facts,
        }
        with Worker(
            limits=Limits(_MEMORY_BYTES),
            preload=("torch",),
            environment=how.compiled_in,
        ) as worker:
            result = worker.call(how.compiled_by, request, timeout=timeout)
            _reply(result, "compile", timeout)

    def _request(self, kernel: Kernel, init: Sequence[str]) -> dict[str, Any]:
        """The part of the request that `load` and `build_launches` share."""
        how = self._run_of(kernel)
        return {
            "source": kernel.source,
            "name": "model_new",
            "prepare": how.prepare,
            "refusals": list(how.refusals),
            **how.told,
            "init": list(init),
            "forbidden": list(self.forbidden),
            "extensions": sorted(load_target(self.target).extensions),
            "dry": False,
        }

    def _run_of(self, kernel: Kernel) -> ModelRun:
        found = getattr(self.base, "model_run", None)
        return ModelRun() if found is None else found(kernel)

    @property
    def alive(self) -> bool:
        """Whether the file is loaded in a worker that still serves calls."""
        return self._worker is not None and self._worker.alive

    def call(self, call: Call, timeout: float) -> Arrays:
        """Run forward once; returns its outputs by name. Raises `ToolchainError`."""
        assert self._worker is not None
        if self._how.gated and tuple(call.init) not in self._models:
            # One more model, built before forward has inputs.
            request = {"init": list(call.init)}
            with self._open():
                result = self._worker.call(f"{_WORKER}:construct", request, {}, timeout)
                _reply(result, "launch", timeout)
            self._models.add(tuple(call.init))
        return self._forward(call, timeout, shut=self._how.gated)

    def rehearse(self, call: Call, timeout: float) -> None:
        """Run forward once while it may start programs, so that it can build its code for inputs
        of these shapes; the inputs must not be those of a case. Raises `ToolchainError`."""
        with self._open():
            self._forward(call, timeout, shut=False)

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Let the worker start programs within the block, and not after it."""
        assert self._worker is not None
        self._worker.let_start(True)
        try:
            yield
        finally:
            self._worker.let_start(False)

    def _forward(self, call: Call, timeout: float, *, shut: bool) -> Arrays:
        assert self._worker is not None
        arrays = {f"state.{name}": array for name, array in call.state.items()}
        inputs: list[dict[str, Any]] = []
        for position, value in enumerate(call.inputs):
            if value is None or isinstance(value, bool | int | float):
                inputs.append({"value": value})
            elif isinstance(value, OtherSpec):
                inputs.append({"text": value.text})
            else:
                arrays[f"input.{position}"] = value
                inputs.append({"array": f"input.{position}"})
        request = {
            **attrs.asdict(call, recurse=False),
            "inputs": inputs,
            "state": list(call.state),
            "shut": shut,
        }
        result = self._worker.call(f"{_WORKER}:forward", request, arrays, timeout)
        _reply(result, "launch", timeout)
        return dict(result.arrays)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _reply(result: WorkerResult, stage: str, timeout: float) -> dict[str, Any]:
    """The worker's reply. Raises `ToolchainError` where there is none, or for a failure reply."""
    log = last_lines(result)
    try:
        # A worker that ends, even before forward, is the fault of the file.
        return reply_of(result, timeout, log, stage)
    except ToolchainError as error:
        if result.reply is None:
            raise
        message = str(error)
        if "CalledProcessError" in error.kinds and (said := re.search(COMPILER_ERROR, log)):
            message = said[0].strip()
        printed = f"{log}\n{error.log}".strip()
        raise ToolchainError(error.stage, message, printed, error.kinds) from None
