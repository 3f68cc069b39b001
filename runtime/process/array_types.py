"""The type of a handler's arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
