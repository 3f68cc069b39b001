"""Operations with nests of their own: what is neither element-wise, a reduction nor a product.

A rule makes the nests of one statement. An operation in `WHOLE` is a call of a function of the
prelude on tiles in memory (`nests.Whole`, made by `NestMaker.whole`): its operands are stored,
never read from the tensor or kept in locals, and no loop is shared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sketchc import ir
from sketchc.lowering.cpp.nests import Nest

if TYPE_CHECKING:
    from sketchc.lowering.cpp.nest_maker import NestMaker

Rule = Callable[["NestMaker", ir.Compute], list[Nest]]

#: The rule of each such operation.
RULES: Mapping[str, Rule] = {}

#: Those whose tiles must be in memory.
WHOLE: frozenset[str] = frozenset()
