"""One drop-in module for a task of which kernels compute parts, and PyTorch the rest.

`NAME_dropin.py` has a `ModelNew` as other drop-ins do (`torch_dropin`), at the sizes of the task's
own inputs: its `forward` calls the drop-ins of the parts beside it, and operations of PyTorch
between them, one a line, so that whoever reads it sees what is no kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from sketchc.runtime.dropin.kernel_module import LOADING, PARTIAL_SUPPORT, copied
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec


class Piece(Protocol):
    """See `cuts.Piece`."""

    @property
    def takes(self) -> Sequence[tuple[Any, ...]]:
        """The values that others computed."""

    @property
    def gives(self) -> Sequence[tuple[Any, ...]]:
        """The values that others need."""


class Cut(Protocol):
    """A task in pieces; see `cuts.Cut`."""

    @property
    def description(self) -> TaskDescription:
        """The whole task."""

    @property
    def pieces(self) -> Sequence[Any]:
        """All pieces, in order."""

    @property
    def kernels(self) -> Sequence[Any]:
        """The pieces that kernels compute."""

    @property
    def returned(self) -> Sequence[tuple[Any, ...]]:
        """The values that the task returns."""

    def name(self, value: tuple[Any, ...]) -> str:
        """The name of a value in Python code."""

    def code(self, piece: Any) -> Iterator[str]:
        """The statements of a piece."""


def part_task(name: str, cut: Cut, piece: Piece, number: int) -> str:
    """The file of the task that one piece is by itself."""
    takes = ", ".join(map(cut.name, piece.takes))
    gives = ", ".join(map(cut.name, piece.gives))
    lines = [
        f'"""Part {number + 1} of the task {name}, one operation of PyTorch a line, at its own '
        'sizes."""',
        "",
        "import torch",
        f"from {name}_steps import given_to",
        "",
        "",
        "class Model(torch.nn.Module):",
        f"    def forward(self, {takes}):",
        *(f"        {line}" for line in cut.code(piece)),
        f"        return {gives}",
        "",
        "",
        "def get_inputs():",
        f"    return given_to({number})",
        "",
        "",
        "def get_init_inputs():",
        "    return []",
    ]
    return "\n".join(lines) + "\n"


def steps_module(name: str, cut: Cut) -> str:
    """The module from which the parts' tasks have their inputs: the whole task, step by step."""
    lines = [
        f'"""The inputs of the parts of the task {name}: what its own inputs come to there."""',
        "",
        "import torch",
        f"from {name}_whole import {cut.description.subject} as Whole",
        f"from {name}_whole import get_inputs",
        "",
        "try:",
        f"    from {name}_whole import get_init_inputs",
        "except ImportError:",
        "    get_init_inputs = list",
        "",
        "",
        "def given_to(part):",
        '    """The inputs of the part of this number, from 0."""',
        "    model, given, found = Whole(*get_init_inputs()).eval(), get_inputs(), []",
        "    with torch.no_grad():",
        *(f"        {line}" for line in _bound(cut, "model")),
    ]
    for piece in cut.pieces:
        if piece in cut.kernels:
            takes = "".join(f"{cut.name(value)}, " for value in piece.takes)
            lines.append(f"        found.append([{takes.strip(', ')}])")
        lines += [f"        {line}" for line in cut.code(piece)]
    return "\n".join([*lines, "    return found[part]"]) + "\n"


def _bound(cut: Cut, model: str) -> Iterator[str]:
    """Statements that name the inputs and the parameters that pieces take."""
    used = dict.fromkeys([v for p in cut.pieces for v in p.takes] + list(cut.returned))
    for value in used:
        match value:
            case ("input", position):
                yield f"{cut.name(value)} = given[{position}]"
            case ("state", state):
                *owners, last = state.split(".")
                owner = f'{model}.get_submodule("{".".join(owners)}")' if owners else model
                yield f"{cut.name(value)} = {owner}.{last}"


def write_partial(
    folder: Path, name: str, target: str, cut: Cut, kernels: Collection[Piece]
) -> Path:
    """Put the drop-in of a task beside those of the pieces that are `kernels`; returns its path.
    Raises `OSError`."""
    description = cut.description
    numbers = [n for n, piece in enumerate(cut.kernels) if piece in kernels]
    docstring = (
        f'"""Drop-in for the task {name}: a PARTIAL one ({target}), of kernels and PyTorch.\n\n'
        f"    from {name}_dropin import ModelNew, get_init_inputs, get_inputs\n\n"
        "`ModelNew` is the task's `Model` with another `forward`, at the sizes of the task's own\n"
        'inputs. Made by sketchc.\n"""'
    )
    shapes = [
        (f"torch.{v.dtype.numpy_name}", list(v.shape)) if isinstance(v, TensorSpec) else None
        for v in description.inputs
    ]
    told = ", ".join("None" if s is None else f"({s[0]}, {s[1]})" for s in shapes)
    data = [
        f'_task = load_file("{name}_whole", "{name}_whole.py")',
        f"Model = _task.{description.subject}",
        'get_inputs = getattr(_task, "get_inputs", None)',
        'get_init_inputs = getattr(_task, "get_init_inputs", list)',
        "#: The type and the shape of each of forward's tensors.",
        f"SHAPES: list[Any] = [{told}]",
        "#: The kernels, by the numbers of their parts.",
        "PARTS = {",
        *(
            f'    {n}: load_file("{name}_part_{n + 1}_dropin", "{name}_part_{n + 1}_dropin.py"),'
            for n in numbers
        ),
        "}",
        "KERNELS = {number: part.ModelNew().eval() for number, part in PARTS.items()}",
    ]
    text = "\n\n\n".join(
        [
            docstring,
            *copied([LOADING, PARTIAL_SUPPORT]),
            "\n".join(data),
            "\n".join(_model(cut, kernels)),
        ]
    )
    path = folder / f"{name}_dropin.py"
    path.write_text(text + "\n", "utf-8")
    return path


def _model(cut: Cut, kernels: Collection[Piece]) -> Iterator[str]:
    yield "class ModelNew(Model):  # type: ignore[misc, valid-type]"
    yield '    """`Model`, computed by kernels and by PyTorch."""'
    yield ""
    yield "    def __init__(self, *args: Any, **kwargs: Any) -> None:"
    yield "        super().__init__(*args, **kwargs)"
    yield "        require_construction((args, kwargs), get_init_inputs())"
    yield ""
    yield "    def forward(self, *args: Any, **kwargs: Any) -> Any:"
    yield "        given = bound(Model.forward, args, kwargs, SHAPES)"
    yield from (f"        {line}" for line in _bound(cut, "self"))
    number = -1
    for piece in cut.pieces:
        number += piece in cut.kernels
        if piece in kernels:
            takes = ", ".join(map(cut.name, piece.takes))
            gives = ", ".join(map(cut.name, piece.gives))
            yield f"        {gives} = KERNELS[{number}]({takes})"
        else:
            yield "        # PyTorch:"
            yield from (f"        {line}" for line in cut.code(piece))
    found = ", ".join(map(cut.name, cut.returned))
    form = {"tensor": "{}", "tuple": "({},)", "list": "[{}]"}[cut.description.returns]
    yield f"        return {form.format(found)}"


#: A program that runs a partial drop-in beside the task on the task's own inputs, and prints as
#: JSON how far they are apart. Its arguments are the drop-in's file, and torch's type of device.
PARTIAL = """
import importlib.util, json, sys
import torch
device = sys.argv[2]
try:
    chip = getattr(torch, device, None)
    if device != "cpu" and (chip is None or not chip.is_available()):
        raise RuntimeError(f"torch has no {device} here")
    place = importlib.util.spec_from_file_location("partial_dropin", sys.argv[1])
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    off, limit = 0.0, 1e-3
    for seed in range(3):
        torch.manual_seed(seed)
        init = module.get_init_inputs()
        old, new = (made(*init).eval().to(device) for made in (module.Model, module.ModelNew))
        new.load_state_dict(old.state_dict())
        given = [v.to(device) if hasattr(v, "to") else v for v in module.get_inputs()]
        with torch.no_grad():
            wanted, found = old(*given), new(*given)
        pairs = [(wanted, found)] if isinstance(wanted, torch.Tensor) else zip(wanted, found)
        for one, other in pairs:
            limit = 2e-2 if one.dtype in (torch.float16, torch.bfloat16) else limit
            one, other = one.double(), other.double()
            scale = max(float(one.norm()), 1e-30)
            own = float((one - other).norm()) / scale
            off = max(off, own if own == own else float("inf"))
    print(json.dumps({"off": off, "limit": limit}))
except Exception as error:
    print(json.dumps({"off": None, "why": f"{type(error).__name__}: {error}".splitlines()[0]}))
"""
