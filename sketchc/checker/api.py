"""The public interface of the checker: every name that the rest of sketchc may import from it.

A name is imported from its module when it is first asked for: no command needs them all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sketchc.checker.check import CheckedSketch, CheckResult, check, check_sketch
    from sketchc.checker.claims.proofs import prove
    from sketchc.checker.context.context import identifier
    from sketchc.checker.context.hints import HARDWARE_HINTS, LOOP_HINTS, TILE_HINTS
    from sketchc.checker.domains.inference import infer_domains
    from sketchc.checker.elaboration.elaborate import (
        Elaboration,
        bindable,
        elaborate,
        elaboration,
        tuning_points,
    )
    from sketchc.checker.selfcheck import TILE_SIZES_OPEN, self_check, tile_size_verdict
    from sketchc.checker.testing.crossings import AGAIN, Mark, TileCrossings, behind
    from sketchc.checker.testing.settings import LANES_PER_STATEMENT, Settings

#: Module -> the names that others may import from it.
_ROOMS = {
    "check": ("CheckResult", "CheckedSketch", "check", "check_sketch"),
    "claims.proofs": ("prove",),
    "context.context": ("identifier",),
    "context.hints": ("HARDWARE_HINTS", "LOOP_HINTS", "TILE_HINTS"),
    "domains.inference": ("infer_domains",),
    "elaboration.elaborate": (
        *("Elaboration", "bindable", "elaborate", "elaboration"),
        "tuning_points",
    ),
    "selfcheck": ("TILE_SIZES_OPEN", "self_check", "tile_size_verdict"),
    "testing.crossings": ("AGAIN", "Mark", "TileCrossings", "behind"),
    "testing.settings": ("LANES_PER_STATEMENT", "Settings"),
}


def __getattr__(name: str) -> object:
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(importlib.import_module(f"sketchc.checker.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
