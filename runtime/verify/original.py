"""A kernel as its own task, where there is no other: the one that is to be migrated.

Its toolchain compiles and runs it as it runs any kernel, in a worker process. What it is called
with is a sketch's signature: that of the sketch that it was made of, or one that a person wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import Scalar, fail
from sketchc.runtime.tasks.repeat import difference
from sketchc.runtime.toolchains.base import Session, ToolchainError
from sketchc.runtime.verify.design import SketchTask
from sketchc.runtime.verify.verify import Candidate


class KernelTask(SketchTask):
    """A kernel as a task; see `SketchTask`, which chooses its sizes and draws its inputs."""

    is_sketch = False

    def __init__(
        self,
        candidate: Candidate,
        folder: Path,
        settings: Mapping[str, Scalar] | None = None,
        timeout: float = 300.0,
    ) -> None:
        """Compile the candidate's kernel into `folder`. `timeout` bounds each run, in seconds.

        Raises `TaskFailure` for a kernel that does not compile, `UsageError` when no sizes can be
        found at which it may be launched.
        """
        super().__init__(candidate.plan, settings, Path(candidate.path))
        self.timeout = timeout
        toolchain = candidate.toolchain
        self.slow = toolchain.status().interpreted
        try:
            artefact = toolchain.compile(candidate.kernel, folder)
        except ToolchainError as error:
            fail(f"{self.path} does not compile: {error}\n{error.log}".rstrip(), error)
        self._kernel: Session = toolchain.open(artefact)

    def require_deterministic(self, seed: int = 0, *, wait: bool = True) -> None:
        """Raises `TaskFailure` where two runs on the same inputs differ by more than rounding."""
        given = self.own_inputs(seed)
        runs = [self.reference(given, double=False) for _ in range(2)]
        if found := difference(*runs):
            fail(f"{self.path} gives other results each time it is run: {found}")

    def _run(
        self, arrays: Mapping[str, Array], symbols: Mapping[str, int], params: Mapping[str, Scalar]
    ) -> Mapping[str, Array]:
        """The kernel's out and inout tensors. Raises `ToolchainError`."""
        return self._kernel.run(arrays, symbols, params, self.timeout)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._kernel.close()
