"""Kernels that differ in names alone: one of them is written, and launched for all.

A network has layers that are alike, and each layer's phases are kernels. Two kernels are alike
where renaming their parameters and local names makes one text of them; what distinguishes their
launches (tensors, sizes, constants) is passed. A DSL then compiles once.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from sketchc.lowering.triton.kernel import KernelText


@attrs.frozen
class Call:
    """How a kernel is launched: the name of the kernel that is written for it, its arguments."""

    name: str
    arguments: tuple[str, ...]


@attrs.frozen
class Written:
    """The kernels of a file: `bodies` has the lines of each that is written, with the lines of the
    sketch by line of the kernel, 1-based; `calls` the launches of all that were given, in order."""

    bodies: tuple[tuple[tuple[str, ...], Mapping[int, tuple[int, ...]]], ...]
    calls: tuple[Call, ...]


@attrs.define
class _Shape:
    """A kernel without its own names: `key` is equal for kernels that are alike, and `order` lists
    the names, those that correspond in two alike kernels at the same place."""

    key: str
    order: tuple[str, ...]
    statements: tuple[ast.stmt, ...]


class _Numbered(ast.NodeTransformer):
    """Replaces a kernel's own names by numbers, in the order in which the names occur."""

    def __init__(self, own: set[str]) -> None:
        self.own = own
        self.order: dict[str, int] = {}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Replace a name of the kernel's own; names of functions and modules remain."""
        if node.id not in self.own:
            return node
        return ast.Name(str(self.order.setdefault(node.id, len(self.order))), ast.Load())


def _shape(kernel: KernelText) -> _Shape:
    (function,) = ast.parse("\n".join(kernel.lines)).body
    assert isinstance(function, ast.FunctionDef)
    parameters = {argument.arg: argument.annotation for argument in function.args.args}
    stored = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    own = {*parameters, *(node.id for node in stored if isinstance(node.ctx, ast.Store))}
    statements = tuple(node for node in ast.walk(function) if isinstance(node, ast.stmt))
    numbered = _Numbered(own)
    body = [ast.dump(numbered.visit(statement)) for statement in function.body]
    order = tuple({**numbered.order, **dict.fromkeys(parameters)})
    place = {name: number for number, name in enumerate(order)}
    # What the decorator says of parameters it says by name.
    told = {
        place[node.value]
        for decorator in function.decorator_list
        for node in ast.walk(decorator)
        if isinstance(node, ast.Constant) and node.value in parameters
    }
    kinds = sorted((place[name], kind and ast.dump(kind)) for name, kind in parameters.items())
    return _Shape("\n".join([*body, str(kinds), str(sorted(told))]), order, statements)


def _arguments(kernel: KernelText) -> dict[str, str]:
    """The argument that a launch passes for each parameter, without the `NAME=` of a constant."""
    passed = {}
    for declared, given in kernel.parameters:
        name, _, kind = declared.partition(":")
        passed[name] = given.partition("=")[2] if kind else given
    return passed


def _call(kernel: KernelText, shape: _Shape, own: _Shape, own_kernel: KernelText) -> Call:
    """The launch of `kernel` in place of `own_kernel`, for which it is written, too."""
    own_name = dict(zip(shape.order, own.order, strict=True))
    given = _arguments(own_kernel)
    arguments = []
    for declared, _ in kernel.parameters:
        name, _, kind = declared.partition(":")
        value = given[own_name[name]]
        arguments.append(f"{name}={value}" if kind else value)
    return Call(kernel.name, tuple(arguments))


def _lines_of(statement: ast.stmt) -> range:
    """The lines of a simple statement, or of the head of a compound one."""
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(end, statement.lineno) + 1)


def write_once(kernels: Sequence[KernelText]) -> Written:
    """Write each kernel that is like none before it, and the launches of all."""
    shapes: dict[str, tuple[KernelText, _Shape, dict[int, tuple[int, ...]]]] = {}
    calls = []
    for kernel in kernels:
        own = _shape(kernel)
        if own.key not in shapes:
            shapes[own.key] = kernel, own, dict(kernel.origins)
            calls.append(Call(kernel.name, tuple(passed for _, passed in kernel.parameters)))
            continue
        first, shape, origins = shapes[own.key]
        calls.append(_call(first, shape, own, kernel))
        for mine, its in zip(own.statements, shape.statements, strict=True):
            if more := kernel.origins.get(mine.lineno):
                for line in _lines_of(its):
                    origins[line] = tuple(sorted({*origins.get(line, ()), *more}))
    launches = Counter(call.name for call in calls)
    bodies = []
    for kernel, _, origins in shapes.values():
        lines, found = kernel.lines, origins
        if launches[kernel.name] > 1:
            lines = (
                f"# Launched {launches[kernel.name]} times, each with its own arguments.",
                *lines,
            )
            found = {line + 1: numbers for line, numbers in origins.items()}
        bodies.append((lines, found))
    return Written(tuple(bodies), tuple(calls))
