"""Sizes at which the numbers written in a sketch matter: `Y[(97*i) % N]` is wrong where N is 97.

Such numbers stand in subscripts, bounds, conditions and extents. Sizes around them and their
multiples are tried beside those around the constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product

from sketchc.checker.facts.param_values import accessed
from sketchc.checker.facts.sites import Site
from sketchc.ir import nodes as ir
from sketchc.ir.walk import children

#: The largest number whose sizes are tried, and how many numbers are: the largest ones, since the
#: small ones divide sizes that are tried anyway.
LARGEST = 4096
MOST_NUMBERS = 6

#: Sizes for a number v, as (factor, offset).
_AROUND = ((1, 0), (2, 0), (1, -1), (1, 1), (3, 0))
#: Sizes of the other symbols: others are tried at the sizes around tile sizes.
_REST = 3


def literal_settings(
    sketch: ir.Sketch, sites: Sequence[Site], tried: Collection[int]
) -> Iterator[dict[str, int]]:
    """Sizes of all symbols, within their bounds: for each number one symbol at a time, then all;
    but for constants whose own sizes were `tried`."""
    names = [symbol.name for symbol in sketch.symbols]
    limits = [symbol.upper_bound for symbol in sketch.symbols]
    numbers = sorted(_numbers(sketch, sites, tried), reverse=True)[:MOST_NUMBERS]
    seen: set[tuple[int, ...]] = set()
    for (factor, offset), number in product(_AROUND, numbers):
        size = number * factor + offset
        one = (tuple(size if other == name else _REST for other in names) for name in names)
        for key in (*one, (size,) * len(names)):
            fits = all(limit is None or s <= limit for s, limit in zip(key, limits, strict=True))
            if fits and key not in seen:
                seen.add(key)
                yield dict(zip(names, key, strict=True))


def _numbers(sketch: ir.Sketch, sites: Sequence[Site], tried: Collection[int]) -> set[int]:
    """The integers that decide what is accessed, but 0, 1 and 2."""
    constants = {c.name: c.value for c in sketch.constants if c.value not in tried}
    parts = [expression for site in sites for expression in accessed(site)]
    parts += [step.value for site in sites for step in site.path if isinstance(step, ir.Bind)]
    parts += [let.value for let in sketch.lets]
    parts += [extent for tensor in sketch.tensors for extent in tensor.extents]
    parts += [require.condition for require in sketch.requires if not require.generated]
    found: set[int] = set()
    while parts:
        part = parts.pop()
        value = part.value if isinstance(part, ir.Literal) else None
        if isinstance(part, ir.Ref):
            value = constants.get(part.name)
        if isinstance(value, int) and not isinstance(value, bool) and 2 < abs(value) <= LARGEST:
            found.add(abs(value))
        parts.extend(children(part))
    return found
