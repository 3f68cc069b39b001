"""Operators as rows of a table, and the task file that is made of each.

`level1.txt` and `benchmark.txt` say what the columns of their rows are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources

import attrs

_HEAD = '''"""{title}"""

import torch
import torch.nn.functional as F
from torch import nn

'''
_INPUT = re.compile(r"(\w+)\[(.+)\](?: (\w+))?")
#: What makes an input of a kind; `{}` is its shape.
_KINDS = {
    "normal": "torch.randn({})",
    "uniform": "torch.rand({})",
    "positive": "torch.rand({}) + 0.1",
    "unit": "torch.rand({}) * 2 - 1",
    "f16": "torch.randn({}).half()",
    "i32": "torch.randint(-100, 100, ({},), dtype=torch.int32)",
    "bool": "torch.randint(0, 2, ({},)).bool()",
}

Sizes = Mapping[str, int]


@attrs.frozen
class Row:
    """What an operator of any table has; `kind` is that of inputs for which the row names none."""

    name: str
    category: str
    inputs: str
    layers: str
    forward: str
    kind: str

    def task_file(self, title: str, sizes: Sequence[Sizes]) -> str:
        """The text of the task file. Its own inputs are of the first sizes; lists of further inputs
        are of the others."""
        own, *others = sizes
        varying = [name for name in own if any(one[name] != own[name] for one in others)]
        fixed = [name for name in own if name not in varying]
        taken = [name for name in fixed if re.search(rf"\b{name}\b", self.layers)]
        text = _HEAD.format(title=title) + "".join(f"{name} = {own[name]}\n" for name in fixed)
        text += ("\n\n" if fixed else "\n") + "class Model(nn.Module):\n"
        if self.layers:
            text += (
                f"    def __init__({', '.join(['self', *taken])}):\n        super().__init__()\n"
            )
            text += "".join(f"        self.{layer}\n" for layer in self.layers.split("; ")) + "\n"
        text += f"    def forward(self, {', '.join(self._names())}):\n"
        # What the result needs of sizes that vary is read off the inputs.
        used = (name for name in varying if re.search(rf"\b{name}\b", self.forward))
        text += "".join(f"        {name} = {self._place(name)}\n" for name in used)
        text += f"        return {self.forward}\n\n\n{self._inputs(varying, own, others)}"
        return f"{text}\n\ndef get_init_inputs():\n    return [{', '.join(taken)}]\n"

    def _inputs(self, varying: Sequence[str], own: Sizes, others: Sequence[Sizes]) -> str:
        """The functions that make inputs."""
        made = "".join(f"    {name} = {value}\n" for name, value in self._statements())
        made += f"    return [{', '.join(self._names())}]\n"
        if not others:
            return f"def get_inputs():\n{made}"

        def call(sizes: Sizes) -> str:
            return f"inputs_of({', '.join(str(sizes[name]) for name in varying)})"

        return (
            f"def inputs_of({', '.join(varying)}):\n{made}\n\n"
            f"def get_inputs():\n    return {call(own)}\n\n\n"
            f"def get_input_groups():\n    return [{', '.join(map(call, others))}]\n"
        )

    def _place(self, size: str) -> str:
        """The expression that reads a size from the shape of an input, such as `x.shape[0]`."""
        for text in self.inputs.split("; "):
            if shaped := _INPUT.fullmatch(text):
                extents = shaped[2].split(", ")
                if size in extents:
                    return f"{shaped[1]}.shape[{extents.index(size)}]"
        msg = f"no input of {self.name} has the extent {size}"
        raise ValueError(msg)

    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self._statements()))

    def _statements(self) -> Iterator[tuple[str, str]]:
        """What makes the inputs: each name with an expression."""
        for text in self.inputs.split("; "):
            shaped = _INPUT.fullmatch(text)
            name, _, value = text.partition(" = ")
            if shaped:
                yield shaped[1], _KINDS[shaped[3] or self.kind].format(shaped[2])
            else:
                yield name, value


def table(file: str) -> Iterator[tuple[str, list[str]]]:
    """The category and the columns of each row of a table of this package."""
    category = ""
    for line in resources.files(__package__).joinpath(file).read_text("utf-8").split("\n"):
        if line.startswith("["):
            category = line.strip("[]")
        elif line and not line.startswith("#"):
            yield category, [part.strip() for part in line.split("|")]


def numbers(text: str) -> dict[str, list[int]]:
    """The numbers of each size: `M=8,9 N=3` gives those of M and N."""
    pairs = (pair.split("=") for pair in text.split())
    return {name: [int(one) for one in values.split(",")] for name, values in pairs}
