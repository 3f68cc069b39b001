"""The commonest mistake with tile loops, and its repairs: `range(ceil(M, T))` with `A[i:i+T]`.

The loop counts tiles, the slice counts elements. Either multiply (`i*T:(i+1)*T`), or let the loop
count elements (`range(0, M, T)`).
"""

from __future__ import annotations

from sketchc.base.diagnostics import Fix
from sketchc.checker.context.fixits import tile_index_fixes
from sketchc.checker.facts.sites import Site


def overlap_fixes(site: Site) -> tuple[Fix, ...]:
    """Fixes for the nest around a site, empty unless it counts tiles while slices count elements.

    They repair every such loop and access of the nest at once: a store that is moved without the
    loads beside it would be accepted, and wrong.
    """
    return tile_index_fixes(site.loops[:1])
