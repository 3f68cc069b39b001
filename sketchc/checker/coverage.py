"""Coverage: every element that must be written is written, and nothing is read before (R7, R8).

The quick way looks for a *witness*: for element x, the iteration that writes it, by solving each
store's subscripts for one loop counter per axis (`i = x // T` for `i*T:(i+1)*T`), and proves that
this iteration exists and that its lane is valid. What has no such witness goes to isl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker import concrete
from sketchc.checker.affine import ONE, Atoms, Fact, Linear, add, constant, constant_value, scale
from sketchc.checker.enumeration import unwritten_element
from sketchc.checker.prover import PROVED, UNKNOWN, Outcome, Prover, Verdict, counters, iteration
from sketchc.checker.scope import Scope
from sketchc.checker.sites import Site, lane_facts, replay, touched
from sketchc.checker.strides import overlap_fixes
from sketchc.checker.verdicts import (
    UNDECIDED,
    Finding,
    assignments,
    element_text,
    for_sizes,
    severity,
)
from sketchc.diagnostics import Diagnostic, Label, Severity


@attrs.frozen
class Elements:
    """The elements of a tensor or view as index variables, with 0 <= index < extent."""

    indices: tuple[Linear, ...]
    facts: tuple[Fact, ...]

    @staticmethod
    def of(prover: Prover, name: str) -> Elements:
        indices = []
        facts = []
        for axis, extent in enumerate(prover.sketch.extents(name)):
            index = {prover.atoms.variable(f"'element{axis}", non_negative=True): 1}
            indices.append(index)
            facts.append(Fact(index))
            facts.append(Fact(add(add(prover.root.form(extent), index, -1), constant(-1))))
        return Elements(tuple(indices), tuple(facts))

    @property
    def variables(self) -> tuple[int, ...]:
        return tuple(atom for index in self.indices for atom in index)


def findings(prover: Prover, sites: Sequence[Site], allow_unproved: bool) -> list[Finding]:
    """Verdicts on outputs without initial value, and on loads of `out` and workspace tensors."""
    result = []
    for tensor in prover.sketch.tensors:
        stores = [s for s in sites if s.stores and s.tensor.name == tensor.name]
        if tensor.role is ir.Role.OUT and tensor.initial is None:
            result.append(_output(prover, tensor, stores, allow_unproved))
        if tensor.role in (ir.Role.OUT, ir.Role.WORKSPACE) and tensor.initial is None:
            loads = [s for s in sites if not s.stores and s.tensor.name == tensor.name]
            result.extend(_load(prover, load, stores, allow_unproved) for load in loads)
    return result


# ---------------------------------------------------------------- outputs


def _output(
    prover: Prover, tensor: ir.Tensor, stores: Sequence[Site], allow_unproved: bool
) -> Finding:
    names = list(dict.fromkeys(store.access.tensor for store in stores)) or [tensor.name]
    outcome = UNKNOWN
    name = names[0]
    for candidate in names:
        group = [store for store in stores if store.access.tensor == candidate]
        outcome = written_everywhere(prover, candidate, group)
        name = candidate
        if outcome.verdict is Verdict.PROVED:
            proof = ir.Proof(
                "covered", tensor.name, ir.Tier.PROVED, "every element is written", span=tensor.span
            )
            return Finding(proof)
    if len(names) == 1:
        finding = _uncovered(prover, tensor, name, stores, outcome)
        if finding is not None:
            return finding
    return _unproved(
        "covered",
        "SK0511",
        f"cannot prove that every element of `{tensor.name}` is written",
        stores[0] if stores else None,
        tensor,
        allow_unproved,
    )


def written_everywhere(prover: Prover, name: str, stores: Sequence[Site]) -> Outcome:
    """Do the stores, all through `name`, together write every element of it?"""
    elements = Elements.of(prover, name)
    scope = prover.root.assume(elements.facts)
    if any(has_witness(scope, store, elements) for store in stores):
        return PROVED
    return prover.search(
        scope.facts, elements.variables, [_writes(store, elements) for store in stores]
    )


def _writes(store: Site, elements: Elements) -> tuple[Fact, ...]:
    """The store writes the element in some iteration and lane."""
    touch = touched(store, store.scope)
    same = [
        Fact(add(index, element, -1), equality=True)
        for index, element in zip(touch.indices, elements.indices, strict=True)
    ]
    return (*store.scope.facts, *touch.facts, *same, *elements.facts)


def _uncovered(
    prover: Prover, tensor: ir.Tensor, name: str, stores: Sequence[Site], outcome: Outcome
) -> Finding | None:
    """The counter-example, once all iterations have been tried on it."""
    symbols: dict[str, int]
    element: tuple[int, ...]
    if outcome.verdict is Verdict.REFUTED:
        symbols = prover.sizes(outcome.point)
        element = tuple(outcome.point[atom] for atom in Elements.of(prover, name).variables)
    else:
        found = unwritten_element(prover.sketch, stores, prover.sketch.extents(name))
        if found is None:
            return None
        symbols, element = found
    host = concrete.host_sample(prover.sketch, symbols)
    if not concrete.admissible(prover.sketch, host) or _is_written(stores, host, element):
        return None
    text = f"{for_sizes(symbols)}no iteration writes {element_text(name, element)}"
    place = concrete.base_element(prover.sketch, name, element, host)
    example = ir.CounterExample(symbols, (), place, text)
    fixes = tuple(fix for store in stores for fix in overlap_fixes(store))
    diagnostic = Diagnostic(
        "SK0510",
        Severity.ERROR,
        f"the output `{tensor.name}` is not written everywhere",
        stores[0].access.span if stores else tensor.span,
        text,
        (Label(tensor.span, "declared here as an output"),) if stores else (),
        notes=("every element of an output is written, or has an initial value (`= c`)",),
        help=(
            "let the loops and slices of the stores reach every element"
            if stores
            else f"store into `{tensor.name}`, or remove it"
        ),
        fixes=tuple(dict.fromkeys(fixes)),
    )
    proof = ir.Proof("covered", tensor.name, ir.Tier.REFUTED, text, example, span=diagnostic.span)
    return Finding(proof, (diagnostic,))


def _is_written(stores: Sequence[Site], host: concrete.Values, element: tuple[int, ...]) -> bool:
    """Tries all iterations; too many count as "maybe written"."""
    try:
        return any(
            element in concrete.box(store, values)
            for store in stores
            for values in concrete.iterations(store, host)
        )
    except concrete.TooLong:
        return True


# ---------------------------------------------------------------- loads of outputs and workspaces


def _load(prover: Prover, load: Site, stores: Sequence[Site], allow_unproved: bool) -> Finding:
    """An earlier phase writes all that is loaded."""
    tensor, name = load.tensor, load.access.tensor
    earlier = [s for s in stores if s.phase < load.phase and s.access.tensor == name]
    elements = Elements.of(prover, name)
    covering = prover.root.assume(elements.facts)
    outcome = PROVED
    if not any(has_witness(covering, store, elements) for store in earlier):
        touch = touched(load, load.scope, "'load")
        same = [
            Fact(add(index, element, -1), equality=True)
            for index, element in zip(touch.indices, elements.indices, strict=True)
        ]
        facts = (*load.scope.facts, *touch.facts, *same)
        renamed = [_writes_renamed(prover, store, elements) for store in earlier]
        variables = (*counters(load.scope), *elements.variables)
        outcome = prover.search(facts, variables, renamed)
    if outcome.verdict is Verdict.PROVED:
        proof = ir.Proof(
            "initialised",
            tensor.name,
            ir.Tier.PROVED,
            "an earlier phase writes what is loaded",
            span=load.access.span,
        )
        return Finding(proof)
    if outcome.verdict is Verdict.REFUTED:
        finding = _read_too_early(prover, load, earlier, elements, outcome)
        if finding is not None:
            return finding
    message = f"cannot prove that an earlier phase writes what is loaded from `{tensor.name}`"
    return _unproved("initialised", "SK0531", message, load, tensor, allow_unproved)


def _writes_renamed(prover: Prover, store: Site, elements: Elements) -> tuple[Fact, ...]:
    scope = replay(prover.root, store.path, "'store")
    return _writes(attrs.evolve(store, scope=scope), elements)


def _read_too_early(
    prover: Prover, load: Site, earlier: Sequence[Site], elements: Elements, outcome: Outcome
) -> Finding | None:
    symbols = prover.sizes(outcome.point)
    host = concrete.host_sample(prover.sketch, symbols)
    where = iteration(load, load.scope, outcome.point, host)
    values = concrete.runs(load, host, where)
    element = tuple(outcome.point[atom] for atom in elements.variables)
    if values is None or not concrete.admissible(prover.sketch, host):
        return None
    if element not in concrete.box(load, values) or _is_written(earlier, host, element):
        return None
    name, tensor = load.access.tensor, load.tensor
    at = f"iteration {assignments(where)} reads" if where else "the sketch reads"
    what = f"{element_text(name, element)}, which no earlier phase has written"
    text = f"{for_sizes(symbols)}{at} {what}"
    place = concrete.base_element(prover.sketch, name, element, host)
    example = ir.CounterExample(symbols, (where,) if where else (), place, text)
    span = load.access.span
    diagnostic = Diagnostic(
        "SK0530",
        Severity.ERROR,
        f"`{tensor.name}` is loaded before it is written",
        span,
        text,
        (Label(tensor.span, f"declared here as {tensor.role.value}"),),
        notes=(
            "an output or workspace may be loaded only where an earlier phase, or `= c`, covers it;"
            " a phase is an outermost parallel loop (R7, R8)",
        ),
        help="write it in an earlier parallel loop, keep the values in a tile, or declare `inout`",
    )
    proof = ir.Proof("initialised", tensor.name, ir.Tier.REFUTED, text, example, span=span)
    return Finding(proof, (diagnostic,))


def _unproved(
    claim: str,
    code: str,
    message: str,
    site: Site | None,
    tensor: ir.Tensor,
    allow_unproved: bool,
) -> Finding:
    span = site.access.span if site is not None else tensor.span
    detail = "could be neither proved nor refuted"
    proof = ir.Proof(claim, tensor.name, ir.Tier.UNPROVED, detail, span=span)
    diagnostic = Diagnostic(
        code,
        severity(allow_unproved),
        message,
        span,
        detail,
        notes=(UNDECIDED,),
        help="use slices like `i*T:(i+1)*T` over `range(ceil(M, T))`, and one view per tensor",
    )
    return Finding(proof, (diagnostic,))


# ---------------------------------------------------------------- witnesses


def has_witness(scope: Scope, store: Site, elements: Elements) -> bool:
    """True when, for every element of `scope`, an iteration and a lane of `store` are found that
    provably write it. `scope` knows 0 <= element < extent and nothing of the loops."""
    solved = _solve_counters(scope, store, elements)
    if solved is None:
        return False
    inside = attrs.evolve(scope, suffix="")
    for step in store.path:
        if isinstance(step, ir.Bind):
            inside = inside.bind(step.name, step.value)
            continue
        start, stop = inside.form(step.start), inside.form(step.stop)
        stride = constant_value(inside.form(step.step))
        if stride is None or stride < 1:
            return False
        counter = solved.get(store.scope.counter(step))
        variable = _variable(start, counter, stride)
        last = add(add(stop, variable, -1), constant(-1))
        first = variable if stride == 1 else (counter or {})
        low = add(first, start, -1) if stride == 1 else first
        if not (inside.proves(low) and inside.proves(last)):
            return False
        inside = attrs.evolve(inside, forms={**inside.forms, step.variable: variable})
    return _lanes_valid(inside, store, elements)


def _variable(start: Linear, counter: Linear | None, stride: int) -> Linear:
    """The loop variable for a counter (the variable itself at stride 1); its start for none."""
    if counter is None:
        return start
    return counter if stride == 1 else add(start, counter, stride)


def _solve_counters(scope: Scope, store: Site, elements: Elements) -> dict[int, Linear] | None:
    """Forms over the element for the loop counters that occur in the subscripts.

    An axis with one unknown is solved for it. Quotients of counters are unknowns too, which solves
    the digits of a mixed-radix index: from `m // H` and `m % H`, that is `m - H*(m // H)`, follows
    `m`. Where every axis left has more, the outermost loop is taken to make the longest steps.
    """
    solved: dict[int, Linear] = {}
    pending = list(zip(store.access.subscripts, elements.indices, strict=True))
    while pending:
        chosen = None
        for pair in pending:
            form, unknown = _unknowns(store, pair[0], solved)
            if len(unknown) <= 1:
                chosen = (pair, form, unknown)
                break
            if chosen is None and isinstance(pair[0], ir.SliceSubscript):
                chosen = (pair, form, unknown)
        if chosen is None:
            return None
        pair, form, unknown = chosen
        if len(unknown) <= 1:
            pending.remove(pair)
        if unknown:
            scalar = isinstance(pair[0], ir.ScalarSubscript)
            value = _solved(scope, form, unknown, pair[1], scalar)
            if value is None:
                return None
            solved[unknown[0]] = value
    return solved


def _unknowns(
    store: Site, subscript: ir.ScalarSubscript | ir.SliceSubscript, solved: Mapping[int, Linear]
) -> tuple[Linear, list[int]]:
    """The subscript's form with solved atoms replaced, and the unknowns in it, outermost first."""
    atoms = store.scope.atoms
    place = subscript.index if isinstance(subscript, ir.ScalarSubscript) else subscript.lower
    form = _replaced(store.scope.form(place), solved, atoms)
    order = counters(store.scope)
    unknown = {
        factor
        for atom in form
        for factor in (atoms.factors(atom) if atom != ONE else ())
        if atoms.dependencies[factor] & set(order)
    }
    place_of = {counter: position for position, counter in enumerate(order)}
    return form, sorted(unknown, key=lambda atom: place_of.get(atom, len(order)))


def _solved(
    scope: Scope, form: Linear, unknown: Sequence[int], element: Linear, scalar: bool
) -> Linear | None:
    """The first unknown for which `form` equals the element (a scalar subscript), or is the largest
    not above it (a slice); the other unknowns are left out."""
    atoms = scope.atoms
    target, *later = unknown
    factor: Linear = {}
    rest: Linear = element
    for atom, coefficient in form.items():
        others = list(atoms.factors(atom))
        if target not in others:
            if set(others) & set(later):
                continue
            rest = add(rest, {atom: -coefficient})
            continue
        others.remove(target)
        if target in others:
            return None
        term: Linear = {ONE: coefficient}
        for other in others:
            term = atoms.multiply(term, {other: 1})
        factor = add(factor, term)
    value = constant_value(factor)
    if value is not None:
        if scalar and value in (1, -1):
            return scale(rest, value)
        return atoms.floor(rest, value) if value > 0 else None
    if not scope.proves(add(factor, constant(-1))):
        return None
    return atoms.quotient(rest, factor, scope.proves(rest))


def _replaced(form: Linear, solved: Mapping[int, Linear], atoms: Atoms) -> Linear:
    """The form with solved atoms replaced, inside products too."""
    result: Linear = {}
    for atom, coefficient in form.items():
        term: Linear = {ONE: coefficient}
        if atom != ONE:
            for factor in atoms.factors(atom):
                term = atoms.multiply(term, solved.get(factor, {factor: 1}))
        result = add(result, term)
    return result


def _lanes_valid(scope: Scope, store: Site, elements: Elements) -> bool:
    domain = iter(zip(store.tile.extents, store.statement.domain, strict=True))
    for subscript, element in zip(store.access.subscripts, elements.indices, strict=True):
        if isinstance(subscript, ir.ScalarSubscript):
            gap = add(scope.form(subscript.index), element, -1)
            if not (scope.proves(gap) and scope.proves(scale(gap, -1))):
                return False
            continue
        extent, valid = next(domain)
        lane = add(element, scope.form(subscript.lower), -1)
        if not all(scope.proves(f.form) for f in lane_facts(scope, lane, extent, valid)):
            return False
    return True
