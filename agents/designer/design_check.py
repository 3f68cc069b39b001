"""The gate that every sketch passes before anything is spent on code: parse, check, plan, execute,
compare with the task.

One function, `design_check`, for a sketch that a model designed and for one that a person gave. It
stops at the first stage that refuses and says why, as JSON that a model can act on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.base.diagnostics import (
    Diagnostic,
    DiagnosticError,
    Severity,
    Source,
    Span,
    UsageError,
    has_errors,
)
from sketchc.base.explain import page
from sketchc.checker.api import bindable, check, self_check
from sketchc.ir import nodes as ir
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.parsing.parser import parse
from sketchc.runtime.cases.binding import bind
from sketchc.runtime.cases.sizes import fixed_elements
from sketchc.runtime.tasks.description import TaskFailure
from sketchc.runtime.verify.design import check_design
from sketchc.runtime.verify.evidence import evidence

if TYPE_CHECKING:
    from sketchc.agents.state.state import RunContext
    from sketchc.lowering.plan import Plan
    from sketchc.parsing import syntax
    from sketchc.runtime.verify.verdict import Verdict

#: The stages in order; a sketch refused later is the better attempt.
STAGES = ("reply", "check", "plan", "execute", "bind", "meaning")

#: How many errors and warnings go back at once; the rest nearly always follows from these.
MOST_ERRORS = 10
MOST_WARNINGS = 4
MOST_PAGES = 4

#: A sketch with fixed sizes beyond this many elements is not executed at random small sizes: it
#: has none. The comparison with the task, which bounds its time, remains.
MOST_FIXED_ELEMENTS = 4096

_FAMILY_SYNTAX = "SK01"
_FRACTION = re.compile(r"\d+\.\d+(?:[eE][-+]?\d+)?")


@attrs.frozen
class Finding:
    """Why a sketch was refused.

    `stage` is one of `STAGES`, `failure` the class for the trace ("syntax" or "design"), `codes`
    those of the errors (or classes of failed cases), `summary` one line, `evidence` JSON data.
    """

    stage: str
    failure: str
    codes: tuple[str, ...]
    summary: str
    evidence: Mapping[str, Any]

    @property
    def rank(self) -> int:
        """The number of the stage that the sketch reached; more is better."""
        return STAGES.index(self.stage)


def design_check(text: str, context: RunContext) -> Finding | None:
    """The first stage that refuses the sketch `text` for the run's task and target, or None.

    Raises `UsageError` when the task itself, the target or the chip is what is wrong.
    """
    source = Source(f"{context.name}.sketch", text)
    tree, finding = _parsed(source)
    if tree is None:
        return finding
    plan, finding = _planned(source, tree, context)
    if plan is None:
        return finding
    return (
        _executed(source, plan, context) or _bound(plan.sketch, context) or _compared(plan, context)
    )


# ---------------------------------------------------------------- parse, check, plan


def _parsed(source: Source) -> tuple[syntax.Sketch | None, Finding | None]:
    tree, found = parse(source)
    if tree is None or has_errors(found):
        return None, diagnostic_finding("check", source, found)
    if len(tree.entries) != 1:
        names = ", ".join(sketch.name for sketch in tree.entries) or "none"
        summary = f"exactly one sketch is needed; the text holds {len(tree.entries)} ({names})"
        return None, Finding("check", "syntax", (), summary, {"sketches": len(tree.entries)})
    return tree.entries[0], None


def _planned(
    source: Source, tree: syntax.Sketch, context: RunContext
) -> tuple[Plan | None, Finding | None]:
    missing = sorted(set(context.constants) - bindable(tree))
    if missing:
        summary = f"the sketch has no constant or param {', '.join(missing)}, which the user binds"
        return None, Finding("check", "design", (), summary, {"missing": missing})
    result = check(source, context.constants)
    if not result.ok:
        return None, diagnostic_finding("check", source, result.diagnostics)
    try:
        planned = build_plan(tree, context.target, context.hardware, context.constants)
    except DiagnosticError as error:
        return None, diagnostic_finding("plan", source, error.diagnostics)
    return planned.plan, None


# ---------------------------------------------------------------- run, bind, compare


def _executed(source: Source, plan: Plan, context: RunContext) -> Finding | None:
    """The finding, if results depend on tile sizes or a rule breaks at random small sizes (R6b)."""
    if max(map(fixed_elements, plan.sketch.tensors), default=1) > MOST_FIXED_ELEMENTS:
        return None
    found = self_check(source, context.constants, context.seed)
    if not has_errors(found):
        return None
    return diagnostic_finding("execute", source, [_with_short_numbers(item) for item in found])


def _with_short_numbers(found: Diagnostic) -> Diagnostic:
    """The diagnostic with four significant digits in numbers that were computed: the last digits
    may depend on the machine, and a prompt must not."""
    notes = tuple(_FRACTION.sub(lambda number: f"{float(number[0]):.4g}", n) for n in found.notes)
    return attrs.evolve(found, notes=notes)


def _bound(sketch: ir.Sketch, context: RunContext) -> Finding | None:
    """The finding, if the task's values cannot be bound to the sketch, or have other types."""
    try:
        bound = bind(sketch, context.description, context.constants)
    except UsageError as error:
        return _problem("bind", str(error))
    if bound.other_types:
        return _problem("bind", f"types differ: {'; '.join(bound.other_types)}")
    return None


def _problem(stage: str, said: str) -> Finding:
    return Finding(stage, "design", (), said, {"problem": said})


def _compared(plan: Plan, context: RunContext) -> Finding | None:
    """The finding, if the interpreted sketch differs from the task's reference at small shapes.
    That it takes too long or too much memory is none: the verification of the kernel makes the same
    comparison with faster code."""
    try:
        verdict = check_design(plan, context.task, context.folder, context.seed, context.constants)
    except TaskFailure:
        raise
    except UsageError as error:
        return _problem("bind", str(error))
    failures = {case.failure for case in verdict.failures}
    right = any(case.passed for case in verdict.cases) and not failures
    heavy = bool(failures) and failures <= {"timeout", "resource"}
    return None if right or heavy else _verdict_finding(verdict)


def _verdict_finding(verdict: Verdict) -> Finding:
    codes = tuple(dict.fromkeys(case.failure for case in verdict.failures))
    if not codes:
        return _problem(
            "meaning", "no small sizes were found at which both the task and the sketch run"
        )
    found = evidence(verdict)
    return Finding("meaning", "design", codes, str(found["reason"]), found)


# ---------------------------------------------------------------- diagnostics as evidence


def diagnostic_finding(stage: str, source: Source, found: Iterable[Diagnostic]) -> Finding:
    """Diagnostics with at least one error, as a finding."""
    found = tuple(found)
    errors = [item for item in found if item.severity is Severity.ERROR]
    codes = tuple(dict.fromkeys(error.code for error in errors))
    syntax = all(code.startswith(_FAMILY_SYNTAX) for code in codes)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    summary = f"{errors[0].code}, line {errors[0].span.line}: {errors[0].message}{more}"
    evidence = diagnostics_json(source, found)
    return Finding(stage, "syntax" if syntax else "design", codes, summary, evidence)


def diagnostics_json(source: Source, found: Iterable[Diagnostic]) -> dict[str, Any]:
    """Diagnostics as a model reads them: lines instead of offsets, with the line's own text, and
    for the first few codes why the language has the rule."""
    found = tuple(found)
    errors = [item for item in found if item.severity is Severity.ERROR]
    warnings = [item for item in found if item.severity is Severity.WARNING]
    shown = [*errors[:MOST_ERRORS], *warnings[:MOST_WARNINGS]]
    data: dict[str, Any] = {"diagnostics": [_plain(source, item) for item in shown]}
    if len(errors) + len(warnings) > len(shown):
        data["not_shown"] = len(errors) + len(warnings) - len(shown)
    codes = list(dict.fromkeys(item.code for item in errors))[:MOST_PAGES]
    data["rules"] = {code: why for code in codes if (why := _why(code))}
    return data


def _plain(source: Source, found: Diagnostic) -> dict[str, Any]:
    data: dict[str, Any] = {
        "code": found.code,
        "severity": found.severity.value,
        "line": found.span.line,
        "text": source.line(found.span.line).strip(),
        "message": found.message,
        "at": _excerpt(source, found.span),
        "label": found.label,
        "see_also": [{"line": label.span.line, "text": label.text} for label in found.labels],
        "notes": list(found.notes),
        "help": found.help,
        "fixes": [
            {
                "title": fix.title,
                "replace": [
                    {
                        "line": edit.span.line,
                        "text": _excerpt(source, edit.span),
                        "by": edit.replacement,
                    }
                    for edit in fix.edits
                ],
            }
            for fix in found.fixes
        ],
    }
    return {key: value for key, value in data.items() if value}


def _excerpt(source: Source, span: Span) -> str:
    return source.text[span.start : span.end]


def _why(code: str) -> str:
    """The paragraph "Why" of a code's page."""
    text = (page(code) or "").partition("\n## Why\n")[2].partition("\n## ")[0]
    return " ".join(text.split())
