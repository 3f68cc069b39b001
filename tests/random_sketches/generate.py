"""From a seed to a random sketch, and the sketches of a whole run."""

from __future__ import annotations

import random
from collections import Counter

from random_sketches.draft import Draft, Generated
from random_sketches.frames import build


def generate(seed: int, balance: Counter[str] | None = None) -> Generated:
    """The sketch of a seed; what `balance` has counted least is tried first."""
    return build(Draft(seed, random.Random(seed), balance or Counter()))
