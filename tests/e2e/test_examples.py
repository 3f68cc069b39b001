"""Every example on every target equals PyTorch, through the real toolchains.

Three sizes each: all symbols 1, one around the tile sizes (ragged), and the task's own, scaled
down; in Triton's interpreter the first two. `sketchc verify` runs more cases; this is the
part of it that fits a test suite. The cubins of all examples are made in test_triton_cuda.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from example_targets import EXAMPLES, LOWERED, NAMES, REFUSED
from toolchains import require

from sketchc.api.sketches import SketchError
from sketchc.cli.verify_files import VerifyRequest, lower
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.toolchains.base import COMPILE_TIMEOUT, Artefact
from sketchc.runtime.toolchains.tilelang_cuda.toolchain import TileLangCuda
from sketchc.runtime.toolchains.triton_ascend.toolchain import TritonAscendToolchain
from sketchc.runtime.toolchains.triton_cuda.toolchain import TritonCuda
from sketchc.runtime.verify.running import Cases
from sketchc.runtime.verify.verify import verify

#: Of the sizes of a run in Triton's interpreter, their product.
LARGEST = 100_000
#: Examples whose task refuses one of the sizes tried: an image that is smaller than a window.
SKIPS = frozenset(
    {"avg_pool3d", "conv2d", "depthwise_conv2d", "downsample", "group_norm", "max_pool2d"}
)


@pytest.fixture(scope="module")
def tasks() -> Iterator[Callable[[str], TorchTask]]:
    """Tasks of the examples, each loaded once: the tests of one example follow each other. Only
    the last one is kept, since each is a process that has imported torch."""
    loaded: dict[str, TorchTask] = {}

    def close() -> None:
        for one in loaded.values():
            one.close()
        loaded.clear()

    def task(name: str) -> TorchTask:
        if name not in loaded:
            close()
            loaded[name] = TorchTask(EXAMPLES / "tasks" / f"{name}.py")
        return loaded[name]

    yield task
    close()


def fewest(cases: Cases) -> Cases:
    """All ones, and a ragged case of moderate size (without optional tensors, where there are
    some): Triton's interpreter takes seconds for each program."""
    ragged = sorted((c for c, _ in cases if c.name.startswith("ragged")), key=work)
    own = cases[-1][0]
    chosen = [case for case in ragged if work(case) <= LARGEST] or ragged[:1]
    found = [(cases[0][0], "structured"), (chosen[-1], "mixed_scale")]
    return [*found, (attrs.evolve(chosen[0], absent=own.absent), "normal")] if own.absent else found


def work(case: ShapeCase) -> int:
    """The product of all sizes: what most sketches' loops and tiles come to, roughly."""
    return math.prod(case.symbols.values())


def few(cases: Cases) -> Cases:
    """All ones, the largest ragged case, and the task's sizes (scaled down), a kind for each."""
    ragged = [case for case, _ in cases if case.name.startswith("ragged")]
    ones, own = cases[0][0], cases[-1][0]
    found = [(ones, "structured"), (ragged[-1], "mixed_scale"), (own, "normal")]
    # The last case goes without optional tensors, where there are some, the one before has them.
    return [*found, (cases[-2][0], "normal")] if own.absent else found


class Interpreted(TritonCuda):
    """The toolchain of `triton_cuda`, for runs in Triton's interpreter, which needs no cubins."""

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        return Artefact(kernel, folder)


class AsText(TileLangCuda):
    """The toolchain of `tilelang_cuda`, for runs of the text on the CPU, likewise."""

    compile = Interpreted.compile


class Placed(TritonAscendToolchain):
    """The toolchain of `triton_ascend`, for runs, which build what they launch."""

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        self.place(kernel, folder)
        return Artefact(kernel, folder)


WITHOUT_CUBINS = {"triton_cuda": Interpreted, "tilelang_cuda": AsText}


def test_every_example_has_a_task() -> None:
    """Tasks without a sketch are for `sketchc gen`: a recorded run designs one."""
    assert NAMES
    tasks = {path.stem for path in (EXAMPLES / "tasks").glob("*.py")}
    ledgers = (EXAMPLES / "ledgers").glob("*.jsonl")
    recorded = {Path(str(json.loads(path.open().readline())["task"])).stem for path in ledgers}
    assert tasks - recorded <= set(NAMES) <= tasks


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "target"), LOWERED)
def test_example_equals_pytorch(
    name: str, target: str, tasks: Callable[[str], TorchTask], tmp_path: Path
) -> None:
    require(target)
    candidate = lower(VerifyRequest(str(EXAMPLES / f"{name}.sketch"), target))
    select = few
    if target == "triton_ascend":
        candidate = attrs.evolve(candidate, toolchain=Placed())
    if target == "triton_cuda":
        select = fewest
    if target in WITHOUT_CUBINS and candidate.toolchain.status().interpreted:
        candidate = attrs.evolve(candidate, toolchain=WITHOUT_CUBINS[target]())
    verdict = verify(candidate, tasks(name), tmp_path, seed=1234, select=select, small=True)
    assert verdict.passed, verdict.failures
    optional = any(tensor.optional for tensor in candidate.plan.sketch.tensors)
    assert len(verdict.cases) == (2 if select is fewest else 3) + optional
    skipped = [case for case in verdict.cases if case.failure == "skipped"]
    assert all(case.passed for case in verdict.cases if case not in skipped), verdict.cases
    # The task itself refuses windows larger than a padded image, and the like.
    assert len(skipped) <= (name in SKIPS)


@pytest.mark.parametrize(("name", "target"), REFUSED)
def test_what_a_target_has_not_is_refused_as_that(name: str, target: str) -> None:
    with pytest.raises(SketchError) as refused:
        lower(VerifyRequest(str(EXAMPLES / f"{name}.sketch"), target))
    assert {found.code for found in refused.value.diagnostics} == {REFUSED[name, target]}
