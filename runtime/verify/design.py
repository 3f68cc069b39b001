"""Two questions about a sketch: does it mean the task, and does some code do what it says?

`check_design` runs the sketch itself, in the reference interpreter, against a task: what the
Designer's work is judged by before anything is generated. `verify_against_sketch` runs code against
the sketch's interpretation, where there is no task: a `SketchTask` stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np

from sketchc.base.diagnostics import refuse
from sketchc.interpreter.inputs import into_range
from sketchc.ir import nodes as ir
from sketchc.launch.inputs import UNBOUNDED, index_ranges
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan
from sketchc.runtime.cases.sizes import choose, example_params, refusal, tensor_shapes
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import (
    NONE,
    Inits,
    Scalar,
    State,
    TaskDescription,
    TensorSpec,
    Values,
    fail,
)
from sketchc.runtime.tasks.task import Task
from sketchc.runtime.toolchains import interpreter
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.interpreter import InterpreterSession
from sketchc.runtime.verify.verdict import Verdict
from sketchc.runtime.verify.verify import Candidate, verify

#: Sizes that are tried after those that the tiles suggest.
_FALLBACK = (37, 19, 11, 7, 5, 3, 2, 1, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)

#: So many of them are large enough to be the first that is tried.
_APART = 4

#: Seconds after which a design that was right so far is left to the verification of its kernel,
#: which makes the same comparisons faster: of a whole network, one interpretation takes many.
_PATIENCE = 30.0


class SketchTask(Task):
    """A sketch as its own task (see `tasks.task.Task`): the reference is its own interpretation.

    The inputs are the sketch's in and inout tensors in call order, then its params as numbers; the
    outputs its out and inout tensors. Its "own" sizes are chosen here: beyond the tile sizes, no
    multiples of them, within every bound and require, and small enough for the interpreter. Use as
    a context manager: one process interprets the sketch, from the first reference on.
    """

    is_sketch = True
    slow = True

    def __init__(
        self,
        plan: Plan,
        settings: Mapping[str, Scalar] | None = None,
        path: Path | None = None,
    ) -> None:
        """`settings` are values of params; `path` is the sketch's file, for people.

        Raises `UsageError` when no sizes can be found at which the sketch may be launched.
        """
        self.sketch = plan.sketch
        self._session = InterpreterSession(plan.sketch)
        self.path = path or Path(f"{plan.sketch.name}.sketch")
        self.specification = str(self.path)
        self.timeout = 300.0
        self.params: dict[str, Scalar] = example_params(plan.sketch, settings)
        self.symbols = _own_sizes(plan, self.params)
        tensors = plan.sketch.tensors
        self.read = [t for t in tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
        self.written = [t for t in tensors if t.role in (ir.Role.OUT, ir.Role.INOUT)]

    def describe(self, seed: int = 0) -> TaskDescription:
        """The description of the sketch's tensors and params at its own sizes."""
        shapes = tensor_shapes(self.sketch, self.symbols, self.params)
        inputs, outputs = (
            [TensorSpec(tensor.name, tensor.dtype, shapes[tensor.name]) for tensor in tensors]
            for tensors in (self.read, self.written)
        )
        numbers = [self.params[param.name] for param in self.sketch.params]
        optional = frozenset(place for place, tensor in enumerate(self.read) if tensor.optional)
        given = (*inputs, *numbers)
        return TaskDescription(self.path, given, (), (), {}, tuple(outputs), defaults=optional)

    def require_deterministic(self, seed: int = 0, *, wait: bool = True) -> None:
        """Nothing: no interpretation draws random numbers."""

    def own_inputs(self, seed: int, variant: int = 0) -> list[Array | Scalar | None]:
        """Signed inputs of one scale, indices in range; there are no variants."""
        from sketchc.runtime.tasks.inputs import generate

        random = np.random.default_rng(seed)
        ranges = index_ranges(self.sketch, self.symbols, self.params)
        shapes = tensor_shapes(self.sketch, self.symbols, self.params)
        found: list[Array | Scalar | None] = []
        for tensor in self.read:
            array = generate("normal", tensor.dtype, shapes[tensor.name], random)
            found.append(into_range(array, *ranges.get(tensor.name, UNBOUNDED)))
        return [*found, *(self.params[param.name] for param in self.sketch.params)]

    def reference(
        self, inputs: Values, state: State = NONE, substitutes: Inits = NONE, double: bool = True
    ) -> list[Array]:
        """The interpreter's outputs. Raises `TaskFailure` with the rule that the sketch breaks."""
        from sketchc.runtime.cases.binding import bind_symbols

        del state, substitutes
        given = zip([tensor.name for tensor in self.read], inputs, strict=False)
        arrays = {name: value for name, value in given if isinstance(value, np.ndarray)}
        symbols = bind_symbols(self.sketch, {name: array.shape for name, array in arrays.items()})
        numbers = zip(self.sketch.params, inputs[len(self.read) :], strict=False)
        params = dict(self.params)
        params |= {p.name: v for p, v in numbers if isinstance(v, bool | int | float)}
        try:
            found = self._run(arrays, symbols, params)
        except ToolchainError as error:
            fail(f"{self.path.name}: {error}", error)
        wide = {t.name for t in self.written if double and t.dtype.is_float}
        outputs = [(t.name, found[t.name]) for t in self.written]
        return [array.astype(np.float64) if name in wide else array for name, array in outputs]

    def _run(
        self, arrays: Mapping[str, Array], symbols: Mapping[str, int], params: Mapping[str, Scalar]
    ) -> Mapping[str, Array]:
        """The out and inout tensors by name. Raises `ToolchainError`."""
        return self._session.run(arrays, symbols, params, self.timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()


def _own_sizes(plan: Plan, params: Mapping[str, Scalar]) -> dict[str, int]:
    """Sizes at which every bound and require holds and the interpreter is quick.

    Raises `UsageError` when none of the sizes tried fits.
    """
    from sketchc.runtime.cases.shapes import INTERPRETED, cost_at, tile_sizes

    sketch = plan.sketch
    options = {}
    for number, (name, tiles) in enumerate(tile_sizes(plan).items()):
        if not plan.phases:  # a signature alone: sizes that tell its axes apart
            options[name] = (*_FALLBACK[number % _APART :], *_FALLBACK)
            continue
        tile = max(tiles, default=0)
        around = [2 * tile + 3, tile + 3, tile + 1] if tile > 1 else [5] if tile else [37]
        multiples = [2 * tile, tile, 3 * tile] if tile > 1 else []
        options[name] = tuple(dict.fromkeys([*around, *_FALLBACK, *multiples]))

    def accepted(symbols: Mapping[str, int]) -> bool:
        if refusal(sketch, symbols, params):
            return False
        shapes = tensor_shapes(sketch, symbols, params)
        if any(extent == 0 for shape in shapes.values() for extent in shape):
            return False
        return INTERPRETED.allow(cost_at(plan, symbols, params))

    found = choose(options, accepted)
    if found is None:
        conditions = "; ".join(require.text for require in sketch.requires)
        refuse(
            f"no sizes were found at which {sketch.name} may be launched and interpreted quickly"
            f"{f' (it requires: {conditions})' if conditions else ''}"
        )
    return found


def check_design(
    plan: Plan,
    task: Task,
    folder: Path,
    seed: int,
    settings: Mapping[str, Scalar] | None = None,
    timeout: float = 60.0,
) -> Verdict:
    """Whether the plan's sketch, interpreted, computes the task at small sizes.

    The rules are those of `verify`; `timeout` (seconds) bounds each interpretation. A sketch that
    computes something else, or breaks a rule of the language on the way, fails as "design", one
    that takes too long as "timeout".

    Raises `UsageError` when the task cannot be bound to the sketch (another number of inputs or
    outputs, ranks, types, a size that the sketch refuses) or raises at its own sizes.
    """
    sketch = plan.sketch
    kernel = Kernel("interpreter", plan.hardware.name, sketch.name, sketch.name, "", "", sketch)
    candidate = Candidate(plan, kernel, interpreter.TOOLCHAIN)
    return verify(
        *(candidate, task, folder, seed, settings),
        small=True,
        timeout=timeout,
        budget=None,
        patience=_PATIENCE,
    )


def verify_against_sketch(
    candidate: Candidate,
    folder: Path,
    seed: int,
    timeout: float = 300.0,
    settings: Mapping[str, Scalar] | None = None,
) -> Verdict:
    """Whether the candidate's code computes what its plan's sketch says, at small sizes.

    `settings` are values of the sketch's params. Raises `UsageError` when no sizes can be found at
    which the sketch may be launched.
    """
    with SketchTask(candidate.plan, settings) as task:
        return verify(candidate, task, folder, seed, small=True, timeout=timeout)
