"""Whether code that is timed changed what times it, or torch.

A candidate runs in the process that times it. It could replace a clock, make `synchronize` do
nothing, or let torch do its work. So everything callable of the modules concerned, and every
setting, is noted before the candidate is loaded and compared afterwards (`torch_state` for torch).
The clocks themselves do not depend on it: `timing` holds its own references. What it is compared
with runs in another process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from sketchc.runtime.guards.torch_state import TorchState, replaced, seen

#: What is watched besides torch and the modules given.
_OWNERS: tuple[tuple[str, Any], ...] = (("time", time), ("os", os))


def apply_precision(name: str) -> None:
    """Set torch to a precision class. Sums of halves are kept in f32, as kernels keep them."""
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"
    cuda: Any = torch.backends.cuda.matmul
    cuda.allow_fp16_reduced_precision_reduction = False
    cuda.allow_bf16_reduced_precision_reduction = False


class Guard:
    """What was there before the candidate."""

    def __init__(self, modules: Mapping[str, ModuleType | type]) -> None:
        """`modules` by the names to show: further ones whose functions must stay."""
        self._owners = (*_OWNERS, *modules.items())
        self._seen = [seen(owner) for _, owner in self._owners]
        self._torch = TorchState()

    @property
    def settings(self) -> Mapping[str, str]:
        return self._torch.settings

    def changes(self, *, whole: bool = False) -> list[str]:
        """What was changed since, in words; nothing is put back. `whole`: also the kernels that the
        dispatcher has for each operation, whatever was registered meanwhile."""
        found = [
            f"it replaced {name}.{key}"
            for (name, owner), before in zip(self._owners, self._seen, strict=True)
            for key in replaced(owner, before)
        ]
        if whole:
            self._torch.registrations()
        return found + self._torch.changes()
