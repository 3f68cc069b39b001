"""How long planning one more point of a tuning space takes.

For each example and target: the first point, then each further point of a product of tile sizes, in
milliseconds (the median). `bind` puts the values into the sketch, `prove` infers domains and proves
(with what earlier points decided), `passes` is the rest; the 5 ms that a point may take are for
`bind` and `passes`.

    python benchmarks/planning_speed.py [NAME ...] [--points N] [--target T]
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

from sketchc.base.diagnostics import DiagnosticError, Source
from sketchc.lowering.passes.pipeline import planner as planner_of
from sketchc.lowering.registry import TARGETS
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ("rms", "softmax", "matmul", "causal_attention", "conv2d")
SIZES = (8, 16, 32, 64, 128)


def points(tree: syntax.Sketch, target: str, count: int) -> list[dict[str, Any]]:
    """Some points of the product of the sizes of all constants that the plan may choose."""
    sketch = planner_of(tree, target).bound({}).plan.sketch
    names = {c.name: c.choices or SIZES for c in sketch.constants if c.tunable}
    found = [dict(zip(names, v, strict=True)) for v in itertools.product(*names.values())]
    random.Random(0).shuffle(found)
    return list(itertools.islice(itertools.cycle(found), count + 1))


def measure(tree: syntax.Sketch, target: str, count: int) -> str:
    """One row of the table."""
    planner = planner_of(tree, target)
    rows = []
    for point in points(tree, target, count):
        start = time.process_time()
        bound = planner.bound(point)
        bind = time.process_time() - start
        start = time.process_time()
        try:
            proved = planner.proved(bound)
            prove = time.process_time() - start
            start = time.process_time()
            planner.mapped(proved)
        except DiagnosticError:  # does not fit the chip: the next point
            continue
        rows.append([bind, prove, time.process_time() - start])
    if not rows:
        return "no point fits"
    first, *further = [[1000 * part for part in row] for row in rows]
    bind, prove, passes = (median(part) for part in zip(*(further or [first]), strict=True))
    return (
        f"{sum(first):8.1f} {bind:8.2f} {prove:8.1f} {passes:8.1f} {bind + passes:8.1f}"
        f"   {len(rows)} points"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    given = parser.parse_args()
    print(f"{'':32}{'first':>8} {'bind':>8} {'prove':>8} {'passes':>8} {'plan':>8}")
    for name in given.names:
        path = EXAMPLES / f"{name}.sketch"
        tree, _ = parse(Source(str(path), path.read_text()))
        assert tree is not None
        for target in given.target or TARGETS:
            row = measure(tree.sketches[0], target, given.points)
            print(f"{name:18}{target:14}{row}", flush=True)


if __name__ == "__main__":
    main()
