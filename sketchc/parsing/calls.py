"""Substitution of a call's arguments for the names of the called sketch, in a program."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.parsing import syntax
from sketchc.parsing.unparse import expression_text

_Node = TypeVar("_Node")


@records.frozen
class Argument:
    """A tensor argument of a call: the name of a tensor, a buffer or a view; the tensor itself, or
    the view's base; the indices at its first axes; and the extents of the other axes."""

    name: str
    tensor: syntax.TensorDeclaration
    indices: tuple[syntax.Expression, ...]
    extents: tuple[syntax.Extent, ...]
    span: Span


#: What stands for a name of the called sketch; False for a tensor that is not there.
Replacement: TypeAlias = syntax.Expression | Argument | bool


def free(wanted: str, taken: Container[str]) -> str:
    """`wanted`, or the first of `wanted_2`, `wanted_3` and so on that is not `taken`."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


def role_of(sketch: syntax.Sketch, tensor: syntax.TensorDeclaration) -> str:
    """The declared role of a tensor; without one, "out" if the sketch writes it, else "in"."""
    if tensor.role is not None:
        return tensor.role
    views = {view.name for view in syntax.declared(sketch, "views") if view.base == tensor.name}
    for statement in syntax.statements(sketch.body):
        if isinstance(statement, syntax.Transfer) and statement.operation != "load":
            base = statement.access.base
            if isinstance(base, syntax.Name) and base.id in {tensor.name, *views}:
                return "out"
    return "in"


def split(
    sketch: syntax.Sketch,
) -> tuple[list[syntax.TensorDeclaration], list[syntax.TensorDeclaration]]:
    """The tensors that stand before the arrow of a call, and those behind it."""
    tensors = list(syntax.declared(sketch, "tensors"))
    inputs = [tensor for tensor in tensors if role_of(sketch, tensor) == "in"]
    return inputs, [tensor for tensor in tensors if tensor not in inputs]


def local_names(body: Iterable[syntax.Statement]) -> Iterator[str]:
    """The names that the statements of `body` make, those in its blocks included."""
    for statement in syntax.statements(body):
        match statement:
            case syntax.Alloc(name=name) | syntax.Fetch(name=name):
                yield name
            case syntax.Binding(names=names):
                yield from (name.id for name in names)
            case syntax.For(variable=variable):
                yield variable.id


def literal(node: syntax.Expression | None) -> int | float | bool | None:
    """The value of a literal, perhaps with a sign; None for any other expression."""
    match node:
        case syntax.Number(value=value) | syntax.Boolean(value=value):
            return value
        case syntax.Unary(operator="-" | "+" as sign, operand=syntax.Number(value=value)):
            return -value if sign == "-" else value
        case _:
            return None


def type_of(default: int | float | bool | None) -> DType:
    """The type of a param without a declared type, by its default."""
    if isinstance(default, float):
        return DType.F32
    return DType.BOOL if isinstance(default, bool) else DType.I64


def numeral(value: int | float, span: Span) -> syntax.Expression:
    """The expression of a number: a literal, behind a `-` where it is negative."""
    number = syntax.Number(abs(value), repr(abs(value)), span=span)
    return syntax.Unary("-", number, span=span) if value < 0 else number


# ---------------------------------------------------------------- names for names


def replaced(node: _Node, names: Mapping[str, Replacement]) -> _Node:
    """A node, or a tuple of nodes, with names replaced as `names` says. Statements are new nodes
    in any case: facts that are kept by node are then kept for each call."""
    made: Any = _replaced(node, names)
    return made  # type: ignore[no-any-return]


def _replaced(node: Any, names: Mapping[str, Replacement]) -> Any:
    match node:
        case tuple():
            return tuple(_replaced(each, names) for each in node)
        case syntax.Name(id=name):
            return _name(node, names)
        case syntax.Subscript(base=syntax.Name(id=name)) if isinstance(
            argument := names.get(name), Argument
        ):
            subscripts = (*argument.indices, *_replaced(node.subscripts, names))
            base = syntax.Name(argument.name, span=node.base.span)
            return records.evolve(node, base=base, subscripts=subscripts)
        case syntax.Call(function="present", arguments=(syntax.Name(id=name),)):
            return _present(node, names.get(name))
        case syntax.Binary(operator="and" | "or" as operator):
            left, right = _replaced(node.left, names), _replaced(node.right, names)
            for side, other in ((left, right), (right, left)):
                if isinstance(side, syntax.Boolean):
                    return side if side.value == (operator == "or") else other
            return records.evolve(node, left=left, right=right)
        case syntax.Unary(operator="not"):
            operand = _replaced(node.operand, names)
            if isinstance(operand, syntax.Boolean):
                return syntax.Boolean(not operand.value, span=node.span)
            return records.evolve(node, operand=operand)
        case syntax.If():
            return _branch(node, names)
        case syntax.Alloc() | syntax.Fetch():
            changed = _fields(node, names)
            new = names.get(node.name)
            name = new.id if isinstance(new, syntax.Name) else node.name
            return records.evolve(changed, name=name)
        case Span() | None:
            return node
        case _:
            return _fields(node, names) if records.has(type(node)) else node


def _fields(node: Any, names: Mapping[str, Replacement]) -> Any:
    changes = {}
    for field in records.fields(type(node)):
        value = getattr(node, field.name)
        if not isinstance(value, Span):
            changes[field.name] = _replaced(value, names)
    return records.evolve(node, **changes)


def _name(node: syntax.Name, names: Mapping[str, Replacement]) -> syntax.Expression:
    match names.get(node.id):
        case Argument(name=name):
            return syntax.Name(name, span=node.span)
        case None | bool():
            return node
        case other:
            # Seen where the sketch has the name, whose text it stands for.
            return records.evolve(other, span=node.span)


def _present(node: syntax.Call, argument: Replacement | None) -> syntax.Expression:
    """`present(...)` with its argument replaced: True or False, unless the argument is an optional
    tensor of the program."""
    if isinstance(argument, Argument) and argument.tensor.optional:
        name = syntax.Name(argument.name, span=node.span)
        return records.evolve(node, arguments=(name,))
    return syntax.Boolean(isinstance(argument, Argument), span=node.span)


def _branch(node: syntax.If, names: Mapping[str, Replacement]) -> syntax.If:
    """A branch with names replaced; one whose condition the call decides keeps only the side that
    is taken."""
    condition = _replaced(node.condition, names)
    if not isinstance(condition, syntax.Boolean) or condition == node.condition:
        body, orelse = _replaced(node.body, names), _replaced(node.orelse, names)
        return records.evolve(node, condition=condition, body=body, orelse=orelse)
    taken = node.body if condition.value else node.orelse
    rest = _replaced(taken, names) or (syntax.Pass(span=node.span),)
    holds = syntax.Boolean(True, span=condition.span)
    return records.evolve(node, condition=holds, body=rest, orelse=())


# ---------------------------------------------------------------- shapes


def difference(left: syntax.Expression, right: syntax.Expression) -> int | None:
    """`left - right` of two sizes where that is a constant, else None."""
    total = _sum(left)
    for product, factor in _sum(right).items():
        total[product] = total.get(product, 0) - factor
    rest = {product: factor for product, factor in total.items() if factor}
    constant = rest.pop((), 0)
    return None if rest else constant


def _sum(node: syntax.Expression) -> dict[tuple[str, ...], int]:
    """A size as a sum of products, each with its coefficient; any expression that is neither sum
    nor product is a factor, named by its text."""
    match node:
        case syntax.Number(value=int(value)):
            return {(): value}
        case syntax.Unary(operator="-", operand=operand):
            return {product: -factor for product, factor in _sum(operand).items()}
        case syntax.Binary(operator="+" | "-" as operator, left=left, right=right):
            total = _sum(left)
            for product, factor in _sum(right).items():
                total[product] = total.get(product, 0) + (factor if operator == "+" else -factor)
            return total
        case syntax.Binary(operator="*", left=left, right=right):
            made: dict[tuple[str, ...], int] = {}
            for one, factor in _sum(left).items():
                for other, times in _sum(right).items():
                    product = tuple(sorted((*one, *other)))
                    made[product] = made.get(product, 0) + factor * times
            return made
        case _:
            return {(expression_text(node),): 1}


# ---------------------------------------------------------------- initial values

#: Elements that one iteration of a filling loop writes.
_LANES = 256
#: The names that a filling loop makes.
FILLING_NAMES = ("initial", "first", "only", *(f"row_{axis}" for axis in range(8)))


def filling(
    argument: Argument,
    extents: Sequence[syntax.Expression],
    value: syntax.Expression,
    taken: Container[str],
) -> syntax.Statement:
    """A parallel nest that gives every element of a tensor one value."""
    span = argument.span

    def name(stem: str) -> syntax.Name:
        return syntax.Name(free(stem, taken), span=span)

    lanes = syntax.Number(_LANES, str(_LANES), span=span)
    tile, last = name("initial"), name("first")
    rows = [name(f"row_{axis}") for axis in range(len(extents) - 1)]
    end = syntax.Binary("+", last, lanes, span=span)
    block = [syntax.Slice(last, end, None, span=span)] if extents else []
    access = syntax.Subscript(
        syntax.Name(argument.name, span=span), (*argument.indices, *rows, *block), span=span
    )
    one = syntax.Number(1, "1", span=span)
    body: tuple[syntax.Statement, ...] = (
        syntax.Alloc(
            tile.id,
            (lanes,) if extents else (one,),
            argument.tensor.dtype,
            value,
            (),
            span=span,
            name_span=span,
        ),
        syntax.Transfer("store", tile, access, span=span),
    )
    words = tuple(syntax.String(word, span=span) for word in ("parallel", "grididx"))
    hint = (syntax.Hint(words, span=span),)
    if not extents:
        return syntax.For(name("only"), (one,), hint, body, span=span)
    zero = syntax.Number(0, "0", span=span)
    made = syntax.For(last, (zero, extents[-1], lanes), hint, body, span=span)
    for row, extent in reversed(list(zip(rows, extents, strict=False))):
        made = syntax.For(row, (extent,), hint, (made,), span=span)
    return made
