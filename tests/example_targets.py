"""The examples, and the targets that each is lowered to: all, but for what a target has not."""

from __future__ import annotations

from pathlib import Path

from sketchc.lowering.registry import TARGETS

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.sketch"))
#: (example, target) -> the code of the refusal.
REFUSED = {
    ("great_circle", "triton_ascend"): "SK0703",  # Ascend's vector units have no f64
}


def lowered_to(target: str) -> list[str]:
    """The examples that a target takes."""
    return [name for name in NAMES if (name, target) not in REFUSED]


#: Every example with every target that takes it.
LOWERED = [(name, target) for target in sorted(TARGETS) for name in lowered_to(target)]
