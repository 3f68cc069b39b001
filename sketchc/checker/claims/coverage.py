"""Coverage: every element that must be written is written, and none is loaded before (R7, R8).

The quick way looks for a *witness* (`witnesses`): for element x, the iteration that writes it. What
has no such witness goes to isl: the elements, less those that each store writes. A store under a
condition covers where the condition holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sketchc.base import records
from sketchc.base.diagnostics import Label, error
from sketchc.checker.claims.races import from_memory
from sketchc.checker.claims.witnesses import has_witness
from sketchc.checker.context.fixits import tile_index_fixes
from sketchc.checker.facts import (
    PROVED,
    RECHECKED,
    Fact,
    Finding,
    Footprint,
    Linear,
    Outcome,
    Prover,
    Scope,
    Site,
    Verdict,
    add,
    budget,
    concrete,
    constant,
    constant_value,
    contested,
    counter_example,
    footprint,
    in_iteration,
    iteration,
    phase_scope,
    proved,
    scale,
    unproved,
    worst,
)
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value
from sketchc.ir.show import element_text, show


@records.frozen
class Elements:
    """The elements of a tensor or view as index variables, with 0 <= index < extent."""

    indices: tuple[Linear, ...]
    facts: tuple[Fact, ...]

    @staticmethod
    def of(prover: Prover, name: str) -> Elements:
        """The elements of the tensor or view of this name."""
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
        """The atoms of the indices."""
        return tuple(atom for index in self.indices for atom in index)


def findings(prover: Prover, sites: Sequence[Site]) -> list[Finding]:
    """Verdicts on outputs without initial value, and on loads of `out` and workspace tensors."""
    result = []
    for tensor in prover.sketch.tensors:
        mine = [site for site in sites if site.tensor.name == tensor.name]
        stores = [site for site in mine if isinstance(site.statement, ir.Store)]
        if tensor.role is ir.Role.OUT and tensor.initial is None:
            judged = partial(_output, prover, tensor, stores)
            left = partial(_open_output, tensor, stores)
            result.append(budget.claim(budget.CLAIM, judged, left))
        if tensor.role in (ir.Role.OUT, ir.Role.WORKSPACE) and tensor.initial is None:
            loads = [site for site in mine if site.loads]
            result.extend(
                budget.claim(
                    budget.CLAIM,
                    partial(_load, prover, load, stores),
                    partial(_not_shown_written, load, stores),
                )
                for load in loads
            )
    return result


# ---------------------------------------------------------------- outputs


def _output(prover: Prover, tensor: ir.Tensor, stores: Sequence[Site]) -> Finding:
    names = list(dict.fromkeys(store.access.tensor for store in stores)) or [tensor.name]
    outcome = Outcome(Verdict.UNKNOWN)
    name = names[0]
    for candidate in names:
        group = [store for store in stores if store.access.tensor == candidate]
        outcome = written_everywhere(prover, candidate, group)
        name = candidate
        if outcome.verdict is Verdict.PROVED:
            return proved("covered", tensor.name, "every element is written", tensor.span)
    if len(names) == 1:
        finding = _uncovered(prover, tensor, name, stores, outcome)
        if finding is not None:
            return finding
    promise = next((store for store in stores if _covers(store)), None)
    if promise is not None:
        return _promised("covered", tensor, promise)
    if any(from_memory(store) for store in stores):
        return _scattered(tensor, stores)
    return _open_output(tensor, stores)


def _open_output(tensor: ir.Tensor, stores: Sequence[Site]) -> Finding:
    span = stores[0].access.span if stores else tensor.span
    advice = "use slices like `i*T:(i+1)*T` over `range(ceil(M, T))`, and one view per tensor"
    return unproved("covered", tensor.name, span, advice)


def _covers(store: Site) -> bool:
    return isinstance(store.statement, ir.Store) and store.statement.covers


def _promised(claim: str, tensor: ir.Tensor, store: Site) -> Finding:
    """A claim that rests on the promise of a store, which the interpreter checks at each run."""
    detail = "`covers=True` promises that every element is written"
    return proved(claim, tensor.name, detail, store.access.span, ir.Tier.ASSUMED)


def _broken_promise(tensor: ir.Tensor, store: Site, example: ir.CounterExample) -> Finding:
    """The finding on a promise `covers=True` that does not hold, whatever the data."""
    diagnostic = error(
        store.access.span,
        "SK0514",
        "the promise `covers=True` does not hold",
        example.text,
        labels=(Label(tensor.span, "declared here as an output"),),
        notes=("`covers=True` promises that every element of the tensor is written (R7)",),
        help="let the loops and slices reach every element, or give the output `= c`",
    )
    return contested("covered", tensor.name, diagnostic, example)


def _scattered(tensor: ir.Tensor, stores: Sequence[Site]) -> Finding:
    """The finding on an output whose stores write elements that depend on data."""
    store = next(store for store in stores if from_memory(store))
    diagnostic = error(
        store.access.span,
        "SK0513",
        f"a store through loaded indices does not cover `{tensor.name}`",
        "which elements it writes depends on data",
        labels=(Label(tensor.span, "declared here as an output"),),
        notes=("its target needs an initial value (`= c`), `inout`, or `covers=True` (R7)",),
        help=f"declare `{tensor.name}` with `= 0` or as `inout`, or promise `covers=True`",
    )
    return records.evolve(contested("covered", tensor.name, diagnostic), testable=False)


def written_everywhere(prover: Prover, name: str, stores: Sequence[Site]) -> Outcome:
    """Whether the stores, all through `name`, together write every element of it."""
    elements = Elements.of(prover, name)
    scope = prover.root.assume(elements.facts)
    if any(has_witness(scope, prover.root, store, elements.indices) for store in stores):
        return PROVED
    written = [
        system for store in stores for system in _writes(footprint(store, prover.root), elements)
    ]
    return prover.search(scope.facts, elements.variables, written)


def _writes(touch: Footprint, elements: Elements) -> list[tuple[Fact, ...]]:
    """By alternative, the facts that some iteration and lane of an access touch the element."""
    same = [
        Fact(add(index, element, -1), equality=True)
        for index, element in zip(touch.indices, elements.indices, strict=True)
    ]
    return [(*system, *same, *elements.facts) for system in touch.systems]


def _uncovered(
    prover: Prover, tensor: ir.Tensor, name: str, stores: Sequence[Site], outcome: Outcome
) -> Finding | None:
    """The finding with a counter-example that all iterations were tried on; None without one."""
    if outcome.verdict is Verdict.REFUTED:
        element = tuple(outcome.point[atom] for atom in Elements.of(prover, name).variables)
        for params, host in prover.host_samples(outcome.point):
            written = budget.attempt(
                RECHECKED, budget.RECHECK, True, _is_written, stores, host, element
            )
            if concrete.admissible(prover.sketch, host) and not written:
                symbols = prover.sizes(outcome.point)
                return _missing(prover, tensor, name, stores, element, symbols, params)
        return None
    found = concrete.unwritten_element(prover.sketch, stores, prover.sketch.extents(name))
    if found is None:
        return None
    return _missing(prover, tensor, name, stores, found[1], found[0], {})


def _missing(
    prover: Prover,
    tensor: ir.Tensor,
    name: str,
    stores: Sequence[Site],
    element: tuple[int, ...],
    symbols: dict[str, int],
    params: concrete.ParamValues,
) -> Finding:
    """The finding on an element that no iteration writes at these numbers."""
    params = concrete.named_params(prover.sketch, stores, params)
    host = concrete.host_sample(prover.sketch, {**symbols, **params})
    told = f"no iteration writes {element_text(name, element)}"
    place = concrete.base_element(prover.sketch, name, element, host)
    example = counter_example(symbols, params, (), place, told)
    promise = next((store for store in stores if _covers(store)), None)
    if promise is not None:
        return _broken_promise(tensor, promise, example)
    fixes = tuple(fix for store in stores for fix in tile_index_fixes(store.loops[:1]))
    diagnostic = error(
        stores[0].access.span if stores else tensor.span,
        "SK0510",
        f"the output `{tensor.name}` is not written everywhere",
        example.text,
        labels=(Label(tensor.span, "declared here as an output"),) if stores else (),
        notes=("every element of an output is written, or has an initial value (`= c`)",),
        help=(
            "let the loops and slices of the stores reach every element"
            if stores
            else f"store into `{tensor.name}`, or remove it"
        ),
        fixes=tuple(dict.fromkeys(fixes)),
    )
    return contested("covered", tensor.name, diagnostic, example)


def _is_written(stores: Sequence[Site], host: concrete.Values, element: tuple[int, ...]) -> bool:
    """Whether some iteration writes the element; what cannot be tried counts as "maybe written"."""
    try:
        return any(
            element in concrete.box(store, values)
            for store in stores
            for values in concrete.iterations(store, host)
        )
    except (concrete.Untried, ArithmeticError):
        return True


# ---------------------------------------------------------------- loads of outputs and workspaces


def _load(prover: Prover, load: Site, stores: Sequence[Site]) -> Finding:
    """The finding on whether an earlier launch writes all that is loaded."""
    tensor, name = load.tensor, load.access.tensor
    through = [store for store in stores if store.access.tensor == name]
    elements = Elements.of(prover, name)
    outcome = _written_before(prover, load, through, elements)
    if outcome.verdict is not Verdict.PROVED and _written_as_another(prover, load, stores):
        outcome = PROVED
    if outcome.verdict is Verdict.PROVED:
        words = "an earlier phase writes what is loaded"
        return proved("initialised", tensor.name, words, load.access.span)
    promise = next((s for s in stores if _covers(s) and s.phase < load.phase), None)
    if promise is not None:
        return _promised("initialised", tensor, promise)
    if outcome.verdict is Verdict.REFUTED:
        given = (prover, load, stores, elements, outcome)
        finding = budget.attempt(RECHECKED, budget.RECHECK, None, _read_too_early, *given)
        if finding is not None:
            return finding
    return _not_shown_written(load, stores)


def _written_before(
    prover: Prover, load: Site, stores: Sequence[Site], elements: Elements
) -> Outcome:
    """Whether each element loaded was written by an earlier launch, all `stores` being through the
    name that is loaded."""
    if _has_earlier_witness(prover, load, stores, elements):
        return PROVED
    written = _earlier_writes(prover, load, stores, elements)
    touch = footprint(load, prover.root, tag="'load")
    variables = (*touch.scope.counters, *elements.variables)
    systems = _writes(touch, elements)
    return worst(prover.search(system, variables, written) for system in systems)


def _written_as_another(prover: Prover, load: Site, stores: Sequence[Site]) -> bool:
    """Whether earlier launches write the whole tensor under some other name than the load's: a view
    has all elements of its tensor."""
    names = dict.fromkeys(store.access.tensor for store in stores)
    for name in names:
        if name == load.access.tensor:
            continue
        group = [store for store in stores if store.access.tensor == name]
        elements = Elements.of(prover, name)
        if _has_earlier_witness(prover, load, group, elements):
            return True
        scope = phase_scope(prover.sketch, prover.root, load.phase)
        variables = (*scope.counters, *elements.variables)
        written = _earlier_writes(prover, load, group, elements)
        facts = (*scope.facts, *elements.facts)
        if prover.search(facts, variables, written).verdict is Verdict.PROVED:
            return True
    return False


def _has_earlier_witness(
    prover: Prover, load: Site, stores: Sequence[Site], elements: Elements
) -> bool:
    """Whether one store of an earlier launch writes all elements."""
    for store in stores:
        if store.phase >= load.phase:
            continue
        shared = frozenset(
            footprint(load, prover.root).scope.counter(loop) for loop in shared_hosts(store, load)
        )
        given = phase_scope(prover.sketch, prover.root, load.phase).assume(elements.facts)
        if has_witness(given, prover.root, store, elements.indices, shared):
            return True
    return False


def _earlier_writes(
    prover: Prover, load: Site, stores: Sequence[Site], elements: Elements
) -> list[tuple[Fact, ...]]:
    """Systems of the elements that launches before the load's write. Loops of the host around both
    order launches: an earlier iteration, or an earlier phase of the same one."""
    host = footprint(load, prover.root).scope
    return [
        (*system, *order)
        for store in stores
        for touch in (footprint(store, prover.root, "'store"),)
        for order in _orders(store, load, touch.scope, host)
        for system in _writes(touch, elements)
    ]


def shared_hosts(one: Site, two: Site) -> tuple[ir.HostFor, ...]:
    """The loops of the host around both launches."""
    return tuple(loop for loop in concrete.shared_loops(one, two) if isinstance(loop, ir.HostFor))


def _orders(store: Site, load: Site, renamed: Scope, host: Scope) -> list[tuple[Fact, ...]]:
    """The ways in which a launch that stores can come before one that loads."""
    orders: list[tuple[Fact, ...]] = []
    same: tuple[Fact, ...] = ()
    for loop in shared_hosts(store, load):
        stride = constant_value(host.form(loop.step))
        gap = add(host.forms[loop.variable], renamed.forms[loop.variable], -1)
        if stride:
            later = add(gap if stride > 0 else scale(gap, -1), constant(-1))
            orders.append((*same, Fact(later)))
        same = (*same, Fact(gap, equality=True))
    if store.phase < load.phase:
        orders.append(same)
    return orders


def _read_too_early(
    prover: Prover, load: Site, stores: Sequence[Site], elements: Elements, outcome: Outcome
) -> Finding | None:
    """The finding on a load of an element that nothing has written, once the numbers were tried."""
    element = tuple(outcome.point[atom] for atom in elements.variables)
    sketch, name = prover.sketch, load.access.tensor

    def failure(params: concrete.ParamValues, host: concrete.Values) -> Finding | None:
        where = iteration(load.path, footprint(load, prover.root).scope, outcome.point, host)
        values = concrete.runs(load, host, where)
        if values is None or element not in concrete.box(load, values):
            return None
        for store in stores:
            earlier = _before(store, load, where)
            place = concrete.same_element(sketch, name, element, store.access.tensor, host)
            for values in concrete.iterations(store, host):
                if earlier(values) and place in concrete.box(store, values):
                    return None
        if not concrete.admissible(sketch, host):
            return None
        symbols = prover.sizes(outcome.point)
        return _too_early(prover, load, stores, symbols, where, element, params, host)

    return prover.shown(outcome, failure)


def _too_early(
    prover: Prover,
    load: Site,
    stores: Sequence[Site],
    symbols: dict[str, int],
    where: dict[str, int],
    element: tuple[int, ...],
    params: concrete.ParamValues,
    host: concrete.Values,
) -> Finding:
    """The finding on a load of an element that nothing has written at these numbers."""
    name, tensor = load.access.tensor, load.tensor
    what = f"{element_text(name, element)}, which no earlier phase has written"
    told = f"{in_iteration(where, 'reads')} {what}"
    params = concrete.named_params(prover.sketch, (load, *stores), params)
    place = concrete.base_element(prover.sketch, name, element, host)
    example = counter_example(symbols, params, (where,), place, told)
    diagnostic = error(
        load.access.span,
        "SK0530",
        f"`{tensor.name}` is loaded before it is written",
        example.text,
        labels=(Label(tensor.span, f"declared here as {tensor.role.value}"),),
        notes=(
            "an output or workspace may be loaded only where an earlier phase, or `= c`, covers it;"
            " a phase is an outermost parallel loop (R7, R8)",
        ),
        help=_way_out(load, stores),
    )
    return contested("initialised", tensor.name, diagnostic, example)


def _way_out(load: Site, stores: Sequence[Site]) -> str:
    """The help for a load of elements that are not written yet."""
    name = load.tensor.name
    workspace = load.tensor.role is ir.Role.WORKSPACE
    loops = [loop for store in stores for loop in shared_hosts(store, load)]
    ways = ["write it in an earlier parallel loop", "keep the values in a tile"]
    if loops:
        past = "<" if isinstance(loops[0].step, ir.Literal) and loops[0].step.value < 0 else ">"
        first = f"{loops[0].variable} {past} {show(loops[0].start)}"
        ways = [f"load what an earlier iteration has written only under `if {first}:`"]
    ways.append(f"give `{name}` an initial value (`= 0`)" if workspace else "declare `inout`")
    return f"{', '.join(ways[:-1])}{',' * (len(ways) > 2)} or {ways[-1]}"


def _before(
    store: Site, load: Site, where: Mapping[str, int]
) -> Callable[[Mapping[str, Value]], bool]:
    """A test of whether an iteration of `store` is in a launch before that of `load` at `where`."""
    loops = shared_hosts(store, load)

    def earlier(values: Mapping[str, Value]) -> bool:
        for loop in loops:
            gap = where[loop.variable] - int(values[loop.variable])
            if gap:
                return gap * concrete.known(loop.step, values) > 0
        return store.phase < load.phase

    return earlier


def _not_shown_written(load: Site, stores: Sequence[Site]) -> Finding:
    """The finding on a load that may precede all writes, with labels at the stores."""
    tensor, name = load.tensor, load.access.tensor
    before = [s for s in stores if s.phase < load.phase or shared_hosts(s, load)]
    labels = tuple(
        Label(
            store.access.span,
            f"writes `{store.access.tensor}`, not provably "
            + ("all that is loaded" if store.access.tensor == name else "the whole of it"),
        )
        for store in before
    )
    if any(store.access.tensor != name for store in before):
        advice = (
            f"load and store `{tensor.name}` under one shape, or let the stores of an earlier "
            "phase write every element of the shape that they use"
        )
    else:
        advice = "let the loops of an earlier phase reach every element that is loaded"
    advice += f"; or give `{tensor.name}` an initial value (`= 0`)"
    span = load.access.span
    return unproved("initialised", tensor.name, span, advice, labels=labels)
