"""The random sketches of a test run: drawn once, the accepted ones kept, what they use counted."""

from __future__ import annotations

import functools
from collections import Counter

import attrs
from shared_work import shared

from random_sketches.accesses import INPUTS, OUTPUTS
from random_sketches.draft import Generated
from random_sketches.generate import generate
from random_sketches.running import checked
from sketchc.ir import nodes as ir
from sketchc.ops.table import OPS

#: Each operation and each form of access stands in at least this many accepted sketches.
LEAST = 20
COUNT = 480


@attrs.frozen
class Corpus:
    """Accepted sketches with their trees, and how many sketches use each feature."""

    accepted: tuple[tuple[Generated, ir.Sketch], ...]
    refused: tuple[Generated, ...]
    histogram: Counter[str]


@functools.cache
def corpus(count: int = COUNT) -> Corpus:
    """The sketches of the seeds below `count`: drawing and checking them takes half a minute."""
    return shared(f"corpus-{count}", lambda: _draw(count))


def _draw(count: int) -> Corpus:
    accepted: list[tuple[Generated, ir.Sketch]] = []
    refused: list[Generated] = []
    histogram: Counter[str] = Counter()
    for seed in range(count):
        generated = generate(seed, histogram)
        sketch = checked(generated)
        if sketch is None:
            refused.append(generated)
            continue
        accepted.append((generated, sketch))
        histogram.update(set(generated.features))
    return Corpus(tuple(accepted), tuple(refused), histogram)


def wanted() -> list[str]:
    """The features that the corpus must hold: every operation, every form of access."""
    return [
        *(f"op:{name}" for name in OPS),
        *(f"load:{form}" for form in INPUTS),
        *(f"store:{form}" for form in OUTPUTS),
    ]
