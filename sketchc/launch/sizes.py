"""Whether a sketch can be planned, or timed, at sizes that somebody names."""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.base.diagnostics import refuse


def require_sizes(bounds: Mapping[str, int | None], sizes: Mapping[str, int]) -> None:
    """Raises `UsageError` for a name in `sizes` that is none of a sketch's symbols, the keys of
    `bounds`, and for a size below 0 or above the symbol's bound (None: it has none, or none that
    is known)."""
    for name, size in sizes.items():
        if name not in bounds:
            refuse(f"size {name}={size}: the sketch's symbols are {', '.join(bounds) or 'none'}")
        if size < 0:
            refuse(f"size {name}={size}: no tensor has an extent of {size}")
        bound = bounds[name]
        if bound is not None and size > bound:
            refuse(f"size {name}={size}: the sketch allows at most {bound}")
