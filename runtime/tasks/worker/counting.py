"""How many calls of PyTorch a run makes: loops over sizes make many at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode


class TooManyCallsError(Exception):
    """More calls than a run may make."""


class Counted(TorchFunctionMode):
    """Counts the `calls` of PyTorch made within; raises `TooManyCallsError` after `most`."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most
        self.calls = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The function's result."""
        self.calls += 1
        if self.calls > self.most:
            raise TooManyCallsError
        return func(*args, **(kwargs or {}))
