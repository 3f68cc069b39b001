"""What is said of parallel iterations, or lanes, that meet in one element (LANGUAGE R7)."""

from __future__ import annotations

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Severity
from sketchc.checker.claims.strides import overlap_fixes
from sketchc.checker.facts import concrete
from sketchc.checker.facts.answers import (
    Finding,
    assignments,
    element_text,
    for_sizes,
    severity,
    undecided,
)
from sketchc.checker.facts.enumeration import iteration_of
from sketchc.checker.facts.footprints import resolve
from sketchc.checker.facts.param_values import named_params
from sketchc.checker.facts.sites import Site
from sketchc.ir import nodes as ir

_IN_ANY_ORDER = "parallel iterations may run in any order, or at once (R7)"
_PROMISE = "`unique=True` promises that no two lanes or iterations write one element (R7)"


def refuted(
    first: Site,
    second: Site,
    loop: ir.For,
    name: str,
    element: tuple[int, ...],
    example: ir.CounterExample,
) -> Finding:
    """Two parallel iterations that meet; `example` lacks its text."""
    tensor = first.tensor.name
    one, two = example.iterations
    touch = element_text(name, element)
    sizes = for_sizes({**example.symbols, **example.params})
    atomic = isinstance(first.statement, ir.Atomic) or isinstance(second.statement, ir.Atomic)
    notes: tuple[str, ...] = (_IN_ANY_ORDER,)
    help_text = "let every iteration work on elements of its own, or make the loop sequential"
    if second.stores:
        text = f"{sizes}iterations {assignments(one)} and {assignments(two)} both write {touch}"
        code, message = "SK0520", f"stores into `{tensor}` overlap across parallel iterations"
    else:
        text = (
            f"{sizes}iteration {assignments(one)} writes {touch}, "
            f"which iteration {assignments(two)} reads"
        )
        code = "SK0521"
        message = f"`{tensor}` is read while it is written across parallel iterations"
    if atomic:
        code = "SK0524"
        message = f"`{tensor}` is updated atomically and accessed otherwise in one phase"
        notes = ("only accesses that are all the same atomic may meet (R7)",)
        help_text = "use the same atomic everywhere, or move the other access to a phase of its own"
    elif first is second and isinstance(first.statement, ir.Store) and first.statement.unique:
        code, message, notes = "SK0525", "the promise `unique=True` does not hold", (_PROMISE,)
    labels = [Label(loop.span, "these iterations run in parallel")]
    if second is not first:
        labels.append(Label(second.access.span, "the other access"))
    diagnostic = Diagnostic(
        code,
        Severity.ERROR,
        message,
        first.access.span,
        text,
        tuple(labels),
        notes=notes,
        help=help_text,
        fixes=overlap_fixes(first),
    )
    return _finding(first, ir.Tier.REFUTED, text, diagnostic, records.evolve(example, text=text))


def repeated(
    sketch: ir.Sketch, site: Site, symbols: dict[str, int], values: concrete.Values
) -> Finding:
    """Two lanes of one store that write one element at these numbers."""
    element, lanes = _first_repeat(site, values)
    where = iteration_of(site, values)
    at = f"in iteration {assignments(where)} " if where else ""
    lane = " and ".join(str(lane[0] if len(lane) == 1 else lane) for lane in lanes)
    name = site.access.tensor
    params = named_params(sketch, (site,), {})
    sizes = for_sizes({**symbols, **params})
    text = f"{sizes}{at}lanes {lane} both write {element_text(name, element)}"
    place = concrete.base_element(sketch, name, element, concrete.host_sample(sketch, symbols))
    example = ir.CounterExample(symbols, (where, where) if where else (), place, text, params)
    promised = isinstance(site.statement, ir.Store) and site.statement.unique
    diagnostic = Diagnostic(
        "SK0525" if promised else "SK0526",
        Severity.ERROR,
        "the promise `unique=True` does not hold"
        if promised
        else f"lanes of one store write the same element of `{site.tensor.name}`",
        site.access.span,
        text,
        notes=(_PROMISE,) if promised else ("which of the lanes stays is not defined (R7)",),
        help="give every lane an element of its own, or combine them with an atomic",
    )
    return _finding(site, ir.Tier.REFUTED, text, diagnostic, example)


def _first_repeat(
    site: Site, values: concrete.Values
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]:
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    for element, lane in concrete.touches(site, values):
        if element in seen:
            return element, (seen[element], lane)
        seen[element] = lane
    msg = "no two lanes write one element here"
    raise ValueError(msg)


def promised(site: Site) -> Finding:
    """A store whose promise is taken."""
    detail = "`unique=True` promises that no two lanes or iterations write one element"
    return _finding(site, ir.Tier.ASSUMED, detail)


def unproved(first: Site, second: Site, allow_unproved: bool) -> Finding:
    """A pair that could be neither proved nor refuted."""
    name = first.tensor.name
    detail = "could be neither proved nor refuted"
    labels: tuple[Label, ...] = ()
    if second is not first:
        labels = (Label(second.access.span, "against this access"),)
    if first is second and from_memory(first):
        diagnostic = Diagnostic(
            "SK0523",
            severity(allow_unproved),
            f"a store through loaded indices into `{name}` needs `unique=True`",
            first.access.span,
            "these indices come from memory",
            notes=("two of them may be equal, and nothing says which value stays (R7)",),
            help="promise `unique=True` if they never are, or use an atomic",
        )
    else:
        diagnostic = Diagnostic(
            "SK0522",
            severity(allow_unproved),
            f"cannot prove that parallel iterations are independent in `{name}`",
            first.access.span,
            detail,
            labels,
            notes=undecided(),
            help="access the tensor through one view, with slices like `i*T:(i+1)*T`",
        )
    finding = _finding(first, ir.Tier.UNPROVED, detail, diagnostic)
    return records.evolve(finding, testable=diagnostic.code != "SK0523")


def from_memory(site: Site) -> bool:
    """Whether an index of the access is loaded or fetched."""
    fetched = {step.name for step in site.path if isinstance(step, ir.Fetch)}
    resolved = resolve(site)
    behind = (concrete.names_behind(index, site.scope) for index in resolved.indices)
    return resolved.loaded or any(names & fetched for names in behind)


def _finding(
    site: Site,
    tier: ir.Tier,
    detail: str,
    diagnostic: Diagnostic | None = None,
    example: ir.CounterExample | None = None,
) -> Finding:
    span = site.access.span
    proof = ir.Proof("independent", site.tensor.name, tier, detail, example, span=span)
    return Finding(proof, () if diagnostic is None else (diagnostic,))
