"""Running sums and products as statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchc.agents.autosketch.calls import COMBINES, IDENTITIES, spelled
from sketchc.agents.autosketch.loops import Apply
from sketchc.agents.autosketch.phase import Running
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.templates.lanes import Dims, Lanes, width

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter


def write_scan(writer: PhaseWriter, scope: Body, scan: Running, dims: Dims) -> tuple[Body, Dims]:
    """Write the loop over a scanned axis up to the result; returns its body and tile's axes.

    Rows side by side are accumulated index by index; else blocks of a row are scanned, and the
    total of all blocks before is carried along."""
    name, wide = writer.carried(scope, scan)
    body = scan.body if wide is scan.dtype else Apply("cast", (scan.body,), wide)
    dtype, combine = spelled(wide), COMBINES[scan.operation]
    start = f'init={IDENTITIES[scan.operation]}, llm_hint=["fastest", "accumulator"]'
    apart = writer.beside is None or scan.exclusive
    carry = writer.name(scope, "carry") if apart else name
    if writer.beside is not None:
        scope.say(f"{carry} = alloc([{width(dims)}]{dtype}, {start})")
        inner = writer.opened(scope, [scan.axis], None, backwards=scan.reverse)
        operand = writer.evaluated(inner, body, dims)
        if apart:
            inner.say(f'{name} = alloc([{width(dims)}]{dtype}, llm_hint=["fastest"])')
            inner.say(f"copy({carry}, {name})")
        inner.say(f"{combine}({carry}, {operand}, {carry})")
    else:
        dims = (along := Lanes(scan.axis, "T"),)
        writer.sizes.add("T")
        scope.say(f"{carry} = alloc([1]{dtype}, {start})")
        inner = writer.opened(scope, (), along, backwards=scan.reverse)
        operand = writer.evaluated(inner, body, dims)
        inner.say(f'{name} = alloc([T]{dtype}, llm_hint=["fastest"])')
        flags = ", reverse=True" * scan.reverse + ", exclusive=True" * scan.exclusive
        inner.say(f"cum{scan.operation}({operand}, 0, {name}{flags}, carry={carry})")
    writer.rounded(inner, name, scan, dims)
    return inner, dims
