"""Whether code that is timed changed what times it, or what the baseline runs with.

A candidate runs in the process that times it. It could replace a clock, make `synchronize` do
nothing, slow the baseline's operations down, or give torch fewer threads. So everything callable of
the modules concerned, and every setting, is noted before the candidate is loaded and compared
afterwards. The clocks themselves do not depend on it: `timing` holds its own references.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

#: What is watched besides the modules given: clocks, and what baselines are made of.
_OWNERS: tuple[tuple[str, Any], ...] = (
    ("time", time),
    ("os", os),
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.nn.Module", torch.nn.Module),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.cuda", torch.cuda),
    ("torch.cuda.Event", torch.cuda.Event),
    ("torch.cuda.Stream", torch.cuda.Stream),
)


def torch_settings() -> dict[str, str]:
    """What a baseline's time and precision depend on, as text."""
    cuda: Any = torch.backends.cuda.matmul
    readers: dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "gradients": torch.is_grad_enabled,
        "default type": torch.get_default_dtype,
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "cuda.matmul.allow_tf32": lambda: cuda.allow_tf32,
        "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
        "reduced f16 reduction": lambda: cuda.allow_fp16_reduced_precision_reduction,
        "reduced bf16 reduction": lambda: cuda.allow_bf16_reduced_precision_reduction,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "mkldnn": lambda: getattr(torch.backends.mkldnn, "enabled", None),
        "processors": lambda: sorted(os.sched_getaffinity(0)),
        "niceness": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    }
    found = {}
    for name, read in readers.items():
        try:
            found[name] = str(read())
        except RuntimeError as error:  # torch refuses to answer where two of its APIs were mixed
            found[name] = type(error).__name__
    return found


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
        self._functions = [_callables(owner) for _, owner in self._owners]
        self._settings = torch_settings()

    @property
    def settings(self) -> Mapping[str, str]:
        return self._settings

    def changes(self) -> list[str]:
        """What was changed since, in words; nothing is put back."""
        found = []
        for (name, owner), before in zip(self._owners, self._functions, strict=True):
            now = vars(owner)
            found += [f"{name}.{key}" for key, value in before.items() if now.get(key) is not value]
        replaced = [f"it replaced {name}" for name in found]
        for name, value in torch_settings().items():
            if value != self._settings[name]:
                replaced.append(f"it changed {name} from {self._settings[name]} to {value}")
        return replaced


def _callables(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in list(vars(owner).items()) if callable(value)}
