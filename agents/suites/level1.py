"""The operators of KernelBench's level 1: what `level1.txt` says of each, and its task file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources

import attrs

_HEAD = '''"""{name} ({category}): the operator of KernelBench's level 1, problem {number}."""

import torch
import torch.nn.functional as F
from torch import nn

{sizes}


class Model(nn.Module):
'''
_SHAPED = re.compile(r"(\w+)\[(.+)\]")


@attrs.frozen
class Row:
    """One operator; `level1.txt` says what each of its texts is."""

    number: int
    name: str
    category: str
    inputs: str
    layers: str
    forward: str
    full: str
    small: str

    def sizes(self, *, full: bool = False) -> dict[str, int]:
        """The value of each size."""
        pairs = (pair.split("=") for pair in (self.full if full else self.small).split())
        return {name: int(value) for name, value in pairs}

    def source(self, *, full: bool = False) -> str:
        """The text of the task file, in KernelBench's form."""
        sizes = self.sizes(full=full)
        text = _HEAD.format(
            name=self.name,
            category=self.category,
            number=self.number,
            sizes="\n".join(f"{name} = {value}" for name, value in sizes.items()),
        )
        taken = [name for name in sizes if re.search(rf"\b{name}\b", self.layers)]
        if self.layers:
            text += (
                f"    def __init__({', '.join(['self', *taken])}):\n        super().__init__()\n"
            )
            text += "".join(f"        self.{layer}\n" for layer in self.layers.split("; ")) + "\n"
        statements = list(self._statements())
        names = ", ".join(dict.fromkeys(name for name, _ in statements))
        return (
            f"{text}    def forward(self, {names}):\n        return {self.forward}\n\n\n"
            "def get_inputs():\n"
            + "".join(f"    {name} = {value}\n" for name, value in statements)
            + f"    return [{names}]\n\n\n"
            f"def get_init_inputs():\n    return [{', '.join(taken)}]\n"
        )

    def _statements(self) -> Iterator[tuple[str, str]]:
        """What makes the inputs: each name with an expression."""
        for text in self.inputs.split("; "):
            shaped = _SHAPED.fullmatch(text)
            name, _, value = text.partition(" = ")
            yield (shaped[1], f"torch.rand({shaped[2]})") if shaped else (name, value)


def rows() -> tuple[Row, ...]:
    """All operators, by category."""
    found = []
    category = ""
    for line in resources.files(__package__).joinpath("level1.txt").read_text("utf-8").split("\n"):
        if line.startswith("["):
            category = line.strip("[]")
        elif line and not line.startswith("#"):
            head, *texts = (part.strip() for part in line.split("|"))
            number, name = head.split()
            found.append(Row(int(number), name, category, *texts))
    return tuple(found)
