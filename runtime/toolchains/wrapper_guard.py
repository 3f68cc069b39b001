"""In the worker: what a wrapper returned, and whether the kernel did the work.

For kernels that the built-in Coder did not write, `Watch` counts launches and lets the wrapper do
with torch what a wrapper is for (allocate, view, copy, convert, fill) and nothing else. Inside of a
launch anything goes: Triton's interpreter computes with torch itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

#: What a wrapper may ask of ATen.
ALLOCATIONS = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted"),
        *("new_empty", "new_empty_strided"),
    }
)
FILLS = frozenset(
    {
        *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "zero_", "fill_"),
        *("full", "full_like", "new_full", "scalar_tensor", "constant_pad_nd", "zero", "fill"),
    }
)
VIEWS = frozenset(
    {
        *("alias", "as_strided", "detach", "detach_", "diagonal", "expand", "lift_fresh"),
        *("permute", "t", "transpose", "t_", "transpose_", "reshape", "_reshape_alias"),
        *("select", "slice", "split", "split_with_sizes", "unbind", "unfold", "narrow"),
        *("squeeze", "squeeze_", "unsqueeze", "unsqueeze_", "view", "_unsafe_view", "view_as_real"),
        *("resolve_conj", "resolve_neg", "is_pinned", "sym_size", "sym_stride", "sym_numel"),
    }
)
COPIES = frozenset({"clone", "contiguous", "copy_", "copy", "to", "_to_copy", "_copy_from"})
ALLOWED = ALLOCATIONS | FILLS | VIEWS | COPIES
#: Ways out of torch that pass no dispatcher.
_EXITS = frozenset(
    {
        *("numpy", "__array__", "tolist", "__dlpack__", "untyped_storage", "storage"),
        *("share_memory_", "map_", "map2_", "apply_", "item", "set_"),
    }
)


class PolicyError(RuntimeError):
    """The wrapper computes instead of its kernels."""


class WrongOutputsError(Exception):
    """What a wrapper returned is not its outputs."""


class Watch:
    """What a wrapper did: `launches` of kernels, and the operations `refused` to it."""

    def __init__(self) -> None:
        self.launches = 0
        self.refused: list[str] = []
        self.inside = 0

    def refuse(self, name: str) -> None:
        """Note it (a wrapper may swallow the exception) and raise `PolicyError`."""
        if name not in self.refused:
            self.refused.append(name)
        msg = f"the wrapper calls {name}: the kernel must do this itself"
        raise PolicyError(msg)

    @contextmanager
    def launch(self) -> Iterator[None]:
        """Around a launch."""
        self.launches += 1
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Around code of the wrapper that runs inside of a launch, such as a grid function."""
        inside, self.inside = self.inside, 0
        try:
            yield
        finally:
            self.inside = inside

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the wrapper."""
        with _Functions(self), _Operations(self):
            yield

    def verdict(self, elements: int) -> str:
        """What speaks against a run whose outputs have so many elements; "" for nothing."""
        if self.refused:
            names = ", ".join(self.refused)
            return f"the wrapper calls {names}: the kernel must do this itself"
        if elements and not self.launches:
            return "outputs were returned and no kernel was launched"
        return ""


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of ATen, however it was asked for."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = watch

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler (seconds, and `triton` with it) to keep it away from
        here; nothing is compiled under this mode."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        space, _, name = str(func._schema.name).partition("::")
        if self.watch.inside:
            return func(*args, **(kwargs or {}))
        if space not in ("aten", "prim") or name not in ALLOWED:
            self.watch.refuse(f"{space}.{name}")
        result = func(*args, **(kwargs or {}))
        if name in ALLOCATIONS and isinstance(result, torch.Tensor):
            _poison(result)
        return result


class _Functions(TorchFunctionMode):
    """Sees methods of tensors that hand the memory to others."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        name = getattr(func, "__name__", "")
        if not self.watch.inside and name in _EXITS:
            self.watch.refuse(f"Tensor.{name}")
        return func(*args, **(kwargs or {}))


def _poison(tensor: torch.Tensor) -> None:
    """Elements that nobody writes must show, as in the buffers that verification hands out."""
    if tensor.is_floating_point():
        tensor.fill_(float("nan"))
    elif tensor.dtype not in (torch.bool, torch.complex64, torch.complex128):
        tensor.fill_(torch.iinfo(tensor.dtype).max - 21)


def watched(watch: Watch | None) -> AbstractContextManager[None]:
    """`watch.watching()`, or nothing."""
    return nullcontext() if watch is None else watch.watching()


def takes_out(wrapper: Callable[..., Any], *, needed: bool = False) -> bool:
    """Whether a wrapper has a parameter `out`; kernels that were not made here may not. `needed`:
    whether it cannot be left out."""
    try:
        parameters = inspect.signature(wrapper).parameters
    except (TypeError, ValueError):
        return True
    if "out" in parameters:
        return not needed or parameters["out"].default is inspect.Parameter.empty
    kinds = {parameter.kind for parameter in parameters.values()}
    return not needed and inspect.Parameter.VAR_KEYWORD in kinds


def named_outputs(names: Sequence[str], returned: object) -> dict[str, torch.Tensor]:
    """What a wrapper returned, by name: one tensor bare, several as a tuple in call order.

    Raises `WrongOutputsError`.
    """
    values = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    if len(values) != len(names):
        results = "1 result" if len(names) == 1 else f"{len(names)} results"
        msg = f"the wrapper returns {len(values)} values for {results}"
        raise WrongOutputsError(msg)
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, torch.Tensor):
            msg = f"the wrapper returns {type(value).__name__} for {name}, not a tensor"
            raise WrongOutputsError(msg)
    return dict(zip(names, values, strict=True))


def to_numpy(name: str, tensor: torch.Tensor) -> Any:
    """The elements as a NumPy array (bf16 of ml_dtypes). Raises `WrongOutputsError` for a tensor
    that has none, or of a type that no sketch knows."""
    try:
        plain = tensor.detach().cpu().contiguous()
        if plain.dtype == torch.bfloat16:
            import ml_dtypes

            return plain.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return plain.numpy()
    except (RuntimeError, TypeError, NotImplementedError, AttributeError) as error:
        reason = str(error).split("\n")[0]
        msg = f"{name} is a {tensor.dtype} tensor on {tensor.device} that cannot be read: {reason}"
        raise WrongOutputsError(msg) from error
