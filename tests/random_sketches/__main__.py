"""Compare random sketches on one target with the interpreter, and print what differs.

`PYTHONPATH=tests:tests/e2e python -m random_sketches TARGET FIRST END` runs the seeds from FIRST up
to END; `... text SEED` prints one sketch.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from random_sketches.draft import Generated
from random_sketches.generate import generate
from random_sketches.running import Array, checked, difference, inputs, reference
from sketchc.base.diagnostics import DiagnosticError, Source
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.toolchains.base import ToolchainError, toolchain


def drawn(end: int) -> Iterator[Generated]:
    """The sketches of the seeds below `end`, as the corpus draws them."""
    histogram: Counter[str] = Counter()
    for seed in range(end):
        generated = generate(seed, histogram)
        histogram.update(set(generated.features))
        yield generated


def outcome(generated: Generated, target: str, folder: Path) -> str:
    """What is wrong with a sketch on a target; empty where nothing is."""
    sketch = checked(generated)
    if sketch is None:
        return "the checker refuses it"
    tree, _ = parse(Source("random.sketch", generated.text))
    assert tree is not None
    try:
        kernel = load_target(target).emit(build_plan(tree.sketches[0], target).plan)
        tools = toolchain(target)
        artefact = tools.compile(kernel, folder / str(generated.seed))
        for sizes in generated.sizes:
            given = inputs(generated, sketch, sizes)
            expected = reference(generated, sketch, sizes, given)
            passed: dict[str, Array] = dict(given)
            for name, array in expected.items():
                if name not in given:
                    poison = np.nan if array.dtype.kind not in "iub" else 77
                    passed[name] = np.full_like(array, poison)
            found = tools.run(artefact, passed, sizes, {})
            differs = difference(generated, sketch, expected, found)
            if differs:
                return f"{sizes}: {differs}"
    except (DiagnosticError, ToolchainError) as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def main() -> None:
    target, first, *rest = sys.argv[1:]
    if target == "text":
        print(list(drawn(int(first) + 1))[-1].text)
        return
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for generated in drawn(int(rest[0])):
            if generated.seed < int(first):
                continue
            found = outcome(generated, target, Path(folder))
            if found:
                wrong += 1
                print(f"seed {generated.seed}: {found}", flush=True)
    print(f"{wrong} of {int(rest[0]) - int(first)} differ on {target}")


if __name__ == "__main__":
    main()
