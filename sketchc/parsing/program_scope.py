"""The declarations of a program: the names that its text may use, and their kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Span, error
from sketchc.base.types import DType
from sketchc.ops.host_functions import HOST_FUNCTIONS
from sketchc.parsing import syntax
from sketchc.parsing.calls import literal, type_of
from sketchc.parsing.errors import guess

_COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!=", "and", "or"))


@records.define(eq=False)
class Scope:
    """The names of a program: `kinds` has the types of its numbers (of loop variables only inside
    their loop), `outputs` the tensors that its calls write."""

    program: syntax.Program
    kinds: dict[str, DType] = records.field(factory=dict)
    constants: set[str] = records.field(factory=set)
    tensors: dict[str, syntax.TensorDeclaration] = records.field(factory=dict)
    views: dict[str, syntax.ViewDeclaration] = records.field(factory=dict)
    buffers: set[str] = records.field(factory=set)
    outputs: frozenset[str] = frozenset()
    diagnostics: list[Diagnostic] = records.field(factory=list)

    def read(self) -> None:
        """Enter the declarations of the program, and report unknown names that they use."""
        lets = []
        for section in self.program.sections:
            for item in section.items:
                match item:
                    case syntax.SymbolDeclaration():
                        self.kinds[item.name] = DType.I64
                    case syntax.ParamDeclaration():
                        self.kinds[item.name] = item.dtype or type_of(literal(item.default))
                    case syntax.ConstexprDeclaration():
                        self.kinds[item.name] = item.dtype or self.kind(item.value) or DType.I64
                        self.constants.add(item.name)
                    case syntax.LetDeclaration():
                        lets.append(item)
                    case syntax.TensorDeclaration():
                        self.tensors.setdefault(item.name, item)
                    case syntax.ViewDeclaration():
                        self.views.setdefault(item.name, item)
            if section.keyword == "buffers":
                self._buffers(section)
        for let in lets:
            self.kinds[let.name] = self.kind(let.value) or DType.F64
        self.outputs = frozenset(written(self.program.body))
        for section in self.program.sections:
            for item in section.items:
                if isinstance(item, syntax.ViewDeclaration):
                    self._view(item)
                self.names_known(item)

    def _buffers(self, section: syntax.Section) -> None:
        self.buffers |= {item.name for item in section.items}
        for item in section.items:
            if item.role is not None or item.optional:
                self.error(
                    item.dtype_span,
                    "SK0140",
                    f"the buffer `{item.name}` is the program's own",
                    "a role",
                    help=f"write `{item.dtype.value}` alone; what the caller gives are `tensors:`",
                )

    def _view(self, view: syntax.ViewDeclaration) -> None:
        if view.base in self.tensors:
            return
        known = view.base in self.views
        told = f"`{view.base}` is a view" if known else f"unknown name `{view.base}`"
        self.error(view.base_span, "SK0201", told, "views look at tensors and buffers")
        self.views.pop(view.name)

    def error(
        self, span: Span, code: str, message: str, label: str = "", *, help: str = ""
    ) -> None:
        """Report an error."""
        self.diagnostics.append(error(span, code, message, label, help=help))

    def role(self, tensor: syntax.TensorDeclaration) -> str:
        """The role of a tensor, inferred from the calls where it is not declared; buffers are
        outputs."""
        if tensor.name in self.buffers:
            return "out"
        return tensor.role or ("out" if tensor.name in self.outputs else "in")

    # ------------------------------------------------------------ expressions

    def names_known(self, node: object) -> bool:
        """Whether the program declares all numbers that a node names; others are reported. Names
        that only the called sketches declare do not count."""
        wrong = [name for name in _numbers(node) if name.id not in self.kinds]
        for name in wrong:
            otherwise = "not declared by the program"
            label, fixes = guess("use", name.id, self.kinds, name.span, otherwise)
            message = f"unknown name `{name.id}`"
            self.diagnostics.append(error(name.span, "SK0201", message, label, fixes=fixes))
        return not wrong

    def kind(self, node: syntax.Expression | None) -> DType | None:
        """The type of a scalar host expression: for a bare name its declared type, else i64, f64 or
        bool; None for an expression that is no number."""
        match node:
            case syntax.Name(id=name):
                return self.kinds.get(name)
            case syntax.Number(value=value):
                return DType.F64 if isinstance(value, float) else DType.I64
            case syntax.Boolean() | syntax.Unary(operator="not"):
                return DType.BOOL
            case syntax.Unary(operand=operand):
                return _joined([self.kind(operand)])
            case syntax.Binary(operator=operator, left=left, right=right):
                kinds = [self.kind(left), self.kind(right)]
                if None in kinds:
                    return None
                if operator in _COMPARISONS:
                    return DType.BOOL
                return DType.F64 if operator == "/" else _joined(kinds)
            case syntax.Choice(then=then, otherwise=otherwise):
                return _joined([self.kind(then), self.kind(otherwise)])
            case syntax.Call(function="present"):
                return DType.BOOL
            case syntax.Call(function=function) if function in HOST_FUNCTIONS:
                kinds = [self.kind(argument) for argument in node.arguments]
                joined = _joined(kinds)
                return joined and (HOST_FUNCTIONS[function].result or joined)
            case _:
                return None


def _joined(kinds: Sequence[DType | None]) -> DType | None:
    if None in kinds:
        return None
    return DType.F64 if any(kind is not None and kind.is_float for kind in kinds) else DType.I64


def _numbers(node: object) -> Iterator[syntax.Name]:
    """The names that stand for numbers: all but the tensors of `present`."""
    if isinstance(node, syntax.Name):
        yield node
    elif not (isinstance(node, syntax.Call) and node.function == "present"):
        for part in syntax.children(node):
            yield from _numbers(part)


def written(body: Sequence[syntax.Statement]) -> Iterator[str]:
    """The tensors that the calls in `body` may write: those behind arrows or given by keyword."""
    for each in syntax.statements(body):
        if isinstance(each, syntax.Invoke):
            yield from syntax.names(each.outputs)
            yield from syntax.names(tuple(keyword.value for keyword in each.keywords))
