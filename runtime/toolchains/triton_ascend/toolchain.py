"""The toolchain of `triton_ascend`: the real front end, executed on this CPU through MLIR.

No NPU is used. `run` executes the generated wrapper in a worker process with torch's CPU tensors;
each launch is compiled by triton-ascend's front end (in its own environment), its Linalg is built
into a shared library, and the programs of the grid run one after another, in a shuffled order, on
buffers between forbidden pages. Where this project lowered the kernel, the libraries are called in
another process (`launching`). What a passed run means is in `triton_ascend.MEANING`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.lowering.hardware import load_hardware
from sketchc.runtime.sandbox.worker import WorkerResult, file_limit, run_worker
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    TORCH_NOTED,
    Arrays,
    Artefact,
    ModelRun,
    Params,
    Sizes,
    Tensors,
    Toolchain,
    ToolchainError,
    ToolchainStatus,
    check_python,
    place,
    reply_of,
)
from sketchc.runtime.toolchains.launching import (
    Reply,
    call_request,
    complete,
    run_launches,
    workspace_bytes,
)
from sketchc.runtime.toolchains.triton_ascend import HOW_IT_RUNS, MEANING, environment

if TYPE_CHECKING:
    from sketchc.lowering.kernel import Kernel

HANDLER = "sketchc.runtime.toolchains.triton_ascend.execute:execute"
TRACE = "sketchc.runtime.toolchains.triton_ascend.execute:trace"
LAUNCH = "sketchc.runtime.toolchains.triton_ascend.launch:execute"
#: Modules and preparing functions of the templates of all workers that run a wrapper.
_PREPARED = (
    HANDLER.partition(":")[0],
    "sketchc.runtime.toolchains.triton_ascend.environment:find_tools",
    TORCH_NOTED,
)
#: Sizes that `compile` tries for every symbol until one passes the wrapper's own checks.
SAMPLES = (64, 16, 128, 1, 96)
SAMPLE_ELEMENTS = 1 << 24
#: Bytes of address space of a run, which bound a kernel that allocates memory without end.
MEMORY_BYTES = 32 << 30


class TritonAscendToolchain(Toolchain):
    """See `base.Toolchain`."""

    target = "triton_ascend"
    install_tools = staticmethod(environment.install_tools)

    def model_run(self, kernel: Kernel) -> ModelRun:
        """A `ModelRun` whose launches go through the front end. Workers may read the front end's
        folder, and write the folder with the builds of this kernel file."""
        kept = _kept_builds(kernel.source.encode("utf-8", "replace"))
        chip = str(load_hardware(kernel.hardware).facts["chip"])
        return ModelRun(
            prepare="sketchc.runtime.toolchains.triton_ascend.models:prepare",
            preload=_PREPARED,
            refusals=("CompilationError", "CompileError", "BuildError", "UnsupportedLinalgError"),
            told={"python": str(environment.FRONTEND.python()), "chip": chip},
            environment={"XDG_CACHE_HOME": str(kept)},
            readable=(environment.FRONTEND.folder(),),
            writable=(kept,),
        )

    def status(self) -> ToolchainStatus:
        """Look for the front end's environment and the tools, of which mlir-opt and gcc are started
        to ask for their versions."""
        tools = environment.find_tools()
        frontend = environment.FRONTEND.python()
        missing, advice = [], []
        if frontend is None:
            missing.append(f"triton-ascend {environment.FRONTEND_VERSION} in its own environment")
            advice.append(environment.INSTALL_LINE)
        if tools is None:
            missing.extend(environment.missing_tools())
            advice.append(f"as root: {environment.APT_LINE}")
        if importlib.util.find_spec("torch") is None:
            missing.append("torch")
            advice.append("pip install torch")
        versions = {}
        if frontend is not None:
            versions["triton-ascend"] = environment.FRONTEND_VERSION
        if tools is not None:
            versions |= {"llvm": tools.version, "gcc": tools.gcc_version}
        return ToolchainStatus(
            target=self.target,
            can_compile=not missing,
            can_run=not missing,
            how_it_runs=HOW_IT_RUNS,
            versions=versions,
            missing=tuple(missing),
            advice="; ".join(advice),
            interpreted=True,
        )

    def install(self) -> str:
        """Create the front end's environment; returns a message that also says which tools are
        still missing. Raises `environment.InstallError`."""
        done = environment.install_frontend()
        if environment.find_tools() is None:
            return f"{done}\nstill missing; as root: {environment.APT_LINE}"
        return done

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """Write the source and build every kernel that the wrapper launches at a sample shape.

        Other shapes may specialise differently (a bucket, a size of 1): `run` builds these kernels.
        Raises `ToolchainError` with stage "compile" for a kernel that the front end refuses.
        """
        self._require_installed()
        check_python(kernel.source)
        path = self.place(kernel, folder)
        details: dict[str, Any] = {"meaning": MEANING}
        launch_error = "no sample shape fits the sketch's extents"
        for size, symbols, params in _samples(kernel.sketch):
            request = self._request(kernel, path, symbols, params, "forward", dry=True)
            arrays = complete(kernel.sketch, symbols, params, {})
            try:
                reply, _ = self._run(request, arrays, timeout)
            except ToolchainError as error:
                if error.stage != "launch" or "LaunchError" not in error.kinds:
                    raise  # not one of the wrapper's checks of sizes
                launch_error = str(error)
                continue
            details |= {"launches": reply["launches"], "sample size": size}
            return Artefact(kernel, folder, None, details)
        details["not compiled"] = f"no sample shape passes the wrapper's checks: {launch_error}"
        return Artefact(kernel, folder, None, details)

    def place(self, kernel: Kernel, folder: Path) -> Path:
        """Write the source without building it; `run` builds the kernels that it launches. Returns
        the source's file."""
        return place(kernel, folder, f"{kernel.name}.py")

    def run(
        self,
        artefact: Artefact,
        tensors: Tensors,
        symbols: Sizes,
        params: Params,
        timeout: float = 300.0,
        order: str = "shuffled",
    ) -> Arrays:
        """Run once; see `base.Toolchain.run`. `order`, in which the programs of a launch run, is
        "forward", "reversed" or "shuffled" (by a fixed seed)."""
        self._require_installed()
        kernel = artefact.kernel
        path = artefact.folder / f"{kernel.name}.py"
        request = self._request(kernel, path, symbols, params, order, dry=False)
        arrays = complete(kernel.sketch, symbols, params, tensors)
        if not kernel.foreign:
            workspaces = workspace_bytes(kernel.sketch, symbols, params)
            return self._launch(kernel.sketch, request, arrays, timeout, workspaces)
        return self._run(request, arrays, timeout)[1]

    def _launch(
        self,
        sketch: ir.Sketch,
        request: Mapping[str, Any],
        tensors: Arrays,
        timeout: float,
        workspaces: int,
    ) -> Arrays:
        """Trace the wrapper, and execute its launches in a process that loads only the built
        libraries; returns the out and inout tensors. `workspaces`: the bytes of those that the
        wrapper allocates, whose contents are handed from one process to the other."""
        built = _kept_builds(Path(request["source"]).read_bytes())

        def trace(more: Mapping[str, Any], arrays: Arrays, left: float) -> Reply:
            asked = {**request, **more}
            return self._run(asked, arrays, left, TRACE, of=timeout, workspaces=workspaces)

        def launch(asked: Mapping[str, Any], arrays: Arrays, left: float) -> Reply:
            result = run_worker(
                LAUNCH,
                {**asked, "order": request["order"]},
                arrays,
                timeout=left,
                memory_bytes=MEMORY_BYTES,
                file_bytes=file_limit(arrays),
                preload=(LAUNCH.partition(":")[0],),
                readable=[built],
            )
            return _replied(result, timeout)

        return run_launches(sketch, tensors, trace, launch, timeout)

    def _request(
        self, kernel: Kernel, path: Path, symbols: Sizes, params: Params, order: str, *, dry: bool
    ) -> dict[str, Any]:
        return {
            **call_request(kernel, path.resolve(), symbols, params),
            "python": str(environment.FRONTEND.python()),
            "chip": load_hardware(kernel.hardware).facts["chip"],
            "order": order,
            "dry": dry,
        }

    def _run(
        self,
        request: Mapping[str, Any],
        arrays: Tensors,
        timeout: float,
        handler: str = HANDLER,
        of: float | None = None,
        workspaces: int = 0,
    ) -> Reply:
        """Call `handler` in a new worker; returns its reply and arrays. `timeout` may be what is
        left `of` the whole time limit, which errors name. The contents of `workspaces` bytes may
        come back beside those of `arrays`. Raises `ToolchainError`."""
        kept = _kept_builds(Path(request["source"]).read_bytes())
        # The path of the front end is in the request: the worker's environment is cleared.
        result = run_worker(
            handler,
            request,
            arrays,
            timeout=timeout,
            memory_bytes=MEMORY_BYTES,
            file_bytes=file_limit(arrays) + workspaces,
            preload=_PREPARED,
            environment={"XDG_CACHE_HOME": str(kept)},
            readable=[request["source"], environment.FRONTEND.folder()],
            writable=[kept],
        )
        return _replied(result, timeout if of is None else of)

    def _require_installed(self) -> None:
        status = self.status()
        if status.missing:
            message = f"missing: {', '.join(status.missing)}; {status.advice}"
            raise ToolchainError(stage="infrastructure", message=message)


def _kept_builds(text: bytes) -> Path:
    """The folder with the builds of one source `text`. Its code could write there, so every source
    has a folder of its own."""
    kept = environment.cache_folder() / hashlib.sha256(text).hexdigest()[:32]
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def _replied(result: WorkerResult, timeout: float) -> Reply:
    """The worker's reply and arrays. Raises `ToolchainError`, also for an illegal access or a
    failed allocation that the launcher printed."""
    log = f"{result.traceback}\n{result.output}".strip()
    told = [line for line in result.output.splitlines() if line.startswith("sketchc: ")]
    if told and result.reply is None and not result.timed_out:
        message = told[-1].removeprefix("sketchc: ")
        kind = "MemoryError" if message.startswith("no memory") else "IllegalAccessError"
        raise ToolchainError(stage="launch", message=message, log=log, kinds=(kind,))
    return reply_of(result, timeout, log), dict(result.arrays)


def _samples(
    sketch: ir.Sketch,
) -> Iterator[tuple[int, dict[str, int], dict[str, int | float | bool]]]:
    """(size, symbols, params) for each of `SAMPLES` at which the sketch's shapes are valid and have
    at most `SAMPLE_ELEMENTS` elements in all."""
    params: dict[str, int | float | bool] = {
        param.name: 1.0 if param.dtype.is_float else 1
        for param in sketch.params
        if param.default is None
    }
    for size in SAMPLES:
        symbols = {
            s.name: size if s.upper_bound is None else min(size, s.upper_bound)
            for s in sketch.symbols
        }
        try:
            values = host_values(sketch, symbols, params)
            shapes = [[evaluate(e, values) for e in tensor.extents] for tensor in sketch.tensors]
        except (ArithmeticError, ValueError):
            continue  # a zero divisor at this size
        if any(extent < 0 for shape in shapes for extent in shape):
            continue
        if sum(math.prod(shape) for shape in shapes) <= SAMPLE_ELEMENTS:
            yield size, symbols, params


TOOLCHAIN = TritonAscendToolchain()
