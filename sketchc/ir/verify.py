"""The guarantees of a typed sketch to everything that takes one, as one table of rules.

`verify` runs after elaboration and, with `inferred`, after domain inference, where the verifiers
are switched on (`sketchc.base.verification`). A sketch that breaks a rule is a bug of sketchc:
`InternalError` names the rule and the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import NOWHERE, InternalError
from sketchc.base.types import DType
from sketchc.ir import evaluate, walk
from sketchc.ir import nodes as ir
from sketchc.ops.table import OPS, may_evaluate

#: What breaks a rule: the node, and a few words on it.
Broken: TypeAlias = tuple[object, str]
Kind = ir.NameKind
Step: TypeAlias = ir.Statement | ir.HostStep


@records.frozen
class Rule:
    """One guarantee. `broken` finds what breaks it; `inferred`: it holds once domains are known."""

    name: str
    says: str
    broken: Callable[[ir.Sketch], Iterator[Broken]]
    inferred: bool = False


def verify(sketch: ir.Sketch, inferred: bool = False) -> None:
    """Raises `InternalError` for the first rule that a sketch breaks; `inferred` says whether its
    domains are known."""
    for rule in RULES:
        if rule.inferred and not inferred:
            continue
        for node, why in rule.broken(sketch):
            message = f"ir.verify: {sketch.name}: {rule.name} ({rule.says}): {why}: {node!r}"
            raise InternalError(message)


# ---------------------------------------------------------------- what is in scope


@records.frozen
class _Place:
    """A statement or step with what may be used there: names by kind, and tiles."""

    step: Step
    names: dict[str, Kind]
    tiles: frozenset[str]


def _places(sketch: ir.Sketch) -> Iterator[_Place]:
    """Every step of the host and every statement, with the names and tiles in scope before it."""
    yield from _within(sketch, sketch.steps, _declared(sketch), None)


def _declared(sketch: ir.Sketch) -> dict[str, Kind]:
    """The kinds of the names that are known throughout a sketch, lets included."""
    return {
        **dict.fromkeys((each.name for each in sketch.symbols), Kind.SYMBOL),
        **dict.fromkeys((each.name for each in sketch.params), Kind.PARAM),
        **dict.fromkeys((each.name for each in sketch.constants), Kind.CONSTANT),
        **dict.fromkeys((each.name for each in sketch.lets), Kind.LET),
        **dict.fromkeys((each.name for each in sketch.tensors if each.optional), Kind.PRESENT),
    }


def _within(
    sketch: ir.Sketch, body: Iterable[Step], names: dict[str, Kind], tiles: frozenset[str] | None
) -> Iterator[_Place]:
    """The places of `body` and of the blocks in it: of host steps where `tiles` is None, else of
    statements of a phase."""
    for step in body:
        yield _Place(step, names, tiles or frozenset())
        match step:
            case ir.Launch(index):
                phase = sketch.phases[index]
                given = {name: kind for name, kind in names.items() if kind is not Kind.HOST}
                known = dict.fromkeys(set(phase.scalars) & names.keys(), Kind.HOST)
                yield from _within(sketch, phase.body, {**given, **known}, frozenset())
            case ir.Alloc(tile):
                tiles = (tiles or frozenset()) | {tile}
            case ir.For() | ir.HostFor():
                kind = Kind.HOST if tiles is None else Kind.LOOP
                yield from _within(sketch, step.body, {**names, step.variable: kind}, tiles)
            case ir.If() | ir.HostIf():
                yield from _within(sketch, step.body, names, tiles)
                yield from _within(sketch, step.orelse, names, tiles)
            case ir.Bind(name=name) | ir.Fetch(name=name):
                names = {**names, name: Kind.HOST if tiles is None else Kind.BINDING}
            case ir.Load() | ir.Store() | ir.Atomic() | ir.Compute():
                pass
            case _:
                assert_never(step)


def _expressions(step: Step) -> Iterator[ir.Expr]:
    """All expressions of a statement or step, with the guards and bounds that inference made."""
    yield from walk.expressions(step)
    if isinstance(step, ir.Load | ir.Store | ir.Atomic):
        yield from step.guards
    for domain in _domains(step):
        for axis in domain:
            yield from (*axis.lower, *axis.upper)


def _domains(statement: Step) -> Iterator[ir.Domain]:
    """The domains that a statement itself holds, not those of its operands."""
    match statement:
        case ir.Load():
            yield from (statement.domain, statement.read)
        case ir.Store() | ir.Atomic():
            yield statement.domain
        case ir.Compute():
            yield from (statement.domain, statement.written)


def _accesses(sketch: ir.Sketch) -> Iterator[tuple[ir.Access, tuple[ir.Expr, ...]]]:
    """Every access with the extents of its tile; () for a fetch, which reads a scalar."""
    for place in _places(sketch):
        match place.step:
            case ir.Load() | ir.Store() | ir.Atomic():
                yield place.step.access, sketch.tile(place.step.tile).extents
            case ir.Fetch(access=access):
                yield access, ()


def _computations(sketch: ir.Sketch) -> Iterator[ir.Compute]:
    return (each for each in walk.in_phases(sketch.phases) if isinstance(each, ir.Compute))


# ---------------------------------------------------------------- the rules


def _unique_names(sketch: ir.Sketch) -> Iterator[Broken]:
    seen: set[str] = set()
    for name in walk.declared_names(sketch):
        if name in seen or not name.isidentifier():
            yield name, "used twice, or no identifier"
        seen.add(name)


def _names_in_scope(sketch: ir.Sketch) -> Iterator[Broken]:
    declared = _declared(sketch)
    known = {name: declared[name] for name in declared if declared[name] is not Kind.LET}
    for let in sketch.lets:
        yield from _unknown(let.value, known)
        known[let.name] = Kind.LET
    shaped: tuple[ir.Tensor | ir.View | ir.Tile, ...] = (
        *sketch.tensors,
        *sketch.views,
        *sketch.tiles,
    )
    for extent in (extent for each in shaped for extent in each.extents):
        yield from _unknown(extent, declared)
    for require in sketch.requires:
        yield from _unknown(require.condition, declared)
    for place in _places(sketch):
        for expression in _expressions(place.step):
            yield from _unknown(expression, place.names)


def _unknown(expression: ir.Expr, names: dict[str, Kind]) -> Iterator[Broken]:
    for reference in walk.references(expression):
        if names.get(reference.name) is not reference.kind:
            yield reference, f"`{reference.name}` is no {reference.kind.value} here"


def _tiles_in_scope(sketch: ir.Sketch) -> Iterator[Broken]:
    known = {tile.name for tile in sketch.tiles}
    for place in _places(sketch):
        if isinstance(place.step, ir.Launch | ir.HostFor | ir.HostIf):
            continue
        if isinstance(place.step, ir.Alloc) and place.step.tile not in known:
            yield place.step, "it makes a tile that the sketch does not list"
        used = (*walk.reads(place.step), *walk.writes(place.step))
        lanes = (tile for each in _expressions(place.step) for tile in walk.tiles_read(each))
        for name in (*used, *lanes):
            if name not in place.tiles:
                yield place.step, f"`{name}` is not allocated here"


def _one_alloc(sketch: ir.Sketch) -> Iterator[Broken]:
    made = [each.tile for each in walk.in_phases(sketch.phases) if isinstance(each, ir.Alloc)]
    for tile in sketch.tiles:
        if made.count(tile.name) != 1:
            yield tile, f"{made.count(tile.name)} allocs"


def _launched_once(sketch: ir.Sketch) -> Iterator[Broken]:
    launched = [step.phase for step in walk.statements(sketch.steps) if isinstance(step, ir.Launch)]
    if launched != list(range(len(sketch.phases))):
        yield sketch.steps, f"launched: {launched}"


def _known_operators(sketch: ir.Sketch) -> Iterator[Broken]:
    written = (each for place in _places(sketch) for each in _expressions(place.step))
    declared = (
        *(let.value for let in sketch.lets),
        *(require.condition for require in sketch.requires),
    )
    for part in (part for each in (*declared, *written) for part in walk.parts(each)):
        match part:
            case ir.Unary(operator) if operator not in ("-", "not"):
                yield part, f"no operator of one operand: {operator}"
            case ir.Binary(operator) if operator not in evaluate.BINARY:
                yield part, f"no operator of two operands: {operator}"
            case ir.Function(name) if name not in evaluate.FUNCTION:
                yield part, f"no function of the host: {name}"


def _reference_types(sketch: ir.Sketch) -> Iterator[Broken]:
    floats = {each.name for each in sketch.params if each.dtype.is_float}
    floats |= {each.name for each in sketch.lets if each.dtype.is_float}
    kinds = (Kind.PARAM, Kind.LET)
    for place in _places(sketch):
        for reference in (r for each in _expressions(place.step) for r in walk.references(each)):
            is_float = reference.name in floats
            if reference.kind in kinds and reference.dtype.is_float is not is_float:
                yield reference, "its declaration has another type"


def _access_ranks(sketch: ir.Sketch) -> Iterator[Broken]:
    bases = {each.name for each in sketch.tensors} | {each.name for each in sketch.views}
    for access, tile in _accesses(sketch):
        if access.tensor not in bases:
            yield access, "no tensor and no view of this name"
            continue
        if len(access.subscripts) != len(sketch.extents(access.tensor)):
            yield access, "as many subscripts as the tensor has axes are wanted"
        axes = [each for each in access.subscripts if not isinstance(each, ir.ScalarSubscript)]
        if access.lane_form and any(each.axis is None for each in _index_tiles(access)):
            ranks = (len(each.extents) for each in _index_tiles(access))
            if max(ranks) > len(tile):
                yield access, "an index tile has more axes than the tile"
        elif axes and len(axes) != len(tile):
            yield access, "each slice and each index tile takes one axis of the tile"
        elif not axes and any(extent != ir.Literal(1) for extent in tile):
            yield access, "an access of scalars alone is one element"


def _index_tiles(access: ir.Access) -> list[ir.IndexSubscript]:
    return [each for each in access.subscripts if isinstance(each, ir.IndexSubscript)]


def _roles(sketch: ir.Sketch) -> Iterator[Broken]:
    for each in walk.in_phases(sketch.phases):
        if isinstance(each, ir.Store | ir.Atomic) and (
            sketch.tensor(each.access.tensor).role is ir.Role.IN
        ):
            yield each, "it writes an input"


def _operations(sketch: ir.Sketch) -> Iterator[Broken]:
    for each in _computations(sketch):
        row = OPS.get(each.operation)
        if row is None:
            yield each, "the op table has no such operation"
        elif len(each.operands) != len(row.operands):
            yield each, f"{len(row.operands)} operands are wanted"
        elif len(each.destinations) != row.outputs:
            yield each, f"{row.outputs} destinations are wanted"
        elif set(each.attributes) != {attribute.name for attribute in row.kept}:
            yield each, "every attribute of the row, and no other, is wanted"


def _evaluation_types(sketch: ir.Sketch) -> Iterator[Broken]:
    for each in _computations(sketch):
        destination = sketch.tile(each.destination).dtype
        if not may_evaluate(OPS[each.operation], each.dtype, destination):
            yield each, f"evaluated in {each.dtype.value}, for a tile of {destination.value}"


def _conditions(sketch: ir.Sketch) -> Iterator[Broken]:
    for place in _places(sketch):
        match place.step:
            case ir.If(condition=condition) | ir.HostIf(condition=condition):
                wanted: tuple[ir.Expr, ...] = (condition,)
            case ir.Load() | ir.Store() | ir.Atomic():
                where = place.step.where
                wanted = (*place.step.guards, *(() if where is None else (where,)))
            case _:
                continue
        for each in wanted:
            if evaluate.scalar_dtype(each) is not DType.BOOL:
                yield each, "not bool"


def _carried(sketch: ir.Sketch) -> Iterator[Broken]:
    for place in _places(sketch):
        if isinstance(place.step, ir.For | ir.If):
            inner = walk.statements(walk.inside(place.step))
            written = {tile for each in inner for tile in walk.writes(each)}
            if not set(place.step.carried) <= written & place.tiles:
                yield place.step, "it carries a tile that is made inside, or not written there"


def _depths(sketch: ir.Sketch) -> Iterator[Broken]:
    for place in _places(sketch):
        if isinstance(place.step, ir.Alloc):
            around = sum(kind is Kind.LOOP for kind in place.names.values())
            if sketch.tile(place.step.tile).depth < around:
                yield place.step, f"{around} loops around it"


def _spans(sketch: ir.Sketch) -> Iterator[Broken]:
    for each in walk.in_phases(sketch.phases):
        made = isinstance(each, ir.For) and each.parallel  # by splitting an axis over the grid
        if each.span == NOWHERE and not made:
            yield each, "it stands nowhere in the source"


def _steps_not_zero(sketch: ir.Sketch) -> Iterator[Broken]:
    for place in _places(sketch):
        if isinstance(place.step, ir.For | ir.HostFor) and place.step.step == ir.Literal(0):
            yield place.step, "a step of 0"


def _domain_ranks(sketch: ir.Sketch) -> Iterator[Broken]:
    for each in walk.in_phases(sketch.phases):
        match each:
            case ir.Load(tile=tile) | ir.Store(tile=tile) | ir.Atomic(tile=tile):
                rank = len(sketch.tile(tile).extents)
            case ir.Compute(destination=tile):
                rank = len(sketch.tile(tile).extents)
                for operand in each.operands:
                    if isinstance(operand, ir.TileOperand):
                        own = operand.layout or sketch.tile(operand.tile).extents
                        if len(operand.domain) != len(own):
                            yield operand, "its domain has another rank"
            case _:
                continue
        for domain in _domains(each):
            if len(domain) not in (0, rank):
                yield each, f"a domain of {len(domain)} axes, for a tile of {rank}"
        if len(each.domain) != rank:
            yield each, "no domain"


def _initialised_domains(sketch: ir.Sketch) -> Iterator[Broken]:
    for tile in sketch.tiles:
        if (tile.domain is None) is not (tile.initial is None):
            yield tile, "the tiles with `init=`, and no others, have one domain for life"


def _masked_writes(sketch: ir.Sketch) -> Iterator[Broken]:
    for each in _computations(sketch):
        if each.masked and sketch.tile(each.destination).initial is None:
            yield each, "only a tile with `init=` keeps lanes at a write"


RULES = (
    Rule("unique names", "every name stands for one thing throughout", _unique_names),
    Rule("operations", "operands, destinations and attributes fit the op table", _operations),
    Rule("types of operations", "they follow from the op table's column", _evaluation_types),
    Rule("names in scope", "every name is what its kind says where it is used", _names_in_scope),
    Rule("one alloc", "every tile is allocated at one place", _one_alloc),
    Rule("tiles in scope", "a tile is allocated before, in a block around", _tiles_in_scope),
    Rule("launched once", "every phase is launched at one place, in order", _launched_once),
    Rule("operators", "operators and host functions are those of `evaluate`", _known_operators),
    Rule("types of names", "a name is a float where its declaration is one", _reference_types),
    Rule("ranks of accesses", "subscripts fit the tensor and the tile", _access_ranks),
    Rule("roles", "inputs are never written", _roles),
    Rule("conditions", "conditions and predicates are bool", _conditions),
    Rule("carried tiles", "carried tiles live around and are written inside", _carried),
    Rule("depths", "a tile counts the loops around its alloc", _depths),
    Rule("steps", "no loop has a step of 0", _steps_not_zero),
    Rule("spans", "statements stand in the source, but for loops that split an axis", _spans),
    Rule("ranks of domains", "a domain has one entry per axis", _domain_ranks, inferred=True),
    Rule("fixed domains", "tiles with `init=` have a domain", _initialised_domains, inferred=True),
    Rule("masked writes", "masked writes go to tiles with `init=`", _masked_writes, inferred=True),
)
