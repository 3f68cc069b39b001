"""The self-check of `check` (R6b): execute a sketch in ways that must not matter.

A sketch may satisfy every proof and still be wrong, because a tile size took part in the meaning: a
softmax over each block instead of each row, say. So each sketch is interpreted at several
assignments of its tunable constants (its own, ones, values that divide nothing, values larger than
every size), on small ragged sizes and signed inputs of mixed scale, with the parallel loops
shuffled, void lanes and outputs poisoned, and shadow memory on. All results must agree. Floats
stay in float64 throughout, so that what is compared differs by reassociation only.

Runs that agree show something only of what they reached. So sizes, params and optional tensors are
chosen such that every loop that works in order, or over tiles, runs at least twice, and both sides
of every branch are taken (`checker.planner`). Results that are all NaN or Inf, and runs in which an
operation had no value or the inputs broke a promise, count for nothing, and are tried again on
other inputs. What is not reached leaves the claim unproved.

Plain `check` does this for tile sizes alone, at few sizes; `check --execute` at more of them, and
varies constants of one fixed value too. Where extents are numbers, so that no small sizes can be
chosen, the tile sizes tried grow until the execution is short enough.
"""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.base.diagnostics import Diagnostic, Severity, Source, has_errors
from sketchc.checker.facts.answers import severity
from sketchc.checker.selfcheck.runs import Effort, Execution, Scalar, first_difference
from sketchc.checker.testing.planner import sizes_text, told, told_missed
from sketchc.ir import nodes as ir
from sketchc.parsing import syntax

__all__ = ["CLAIM", "first_difference", "self_check", "tile_size_verdict"]

#: The claim of R6b.
CLAIM = "tile-size"

THOROUGH = Effort(settings=10, run_limit=100_000_000, limit=1_000_000_000, fixed=True)
QUICK = Effort(settings=4, run_limit=5_000_000, limit=40_000_000, fixed=False)


def self_check(
    source: Source, constants: Mapping[str, Scalar] | None = None, seed: int = 0
) -> tuple[Diagnostic, ...]:
    """Execute every sketch of `source` that passes the checker; what is found wrong, as errors.

    `constants` binds constexprs as `check` does; those are not varied. A text that does not parse,
    or a sketch that the checker refuses, gives nothing here: `check` reports it.
    """
    from sketchc.parsing.parser import parse

    tree, _ = parse(source)
    if tree is None:
        return ()
    found: list[Diagnostic] = []
    for sketch in tree.sketches:
        found.extend(tile_size_verdict(sketch, constants, seed, thorough=True)[1])
    return tuple(dict.fromkeys(found))


def tile_size_verdict(
    tree: syntax.Sketch,
    constants: Mapping[str, Scalar] | None = None,
    seed: int = 0,
    thorough: bool = False,
    known: frozenset[tuple[str, str]] = frozenset(),
    allow_unproved: bool = False,
) -> tuple[ir.Proof | None, tuple[Diagnostic, ...]]:
    """Whether results depend on tile sizes, as a verdict; None for a sketch without tile sizes that
    tuning may change, or one that the checker refuses. `thorough`: with all that `self_check`
    reports of it. `known`: claims that were tested when the sketch was checked."""
    from sketchc.checker.api import check_sketch, tested_claims

    bound = dict(constants or {})
    checked, errors = check_sketch(tree, bound, allow_unproved, known)
    if checked is None or has_errors(errors):
        return None, ()
    base, known = checked.sketch, tested_claims(checked.proofs)
    effort = THOROUGH if thorough else QUICK
    execution = Execution(base, tree, bound, seed, effort, known)
    if not execution.tunable and not thorough:
        return None, ()
    found = execution.diagnostics()
    if not execution.tunable:
        if not found and not execution.executed:
            found = (_not_executed(base),)
        return None, found
    return _judged(base, execution, found, allow_unproved)


def _judged(
    base: ir.Sketch, execution: Execution, found: tuple[Diagnostic, ...], allow_unproved: bool
) -> tuple[ir.Proof, tuple[Diagnostic, ...]]:
    """The verdict on the tile sizes of a sketch, with what is to be reported."""
    names = ", ".join(execution.tunable)
    if has_errors(found):
        worst = next(item for item in found if item.severity is Severity.ERROR)
        return ir.Proof(CLAIM, names, ir.Tier.REFUTED, worst.message, span=base.span), found
    constants = {constant.name: constant for constant in base.constants}
    if not execution.varied and all(
        {*constants[name].choices} == {constants[name].value} for name in execution.tunable
    ):
        detail = "there is no other value"
        return ir.Proof(CLAIM, names, ir.Tier.PROVED, detail, span=base.span), found
    reason = _open(execution)
    if reason:
        detail = f"{reason}; {_shown(execution)}" if execution.executed else reason
        proof = ir.Proof(CLAIM, names, ir.Tier.UNPROVED, detail, span=base.span)
        return proof, (*found, _unproved(base, execution, names, reason, allow_unproved))
    detail = _shown(execution)
    detail += _left_out(execution)
    return ir.Proof(CLAIM, names, ir.Tier.TESTED, detail, span=base.span), found


_BLANK = "the results were NaN or Inf, an operation had no value, or a promise of inputs was broken"


def _open(execution: Execution) -> str:
    """Why runs show nothing, or not enough; empty where they show all they should."""
    if not execution.varied:
        return "the checker refuses the sketch at all other tile sizes tried"
    blank = f"at {execution.blank} settings {_BLANK}, on all inputs drawn"
    if not execution.executed:
        if execution.blank:
            return blank
        return "was not executed: no sizes were found that its conditions allow and a run can take"
    ends = ", ".join(execution.uncrossed(ends=True))
    missed = (told_missed(execution.planner.missed), f"no run reached {ends}" if ends else "")
    if not any(missed):
        return ""
    return "; ".join(filter(None, (*missed, blank if execution.blank else "")))


def _shown(execution: Execution) -> str:
    """What the runs show."""
    count = len(execution.executed)
    times = "once" if count == 1 else f"{count} times"
    sizes = sizes_text(execution.executed)
    others = _others(execution)
    detail = f"results agree {times}"
    detail += f" at {sizes}" if sizes else ""
    detail += f" and {others}" if others else ""
    detail += f", with {' | '.join(execution.compared)}"
    loops = execution.planner.loops_told()
    return f"{detail}; {loops}" if loops else detail


def _left_out(execution: Execution) -> str:
    """What the runs did not reach, or not in full."""
    planner = execution.planner
    never = planner.goals
    alone = [goal for goal in planner.wanted if goal not in never]
    text = f"; not reached: {told(never)}" if never else ""
    if sides := ", ".join(f"`{side}`" for side in execution.uncrossed(ends=False)):
        text += f"; not reached with {execution.crossed}: {sides}"
    return text + (f"; only where a loop around it ran once: {told(alone)}" if alone else "")


def _others(execution: Execution) -> str:
    """The params that took other values, and the optional tensors that were absent."""
    params = execution.settings.params.values()
    default: dict[str, Scalar] = {p.name: p.default for p in params if p.default is not None}
    varied = {name for setting in execution.executed for name in setting.params}
    values: dict[str, dict[Scalar, None]] = {name: {} for name in sorted(varied)}
    for setting in execution.executed:
        for name, seen in values.items():
            seen[{**default, **setting.params}[name]] = None
    told_params = [f"{name} = {', '.join(map(str, some))}" for name, some in values.items()]
    absent = sorted({name for setting in execution.executed for name in setting.absent})
    told_params += [f"without {name}" for name in absent]
    return "; ".join(told_params)


def _unproved(
    base: ir.Sketch, execution: Execution, names: str, reason: str, allow_unproved: bool
) -> Diagnostic:
    missed = execution.planner.missed
    span, label = base.span, "not shown by any run"
    if not execution.executed and base.requires:
        span = base.requires[0].span
    elif missed:
        span = missed[0].span
        label = "no run takes this side" if missed[0].side is not None else "too few iterations"
    return Diagnostic(
        "SK0810",
        severity(allow_unproved),
        f"that the results of {base.name} do not depend on its tile sizes ({names}) is not shown",
        span,
        label=label,
        notes=(reason, *((_shown(execution),) if execution.executed else ())),
        help="relax the conditions on sizes and params, try `--execute`, or accept it with "
        "`--allow-unproved`",
    )


def _not_executed(base: ir.Sketch) -> Diagnostic:
    return Diagnostic(
        "SK0810",
        Severity.WARNING,
        f"{base.name} was not executed: no small sizes satisfy its conditions",
        base.requires[0].span if base.requires else base.span,
        label="not executed",
        help="relax the requires, or run it with `sketchc run` at sizes that satisfy them",
    )
