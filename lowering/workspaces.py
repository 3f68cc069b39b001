"""Which workspaces share memory: those of one shape and type that are never in use together."""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.ir import walk


def shared_memory(sketch: ir.Sketch) -> dict[str, str]:
    """For each workspace that lies in the memory of another one, by name, the name of that one.

    A workspace is in use from the first step of the host that accesses it to the last: a loop of
    the host is one step. What its memory held before does not matter, since no element of a
    workspace is loaded before it is stored, unless the workspace has an initial value: such a one
    shares nothing.
    """
    used = _uses(sketch)
    spaces = {t.name: t for t in sketch.tensors if t.role is ir.Role.WORKSPACE and t.name in used}
    taken_until: dict[str, int] = {}  # the last use, by the workspace that has the memory
    found = {}
    for name in sorted(spaces, key=lambda name: used[name]):
        if spaces[name].initial is not None:
            continue
        first, last = used[name]
        owner = next(
            (o for o, end in taken_until.items() if end < first and _fits(o, name, spaces)), name
        )
        taken_until[owner] = last
        if owner != name:
            found[name] = owner
    return found


def _fits(owner: str, name: str, spaces: dict[str, ir.Tensor]) -> bool:
    mine, its = spaces[name], spaces[owner]
    return mine.dtype is its.dtype and mine.extents == its.extents


def _uses(sketch: ir.Sketch) -> dict[str, tuple[int, int]]:
    """The first and the last of the outermost steps that access a tensor, by its name."""
    found: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(sketch.steps):
        for each in _accesses(sketch, step):
            name = sketch.tensor(each.tensor).name
            found[name] = found.get(name, (number, number))[0], number
    return found


def _accesses(sketch: ir.Sketch, step: ir.HostStep) -> list[ir.Access]:
    found = []
    for inner in walk.statements([step]):
        if isinstance(inner, ir.Fetch):
            found.append(inner.access)
        if isinstance(inner, ir.Launch):
            body = walk.statements(sketch.phases[inner.phase].body)
            kinds = ir.Load | ir.Store | ir.Atomic | ir.Fetch
            found += [each.access for each in body if isinstance(each, kinds)]
    return found
