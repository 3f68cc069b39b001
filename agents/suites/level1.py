"""The operators of KernelBench's level 1: what `level1.txt` says of each."""

from __future__ import annotations

import attrs

from sketchc.agents.suites.rows import Row, numbers, table


@attrs.frozen
class Operator(Row):
    """A row of the table, with the number of the original; categories are those of table 1 of
    arXiv 2512.23424."""

    number: int
    full: str
    small: str

    def source(self, *, full: bool = False) -> str:
        """The text of the task file, in KernelBench's form."""
        sizes = {name: own for name, (own,) in numbers(self.full if full else self.small).items()}
        title = (
            f"{self.name} ({self.category}): the operator of KernelBench's level 1, "
            f"problem {self.number}."
        )
        return self.task_file(title, [sizes])


def rows() -> tuple[Operator, ...]:
    """All operators, by category."""
    found = []
    for category, (head, inputs, layers, forward, full, small) in table("level1.txt"):
        number, name = head.split()
        given = (name, category, inputs, layers, forward, "uniform")
        found.append(Operator(*given, int(number), full, small))
    return tuple(found)
