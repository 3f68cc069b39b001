"""Inputs that hold tensors within lists, tuples or dictionaries: their leaves, in order.

A sketch and a kernel take tensors one by one, so the inputs of a task are flattened, as outputs
are. A list or tuple without any tensor (a shape, a padding) is one constant. A `Layout` says how to
put the leaves together again; it is plain data, which any process can read. Needs the standard
library alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

#: For each input: None, or what it is ("list", "tuple", "dict") with its parts: their layouts, and
#: their keys in a dictionary.
Layout = list[dict[str, Any] | None]


def flatten(values: Sequence[Any], is_tensor: Callable[[Any], bool]) -> tuple[list[Any], Layout]:
    """The leaves of inputs, and the layout that puts them together again."""
    leaves: list[Any] = []
    return leaves, [_flatten(value, is_tensor, leaves) for value in values]


def _flatten(
    value: Any, is_tensor: Callable[[Any], bool], leaves: list[Any]
) -> dict[str, Any] | None:
    if not _holds(value, is_tensor):
        leaves.append(value)
        return None
    if isinstance(value, Mapping):
        parts = [_flatten(part, is_tensor, leaves) for part in value.values()]
        return {"kind": "dict", "parts": parts, "keys": list(value)}
    kind = "tuple" if isinstance(value, tuple) else "list"
    return {"kind": kind, "parts": [_flatten(part, is_tensor, leaves) for part in value]}


def _holds(value: Any, is_tensor: Callable[[Any], bool]) -> bool:
    """Whether `value` is a container with a tensor in it, however deep."""
    if is_tensor(value) or not isinstance(value, list | tuple | Mapping):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return any(is_tensor(part) or _holds(part, is_tensor) for part in parts)


def rebuild(layout: Layout, leaves: Sequence[Any]) -> list[Any]:
    """The inputs of a layout with these leaves; leaves that are left over follow as they are."""
    rest = iter(leaves)
    return [*(_rebuild(part, rest) for part in layout[: len(leaves)]), *rest]


def _rebuild(layout: dict[str, Any] | None, leaves: Iterator[Any]) -> Any:
    if layout is None:
        return next(leaves)
    parts = [_rebuild(part, leaves) for part in layout["parts"]]
    if layout["kind"] == "dict":
        return dict(zip(layout["keys"], parts, strict=True))
    return tuple(parts) if layout["kind"] == "tuple" else parts


def paths(layout: Layout) -> list[tuple[Any, ...]]:
    """Where each leaf is: the position of its input, then what subscripts lead to it."""

    def walk(part: dict[str, Any] | None, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if part is None:
            yield path
            return
        for key, inner in zip(part.get("keys", range(len(part["parts"]))), part["parts"],
                              strict=True):  # fmt: skip
            yield from walk(inner, (*path, key))

    return [path for number, part in enumerate(layout) for path in walk(part, (number,))]


def is_plain(layout: Layout) -> bool:
    """Whether every input is a leaf."""
    return not any(layout)


def is_text(text: str) -> bool:
    """Whether another process can read a value from its text: a literal, or a type of torch's."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return re.fullmatch(r"torch\.\w+", text) is not None
    return True
