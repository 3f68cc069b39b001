"""Triton's launches of a `ModelNew`: autotuned kernels use their configurations in turn, and all
launches can be compiled without a GPU.

An autotuner would time its configurations, which does not show whether they are correct, and needs
a GPU. Here each case takes the next configuration, so that as many are verified as there are cases.
`compile_launches` runs forward once with its launches recorded, and builds cubins of these, as
`triton_cuda.worker` does for wrappers.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sketchc.runtime.toolchains.torch_module.worker import (
    SESSIONS,
    Arrays,
    LoadedModule,
    raised,
    recorded,
)
from sketchc.runtime.toolchains.triton_cuda import interpreter, worker


class Turns:
    """Chooses the configuration that a tuned kernel takes: `number`, the number of the case, modulo
    the number of configurations."""

    def __init__(self) -> None:
        self.number = 0

    def install(self) -> None:
        """Replace `Autotuner.run`, so that autotuners take the configuration of this turn instead
        of timing all."""
        from triton.runtime.autotuner import Autotuner

        turns = self

        def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
            self.nargs = dict(zip(self.arg_names, arguments, strict=False))
            found = self.prune_configs(keywords) if len(self.configs) > 1 else self.configs
            config = found[turns.number % len(found)]
            self.best_config = config
            given = {**self.nargs, **keywords, **config.all_kwargs()}
            self.pre_hook(given, reset_only=True)
            if config.pre_hook is not None:
                config.pre_hook(given)
            return self.fn.run(*arguments, **keywords, **config.all_kwargs())

        Autotuner.run = run

    def tuned(self, module: ModuleType) -> dict[str, int]:
        """The names of the autotuned kernels of `module`, with their numbers of configurations."""
        from triton.runtime.autotuner import Autotuner

        return {
            name: len(value.configs)
            for name, value in vars(module).items()
            if isinstance(value, Autotuner) and len(value.configs) > 1
        }


def prepare(session: LoadedModule, request: dict[str, Any]) -> None:
    """`ModelRun.prepare`: installs `Turns`; unless the request is "dry", chooses the device and
    reports launches, on the GPU or in Triton's interpreter, to the session's guard."""
    session.turns = Turns()
    session.turns.install()
    if request["dry"]:
        return
    if torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        session.device = "cuda"
    else:
        os.environ["TRITON_INTERPRET"] = "1"
        interpreter.mend()
    worker._count_launches(session.guard)


def compile_launches(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Compile the kernels that forward launches, without a GPU.

    `request`: that of `torch_module.worker.recorded`, and "hardware" (the facts of the chip). The
    reply holds "kernels", see `triton_cuda.worker.build`, or {"failure"}.
    """
    os.environ["TRITON_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / "triton")
    launches: list[worker.Launch] = []
    if failed := recorded(request, worker.noting(launches.append)):
        return failed, {}
    folder = Path(tempfile.mkdtemp())
    architecture = int(request["hardware"]["chip"].removeprefix("sm_"))
    shared = request["hardware"]["memory"]["shared"]["bytes"]
    try:
        kernels = [worker.build(one, None, architecture, folder, shared) for one in launches]
    except Exception as error:
        return raised(SESSIONS[0], "compile", error), {}
    return {"kernels": kernels}, {}
