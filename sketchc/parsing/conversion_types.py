"""Parts of declarations on their way to syntax nodes: types, roles, tuples, tuning blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.base.types import SPELLINGS, DType
from sketchc.parsing import syntax
from sketchc.parsing.errors import Problem

if TYPE_CHECKING:
    from sketchc.parsing.conversion import Converter

_ROLES = ("in", "out", "inout")
_ROLE_ALIASES = {
    "input": "in",
    "inputs": "in",
    "const": "in",
    "read": "in",
    "output": "out",
    "outputs": "out",
    "result": "out",
    "write": "out",
    "in_out": "inout",
    "input_output": "inout",
    "readwrite": "inout",
}
_DTYPES = {dtype.value: dtype for dtype in DType}


@records.frozen
class Tiling:
    """An `available_tiling` block before it joins its sketch."""

    points: tuple[syntax.TilingPoint, ...]
    misspelt: bool
    span: Span


@records.frozen
class TupleValue:
    """A bare value in a `constexpr` section: one of `128, 256` behind `m0, k0 =`."""

    value: syntax.Expression
    span: Span


@records.frozen
class Type:
    """`in f32?`: a role, an element type, and whether the tensor may be absent."""

    role: str | None
    dtype: DType
    optional: bool
    dtype_span: Span
    span: Span

    @staticmethod
    def read(converter: Converter, children: list[Any]) -> Type:
        """The type written by two words at most and a `?`."""
        words = [child for child in children if child.type != "?"]
        role = None
        if len(words) == 2:
            role = words[0].text
            if role not in _ROLES:
                span = converter.span_of(words[0])
                meant = _ROLE_ALIASES.get(role.lower())
                known = _ROLES if meant is None else (meant,)
                advice = converter.misspelt(role, known, span, sure=meant is not None)
                problem = Problem("SK0119", f"`{role}` is no role of a tensor", **advice)
                converter.report(problem, span)
                role = None
        elif words[0].text in _ROLES:
            problem = Problem(
                "SK0119",
                "a tensor needs its element type",
                label="a role without a type",
                help=f"write `{words[0].text} f32`",
            )
            converter.report(problem, converter.span_of(words[0]))
            return Type(None, DType.F32, False, converter.span(children), converter.span(children))
        dtype = read_dtype(converter, words[-1]) or DType.F32
        optional = children[-1].type == "?"
        return Type(role, dtype, optional, converter.span_of(words[-1]), converter.span(children))


def read_dtype(converter: Converter, token: Any) -> DType | None:
    """The element type that a NAME token (or a syntax.Name) spells; None, reported, if it is none.

    A missing token gives None.
    """
    if token is None:
        return None
    word = token.id if isinstance(token, syntax.Name) else token.text
    dtype = _DTYPES.get(word)
    if dtype is None:
        span = converter.span_of(token)
        meant = SPELLINGS.get(word.lower())
        if meant is not None and meant.value != word.lower():
            known: tuple[str, ...] = (meant.value,)
            fixes = _fix(span, known[0], safe=word[-1].isdigit())
            advice = {"help": f"write `{known[0]}`", "fixes": fixes}
        else:
            advice = converter.misspelt(word, tuple(_DTYPES), span)
        problem = Problem("SK0119", f"`{word}` is no element type", label="unknown type", **advice)
        converter.report(problem, span)
    return dtype


def _fix(span: Span, text: str, safe: bool) -> Any:
    """`float32` says its width; `float` is another one in NumPy than in PyTorch."""
    from sketchc.parsing.errors import replace

    return replace(f"write `{text}`", span, text, safe)
