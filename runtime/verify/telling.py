"""Cases that tell: whose reference holds numbers.

NaN agrees with NaN: where the root of a negative sum is most of what a case asks for, a kernel that
adds up nothing passes. A case of which most elements are NaN or infinite is drawn again, from what
the task's own inputs look like; it counts as telling nothing where that does not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import TensorSpec
from sketchc.runtime.tasks.inputs import LIKE

if TYPE_CHECKING:
    from sketchc.runtime.verify.verdict import CaseResult

#: A case tells something where this share of its reference's elements are numbers.
LEAST_SHARE = 0.5
#: The task's own inputs are made up to so many elements, where parts of them are wanted.
_MOST = 1 << 26


def share_of_numbers(references: Sequence[Array]) -> float:
    """The share of elements, over all outputs, that are neither NaN nor infinite."""
    total = sum(array.size for array in references)
    floats = [array for array in references if array.dtype.kind not in "iub"]
    strange = sum(int(np.count_nonzero(~np.isfinite(array))) for array in floats)
    return 1.0 - strange / total if total else 1.0


def again_kinds(binding: Binding, kind: str) -> tuple[str, ...]:
    """The kinds of input to draw instead of one that tells nothing: what comes nearest to the
    task's own inputs."""
    if kind in ("task", LIKE):
        return ()
    return (LIKE,) if has_own(binding) else ("non_negative",)


def has_own(binding: Binding) -> bool:
    """Whether the task's own inputs are few enough to be made where only parts are wanted."""
    specs = [v for v in binding.description.inputs if isinstance(v, TensorSpec)]
    return sum(prod(spec.shape) for spec in specs) <= _MOST


def too_few(results: Sequence[CaseResult]) -> str:
    """Why the cases that ran tell too little; "" where they tell enough."""
    ran = [result for result in results if result.failure != "skipped"]
    silent = [result for result in ran if not result.telling]
    if not silent or 2 * len(silent) <= len(ran):
        return ""
    return (
        f"in {len(silent)} of {len(ran)} cases most of the reference is NaN or infinite, also on "
        "inputs like the task's own: they show little. A `# @hint: x in [..]` beside the task says "
        "which values it is meant for"
    )
