"""The checker's entry points: parse, elaborate for each tuning point, infer domains, prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from sketchc import ir, syntax
from sketchc import records as attrs
from sketchc.diagnostics import Diagnostic, has_errors
from sketchc.source import Source

#: Claims by name and subject.
Claims: TypeAlias = frozenset[tuple[str, str]]


@attrs.frozen
class CheckedSketch:
    """One sketch at one assignment of its constants."""

    sketch: ir.Sketch
    proofs: tuple[ir.Proof, ...]


@attrs.frozen
class CheckResult:
    """What is known of one file. `sketches` holds each sketch at its default constants (empty for
    a sketch with errors); `diagnostics` covers every tuning point, without repeats."""

    source: Source
    tree: syntax.File | None
    sketches: tuple[CheckedSketch, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return not has_errors(self.diagnostics)


def check_sketch(
    tree: syntax.Sketch,
    constants: Mapping[str, int | float | bool] | None = None,
    allow_unproved: bool = False,
    known: Claims = frozenset(),
    shapes: Mapping[str, int] | None = None,
) -> tuple[CheckedSketch | None, tuple[Diagnostic, ...]]:
    """Elaborate, infer domains and prove one sketch.

    `constants` binds constexprs (and fills params' defaults); a constexpr that shapes tiles and has
    neither a value nor a binding takes `elaborate.DEFAULT_TILE`. What is neither proved nor refuted
    is tried in the interpreter, but for the claims `known` from trying them at other tile sizes;
    `shapes` (sizes of all symbols) makes one run there a proof for these shapes;
    what no run reaches is an error, or a warning with `allow_unproved`. Returns None with the
    diagnostics when there are errors.
    """
    from sketchc.checker.domains import infer_domains
    from sketchc.checker.elaborate import elaborate
    from sketchc.checker.initialisation import explain
    from sketchc.checker.proofs import prove

    sketch, found = elaborate(tree, constants or {})
    if sketch is None:
        return None, found
    if has_errors(found):
        return None, explain(sketch, found)
    sketch, more = infer_domains(sketch)
    found += more
    if has_errors(found):
        return None, found
    sketch, proofs, more = prove(sketch, allow_unproved, test=True, tried=known, shapes=shapes)
    found += more
    return (None if has_errors(found) else CheckedSketch(sketch, proofs)), found


def check(
    source: Source,
    constants: Mapping[str, int | float | bool] | None = None,
    allow_unproved: bool = False,
    shapes: Mapping[str, int] | None = None,
) -> CheckResult:
    """Parse and check a whole file; never raises for a user's mistake. `shapes` as in
    `check_sketch`."""
    from sketchc.lints import lint
    from sketchc.parser import parse

    tree, found = parse(source)
    if tree is None:
        return CheckResult(source, None, (), tuple(found))
    diagnostics = list(found)
    sketches = []
    for sketch in tree.sketches:
        checked, more = check_sketch(sketch, constants, allow_unproved, shapes=shapes)
        diagnostics.extend(more)
        if checked is not None:
            sketches.append(checked)
            known = tested_claims(checked.proofs)
            diagnostics.extend(_check_points(sketch, constants or {}, allow_unproved, known))
            diagnostics.extend(lint(checked.sketch, sketch))
    return CheckResult(source, tree, tuple(sketches), tuple(dict.fromkeys(diagnostics)))


def tested_claims(proofs: Iterable[ir.Proof]) -> Claims:
    """The claims that were tested: other tile sizes are, with the tile sizes themselves (R6b)."""
    tiers = (ir.Tier.TESTED, ir.Tier.PROVED_FOR_SHAPES)
    tested = (proof for proof in proofs if proof.tier in tiers)
    return frozenset((proof.claim, proof.subject) for proof in tested)


def _check_points(
    tree: syntax.Sketch,
    constants: Mapping[str, int | float | bool],
    allow_unproved: bool,
    known: Claims,
) -> Iterator[Diagnostic]:
    """What the other tuning points add: one proof for all where it succeeds, else one for each."""
    from sketchc.checker.elaborate import elaborate
    from sketchc.checker.tile_sizes import proved_for_all, same_but_for_tiles
    from sketchc.checker.tuning import tuning_points

    points = tuning_points(tree, constants)
    default = elaborate(tree, constants)[0] if len(points) > 1 else None
    general = default is not None and proved_for_all(default, known)
    for point in points:
        bound = {**constants, **point}
        if general and default is not None:
            sketch, found = elaborate(tree, bound)
            if sketch is not None and same_but_for_tiles(default, sketch):
                yield from found
                continue
        yield from check_sketch(tree, bound, allow_unproved, known)[1]
