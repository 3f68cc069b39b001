"""Print a typed sketch or a plan as an annotated sketch: valid source with facts in comments.

People read it, the LLM Coder reads it, and the parser accepts it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.show import range_arguments, show, show_operand
from sketchc.ir.walk import changed
from sketchc.lowering.plan import Plan, TilePlan
from sketchc.ops.table import OPS

_INDENT = "    "


def print_sketch(sketch: ir.Sketch) -> str:
    """The typed sketch (`--emit ir`): unique names, dtypes, domains in comments."""
    return _Printer(sketch, {}).text()


def print_plan(plan: Plan) -> str:
    """The plan (`--emit plan`): grid, memories, masks, fills and cost in comments."""
    head = [
        f"# plan for {plan.target} on {plan.hardware.name}: {plan.hardware.facts['description']}",
        *(f"# {note}" for note in plan.notes),
        *_launches(plan),
        *_answers(plan),
    ]
    if plan.bytes_moved is not None and plan.flops is not None:
        head.append(f"# bytes that must move: {show(plan.bytes_moved)}")
        head.append(f"# operations: {show(plan.flops)}")
    return "\n".join(head) + "\n" + _Printer(plan.sketch, plan.tiles).text()


def _launches(plan: Plan) -> list[str]:
    lines = []
    for phase in plan.phases:
        axes = " x ".join(f"{axis.variable} in {show(axis.count)}" for axis in phase.grid)
        how = (
            f"programs shared out over at most {plan.cores(phase)} cores"
            if plan.capabilities.persistent_grid
            else "one program each"
        )
        lines.append(f"# launch {phase.name}: {axes or 'one program'} ({how})")
        for use in phase.memory_use:
            parts = " + ".join(f"{name} {size:,}" for name, size in use.parts)
            lines.append(
                f"#   {use.memory.replace('_', ' ')}: {use.bytes:,} of {use.capacity:,} bytes"
                f" at the fullest moment ({parts})"
            )
    return lines


def _answers(plan: Plan) -> list[str]:
    """What each hint became: `# hint "pipeline" of loop k: num_stages=3 (why)`."""
    lines = []
    for answer in plan.answers:
        why = f" ({answer.reason})" if answer.reason else ""
        lines.append(f'# hint "{answer.hint}" of {answer.subject}: {answer.became}{why}')
    return list(dict.fromkeys(lines))


@attrs.define
class _Printer:
    sketch: ir.Sketch
    tiles: Mapping[str, TilePlan]

    def text(self) -> str:
        lines = [f"sketch {self.sketch.name} {{"]
        lines += [_INDENT + line for line in self._sections()]
        lines += self._body(self.sketch.steps, 1, host=True)
        return "\n".join([*lines, "}", ""])

    # ------------------------------------------------------------ sections

    def _sections(self) -> list[str]:
        sketch = self.sketch
        tensors = [t for t in sketch.tensors if t.role is not ir.Role.WORKSPACE]
        workspaces = [t for t in sketch.tensors if t.role is ir.Role.WORKSPACE]
        sections = [
            ("symbols", ", ".join(_symbol(s) for s in sketch.symbols)),
            (
                "params",
                "; ".join(f"{p.name}: {p.dtype.value}{_initial(p.default)}" for p in sketch.params),
            ),
            ("constexpr", ", ".join(f"{c.name} = {_value(c.value)}" for c in sketch.constants)),
            ("let", "; ".join(f"{let.name} = {show(let.value)}" for let in sketch.lets)),
            ("tensors", "; ".join(_tensor(t) for t in tensors)),
            ("workspace", "; ".join(_tensor(t) for t in workspaces)),
            (
                "views",
                "; ".join(f"{v.name}[{_extents(v.extents)}] = {v.base}" for v in sketch.views),
            ),
            ("require", "; ".join(show(r.condition) for r in sketch.requires)),
        ]
        return [f"{keyword}: {text};" for keyword, text in sections if text]

    # ------------------------------------------------------------ statements

    def _body(
        self, body: Sequence[ir.Statement | ir.HostStep], depth: int, host: bool = False
    ) -> list[str]:
        """The lines of statements; host steps follow a blank line and are marked by a comment."""
        lines: list[str] = []
        for statement in body:
            own = self._statement(statement, depth, "  # on the host" if host else "")
            lines += ["", *own] if host else own
        return lines

    def _statement(self, statement: ir.Statement | ir.HostStep, depth: int, mark: str) -> list[str]:
        pad, host = _INDENT * depth, bool(mark)
        match statement:
            case ir.Launch(index):
                return self._body(self.sketch.phases[index].body, depth)
            case ir.For() | ir.HostFor():
                header = f"{pad}for {statement.variable} in range"
                return [
                    *(_remarks(statement, pad) if isinstance(statement, ir.For) else ()),
                    f"{header}({', '.join(range_arguments(statement))}):{mark}",
                    *self._body(statement.body, depth + 1, host),
                ]
            case ir.If() | ir.HostIf():
                carried = statement.carried if isinstance(statement, ir.If) else ()
                lines = [f"{pad}# carried: {', '.join(carried)}"] if carried else []
                lines.append(f"{pad}if {show(statement.condition)}:{mark}")
                lines += self._body(statement.body, depth + 1, host)
                if statement.orelse:
                    lines += [f"{pad}else:", *self._body(statement.orelse, depth + 1, host)]
                return lines
            case ir.Alloc(name):
                tile = self.sketch.tile(name)
                return [f"{pad}{_alloc(tile)}{self._placement(name)}"]
            case ir.Load(access, tile):
                arguments = [f"{_access(access)} -> {tile}"]
                if statement.pad is not None:
                    pads = statement.pad
                    shown = show(pads.value) if isinstance(pads, ir.ScalarOperand) else _value(pads)
                    arguments.append(f"pad={shown}")
                return [pad + _memory("load", arguments, statement)]
            case ir.Store(tile, access):
                arguments = [f"{tile} -> {_access(access)}"]
                arguments += ["unique=True"] * statement.unique + ["covers=True"] * statement.covers
                return [pad + _memory("store", arguments, statement)]
            case ir.Atomic(operation, tile, access):
                call = _memory(f"atomic_{operation}", [f"{tile} -> {_access(access)}"], statement)
                return [pad + call]
            case ir.Fetch(name, access):
                return [f"{pad}{name} = fetch({_access(access)}){mark}"]
            case ir.Compute():
                note = _lanes(statement.written, "changes lanes") if statement.masked else ""
                return [f"{pad}{_call(statement)}{note}"]
            case ir.Bind(name, value):
                return [f"{pad}{name} = {show(value)}"]
            case _:
                assert_never(statement)

    def _placement(self, name: str) -> str:
        placed = self.tiles.get(name)
        if placed is None:
            return ""
        if placed.memory == "fused":
            return "  # fused into its loops"
        size = "size known at launch" if placed.bytes is None else f"{placed.bytes:,} bytes"
        buckets = ", ".join(
            f"{e.name} = the power of two from {show(e.bucket_of)}"
            for e in placed.extents
            if e.bucket_of is not None
        )
        reason = f", {placed.reason}" if placed.reason else ""
        extra = f"; {buckets}" if buckets else ""
        return f"  # {placed.memory.replace('_', ' ')}, {size}{reason}{extra}"


def _remarks(loop: ir.For, pad: str) -> list[str]:
    hints = [f'"{hint}"' for hint in loop.hints]
    if loop.stages is not None:
        hints.append(f"stages={loop.stages}")
    lines = [f"{pad}@llm_hint({', '.join(hints)})"] if hints else []
    return lines + ([f"{pad}# carried: {', '.join(loop.carried)}"] if loop.carried else [])


def _extents(extents: tuple[ir.Expr, ...]) -> str:
    return ", ".join(map(show, extents))


def _alloc(tile: ir.Tile) -> str:
    parts = [f"[{_extents(tile.extents)}]", tile.dtype.value]
    if tile.initial is not None:
        parts.append(f"init={_value(tile.initial)}")
    if tile.hints:
        hints = ", ".join(f'"{hint}"' for hint in tile.hints)
        parts.append(f"llm_hint=[{hints}]")
    return f"{tile.name} = alloc({', '.join(parts)})"


def _access(access: ir.Access) -> str:
    shown = []
    for subscript in access.subscripts:
        match subscript:
            case ir.ScalarSubscript(index):
                shown.append(show(index))
            case ir.SliceSubscript(lower, upper, _, step):
                stride = "" if step == ir.Literal(1) else f":{show(step)}"
                shown.append(f"{show(lower)}:{show(upper)}{stride}")
            case ir.IndexSubscript(value, axis=axis):
                # In the mixed form an index tile is of rank 1; its place follows from the order.
                shown.append(show(value if axis is None else flattened(value)))
            case _:
                assert_never(subscript)
    return f"{access.tensor}[{', '.join(shown)}]"


def flattened(value: ir.Expr) -> ir.Expr:
    """An index tile that varies along one axis, without its other axes: `m` of `m[:, None]`."""
    match value:
        case ir.Ref(layout=layout) | ir.Iota(layout=layout) | ir.TileLanes(layout=layout):
            rank = sum(layout or ())
            return value if layout is None else attrs.evolve(value, layout=(True,) * rank)
        case ir.Function():
            return value
        case _:
            return changed(value, flattened)


def _memory(operation: str, arguments: list[str], statement: ir.Load | ir.Store | ir.Atomic) -> str:
    """The call, with a comment on its lanes: the valid ones, those read, and further conditions."""
    if statement.where is not None:
        arguments.append(f"where={show(statement.where)}")
    notes = [_lanes(statement.domain).removeprefix("  # ")]
    if isinstance(statement, ir.Load) and statement.pad is not None:
        notes.append(_lanes(statement.read, "of these read").removeprefix("  # "))
    if statement.guards:
        notes.append(f"where {' and '.join(show(guard) for guard in statement.guards)}")
    told = "; ".join(note for note in notes if note)
    return f"{operation}({', '.join(arguments)})" + (f"  # {told}" if told else "")


def _lanes(domain: ir.Domain, words: str = "lanes") -> str:
    bounds = []
    for axis, lanes in enumerate(domain):
        bounds += [f"{show(lower)} <= axis {axis}" for lower in lanes.lower]
        bounds += [f"axis {axis} < {show(upper)}" for upper in lanes.upper]
    return f"  # {words}: {', '.join(bounds)}" if bounds else ""


def _call(statement: ir.Compute) -> str:
    row = OPS[statement.operation]
    arguments = list(map(show_operand, statement.operands))
    keywords = []
    for attribute in row.attributes:
        value = statement.attributes.get(attribute.name)
        if attribute.positional:
            axes = value if isinstance(value, tuple) else (value,)
            arguments.append(str(axes[0] if len(axes) == 1 else list(axes)))
        elif value != attribute.default:
            keywords.append(f"{attribute.name}={_value(value)}")
    everything = [*arguments, *statement.destinations, *keywords]
    return f"{statement.operation}({', '.join(everything)})"


def _value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _initial(value: int | float | bool | None) -> str:
    return "" if value is None else f" = {_value(value)}"


def _symbol(symbol: ir.Symbol) -> str:
    return symbol.name if symbol.upper_bound is None else f"{symbol.name} <= {symbol.upper_bound}"


def _tensor(tensor: ir.Tensor) -> str:
    extents = []
    for axis, extent in enumerate(tensor.extents):
        broadcast = axis < len(tensor.broadcast) and tensor.broadcast[axis]
        extents.append(show(extent) + ("|1" if broadcast else ""))
    role = "" if tensor.role is ir.Role.WORKSPACE else f"{tensor.role.value} "
    dtype = tensor.dtype.value + ("?" if tensor.optional else "")
    return f"{tensor.name}[{', '.join(extents)}]: {role}{dtype}{_initial(tensor.initial)}"
