"""How deeply choices lie within each other in printed expressions.

TileLang's simplifier puts in place of a name what it stands for, and looks at each side of a choice
under its condition: its time doubles with every choice inside another one. What lies in memory it
does not look through: `MOST` says when a value belongs there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from sketchc.lowering.python_host.library import definitions

#: Choices within each other that a name may stand for. A kernel with six took three minutes.
MOST: Final = 2
_FUNCTIONS: Final = Path(__file__).with_name("element_functions.py")
_OF_COMPILER: Final = {"Select": 1, "if_then_else": 1}


def choices(text: str, known: Mapping[str, int]) -> int:
    """How many choices lie within each other in an expression. `known`: of names, in what they
    stand for, and of functions, around their arguments."""
    return _depth(ast.parse(text, mode="eval").body, known)


@cache
def of_functions() -> Mapping[str, int]:
    """How many choices each of the functions of elements puts around its arguments."""
    found: dict[str, int] = {}
    for name, definition in definitions((_FUNCTIONS,)).items():
        known = dict(found)
        for function in ast.parse(definition.text).body:
            if isinstance(function, ast.FunctionDef):
                found[name] = _of_statements(function.body, known)
    return found


def _of_statements(statements: Iterable[ast.stmt], known: dict[str, int]) -> int:
    """The deepest of the results; what is assigned goes into `known`."""
    deepest = 0
    for statement in statements:
        match statement:
            case ast.Return(value) if value is not None:
                deepest = max(deepest, _depth(value, known))
            case ast.Assign([ast.Name(name)], value):
                known[name] = max(known.get(name, 0), _depth(value, known))
            case ast.If(body=body, orelse=orelse):
                deepest = max(deepest, _of_statements([*body, *orelse], known))
    return deepest


def _depth(node: ast.AST, known: Mapping[str, int]) -> int:
    match node:
        case ast.Name(name):
            return known.get(name, 0)
        case ast.Attribute(ast.Name("T"), name):
            return _OF_COMPILER.get(name, 0)
        case ast.Call(function, arguments):
            return _depth(function, known) + _deepest(arguments, known)
        case _:
            return _deepest(ast.iter_child_nodes(node), known)


def _deepest(nodes: Iterable[ast.AST], known: Mapping[str, int]) -> int:
    return max((_depth(node, known) for node in nodes), default=0)
