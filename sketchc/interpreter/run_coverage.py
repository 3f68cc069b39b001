"""The coverage of runs: how often each loop ran, and which sides of each branch were taken.

A claim that rests on runs holds for no more than they reached. Loops and branches are known by
where they begin in the text, which is the same at all tile sizes.
"""

from __future__ import annotations

from sketchc.base import records


@records.define
class RunCoverage:
    """`trips`: the most iterations in a row of each loop; `sides`: branches with their outcome.
    `telling`: its tile sizes differ from one another and from 1, so that one in the place of
    another shows."""

    trips: dict[int, int] = records.field(factory=dict)
    sides: set[tuple[int, bool]] = records.field(factory=set)
    telling: bool = True

    def loop(self, place: int, count: int) -> None:
        """Note that the loop at `place` ran `count` times."""
        if count > self.trips.get(place, -1):
            self.trips[place] = count

    def branch(self, place: int, taken: bool) -> None:
        """Note the outcome of the condition at `place`."""
        self.sides.add((place, taken))
