"""How an execution is done; no option changes the results of a correct sketch."""

from __future__ import annotations

import math

import attrs


@attrs.frozen
class Options:
    """Options of `interpret`.

    `collect`: return violations in the result instead of raising at the first one.
    `check_domains`: compare every static domain with the lanes found; a difference is an
    `InternalError`, for it is the checker's.
    `shuffle`: the seed by which the iterations of parallel loops are permuted; None keeps order.
    `poison`: what void float lanes and unwritten float elements hold (integers have a sentinel).
    `padding`: this many more lanes on every tile axis that is not of extent 1; operations then
    work on whole arrays, poison included, and mask as generated code does (LOWERING 1, 4, 19).
    `rounding`: False keeps all floats in float64, outputs too, so that only reassociation remains.
    `places`: note where stores write that promise something of their places, and which lanes
    indices from memory lead out of a tensor.
    `memory_limit`: bytes that tensors (with their shadow) and each tile may take.
    """

    collect: bool = False
    check_domains: bool = False
    shuffle: int | None = None
    poison: float = math.nan
    padding: int = 0
    rounding: bool = True
    places: bool = False
    memory_limit: int = 4 * 2**30
