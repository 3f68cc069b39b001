"""One quick walk over a sketch before it is elaborated: facts that need the whole of it.

* In what ways each name is used: a constexpr without value is a tile size when something is shaped
  by it, a run-time parameter when it only feeds data.
* The element type of every alloc that does not state one (R6): that of the tensor first loaded into
  it, else the evaluation type of what is first written into it, else f32.

Nothing is reported here: names that resolve to nothing are left to elaboration.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from sketchc.base import records
from sketchc.base.types import DType
from sketchc.ops.host_functions import INTEGER_FUNCTIONS
from sketchc.ops.table import OPS, Result, common, result_of
from sketchc.parsing import syntax
from sketchc.parsing.data import Nature, computed_with, in_expressions, nature
from sketchc.parsing.syntax import names


class Use(Enum):
    """A way in which a name is used."""

    SHAPE = "shapes tiles, loops or slices"
    DATA = "is used as data"
    CONDITION = "decides a branch"
    PARAMETER = "stands in the shape of a parameter"
    HOST = "is used by a host value or a precondition"


@records.frozen
class Prepass:
    """What the pre-pass found. `uses` by name; `dtypes` by the `id()` of each Alloc node,
    `parallel` by that of each For and If. `read` are the names that something depends on: not names
    that only unused lets mention."""

    uses: dict[str, set[Use]]
    dtypes: dict[int, DType]
    parallel: frozenset[int]  # id() of every For and If with a parallel loop in its body
    read: frozenset[str] = frozenset()


@records.define(eq=False)
class _Tile:
    """The element type of one alloc, or of a binding that is an index tile (None: still open)."""

    dtype: DType | None
    index: bool = False


@records.frozen
class _Write:
    destination: _Tile
    operation: str
    tiles: tuple[_Tile, ...]
    scalars: tuple[DType | None, ...]


#: The last sketch with what was found: it is elaborated at one tuning point after the other.
_LAST: list[tuple[syntax.Sketch, Prepass]] = []


def prepass(tree: syntax.Sketch) -> Prepass:
    """Run the pre-pass over a sketch; never raises for a mistake in it."""
    for known, found in _LAST:
        if known is tree:
            return found
    found = _prepass(tree)
    _LAST[:] = [(tree, found)]
    return found


def _prepass(tree: syntax.Sketch) -> Prepass:
    walker = _Walker()
    walker.sections(tree)
    walker.block(tree.body)
    walker.infer()
    dtypes = {key: tile.dtype or DType.F32 for key, tile in walker.allocs.items()}
    return Prepass(walker.uses, dtypes, frozenset(walker.parallel), frozenset(walker.read))


@records.define(eq=False)
class _Walker:
    uses: dict[str, set[Use]] = records.field(factory=dict)
    tensors: dict[str, DType] = records.field(factory=dict)
    floats: set[str] = records.field(factory=set)
    scopes: list[dict[str, _Tile]] = records.field(factory=lambda: [{}])
    allocs: dict[int, _Tile] = records.field(factory=dict)
    writes: list[_Write] = records.field(factory=list)
    parallel: set[int] = records.field(factory=set)
    read: set[str] = records.field(factory=set)
    _let_names: list[tuple[str, frozenset[str]]] = records.field(factory=list)

    def use(self, node: object, kind: Use) -> None:
        """Note that a node, or each of a tuple of nodes, uses its names in the way `kind`."""
        for name in names(node):
            self.uses.setdefault(name, set()).add(kind)
            self.read.add(name)

    # ------------------------------------------------------------ declarations

    def sections(self, tree: syntax.Sketch) -> None:
        """Note what the sections declare and use."""
        for section in tree.sections:
            for item in section.items:
                self.declaration(section.keyword, item)
        for view in syntax.declared(tree, "views"):
            self.use(view.extents, Use.PARAMETER)
            if view.base in self.tensors:
                self.tensors.setdefault(view.name, self.tensors[view.base])

    def declaration(self, keyword: str, node: Any) -> None:
        """Note what an item of a section declares and uses; views are left to `sections`."""
        match node:
            case syntax.LetDeclaration(name, value):
                parts = frozenset(names(value))
                for part in parts:
                    self.uses.setdefault(part, set()).add(Use.HOST)
                self._let_names.append((name, parts))
                if _is_float(value, self.floats):
                    self.floats.add(name)
            case syntax.TensorDeclaration(name):
                self.tensors[name] = node.dtype
                self.use(node.extents, Use.PARAMETER if keyword == "tensors" else Use.SHAPE)
            case syntax.ParamDeclaration(name, dtype, default):
                number = isinstance(default, syntax.Number)
                untyped = number and _is_float(default, self.floats)
                if untyped if dtype is None else dtype.is_float:
                    self.floats.add(name)
            case syntax.ConstexprDeclaration(name):
                if _is_float(node.value, self.floats):
                    self.floats.add(name)
            case syntax.SymbolDeclaration() | syntax.ViewDeclaration():
                pass
            case _:
                self.use(node, Use.HOST)

    def infer(self) -> None:
        """Settle uses through lets, then the types of allocs from their writes."""
        for let, parts in reversed(self._let_names):
            self.read |= parts if let in self.read else set()
            for name in parts:
                self.uses.setdefault(name, set()).update(self.uses.get(let, ()))
        pending = [write for write in self.writes if write.destination.dtype is None]
        while pending:
            for write in pending:
                _settle(write, force=False)
            waiting = [write for write in pending if write.destination.dtype is None]
            if len(waiting) == len(pending):
                _settle(waiting[0], force=True)
            pending = [write for write in waiting if write.destination.dtype is None]

    # ------------------------------------------------------------ statements

    def block(self, body: tuple[syntax.Statement, ...]) -> bool:
        """Walk a block; returns whether it contains a parallel loop."""
        found = False
        for statement in body:
            match statement:
                case syntax.For(arguments=arguments, body=inner):
                    self.use(arguments, Use.SHAPE)
                    if self.inner(inner):
                        self.parallel.add(id(statement))
                        found = True
                    found = found or is_parallel(statement)
                case syntax.If(condition=condition, body=inner, orelse=orelse):
                    self.use(condition, Use.CONDITION)
                    nests = [self.inner(branch) for branch in (inner, orelse)]
                    if any(nests):
                        self.parallel.add(id(statement))
                        found = True
                case _:
                    self.simple(statement)
        return found

    def inner(self, body: tuple[syntax.Statement, ...]) -> bool:
        """Walk a block with names of its own."""
        self.scopes.append({})
        found = self.block(body)
        self.scopes.pop()
        return found

    def simple(self, statement: syntax.Statement) -> None:
        match statement:
            case syntax.Alloc(name=name, extents=extents, dtype=dtype, init=init):
                self.use(extents, Use.SHAPE)
                self.use(init, Use.DATA)
                self.allocs[id(statement)] = self.scopes[-1][name] = _Tile(dtype)
            case syntax.Transfer("load", tile, access, keywords):
                self.access(access, keywords)
                destination = self.target(tile)
                if destination is not None and destination.dtype is None:
                    destination.dtype = self.tensors.get(next(names(access.base), ""))
            case syntax.Transfer(_, value, access, keywords):
                self.value(value)
                self.access(access, keywords)
            case syntax.Fetch(access=access):
                self.access(access, ())
            case syntax.Binding(names=targets, values=values):
                self.use(values, Use.SHAPE)
                for target, value in zip(targets, values, strict=False):
                    if self.is_index(value, inside=True):
                        self.scopes[-1][target.id] = _Tile(_index_dtype(value), index=True)
            case syntax.Compute():
                self.compute(statement)
            case _:
                return

    def access(self, access: syntax.Subscript, keywords: tuple[syntax.Keyword, ...]) -> None:
        self.use(access.subscripts, Use.SHAPE)
        for keyword in keywords:
            if keyword.name == "where":
                self.value(keyword.value, Use.SHAPE)
            else:
                self.use(keyword.value, Use.DATA)

    def value(self, node: syntax.Expression, otherwise: Use = Use.DATA) -> None:
        """Note the names of an operand: in an index tile they shape tiles, in data and what data is
        compared with they are data, elsewhere they are used as `otherwise` says."""
        match node:
            case syntax.Binary(operator="and" | "or", left=left, right=right):
                self.value(left, otherwise)
                self.value(right, otherwise)
            case syntax.Unary(operator="not", operand=operand):
                self.value(operand, otherwise)
            case syntax.Binary(
                operator="<" | "<=" | ">" | ">=" | "==" | "!=", left=left, right=right
            ) if any(self.is_data(side) for side in (left, right)):
                self.value(left)
                self.value(right)
            case _:
                shapes = self.is_index(node) or isinstance(node, syntax.Subscript)
                shapes = shapes and not nature(node, self.named).data
                self.use(node, Use.SHAPE if shapes else otherwise)

    def is_data(self, node: syntax.Expression) -> bool:
        """Whether an expression is a tile of data, also with new axes, or computed with one."""
        found = self.operand(node)
        if found is not None:
            return not found.index
        return nature(node, self.named).data

    def named(self, name: str) -> Nature:
        """The `Nature` of a name; a tile whose type is still open counts as one of floats."""
        found = self.find(name)
        if found is None:
            return Nature(other=name in self.floats)
        return Nature(lanes=True, other=found.dtype is None or found.dtype.is_float)

    def compute(self, statement: syntax.Compute) -> None:
        arguments = list(statement.arguments)
        destination: syntax.Expression | None = None
        for keyword in statement.keywords:
            if keyword.name == "dst":
                destination = keyword.value
            else:
                self.use(keyword.value, Use.DATA)
        for argument in arguments:
            self.value(argument)
        row = OPS.get(statement.operation)
        if row is None:
            return
        if isinstance(destination, syntax.List):
            targets = [self.target(item) for item in destination.items]
        elif destination is not None:
            targets = [self.target(destination)]
        else:
            last = arguments[len(row.operands) :][-row.outputs :]
            targets = [self.target(argument) for argument in last]
            if len(targets) < row.outputs or None in targets[:-1]:
                targets = []  # too few: reported later
        for tile in targets[1:]:  # the indices of topk and sort
            if tile is not None and tile.dtype is None:
                self.writes.append(_Write(tile, "copy", (_Tile(DType.I64, index=True),), ()))
        tile = targets[0] if targets else None
        if tile is None or tile.dtype is not None:
            return
        tiles: list[_Tile] = []
        scalars: list[DType | None] = []
        skipped = int(row.conditional)  # the condition has no say in the type
        operands = 1 if row.outputs > 1 else len(row.operands)  # values, without their indices
        for argument in arguments[skipped:operands]:
            found = self.operand(argument)
            if found is not None:
                tiles.append(found)
            elif nature(argument, self.named).data:
                self.parts(argument, tiles, scalars)
            elif self.is_index(argument):
                tiles.append(_Tile(_index_dtype(argument), index=True))
            elif _is_float(argument, self.floats):
                scalars.append(DType.F64)
            else:
                scalars.append(None if isinstance(argument, syntax.Number) else DType.I64)
        self.writes.append(_Write(tile, row.name, tuple(tiles), tuple(scalars)))

    def parts(
        self, node: syntax.Expression, tiles: list[_Tile], scalars: list[DType | None]
    ) -> None:
        """Add the operands of an expression of data to `tiles` and, by their types, `scalars`."""
        for part in computed_with(node):
            tile = self.find(part.id) if isinstance(part, syntax.Name) else None
            row = in_expressions(part.function) if isinstance(part, syntax.Call) else None
            if row is not None and row.result is Result.BOOL:
                tiles.append(_Tile(DType.BOOL, index=True))
            elif tile is not None:
                tiles.append(tile)
            elif _is_float(part, self.floats) and (row is None or row.result is Result.FLOAT):
                scalars.append(DType.F64)

    def target(self, node: syntax.Expression) -> _Tile | None:
        return self.find(node.id) if isinstance(node, syntax.Name) else None

    def operand(self, node: syntax.Expression) -> _Tile | None:
        """The tile that an operand is, by its name alone or with subscripts: `t[:, None]`."""
        match node:
            case syntax.Name(id=name) | syntax.Subscript(base=syntax.Name(id=name)):
                return self.find(name)
            case _:
                return None

    def find(self, name: str) -> _Tile | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def is_index(self, node: object, *, inside: bool = False) -> bool:
        """Whether an expression is an index tile: it has an iota, or a name bound to one. A tile by
        itself is an operand as it is; `inside` an expression it stands for its lanes."""
        match node:
            case syntax.Subscript(base=base, subscripts=subscripts):
                shaped = any(isinstance(part, syntax.NewAxis) for part in subscripts)
                return self.is_index(base, inside=shaped)
            case syntax.Name(id=name):
                found = self.find(name)
                return found is not None and (found.index or inside)
            case syntax.Call(function="iota"):
                return True
            case _:
                return any(self.is_index(part, inside=True) for part in syntax.children(node))


def _settle(write: _Write, *, force: bool) -> None:
    """Type a destination from its first write; unless `force`, only where no operand's type is
    open."""
    destination = write.destination
    if destination.dtype is not None:
        return
    others = [tile for tile in write.tiles if tile is not destination]
    if not force and any(tile.dtype is None for tile in others):
        return
    row = OPS[write.operation]
    known = [tile.dtype for tile in others if tile.dtype is not None]
    if known:
        destination.dtype = result_of(row, common(known, write.scalars)) or DType.F32
    elif row.result.name == "BOOL":
        destination.dtype = DType.BOOL
    elif force or not others:
        destination.dtype = DType.F32


def _is_float(node: object, floats: set[str]) -> bool:
    match node:
        case syntax.Number(value=value):
            return isinstance(value, float)
        case syntax.Name(id=name):
            return name in floats
        case syntax.Unary(operand=operand):
            return _is_float(operand, floats)
        case syntax.Binary(operator="/"):
            return True
        case syntax.Binary(operator="+" | "-" | "*", left=left, right=right):
            return _is_float(left, floats) or _is_float(right, floats)
        case syntax.Choice(then=then, otherwise=otherwise):
            return _is_float(then, floats) or _is_float(otherwise, floats)
        case syntax.Call(function=function):
            return function == "abs" or function not in (*INTEGER_FUNCTIONS, "iota")
        case _:
            return False


def _index_dtype(node: syntax.Expression) -> DType:
    match node:
        case syntax.Binary(operator=operator):
            arithmetic = ("+", "-", "*", "/", "//", "%")
            return DType.I64 if operator in arithmetic else DType.BOOL
        case syntax.Unary(operator="not"):
            return DType.BOOL
        case _:
            return DType.I64


def is_parallel(loop: syntax.For) -> bool:
    """Whether a loop's own hints say "parallel"."""
    return any(word.value == "parallel" for hint in loop.hints for word in hint.words)
