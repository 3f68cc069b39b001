"""Launches of Triton kernels as data: noted instead of made, and compiled without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

#: What a launch may carry besides the kernel's arguments.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
_LARGEST_GRID = (2**31 - 1, 65535, 65535)
ALIGNMENT = 16


class TuningError(Exception):
    """The file tunes itself."""


class Launch:
    """One recorded launch: the kernel, its bound arguments, and the grid as it was given."""

    def __init__(
        self, function: Any, arguments: dict[str, Any], options: dict[str, Any], grid: Any
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.options = options
        self.grid = grid

    def types(
        self, constants: Mapping[str, Any]
    ) -> tuple[dict[str, str], dict[tuple[int], list[list[Any]]]]:
        """Types of the parameters, and which of them are multiples of 16."""
        signature: dict[str, str] = {}
        aligned: dict[tuple[int], list[list[Any]]] = {}
        for position, name in enumerate(self.function.arg_names):
            if name in constants:
                signature[name] = "constexpr"
                continue
            value = self.arguments[name]
            signature[name], is_aligned = argument_type(value)
            if isinstance(value, torch.Tensor):
                # Buffers begin at multiples of far more than 16.
                is_aligned = value.storage_offset() * value.element_size() % ALIGNMENT == 0
            if is_aligned:
                aligned[(position,)] = [["tt.divisibility", ALIGNMENT]]
        return signature, aligned

    def compile(self, constants: Mapping[str, Any], architecture: int) -> Any:
        """What Triton makes of it for sm_`architecture`, with these parameters known."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        signature, aligned = self.types(constants)
        source = ASTSource(self.function, signature, constants, aligned)
        target = GPUTarget("cuda", architecture, 32)
        return triton.compile(source, target=target, options=self.options)

    def index_widths(self, wanted: Sequence[str]) -> Sequence[str | None]:
        """The index types to build: those wanted where the wrapper chooses, else the kernel's."""
        return wanted if "INDEX" in self.arguments else (None,)


def check_grid(kernel: str, grid: Any) -> None:
    """Raise `LaunchError` for a launch grid that CUDA refuses."""
    places = grid if isinstance(grid, tuple | list) else (grid,)
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in places)
    fits = whole and all(0 <= n <= most for n, most in zip(places, _LARGEST_GRID, strict=False))
    if not 0 < len(places) <= len(_LARGEST_GRID) or not fits:
        limits = ", ".join(map(str, _LARGEST_GRID))
        msg = f"launch of {kernel}: the grid {grid} is not up to three integers, at most {limits}"
        raise LaunchError(msg)


class LaunchError(ValueError):
    """A launch that CUDA would refuse."""


def bound_launch(
    function: Any, given: Sequence[Any], keywords: Mapping[str, Any], grid: Any
) -> Launch:
    """One launch of a jitted function, its grid worked out. Raises `TypeError` for arguments that
    do not fit, and `LaunchError`."""
    options = {name: value for name, value in keywords.items() if name in _OPTIONS}
    named = {name: value for name, value in keywords.items() if name not in _OPTIONS}
    try:
        bound = function.signature.bind(*given, **named)
    except TypeError as error:
        msg = f"launch of {function.__name__}: {error}"
        raise TypeError(msg) from None
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    places = grid(arguments) if callable(grid) else grid
    check_grid(function.__name__, places)
    return Launch(function, arguments, options, places)


class _Recorder:
    """Stands in for a kernel: `kernel[grid](...)` is noted, not run."""

    def __init__(self, function: Any, note: Callable[[Launch], None]) -> None:
        self.function = function
        self.note = note

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            self.note(bound_launch(self.function, args, kwargs, grid))

        return launch


def record_launches(module: ModuleType, call: Callable[[], object]) -> list[Launch]:
    """The launches that `call` makes of the module's kernels, none of them executed."""
    launches: list[Launch] = []
    with recording(module, launches.append):
        call()
    return launches


@contextmanager
def recording(module: ModuleType, note: Callable[[Launch], None]) -> Iterator[None]:
    """Have launches of the module's kernels noted, not executed."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    for name, value in vars(module).items():
        if isinstance(value, Autotuner | Heuristics):
            msg = f"{name}: triton.autotune and triton.heuristics are not supported; choose values"
            raise TuningError(msg)
    kernels = {
        name: value for name, value in vars(module).items() if isinstance(value, JITFunction)
    }
    try:
        for name, function in kernels.items():
            setattr(module, name, _Recorder(function, note))
        yield
    finally:
        # Kernels find the device functions that they call in the module.
        for name, function in kernels.items():
            setattr(module, name, function)


def argument_type(value: Any) -> tuple[str, bool]:
    """Triton's name of a run-time argument's type, and whether it is a multiple of 16."""
    match value:
        case bool():
            return "i1", False
        case int():
            narrow = -(2**31) <= value < 2**31
            return "i32" if narrow else "i64", value % ALIGNMENT == 0
        case float():
            return "fp32", False
        case _:
            from triton.runtime.jit import type_canonicalisation_dict

            name = str(value.dtype).removeprefix("torch.")
            return f"*{type_canonicalisation_dict[name]}", True
