"""The Python door to the compiler: what an editor server, a script and the command line call."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, DiagnosticError, Severity, Source, UsageError
from sketchc.base.types import Scalar
from sketchc.parsing.parser import read
from sketchc.reporting.text import SketchReport, distinct

if TYPE_CHECKING:
    from sketchc.checker.api import CheckedSketch, CheckResult
    from sketchc.ir import nodes as ir
    from sketchc.parsing import syntax


@records.frozen
class Request:
    """The options of a check, which hold for every file."""

    target: str | None = None
    execute: bool = False
    constants: tuple[tuple[str, Scalar], ...] = ()
    allow_unproved: bool = False
    ignored: frozenset[str] = frozenset()
    static: bool = False
    shapes: tuple[tuple[str, int], ...] = ()


@records.frozen
class Names:
    """Names that the sketches of a file declare: those that `--set` can bind, and each sketch's
    symbols."""

    bindable: frozenset[str]
    symbols: tuple[frozenset[str], ...]


@records.frozen
class FileReport:
    """The findings on one file; `unreadable` says why it could not be opened, `names` has the names
    that options can refer to (None: unknown, since the file does not parse)."""

    source: Source
    diagnostics: tuple[Diagnostic, ...] = ()
    sketches: tuple[SketchReport, ...] = ()
    unreadable: str = ""
    names: Names | None = None


def check_file(path: str, request: Request) -> FileReport:
    """Check one file; never raises for a user's mistake."""
    try:
        source = read(path)
    except UsageError as error:
        return FileReport(Source(path, ""), unreadable=str(error))
    except DiagnosticError as error:
        return FileReport(Source(path, ""), error.diagnostics)
    return check_text(source, request)


def check_text(source: Source, request: Request) -> FileReport:
    """Check the text of one file; never raises for a user's mistake."""
    from sketchc.checker.api import check as check_source

    constants = dict(request.constants)
    result = check_source(source, constants, request.allow_unproved, dict(request.shapes) or None)
    diagnostics = list(result.diagnostics)
    names = None
    if result.tree is not None:
        names = _names(result.tree)
    bounds: dict[int, list[ir.Proof]] = {}
    if request.target is not None and result.tree is not None and result.ok:
        from sketchc.lowering.lints import lint
        from sketchc.lowering.passes.pipeline import build_plan

        for number, sketch in enumerate(result.tree.sketches):
            try:
                planned = build_plan(
                    sketch, request.target, None, constants, request.allow_unproved
                )
                diagnostics += (*planned.diagnostics, *lint(planned.plan))
                bounds[number] = [proof for proof in planned.proofs if proof.claim == "scratch"]
            except DiagnosticError as error:
                diagnostics += error.diagnostics
    sketches = []
    verdicts = _verdicts(result, request) if result.ok and result.tree is not None else {}
    for number, checked in enumerate(result.judged):
        proofs = [*checked.proofs, *bounds.get(number, [])]
        proof, more = verdicts.get(number, (None, ()))
        diagnostics += more
        proofs += [] if proof is None else [proof]
        sketches.append(SketchReport(source.name, checked.sketch.name, tuple(distinct(proofs))))
    kept = [
        found
        for found in dict.fromkeys(diagnostics)
        if found.severity is Severity.ERROR or found.code not in request.ignored
    ]
    return FileReport(source, tuple(kept), tuple(sketches), names=names)


def _names(tree: syntax.File) -> Names:
    from sketchc.checker.api import bindable
    from sketchc.parsing import syntax

    symbols = [
        frozenset(symbol.name for symbol in syntax.declared(sketch, "symbols"))
        for sketch in tree.sketches
    ]
    bound = frozenset(name for sketch in tree.sketches for name in bindable(sketch))
    return Names(bound, tuple(symbols))


_Verdict: TypeAlias = "tuple[ir.Proof | None, tuple[Diagnostic, ...]]"


def _verdicts(result: CheckResult, request: Request) -> dict[int, _Verdict]:
    """The verdicts on tile sizes, by the number of the sketch. That of a program without constants
    of its own follows from those of the sketches that it calls."""
    trees = result.tree.sketches if result.tree is not None else ()
    found: dict[int, _Verdict] = {}
    by_name: dict[str, list[ir.Proof]] = {}
    for number in sorted(range(len(trees)), key=lambda number: trees[number].composed):
        tree, checked = trees[number], result.judged[number]
        if not tree.composed:
            found[number] = _executed(tree, checked, request)
        else:
            from sketchc.checker.api import TILE_SIZES_OPEN

            _, more = _executed(tree, checked, request) if request.execute else (None, ())
            parts = [proof for name in sorted(tree.called) for proof in by_name.get(name, ())]
            proof = _of_all(parts, checked.sketch) if parts else None
            found[number] = proof, tuple(each for each in more if each.code != TILE_SIZES_OPEN)
        for name in {tree.name, tree.written_name}:
            by_name.setdefault(name, []).extend(p for p in found[number][:1] if p is not None)
    return found


def _of_all(parts: list[ir.Proof], program: ir.Sketch) -> ir.Proof:
    """The weakest of the verdicts `parts`, as the verdict of a program."""
    from sketchc.ir import nodes as ir

    order = list(ir.Tier)
    weakest = max(parts, key=lambda proof: order.index(proof.tier))
    free = (c.name for c in program.constants if c.tunable and c.dtype.is_integer)
    detail = "the sketches that it calls do not depend on them"
    return ir.Proof(weakest.claim, ", ".join(free), weakest.tier, detail, span=program.span)


def _executed(tree: syntax.Sketch, checked: CheckedSketch, request: Request) -> _Verdict:
    """The verdict on tile sizes that tuning may change, if there are any (R6b), with the findings
    of the runs; with `--execute` there are more runs."""
    if request.static:
        return None, ()
    constants = dict(request.constants)
    free = (c for c in checked.sketch.constants if c.tunable and c.name not in constants)
    if not request.execute and not any(constant.dtype.is_integer for constant in free):
        return None, ()
    from sketchc.checker.api import tile_size_verdict

    return tile_size_verdict(
        tree,
        constants,
        thorough=request.execute,
        checked=checked,
        allow_unproved=request.allow_unproved,
    )
