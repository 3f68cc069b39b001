"""The checker's entry points: parse, elaborate for each tuning point, infer domains, prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import (
    Diagnostic,
    DiagnosticError,
    Label,
    Severity,
    Source,
    error,
    has_errors,
    once,
)
from sketchc.base.memo import Named, memoised
from sketchc.checker.facts import budget
from sketchc.checker.facts import severity as unproved_severity
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value
from sketchc.ir.show import assignments
from sketchc.parsing import syntax

#: Claims by name and subject.
Claims: TypeAlias = frozenset[tuple[str, str]]


@records.frozen
class CheckedSketch:
    """One sketch at one assignment of its constants, with all verdicts, refuted ones included."""

    sketch: ir.Sketch
    proofs: tuple[ir.Proof, ...]


@records.frozen
class CheckResult:
    """What is known of one file. `sketches` holds each sketch without errors at its default
    constants, `judged` also those of whose claims some failed; `diagnostics` covers every tuning
    point, without repeats."""

    source: Source
    tree: syntax.File | None
    sketches: tuple[CheckedSketch, ...]
    diagnostics: tuple[Diagnostic, ...]
    judged: tuple[CheckedSketch, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not has_errors(self.diagnostics)


def check_sketch(
    tree: syntax.Sketch,
    constants: Mapping[str, Value] | None = None,
    allow_unproved: bool = False,
    known: Claims = frozenset(),
    shapes: Mapping[str, int] | None = None,
) -> tuple[CheckedSketch | None, tuple[Diagnostic, ...]]:
    """The result of `judge_sketch`, but None for the sketch when there are errors."""
    judged, found = judge_sketch(tree, constants, allow_unproved, known, shapes)
    return (None if has_errors(found) else judged), found


def judge_sketch(
    tree: syntax.Sketch,
    constants: Mapping[str, Value] | None = None,
    allow_unproved: bool = False,
    known: Claims = frozenset(),
    shapes: Mapping[str, int] | None = None,
) -> tuple[CheckedSketch | None, tuple[Diagnostic, ...]]:
    """Elaborate, infer domains and prove one sketch.

    `constants` binds constexprs (and fills params' defaults); a constexpr that shapes tiles and has
    neither a value nor a binding takes `declarations.DEFAULT_TILE`. A claim that is neither proved
    nor refuted is tried in the interpreter, but for the claims `known` from trying them at other
    tile sizes; `shapes` (sizes of all symbols) makes one run there a proof for these shapes; a
    claim that no run reaches is an error, or a warning with `allow_unproved`. The verdicts stay
    when some of them are errors: None only for a sketch that is wrong before any claim of it can be
    judged, or takes too much work for that.
    """
    from sketchc.checker.claims import subscripts
    from sketchc.checker.claims.initialisation import explain
    from sketchc.checker.claims.proofs import prove
    from sketchc.checker.domains.inference import infer_domains
    from sketchc.checker.elaboration.elaborate import elaborate

    def judged() -> tuple[CheckedSketch | None, tuple[Diagnostic, ...]]:
        budget.spend(budget.ELABORATED_CHARACTER * (tree.span.end - tree.span.start))
        sketch, found = elaborate(tree, constants or {})
        if sketch is None:
            return None, found
        if has_errors(found):
            return None, explain(sketch, found)
        found += subscripts.divisor_findings(sketch)
        if has_errors(found):
            return None, found
        sketch, more = infer_domains(sketch)
        found += (*more, *_too_wide(sketch))
        if has_errors(found):
            return None, found
        own = None
        if shapes is not None and all(symbol.name in shapes for symbol in sketch.symbols):
            own = {symbol.name: shapes[symbol.name] for symbol in sketch.symbols}
        sketch, proofs, more = prove(sketch, allow_unproved, test=True, tried=known, shapes=own)
        refused = () if own is None else _refused_sizes(sketch, own)
        return CheckedSketch(sketch, proofs), (*found, *more, *refused)

    given_up = _given_up(tree, "this sketch", Severity.ERROR)
    return budget.claim(_granted(tree), judged, lambda: (None, (given_up,)))


def _granted(tree: syntax.Sketch) -> int:
    """The work that the check of a sketch may do."""
    body = tree.body if tree.program is None else syntax.statements(tree.program.body)
    return budget.of_check(sum(isinstance(each, syntax.For | syntax.Invoke) for each in body))


def _given_up(tree: syntax.Sketch, what: str, severity: Severity) -> Diagnostic:
    """The diagnostic that the check used up its work before it could judge `what` (SK0540)."""
    return Diagnostic(
        "SK0540",
        severity,
        f"the check of `{tree.name}` was given up: it takes too much work",
        tree.name_span,
        f"nothing is proved of {what}",
        notes=(f"this check may take {_granted(tree):,} steps, on every machine the same",),
        help="use fewer tuning points, simpler indices, or several sketches",
    )


def _too_wide(sketch: ir.Sketch) -> tuple[Diagnostic, ...]:
    """The diagnostic of a sketch whose integers leave 64 bits at every launch (SK0328), if so."""
    from sketchc.launch.index_width import index_width

    place = index_width(sketch).hopeless
    if place is None:
        return ()
    return (
        error(
            place,
            "SK0328",
            "this leaves 64 bits at every launch",
            "too large",
            notes=(
                "integers have 64 bits, and a launch at which an index, a bound or a part of one "
                "leaves them is refused",
            ),
            help="use smaller numbers, or tiles of data, whose arithmetic wraps",
        ),
    )


def _refused_sizes(sketch: ir.Sketch, shapes: Mapping[str, int]) -> tuple[Diagnostic, ...]:
    """The errors for sizes of all symbols that no launch accepts (SK0801); conditions on params
    without a value are left to the launch."""
    from sketchc.checker.testing.settings import sample_params
    from sketchc.interpreter.launch import bind_values
    from sketchc.ir.walk import names

    params = sample_params(sketch)
    unknown = set(params)
    for let in sketch.lets:
        if names(let.value) & unknown:
            unknown.add(let.name)
    host = records.evolve(
        sketch,
        lets=tuple(let for let in sketch.lets if let.name not in unknown),
        requires=tuple(r for r in sketch.requires if not names(r.condition) & unknown),
    )
    try:
        bind_values(host, shapes, params)
    except DiagnosticError as error:
        return error.diagnostics
    return ()


def check(
    source: Source,
    constants: Mapping[str, Value] | None = None,
    allow_unproved: bool = False,
    shapes: Mapping[str, int] | None = None,
) -> CheckResult:
    """Parse and check a file; never raises for a user's mistake. `shapes` as in `check_sketch`."""
    given = None if shapes is None else Named(shapes)
    return _checked(source, Named(constants or {}), allow_unproved, given)


@memoised
def _checked(
    source: Source, constants: Named[Value], allow_unproved: bool, shapes: Named[int] | None
) -> CheckResult:
    from sketchc.lints import lint
    from sketchc.parsing.parser import parse

    tree, found = parse(source)
    if tree is None:
        return CheckResult(source, None, (), tuple(found))
    diagnostics = [*found, *_repeated_names(tree)]
    sketches = []
    judged = []
    wrong: set[str] = set()
    for sketch in tree.sketches:
        if sketch.called & wrong:
            # The errors of a sketch that it calls would be reported again.
            wrong.add(sketch.name)
            continue
        checked, more, further = _check_all(sketch, constants, allow_unproved, shapes)
        if has_errors((*more, *further)):
            wrong.add(sketch.name)
        if sketch.program is not None:
            more, further = (_its_own(sketch, each) for each in (more, further))
        diagnostics.extend((*more, *further))
        if checked is not None:
            judged.append(checked)
        if checked is not None and not has_errors(more):
            sketches.append(checked)
            warnings = tuple(lint(checked.sketch, sketch))
            diagnostics.extend(warnings if sketch.program is None else _its_own(sketch, warnings))
    unique = tuple(dict.fromkeys(diagnostics))
    return CheckResult(source, tree, tuple(sketches), unique, tuple(judged))


def _its_own(program: syntax.Sketch, found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """All errors found, and the warnings inside the program; other warnings are reported for the
    sketches that the program calls."""
    whole = program.span
    return tuple(
        each
        for each in found
        if each.severity is Severity.ERROR or whole.start <= each.span.start < whole.end
    )


def _check_all(
    tree: syntax.Sketch,
    constants: Mapping[str, Value],
    allow_unproved: bool,
    shapes: Mapping[str, int] | None,
) -> tuple[CheckedSketch | None, tuple[Diagnostic, ...], tuple[Diagnostic, ...]]:
    """The sketch at its own constants, what is found there, and what other tuning points add."""

    def checked() -> tuple[CheckedSketch | None, tuple[Diagnostic, ...], tuple[Diagnostic, ...]]:
        own, found = judge_sketch(tree, constants, allow_unproved, shapes=shapes)
        if own is None or has_errors(found):
            return own, found, ()
        known = tested_claims(own.proofs)
        what = "other tuning points"
        left = _given_up(tree, what, unproved_severity(allow_unproved))
        points = _check_points(tree, constants, allow_unproved, known)
        return own, found, budget.attempt(what, _granted(tree), (left,), once, points, found)

    given_up = _given_up(tree, "this sketch", Severity.ERROR)
    return budget.claim(_granted(tree), checked, lambda: (None, (given_up,), ()))


def _repeated_names(tree: syntax.File) -> Iterator[Diagnostic]:
    """The errors for sketches whose name the file has already: a sketch is found by its name."""
    first: dict[str, syntax.Sketch] = {}
    for sketch in tree.sketches:
        known = first.setdefault(sketch.name, sketch)
        if known is not sketch:
            yield error(
                sketch.name_span,
                "SK0202",
                f"`{sketch.name}` is already defined",
                "second definition",
                labels=(Label(known.name_span, "sketch of that name"),),
                notes=("a sketch is found by its name, which no other in the file may have",),
                help="give one of them another name",
            )


def tested_claims(proofs: Iterable[ir.Proof]) -> Claims:
    """The claims that were tested: the runs at other tile sizes test them, too (R6b)."""
    tiers = (ir.Tier.TESTED, ir.Tier.PROVED_FOR_SHAPES)
    tested = (proof for proof in proofs if proof.tier in tiers)
    return frozenset((proof.claim, proof.subject) for proof in tested)


def _check_points(
    tree: syntax.Sketch,
    constants: Mapping[str, Value],
    allow_unproved: bool,
    known: Claims,
) -> Iterator[tuple[str, Diagnostic]]:
    """The diagnostics of the other tuning points, each with the point's constants: from one proof
    for all points where it succeeds, else from one for each."""
    from sketchc.checker.claims.proofs import proved_for_all, same_but_for_tiles
    from sketchc.checker.elaboration.elaborate import elaborate, elaboration, tuning_points

    points = tuning_points(tree, constants)
    default = elaboration(tree, constants) if len(points) > 1 else None
    own = None if default is None else default.sketch
    general = own is not None and proved_for_all(own, known)
    for point in points:
        bound = {**constants, **point}
        budget.spend(budget.ELABORATED_CHARACTER * (tree.span.end - tree.span.start))
        found: tuple[Diagnostic, ...] = ()
        sketch = None
        if default is not None and general:
            sketch, found = default.bind(bound), default.diagnostics
            if sketch is None:
                sketch, found = elaborate(tree, bound)
        if own is None or sketch is None or not same_but_for_tiles(own, sketch):
            found = check_sketch(tree, bound, allow_unproved, known)[1]
        yield from ((assignments(point), each) for each in found)
