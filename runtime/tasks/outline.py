"""What a task's file defines, read off its text: nothing of it is run.

The framework follows from what is defined, not from a flag: a class derived from `torch.nn.Module`
or `mindspore.nn.Cell`, or the libraries that a function uses. What is called, the *subject*, is the
one that the user names, else `Model`, else the only module of the file (class or instance), else
its only public function.

Comments of the file say what a task is for: sizes, values, and what its arguments are.

    # @hint: M in [1, 4096]            a size, or the values of an argument
    # @hint: x: f32[M, N]              an argument's type and shape

A name that is an argument of the task restricts its values; any other name is a size. docs/TASKS.md
has every form.
"""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from sketchc.base.types import DType
from sketchc.runtime.tasks.description import HintError, Scalar, fail
from sketchc.runtime.tasks.input_lists import LIST_MAKERS, OWN_MAKER

_POWERS = (0, 20)
_FORMS = (
    "write `M in [1, 4096]` (both ends belong to it), `x in [0, 1)`, `M in [64, 128, 256]` (a "
    "choice), `M in range(16, 1024, step=16)`, `M in pow2(3, 12)`, `M = 64`, `x > 0`, or "
    "`x: f32[M, N]` for an argument's type and shape"
)


@attrs.frozen
class Domain:
    """The numbers that a size or an input may have: `choices`, or those from `lower` to `upper`.

    `open_lower` and `open_upper` leave the end itself out. Whole numbers go in steps of `step`.
    """

    lower: float = -math.inf
    upper: float = math.inf
    open_lower: bool = False
    open_upper: bool = False
    step: int = 1
    choices: tuple[float, ...] = ()

    def holds(self, value: float) -> bool:
        """Whether a number is in the domain; NaN never is."""
        if self.choices:
            return value in self.choices
        above = value > self.lower if self.open_lower else value >= self.lower
        below = value < self.upper if self.open_upper else value <= self.upper
        aligned = self.step == 1 or (value - self.lower) % self.step == 0
        return above and below and aligned

    @property
    def integer_range(self) -> tuple[int, int]:
        """The least and the greatest whole number (at least 1, at most 2^40, for sizes)."""
        if self.choices:
            return int(min(self.choices)), int(max(self.choices))
        low, high = _whole(self.lower, math.ceil, 1), _whole(self.upper, math.floor, 1 << 40)
        low += self.open_lower and low == self.lower
        high -= self.open_upper and high == self.upper
        return low, high - (high - low) % self.step

    def at_least(self, size: int) -> int | None:
        """The smallest size in the domain that is not below `size`; None for none."""
        if self.choices:
            return min((int(c) for c in self.choices if c >= size), default=None)
        low, high = self.integer_range
        found = low + max(0, math.ceil((size - low) / self.step)) * self.step
        return found if found <= high else None

    def at_most(self, size: int) -> int | None:
        """The largest size in the domain that is not above `size`; None for none."""
        if self.choices:
            return max((int(c) for c in self.choices if c <= size), default=None)
        low, high = self.integer_range
        found = low + (min(size, high) - low) // self.step * self.step
        return found if found >= low else None

    def near(self, size: int) -> int:
        """`size`, or the next larger size in the domain; its largest where there is none."""
        found = self.at_least(size)
        found = self.at_most(size) if found is None else found
        assert found is not None, "a domain of sizes is never empty"
        return found


def _whole(value: float, rounded: Callable[[float], int], otherwise: int) -> int:
    return rounded(value) if math.isfinite(value) else otherwise


@attrs.frozen
class Declared:
    """An argument's type: a tensor of these extents (names or numbers), or a number (None)."""

    dtype: DType
    extents: tuple[str | int, ...] | None


@attrs.frozen
class Hint:
    """One hint on `name`: its line in the file (0: it is none of the file's), its text, and what it
    allows or declares."""

    name: str
    line: int
    text: str
    domain: Domain | None = None
    declared: Declared | None = None


def read_hints(source: str, where: str) -> tuple[Hint, ...]:
    """All hints of a file, in order. Raises `HintError` with the line of a malformed one."""
    found: list[Hint] = []
    for line, comment in _comments(source):
        for text in _texts(comment):
            hint = _parse(text, line)
            if hint is None:
                raise HintError(f"{where}, line {line}: the hint `{text}` cannot be read; {_FORMS}")
            found.append(hint)
    return tuple(found)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    # whoever runs the file says what is wrong with it
    with suppress(tokenize.TokenError, SyntaxError, IndentationError):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


_HINT = re.compile(r"#\s*@hint\s*:?\s*(.*)$")
_OLD = re.compile(r"#\s*@(range|elemwise|elem)_hint\s*\(\s*[\"'](\w+)[\"']\s*,(.*)\)\s*$")


def _texts(comment: str) -> list[str]:
    """The texts of a comment's hints; the older forms are made into the newer ones."""
    if old := _OLD.match(comment):
        kind, name, rest = old.groups()
        if kind != "range":
            return [f"{name} in {rest.strip()}"]
        ends = re.findall(r"(?:\w+\s*=\s*)?(-?\d+)", rest)
        return [f"{name} in [{ends[0]}, {ends[1]}]" if len(ends) == 2 else f"{name} in {rest}"]
    if found := _HINT.match(comment):
        return [text.strip() for text in found.group(1).split(";")]
    return []


_NUMBER = r"[+-]?(?:inf|\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)"
_PATTERNS = {
    "interval": re.compile(rf"(\w+) in ([\[(])\s*({_NUMBER})\s*,\s*({_NUMBER})\s*([\])])"),
    "choice": re.compile(r"(\w+) in [\[{](.*)[\]}]"),
    "range": re.compile(
        r"(\w+) in range\(\s*(\d+)\s*,\s*(\d+)\s*(?:,\s*(?:step\s*=\s*)?(\d+)\s*)?\)"
    ),
    "powers": re.compile(r"(\w+) in pow2\(\s*(\d+)\s*,\s*(\d+)\s*\)"),
    "any power": re.compile(r"(\w+) in pow of 2"),
    "fixed": re.compile(rf"(\w+) ==? ({_NUMBER})"),
    "compared": re.compile(rf"(\w+) (<=|>=|<|>) ({_NUMBER})"),
}


def _parse(text: str, line: int) -> Hint | None:
    plain = re.sub(r"\s*(<=|>=|==|=|<|>)\s*", r" \1 ", re.sub(r"\s+", " ", text)).strip()
    plain = re.sub(r"step = ", "step=", plain)
    if ":" in plain:
        name, _, rest = plain.partition(":")
        declared = parse_declared(rest.strip())
        if declared is None or not name.strip().isidentifier():
            return None
        return Hint(name.strip(), line, text, declared=declared)
    for kind, pattern in _PATTERNS.items():
        if found := pattern.fullmatch(plain):
            domain = _domain(kind, found.groups()[1:])
            if domain is None or not found.group(1).isidentifier():
                return None
            return Hint(found.group(1), line, text, domain)
    return None


def _domain(kind: str, groups: tuple[str, ...]) -> Domain | None:
    """The domain of a hint of one kind (see `_PATTERNS`); None for one without any number."""
    match kind:
        case "interval":
            opening, lower, upper, closing = groups
            domain = Domain(float(lower), float(upper), opening == "(", closing == ")")
            hollow = domain.open_lower or domain.open_upper
            ordered = domain.lower < domain.upper or (domain.lower == domain.upper and not hollow)
            return domain if ordered else None
        case "choice":
            return _choices(groups[0])
        case "range":
            start, stop, step = int(groups[0]), int(groups[1]), int(groups[2] or 1)
            if step < 1 or stop <= start:
                return None
            return Domain(start, start + (stop - 1 - start) // step * step, step=step)
        case "powers" | "any power":
            low, high = (int(groups[0]), int(groups[1])) if groups else _POWERS
            powers = tuple(2.0**power for power in range(low, min(high, 40) + 1))
            return Domain(choices=powers) if powers else None
        case "fixed":
            return Domain(choices=(float(groups[0]),))
        case _:
            sign, end = groups[0], float(groups[1])
            if sign in ("<", "<="):
                return Domain(upper=end, open_upper=sign == "<")
            return Domain(lower=end, open_lower=sign == ">")


def _choices(text: str) -> Domain | None:
    try:
        values = ast.literal_eval(f"[{text}]")
    except (ValueError, SyntaxError):
        return None
    if not values or not all(isinstance(value, int | float) for value in values):
        return None
    return Domain(choices=tuple(float(value) for value in values))


_DTYPES = {name: dtype for dtype in DType for name in (dtype.value, dtype.numpy_name)} | {
    "float": DType.F64,
    "int": DType.I64,
}


def parse_declared(text: str) -> Declared | None:
    """The type in `f32[M, 4]`, `float32[N]`, `i32[]` or `float`; None for other text."""
    found = re.fullmatch(r"([a-z]\w*)\s*(?:\[([\w\s,]*)\])?", text.strip())
    if found is None or found.group(1) not in _DTYPES:
        return None
    dtype, inner = _DTYPES[found.group(1)], found.group(2)
    if inner is None:
        return Declared(dtype, None)
    parts = [part.strip() for part in inner.split(",") if part.strip()]
    if not all(part.isdigit() or part.isidentifier() for part in parts):
        return None
    return Declared(dtype, tuple(int(part) if part.isdigit() else part for part in parts))


#: In the order of preference, where a file imports several and nothing else decides.
FRAMEWORKS = ("torch", "mindspore", "numpy")
#: Functions that describe a task and are never the task itself.
_INPUT_MAKERS = frozenset({OWN_MAKER, *LIST_MAKERS})
MAKERS = _INPUT_MAKERS | {"get_init_inputs", "valid_inputs"}
#: The method that is run, by framework.
METHODS = {"torch": ("forward",), "mindspore": ("construct",), "numpy": ("__call__", "forward")}
#: Bases of bases are followed so far: a class may be its own base in a broken file.
_DEEPEST = 20
#: Classes of frameworks that are no modules.
_NO_MODULES = frozenset({"Function", "Enum", "Dataset"})

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Parameter:
    """One argument of the subject; `default` is there only where the text shows a number or None
    (`has_default` says whether there is any)."""

    name: str
    declared: Declared | None = None
    default: Scalar | None = None
    has_default: bool = False


@attrs.frozen
class Outline:
    """A task's file before it is run.

    `kind` is "class", "instance" or "function"; `parameters` are those of the function or of the
    class's method, keyword-only ones last, and empty where the text does not show them.
    """

    path: Path
    framework: str
    subject: str
    kind: str
    parameters: tuple[Parameter, ...]
    makes_inputs: bool
    hints: tuple[Hint, ...]

    @property
    def domains(self) -> dict[str, Domain]:
        """The domains that hints give for sizes and arguments, by name."""
        return {hint.name: hint.domain for hint in self.hints if hint.domain is not None}


def read_outline(path: Path, subject: str = "") -> Outline:
    """The outline of a file. Raises `TaskFailure` for no Python, and without one clear subject."""
    if not path.is_file():
        fail(f"there is no task file {path}")
    try:
        source = path.read_text("utf-8")
        tree = ast.parse(source)
    except UnicodeDecodeError as error:
        fail(f"{path}: it is not UTF-8 text", error)
    except SyntaxError as error:
        text = f": {error.text.strip()}" if error.text else ""
        fail(
            f"{path}: loading the file raised {type(error).__name__}: {error.msg} "
            f"(line {error.lineno}{text})",
            error,
        )
    except (ValueError, RecursionError, MemoryError) as error:
        fail(f"{path}: it is not Python: {error}", error)
    file = _File(path, tree, source)
    return file.outline(subject)


@attrs.define
class _File:
    """The top level of one file."""

    path: Path
    tree: ast.Module
    source: str
    #: name in the file -> the dotted name that it was imported as
    imported: dict[str, str] = attrs.field(init=False, factory=dict)
    definitions: dict[str, Definition] = attrs.field(init=False, factory=dict)
    values: dict[str, ast.expr] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        for node in ast.walk(self.tree):
            match node:
                case ast.Import():
                    for alias in node.names:
                        name = alias.name if alias.asname else alias.name.partition(".")[0]
                        self.imported[alias.asname or name] = name
                case ast.ImportFrom(module=str(module), level=0):
                    for alias in node.names:
                        self.imported[alias.asname or alias.name] = f"{module}.{alias.name}"
        for node in _top_level(self.tree.body):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.definitions[node.name] = node
                case ast.Assign([ast.Name(name)], value):
                    self.values[name] = value
                case ast.AnnAssign(ast.Name(name), value=ast.expr() as value):
                    self.values[name] = value

    # ------------------------------------------------------------ the subject

    def outline(self, wanted: str) -> Outline:
        name = wanted or self._subject()
        if wanted and wanted not in self._names():
            known = [*self._classes(), *self._instances(), *self._functions()]
            listed = ", ".join(known) or "nothing that could be a task"
            fail(f"{self.path} defines no `{wanted}`; it defines {listed}")
        node = self.definitions.get(name)
        kind = "instance"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "function"
        elif isinstance(node, ast.ClassDef) or (name in self.imported or name == "Model"):
            kind = "class"
        framework = self._framework(name)
        hints = self._hints(name)
        parameters = tuple(self._parameters(node, framework, hints))
        # What the text does not show, `from elsewhere import *` may define.
        makes = name not in self._names() or bool(self._names() & _INPUT_MAKERS)
        return Outline(self.path, framework, name, kind, parameters, makes, hints)

    def _names(self) -> set[str]:
        return {*self.definitions, *self.values, *self.imported}

    def _subject(self) -> str:
        """The name of the subject. Raises `TaskFailure` where several are possible."""
        if "Model" in self._names():
            return "Model"
        classes = [name for name in self._classes() if not name.startswith("_")]
        instances = [name for name in self._instances() if not name.startswith("_")]
        if "get_init_inputs" not in self.definitions and len(instances) == 1:
            return instances[0]
        for found, what in ((classes or instances, "modules"), (self._functions(), "functions")):
            if len(found) == 1:
                return found[0]
            if found:
                fail(
                    f"{self.path} defines several {what} ({', '.join(found)}): say which is the "
                    f"task, as {self.path.name}:{found[0]}"
                )
        return "Model"  # running the file may show why there is none

    def _functions(self) -> list[str]:
        return [
            name
            for name, node in self.definitions.items()
            if isinstance(node, ast.FunctionDef) and name not in MAKERS and name[0] != "_"
        ]

    def _classes(self) -> list[str]:
        """The classes that are modules and that no other module of the file is made of."""
        modules = {
            name: node
            for name, node in self.definitions.items()
            if isinstance(node, ast.ClassDef) and self._is_module(node)
        }
        parts = {
            inner.id
            for name, node in modules.items()
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and inner.id in modules and inner.id != name
        }
        return [name for name in modules if name not in parts]

    def _is_module(self, node: ast.ClassDef) -> bool:
        if self._base_framework(node):
            return True
        methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        return "numpy" in self._imported_frameworks() and "__call__" in methods

    def _instances(self) -> list[str]:
        """Names at the top that are bound to a module: a call of a class of this file, or of one
        of a framework's own."""
        found = []
        for name, value in self.values.items():
            if not isinstance(value, ast.Call):
                continue
            called = self._dotted(value.func)
            own = self.definitions.get(called)
            made_here = isinstance(own, ast.ClassDef) and self._is_module(own)
            if made_here or re.match(r"(torch|mindspore)\.nn\.[A-Z]", called):
                found.append(name)
        return found

    # ------------------------------------------------------------ the framework

    def _dotted(self, node: ast.expr) -> str:
        """`nn.Module` as `torch.nn.Module`; "" for what is no dotted name."""
        match node:
            case ast.Name(name):
                return self.imported.get(name, name)
            case ast.Attribute(value, name):
                owner = self._dotted(value)
                return f"{owner}.{name}" if owner else ""
            case _:
                return ""

    def _base_framework(self, node: ast.ClassDef, depth: int = 0) -> str:
        for base in node.bases:
            dotted = self._dotted(base)
            root, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
            if root in ("torch", "mindspore") and last not in _NO_MODULES:
                return root
            own = self.definitions.get(dotted)
            if isinstance(own, ast.ClassDef) and depth < _DEEPEST:
                inherited = self._base_framework(own, depth + 1)
                if inherited:
                    return inherited
        return ""

    def _imported_frameworks(self) -> set[str]:
        return {name.partition(".")[0] for name in self.imported.values()} & set(FRAMEWORKS)

    def _framework(self, subject: str) -> str:
        node, value = self.definitions.get(subject), self.values.get(subject)
        if isinstance(node, ast.ClassDef) and (found := self._base_framework(node)):
            return found
        if isinstance(value, ast.Call):
            called = self._dotted(value.func)
            if called.partition(".")[0] in FRAMEWORKS:
                return called.partition(".")[0]
            own = self.definitions.get(called)
            if isinstance(own, ast.ClassDef) and (found := self._base_framework(own)):
                return found
        used = self._used(node) or self._imported_frameworks()
        return next((name for name in FRAMEWORKS if name in used), "torch")

    def _used(self, node: ast.AST | None, seen: frozenset[str] = frozenset()) -> set[str]:
        """The frameworks that a definition names, with those of the functions that it uses."""
        found: set[str] = set()
        for inner in ast.walk(node) if node is not None else ():
            if not isinstance(inner, ast.Name):
                continue
            root = self.imported.get(inner.id, "").partition(".")[0]
            if root in FRAMEWORKS:
                found.add(root)
            elif inner.id in self.definitions and inner.id not in seen:
                found |= self._used(self.definitions[inner.id], seen | {inner.id})
        return found

    # ------------------------------------------------------------ hints and parameters

    def _hints(self, subject: str) -> tuple[Hint, ...]:
        """The file's hints without those that stand in, or right above, another candidate.

        Raises `TaskFailure` where two speak of the same name.
        """
        others = [
            self._lines(node)
            for name, node in self.definitions.items()
            if name != subject and name in {*self._functions(), *self._classes()}
        ]
        found: dict[tuple[str, bool], Hint] = {}
        for hint in read_hints(self.source, str(self.path)):
            if any(hint.line in lines for lines in others):
                continue
            key = hint.name, hint.declared is None
            if key in found:
                fail(
                    f"{self.path}, line {hint.line}: the hint `{hint.text}` speaks of "
                    f"{hint.name} again, after line {found[key].line}; write one hint for it"
                )
            found[key] = hint
        return tuple(found.values())

    def _lines(self, node: Definition) -> range:
        """The lines of a definition and of the comments right above it."""
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        lines = self.source.splitlines()
        while first > 1 and lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return range(first, (node.end_lineno or node.lineno) + 1)

    def _parameters(
        self, node: Definition | None, framework: str, hints: tuple[Hint, ...]
    ) -> Iterator[Parameter]:
        declared = {hint.name: hint.declared for hint in hints if hint.declared is not None}
        method = isinstance(node, ast.ClassDef)
        if isinstance(node, ast.ClassDef):
            methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
            node = next((methods[n] for n in METHODS[framework] if n in methods), None)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        given = node.args
        plain = [*given.posonlyargs, *given.args]
        missing = len(plain) - len(given.defaults)
        pairs: list[tuple[ast.arg, ast.expr | None]] = [
            (argument, given.defaults[place - missing] if place >= missing else None)
            for place, argument in enumerate(plain)
        ]
        pairs = pairs[1:] if method else pairs
        for argument, default in [*pairs, *zip(given.kwonlyargs, given.kw_defaults, strict=True)]:
            yield Parameter(
                argument.arg,
                declared.get(argument.arg) or _annotated(argument.annotation),
                _constant(default),
                default is not None,
            )


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of the file's top level, those under `if` and `try` included."""
    for node in body:
        yield node
        match node:
            case ast.If():
                yield from _top_level([*node.body, *node.orelse])
            case ast.Try():
                handled = [inner for handler in node.handlers for inner in handler.body]
                yield from _top_level([*node.body, *handled, *node.orelse, *node.finalbody])


def _annotated(annotation: ast.expr | None) -> Declared | None:
    """An annotation such as `"f32[M, N]"` (text), `float`, `int` or `bool`."""
    match annotation:
        case ast.Constant(str(text)):
            return parse_declared(text)
        case ast.Name("float" | "int" | "bool" as name):
            return parse_declared(name)
        case _:
            return None


def _constant(node: ast.expr | None) -> Scalar | None:
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return None
    return value if isinstance(value, bool | int | float) else None


def modules_beside(path: Path, largest: float = math.inf) -> list[Path]:
    """The files beside a task's that it imports by absolute names, of at most `largest` bytes, and
    those that these import. Raises `OSError`."""
    found = [path]
    for file in found:  # which grows
        try:
            tree = ast.parse(file.read_text("utf-8"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            names: list[str] = []
            match node:
                case ast.Import():
                    names = [alias.name for alias in node.names]
                case ast.ImportFrom(module=str(module), level=0):
                    names = [module]
            for name in names:
                module_file = path.parent / f"{name.partition('.')[0]}.py"
                if (
                    module_file.name not in {one.name for one in found}
                    and module_file.is_file()
                    and module_file.stat().st_size <= largest
                ):
                    found.append(module_file)
    return found[1:]
