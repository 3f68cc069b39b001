"""The bytes that a launch moves through a cache: each byte once for each time that it was dropped
from the cache in between.

What one iteration of a loop touches stays in the cache where all of it fits, and is then found
there by later statements and by later iterations that use it again; what does not fit is fetched
each time. (The reuse distances of a loop nest, taken loop by loop.)
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from sketchc.lowering.cost.work import Access, LaunchWork, Loop, Node, Operation, accesses

#: The bytes of a cache line: what is moved at least. A run begins anywhere in one.
_LINE = 64
#: Bytes by the memory that they lie in: a tensor's or a tile's name.
Bytes = dict[str, float]


@attrs.frozen
class Traffic:
    """Bytes that come into a cache and bytes that leave it in one launch, by the tensor or tile
    that they belong to."""

    read: Bytes
    written: Bytes

    @property
    def bytes(self) -> float:
        """All bytes."""
        return sum(self.read.values()) + sum(self.written.values())


def traffic(work: LaunchWork, capacity: float, *, tiles: bool, at_once: float = 1.0) -> Traffic:
    """The bytes between a cache of `capacity` bytes and the memory behind it in one launch. Of its
    programs, `at_once` share the cache at a time: each has its part for what it uses again, while
    what several of them use is there once. `tiles`: tiles that take memory go through this cache.
    """
    node = Loop("", 1.0, work.body)
    axes = set()
    for axis in reversed(work.grid):
        node = attrs.evolve(axis, body=(node,))
        if at_once > 1:
            axes.add(id(node))
    nest = _Nest(capacity, capacity / max(at_once, 1.0), axes, tiles)
    return Traffic(nest.moved(node, reading=True), nest.moved(node, reading=False))


class _Nest:
    """The footprints and the traffic of the parts of one loop nest. Iterations of `axes` (by `id`)
    run side by side: they have the whole cache for what they share, and each its `own` part."""

    def __init__(self, capacity: float, own: float, axes: set[int], tiles: bool) -> None:
        self._capacity, self._own, self._axes, self._tiles = capacity, own, axes, tiles
        self._footprints: dict[int, Bytes] = {}

    def moved(self, node: Node, *, reading: bool) -> Bytes:
        """The bytes by memory that one execution of `node` reads, or writes."""
        match node:
            case Operation():
                return {}
            case Access():
                wanted = node.writes != reading or node.atomic
                return {node.memory: _bytes(node)} if wanted and self._counts(node) else {}
            case Loop():
                return self._of_loop(node, reading)

    def _of_loop(self, loop: Loop, reading: bool) -> Bytes:
        together = id(loop) in self._axes
        capacity = self._capacity if together else self._own
        whole = self._footprint(loop)
        if sum(whole.values()) <= self._own:
            used = self._used(loop, reading)
            return {memory: moved for memory, moved in whole.items() if memory in used}
        once = _sum(self.moved(node, reading=reading) for node in loop.body)
        inner = _largest(self._footprint(node) for node in loop.body)
        fits = sum(inner.values()) <= capacity
        if fits and not together:  # what several statements touch is moved once
            once = {memory: min(moved, inner[memory]) for memory, moved in once.items()}
        follows = _moving(loop)
        return {
            memory: moved * (loop.trips if not fits or memory in follows else min(loop.trips, 1.0))
            for memory, moved in once.items()
        }

    def _used(self, node: Node, reading: bool) -> set[str]:
        match node:
            case Operation():
                return set()
            case Access():
                return {node.memory} if node.writes != reading or node.atomic else set()
            case Loop():
                return set().union(*(self._used(inner, reading) for inner in node.body))

    def _counts(self, access: Access) -> bool:
        return self._tiles or not access.tile

    def _footprint(self, node: Node) -> Bytes:
        """The distinct bytes that one execution of `node` touches."""
        known = self._footprints.get(id(node))
        if known is None:
            known = self._footprints[id(node)] = self._touched(node)
        return known

    def _touched(self, node: Node) -> Bytes:
        match node:
            case Operation():
                return {}
            case Access():
                return {node.memory: _bytes(node)} if self._counts(node) else {}
            case Loop():
                inner = _largest(self._footprint(one) for one in node.body)
                follows, sizes = _moving(node), _sizes(node)
                return {
                    memory: min(
                        touched * (node.trips if memory in follows else min(node.trips, 1.0)),
                        max(sizes[memory], touched),
                    )
                    for memory, touched in inner.items()
                }


def _bytes(access: Access) -> float:
    """The bytes of the lines that an access moves: runs of less than a line take a whole one where
    they do not lie side by side."""
    run = max(access.run, 1.0) * access.element
    whole = run if access.run > 1 else _LINE if access.gathers else float(access.element)
    return min(access.lanes * access.element * max(whole / run, 1.0), max(access.size, 1.0))


def _moving(loop: Loop) -> set[str]:
    """The memories of which another part is touched in each iteration of the loop itself."""
    if not loop.variable:
        return set(_sizes(loop))
    return {a.memory for a in accesses(loop) if loop.variable in a.variables}


def _sizes(node: Node) -> dict[str, float]:
    return {access.memory: access.size for access in accesses(node)}


def _sum(several: Iterable[Bytes]) -> Bytes:
    found: Bytes = {}
    for one in several:
        for memory, moved in one.items():
            found[memory] = found.get(memory, 0.0) + moved
    return found


def _largest(several: Iterable[Bytes]) -> Bytes:
    found: Bytes = {}
    for one in several:
        for memory, moved in one.items():
            found[memory] = max(found.get(memory, 0.0), moved)
    return found
