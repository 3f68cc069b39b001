"""The operators of the paper's own benchmark: what `benchmark.txt` says of each."""

from __future__ import annotations

import attrs

from sketchc.agents.suites.rows import Row, Sizes, numbers, table


@attrs.frozen
class Operator(Row):
    """A row of the table; its first sizes are those of the suite `static`."""

    sizes: tuple[Sizes, ...]

    def source(self, *, dynamic: bool) -> str:
        """The text of the task file, at its first sizes, or (`dynamic`) at all."""
        title = f"{self.name} ({self.category}): an operator of the benchmark of arXiv 2512.23424."
        return self.task_file(title, self.sizes if dynamic else self.sizes[:1])


def rows(*, dynamic: bool) -> tuple[Operator, ...]:
    """All operators, by category, or (`dynamic`) those that have several sizes."""
    found = []
    for category, (name, inputs, layers, forward, sizes) in table("benchmark.txt"):
        each = numbers(sizes)
        count = max(map(len, each.values()))
        every = tuple(
            {size: values[turn % len(values)] for size, values in each.items()}
            for turn in range(count)
        )
        if count > 1 or not dynamic:
            found.append(Operator(name, category, inputs, layers, forward, "normal", every))
    return tuple(found)
