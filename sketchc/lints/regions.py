"""What accesses touch, as normal forms: equal ones touch the same elements, however their loops
count and whatever the variables' names are."""

from __future__ import annotations

from typing import TypeAlias

from sketchc.base import records
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import normalize, rebuild
from sketchc.ir.walk import references, subscript_parts, substitute

#: One subscript: its parts in normal form.
_Part: TypeAlias = tuple[ir.Expr, ...]
_COUNTER = "counter "


@records.frozen
class Space:
    """Loops around a statement, outermost first, as if each counted 0, 1, ...: how often each runs
    and whether in parallel, and what the variables are in terms of the counters."""

    counts: tuple[tuple[ir.Expr, bool], ...] = ()
    variables: tuple[tuple[str, ir.Expr], ...] = ()

    def within(self, loop: ir.For) -> Space:
        """The space of the loop's body."""
        known = dict(self.variables)
        start, stop, step = (substitute(e, known) for e in (loop.start, loop.stop, loop.step))
        count = _normal(ir.Binary("cdiv", ir.Binary("-", stop, start), step))
        counter = ir.Ref(f"{_COUNTER}{len(self.counts)}", ir.NameKind.LOOP)
        value = ir.Binary("+", start, ir.Binary("*", step, counter))
        return Space(
            (*self.counts, (count, loop.parallel)), (*self.variables, (loop.variable, value))
        )


@records.frozen
class Region:
    """The elements of a tensor or view that one iteration touches."""

    tensor: str
    parts: tuple[_Part, ...]

    @property
    def counters(self) -> int:
        """How many of the loops around it it depends on."""
        used = {ref.name for part in self.parts for e in part for ref in references(e)}
        return sum(name.startswith(_COUNTER) for name in used)


def region(access: ir.Access, space: Space) -> Region:
    """What `access` touches in an iteration of `space`. Index tiles keep the names of bindings."""
    known = dict(space.variables)
    return Region(
        access.tensor,
        tuple(
            tuple(_normal(substitute(part, known)) for part in subscript_parts(subscript))
            for subscript in access.subscripts
        ),
    )


def _normal(expression: ir.Expr) -> ir.Expr:
    return rebuild(normalize(expression))
