"""The conditions of a task on its sizes, such as that a window fits its image.

PyTorch refuses an image that is smaller than a window that runs over it. The sketch requires the
same, so that no proof and no run has to consider sizes at which the task has no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.show import show
from sketchc.ir.walk import names, substitute

#: The smallest valid size is searched below the first; so many sizes from it on must be valid.
_LARGEST = 1024
_FURTHER = 16


def requirements(declared: ir.Sketch, extents: Iterable[ir.Expr]) -> tuple[ir.Require, ...]:
    """Conditions on the symbols under which each of the extents is at least 1."""
    values = _let_values(declared)
    least: dict[str, tuple[int, ir.Expr]] = {}
    others: dict[ir.Expr, None] = {}
    for extent in dict.fromkeys(extents):
        value = substitute(extent, values)
        used = sorted(names(value))
        if len(used) == 1 and (size := _smallest(value, used[0])) is not None:
            least[used[0]] = max((size, extent), least.get(used[0], (1, extent)), key=itemgetter(0))
        elif used and not _positive(value, dict.fromkeys(used, 1)):
            others[ir.Binary(">=", extent, ir.Literal(1))] = None
    bounds = (
        _at_least(symbol.name, *least[symbol.name])
        for symbol in declared.symbols
        if symbol.name in least and least[symbol.name][0] > 1
    )
    return tuple(ir.Require(condition, show(condition)) for condition in (*bounds, *others))


def _at_least(symbol: str, size: int, extent: ir.Expr) -> ir.Expr:
    """The condition that a symbol is at least `size`; for an extent with a name of its own, that
    the name is at least 1, since proofs about the tensor need this fact of the name."""
    if isinstance(extent, ir.Ref):
        return ir.Binary(">=", extent, ir.Literal(1))
    return ir.Binary(">=", ir.Ref(symbol, ir.NameKind.SYMBOL), ir.Literal(size))


def _let_values(declared: ir.Sketch) -> Mapping[str, ir.Expr]:
    """The value of each `let` in terms of the symbols, by name."""
    found: dict[str, ir.Expr] = {}
    for let in declared.lets:
        found[let.name] = substitute(let.value, found)
    return found


def _positive(value: ir.Expr, sizes: Mapping[str, int]) -> bool:
    return int(evaluate(value, dict(sizes))) >= 1


def _smallest(value: ir.Expr, name: str) -> int | None:
    """The smallest size of the symbol `name` from which on the formula `value` is at least 1; None
    where none is found."""
    for size in range(1, _LARGEST):
        if _positive(value, {name: size}):
            further = range(size, size + _FURTHER)
            return size if all(_positive(value, {name: n}) for n in further) else None
    return None
