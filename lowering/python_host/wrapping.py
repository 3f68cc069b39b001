"""Wraps long Python statements as a formatter would: at calls, then at operators."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from sketchc.lowering.precedence import PYTHON
from sketchc.lowering.source_map import TracedLines

WIDTH = 100


@attrs.define(slots=False)
class PythonLines(TracedLines):
    """Lines of Python that are being written, at an indentation."""

    indent: str = attrs.field(default="    ", kw_only=True)

    def line(self, text: str, deeper: str = "") -> None:
        """Append a statement, wrapped, at the current indentation and `deeper` behind it."""
        self.lines += statement(text, self.indent + deeper)

    def comment(self, text: str) -> None:
        """Append a comment; nothing for an empty one."""
        self.lines += comment(text, self.indent)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Lines written in this context are the body of the statement written last."""
        outer, first = self.indent, len(self.lines)
        self.indent += "    "
        yield
        while first < len(self.lines) and not self.lines[first]:
            del self.lines[first]  # no blank line right behind the header
        if all(line.lstrip().startswith("#") for line in self.lines[first:]):
            self.line("pass")
        self.indent = outer


def loaded(lines: Sequence[str]) -> set[str]:
    """The names that statements read."""
    return {name.id for name in _names(lines) if isinstance(name.ctx, ast.Load)}


def stored(lines: Sequence[str]) -> list[str]:
    """The names that statements bind, in order."""
    found = (name.id for name in _names(lines) if isinstance(name.ctx, ast.Store))
    return list(dict.fromkeys(found))


def _names(lines: Sequence[str]) -> list[ast.Name]:
    tree = ast.parse(textwrap.dedent("\n".join(lines)))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def comment(text: str, indent: str) -> list[str]:
    """A comment, wrapped to the line width."""
    room = WIDTH - len(indent) - 2
    lines: list[str] = []
    for paragraph in text.splitlines():
        lines.extend(textwrap.wrap(paragraph, room, break_long_words=False) or [""])
    return [f"{indent}# {line}".rstrip() for line in lines]


def statement(text: str, indent: str) -> list[str]:
    """The lines of a simple statement or of a compound statement's header, wrapped if too long."""
    if len(indent) + len(text) <= WIDTH:
        return [indent + text]
    header = text.endswith(":")
    match ast.parse(text + " pass" if header else text).body[0]:
        case ast.Assign(targets=[ast.Tuple() as target], value=ast.Name(name)):
            return _expression("", target, text, f" = {name}", indent)
        case ast.Assign(targets=[target], value=value):
            prefix = f"{ast.unparse(target)} = "
        case ast.Expr(value=value):
            prefix = ""
        case ast.Return(value=ast.expr() as value):
            prefix = "return "
        case ast.For(target=target, iter=value):
            prefix = f"for {ast.unparse(target)} in "
        case ast.If(test=value):
            prefix = "if "
        case _:
            return [indent + text]
    return _expression(prefix, value, text, ":" if header else "", indent)


def _expression(prefix: str, node: ast.expr, text: str, suffix: str, indent: str) -> list[str]:
    """The lines of `prefix`, expression, `suffix`, broken at the outermost call or operator."""
    flat = _source(node, text)
    if len(indent) + len(prefix) + len(flat) + len(suffix) <= WIDTH:
        return [f"{indent}{prefix}{flat}{suffix}"]
    inner = indent + "    "
    match node:
        case (
            ast.Subscript(value=ast.Call() as call)
            | ast.Call(func=ast.Attribute(value=ast.Call() as call))
        ):
            if split := _last_bracket(prefix, flat, suffix, indent):
                return split
            # Broken inside the call: what is behind it follows its closing bracket.
            behind = _source(node, text)[len(_source(call, text)) :]
            return _expression(prefix, call, text, f"{behind}{suffix}", indent)
        case ast.Call(func=function, args=args, keywords=keywords) if args or keywords:
            name = _source(function, text)
            items = [("", argument) for argument in args]
            items += [(f"{k.arg}=" if k.arg else "**", k.value) for k in keywords]
            one_line = inner + ", ".join(start + _source(value, text) for start, value in items)
            if len(one_line) <= WIDTH:
                return [f"{indent}{prefix}{name}(", one_line, f"{indent}){suffix}"]
            return _listed(f"{prefix}{name}(", items, text, f"){suffix}", indent)
        case ast.Tuple(elts=elements) if elements:
            parts = [("", element) for element in elements]
            return _listed(f"{prefix}(", parts, text, f"){suffix}", indent)
        case ast.List(elts=elements) if elements:
            parts = [("", element) for element in elements]
            return _listed(f"{prefix}[", parts, text, f"]{suffix}", indent)
        case ast.Constant(value=str(said)) if suffix == ",":
            room = WIDTH - len(indent) - len(prefix) - 4
            pieces = textwrap.wrap(said, room, drop_whitespace=False, break_on_hyphens=False)
            quoted = [f'{indent}{prefix}"{piece}"' for piece in pieces]
            return [*quoted[:-1], quoted[-1] + suffix]
        case ast.Dict(keys=keys, values=values) if keys:
            starts = ("**" if key is None else f"{_source(key, text)}: " for key in keys)
            entries = list(zip(starts, values, strict=True))
            return _listed(f"{prefix}{{", entries, text, f"}}{suffix}", indent)
        case ast.Compare(left=ast.Call() as left, comparators=[_]) if prefix.endswith(" = "):
            lines = [inner + flat]
            if len(lines[0]) > WIDTH:
                behind = flat[len(_source(left, text)) :].strip()
                lines = [*_expression("", left, text, "", inner), inner + behind]
            return [f"{indent}{prefix}(", *lines, f"{indent}){suffix}"]
        case ast.BinOp() | ast.BoolOp():
            return _chain(prefix, node, text, suffix, indent)
        case _:
            return [f"{indent}{prefix}{flat}{suffix}"]


def _listed(
    opening: str, items: list[tuple[str, ast.expr]], text: str, closing: str, indent: str
) -> list[str]:
    """A bracketed list with one item after the other, each behind its own prefix (`key=`)."""
    inner = indent + "    "
    lines = [line for start, value in items for line in _expression(start, value, text, ",", inner)]
    return [indent + opening, *lines, indent + closing]


def _chain(
    prefix: str, node: ast.BinOp | ast.BoolOp, text: str, suffix: str, indent: str
) -> list[str]:
    """A chain of operators, broken before each of them."""
    flat, inner = _source(node, text), indent + "    "
    operands = _operands(node, text)
    keyword = prefix.endswith("=") and not prefix.endswith(" = ")
    if keyword or (not prefix and suffix == ","):  # an argument: no parentheses
        first, *rest = operands
        *lines, last = [f"{indent}{prefix}{first}", *(f"{indent}{operand}" for operand in rest)]
        return [*lines, last + suffix]
    if len(operands) == 2 and (split := _last_bracket(prefix, " ".join(operands), suffix, indent)):
        return split
    parts = [flat] if len(inner) + len(flat) <= WIDTH else operands
    return [f"{indent}{prefix}(", *(inner + part for part in parts), f"{indent}){suffix}"]


def _last_bracket(prefix: str, flat: str, suffix: str, indent: str) -> list[str]:
    """An expression that ends with a bracket, broken inside of it; [] where that does not fit."""
    if flat[-1] not in ")]":
        return []
    depth = 0
    for place in range(len(flat) - 1, -1, -1):
        depth += (flat[place] in ")]") - (flat[place] in "([")
        if depth == 0:
            break
    head, inner = f"{indent}{prefix}{flat[: place + 1]}", f"{indent}    {flat[place + 1 : -1]}"
    if len(head) > WIDTH or len(inner) > WIDTH or not inner.strip():
        return []
    return [head, inner, f"{indent}{flat[-1]}{suffix}"]


def _operands(node: ast.BinOp | ast.BoolOp, text: str) -> list[str]:
    """The operands of a chain of operators of one precedence, each led by its operator."""
    match node:
        case ast.BoolOp(op=operator, values=values):
            word = "and" if isinstance(operator, ast.And) else "or"
            first, *rest = [_source(value, text) for value in values]
            return [first, *(f"{word} {value}" for value in rest)]
        case ast.BinOp(left=left, right=right):
            left_text = _source(left, text)
            symbol, right_text = _symbol(node, text), _source(right, text)
            level = PYTHON.binary_levels.get
            if (
                isinstance(left, ast.BinOp)
                and level(_symbol(left, text)) == level(symbol)
                and "("
                not in (text[_offset(text, node, end=False) : _offset(text, left, end=False)])
            ):
                return [*_operands(left, text), f"{symbol} {right_text}"]
            return [left_text, f"{symbol} {right_text}"]


def _symbol(node: ast.BinOp, text: str) -> str:
    """The operator between two operands."""
    between = text[_offset(text, node.left, end=True) : _offset(text, node.right, end=False)]
    return between.replace("(", "").replace(")", "").strip()


def _offset(text: str, node: ast.expr, *, end: bool) -> int:
    """Where a node begins or ends in one-line text, parentheses around it not counted."""
    found = node.end_col_offset if end else node.col_offset
    return found if found is not None else len(text)


def _source(node: ast.expr, text: str) -> str:
    """The text of a node, with the parentheses directly around it."""
    start, stop = _offset(text, node, end=False), _offset(text, node, end=True)
    while start > 0 and text[start - 1] == "(" and stop < len(text) and text[stop] == ")":
        before = text[start - 2] if start >= 2 else " "
        if before.isalnum() or before in "_])":
            break  # the parenthesis of a call
        start, stop = start - 1, stop + 1
    return text[start:stop]
