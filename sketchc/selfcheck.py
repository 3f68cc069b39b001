"""The self-check of `check` (R6b): execute a sketch in ways that must not matter.

A sketch may satisfy every proof and still be wrong, because a tile size took part in the meaning: a
softmax over each block instead of each row, say. So each sketch is interpreted at several
assignments of its tunable constants (its own, ones, values that divide nothing, values larger than
every size), on small ragged sizes and signed inputs of mixed scale, with the parallel loops
shuffled, void lanes and outputs poisoned, and shadow memory on. All results must agree. Floats
stay in float64 throughout, so that what is compared differs by reassociation only.

Plain `check` does this for tile sizes alone, at few sizes; `check --execute` at more of them, and
varies constants of one fixed value too. Where extents are numbers, so that no small sizes can be
chosen, the tile sizes tried grow until the execution is short enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from sketchc import ir, syntax
from sketchc.checker.scope import free_names
from sketchc.checker.workload import workload
from sketchc.diagnostics import Diagnostic, DiagnosticError, Severity, UsageError, has_errors
from sketchc.interpreter import Options, Result, interpret
from sketchc.interpreter_inputs import indices_exist, random_inputs
from sketchc.interpreter_launch import bind_values, tensor_shapes
from sketchc.interpreter_tiles import Array
from sketchc.interpreter_violations import show_element, show_values
from sketchc.source import Source

Scalar = int | float | bool

#: The claim of R6b.
CLAIM = "tile-size"

#: Size settings executed per sketch, and how many random ones are tried to find them.
SETTINGS = 10
ATTEMPTS = 400
#: The largest product of the symbols of one setting: what bounds the time at tile size 1.
LARGEST_VOLUME = 1500
#: Sizes that meet the tile sizes below at T-1, T and T+1; 7 is prime, 0 is empty.
SMALL_SIZES = (0, 1, 2, 3, 4, 5, 6, 7)
#: Sizes to fall back on where a condition refuses all small ones.
LARGER_SIZES = (8, 9, 12, 15, 16, 24, 30, 32, 48, 64, 128)
RAGGED_TILES = (3, 5, 4, 2)
LARGE_TILES = (11, 9, 13, 16)
#: What the tile sizes are multiplied by until a run is short enough, and the work (in lanes, some
#: 20 ns each) of a run of `--execute`, of plain `check`, and of all runs together.
SCALES = (1, 4, 16, 64, 256)
RUN_LIMIT = 100_000_000
QUICK_RUN_LIMIT = 5_000_000
QUICK_LIMIT = 40_000_000
QUICK_SETTINGS = 4
#: Violations that depend on the random data, not on the sketch.
DATA_DEPENDENT = ("arithmetic", "conversion")
MEMORY_LIMIT = 256 * 2**20


@attrs.frozen
class Variant:
    """The sketch at one assignment of its constants.

    `strict`: the assignment changes only tile sizes that tuning may change, so results must not
    differ. Otherwise it changes constants of one fixed value that also shape tiles: these may be
    part of the meaning (the size of a group), so a difference is a warning.
    """

    sketch: ir.Sketch
    names: tuple[str, ...]
    strict: bool = True

    @property
    def title(self) -> str:
        """`TM = 3, TN = 5`."""
        return show_values(self._chosen()) or "the sketch as it stands"

    def _chosen(self) -> dict[str, Scalar]:
        return {c.name: c.value for c in self.sketch.constants if c.name in self.names}


def self_check(
    source: Source, constants: Mapping[str, Scalar] | None = None, seed: int = 0
) -> tuple[Diagnostic, ...]:
    """Execute every sketch of `source` that passes the checker; what is found wrong, as errors.

    `constants` binds constexprs as `check` does; those are not varied. A text that does not parse,
    or a sketch that the checker refuses, gives nothing here: `check` reports it.
    """
    from sketchc.parser import parse

    tree, _ = parse(source)
    if tree is None:
        return ()
    found: list[Diagnostic] = []
    for sketch in tree.sketches:
        found.extend(_check_sketch(sketch, dict(constants or {}), seed))
    return tuple(dict.fromkeys(found))


@attrs.frozen
class Effort:
    """How much is executed. `fixed`: constants of one value are varied too."""

    settings: int = SETTINGS
    run_limit: int = RUN_LIMIT
    limit: int = RUN_LIMIT * SETTINGS
    fixed: bool = True


THOROUGH = Effort()
QUICK = Effort(QUICK_SETTINGS, QUICK_RUN_LIMIT, QUICK_LIMIT, fixed=False)


def tile_size_verdict(
    tree: syntax.Sketch,
    constants: Mapping[str, Scalar] | None = None,
    seed: int = 0,
    thorough: bool = False,
    known: frozenset[tuple[str, str]] = frozenset(),
) -> tuple[ir.Proof | None, tuple[Diagnostic, ...]]:
    """Whether results depend on tile sizes, as a verdict; None for a sketch without tile sizes that
    tuning may change, or one that the checker refuses. `thorough`: with all that `self_check`
    reports of it. `known`: claims that were tested when the sketch was checked."""
    effort = THOROUGH if thorough else QUICK
    execution = _Execution(tree, dict(constants or {}), seed, effort, known)
    varied = len(execution.variants) > 1 and execution.variants[1].strict
    if not varied and not thorough:
        return None, ()
    found = tuple(execution.diagnostics())
    if not varied:
        return None, found
    names = ", ".join(execution.variants[1].names)
    span = execution.variants[0].sketch.span
    if has_errors(found):
        worst = next(item for item in found if item.severity is Severity.ERROR)
        proof = ir.Proof(CLAIM, names, ir.Tier.REFUTED, worst.message, span=span)
    elif execution.executed:
        times = "once" if execution.executed == 1 else f"at {execution.executed} sizes"
        detail = f"results agree {times} with {len(execution.variants)} assignments"
        proof = ir.Proof(CLAIM, names, ir.Tier.TESTED, detail, span=span)
    else:
        proof = ir.Proof(CLAIM, names, ir.Tier.UNPROVED, "was not executed", span=span)
    return proof, found


def _check_sketch(
    tree: syntax.Sketch, constants: dict[str, Scalar], seed: int
) -> Iterator[Diagnostic]:
    yield from _Execution(tree, constants, seed, THOROUGH).diagnostics()


class _Execution:
    """One sketch with its variants, and how many sizes were executed."""

    def __init__(
        self,
        tree: syntax.Sketch,
        constants: dict[str, Scalar],
        seed: int,
        effort: Effort,
        known: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self.seed = seed
        self.effort = effort
        self.executed = 0
        self.generator = np.random.default_rng(seed)
        self.params: dict[str, Scalar] = {}
        self.known = known
        self.variants = list(self._variants(tree, constants))

    def diagnostics(self) -> Iterator[Diagnostic]:
        """What is found wrong at the first sizes where something is."""
        if not self.variants:
            return
        base = self.variants[0].sketch
        left = self.effort.limit
        for symbols in self._settings(base, self.generator):
            values = bind_values(base, symbols, self.params)
            shapes = tensor_shapes(base, values, MEMORY_LIMIT)
            if not indices_exist(base, shapes, self.params):
                continue
            fitting, cost = self._fitting(symbols)
            if len(fitting) < min(2, len(self.variants)) or cost > left:
                continue
            left -= cost
            arrays = random_inputs(base, shapes, self.generator, self.params)
            try:
                runs = list(_runs(fitting, arrays, symbols, self.params, self.seed))
            except DiagnosticError as error:
                yield from error.diagnostics
                return
            self.executed += len(runs) >= min(2, len(self.variants))
            found = [item for variant, run in runs for item in _broken(variant, run)]
            if not found:
                found = list(_differences(runs))
            if found:
                yield from found
                return
            if self.executed >= self.effort.settings:
                return
        if not self.executed:
            yield _not_executed(base)

    def _fitting(self, symbols: Mapping[str, int]) -> tuple[list[Variant], int]:
        """The variants that run in short time at these sizes, and the work of all of them."""
        fitting = []
        total = 0
        for variant in self.variants:
            cost = self._cost(variant.sketch, symbols)
            if cost is not None:
                fitting.append(variant)
                total += cost
        return fitting, total

    def _cost(self, sketch: ir.Sketch, symbols: Mapping[str, int]) -> int | None:
        try:
            values = bind_values(sketch, symbols, self.params)
        except (DiagnosticError, UsageError):
            return None
        return workload(sketch, values, self.effort.run_limit)

    def _settings(
        self, base: ir.Sketch, generator: np.random.Generator
    ) -> Iterator[dict[str, int]]:
        return _settings(base, self.params, generator, self.effort.settings)

    def _variants(self, tree: syntax.Sketch, constants: dict[str, Scalar]) -> Iterator[Variant]:
        """The sketch as it stands, then at ones, ragged and large values of its tile sizes.

        An assignment that the checker refuses (a condition on constants, say) is left out.
        """
        from sketchc.checker.api import check_sketch, tested_claims

        checked, found = check_sketch(tree, constants, known=self.known)
        if checked is None or has_errors(found):
            return
        base = checked.sketch
        self.known = tested_claims(checked.proofs)
        self.params = {p.name: _sample_param(p) for p in base.params if p.default is None}
        free = [c for c in base.constants if c.dtype.is_integer and c.name not in constants]
        shaping = {n for tile in base.tiles for extent in tile.extents for n in free_names(extent)}
        tunable = [constant.name for constant in free if constant.tunable]
        fixed = [c.name for c in free if not c.tunable and c.name in shaping]
        yield Variant(base, (*tunable, *fixed) if self.effort.fixed else tuple(tunable))
        if not tunable and not (fixed and self.effort.fixed):
            return
        probe = next(self._settings(base, np.random.default_rng(self.seed)), None)
        for names, strict in ((tunable, True), (fixed, False)):
            if not names or not (strict or self.effort.fixed):
                continue
            for values in ((1,), RAGGED_TILES, LARGE_TILES):
                other = self._variant(tree, constants, names, values, probe)
                if other is not None:
                    yield Variant(other, tuple(names), strict)

    def _variant(
        self,
        tree: syntax.Sketch,
        constants: dict[str, Scalar],
        names: list[str],
        values: tuple[int, ...],
        probe: dict[str, int] | None,
    ) -> ir.Sketch | None:
        """The sketch at these tile sizes, or at the least multiple of them with which it runs in
        short time; None where the checker refuses it."""
        from sketchc.checker.api import check_sketch

        for scale in SCALES:
            odd = int(scale > 1 and values != (1,))
            assignment: dict[str, Scalar] = {
                name: values[number % len(values)] * scale + odd
                for number, name in enumerate(names)
            }
            other, found = check_sketch(tree, {**constants, **assignment}, known=self.known)
            if other is None or has_errors(found):
                return None
            if probe is None or self._cost(other.sketch, probe) is not None:
                return other.sketch
        return None


def _not_executed(base: ir.Sketch) -> Diagnostic:
    return Diagnostic(
        "SK0810",
        Severity.WARNING,
        f"{base.name} was not executed: no small sizes satisfy its conditions",
        base.requires[0].span if base.requires else base.span,
        label="not executed",
        help="relax the requires, or run it with `sketchc run` at sizes that satisfy them",
    )


def _sample_param(param: ir.Param) -> Scalar:
    """A value for a param that has none."""
    if param.dtype.is_float:
        return 0.5
    return 2 if param.dtype.is_integer else True


def _settings(
    sketch: ir.Sketch,
    params: Mapping[str, Scalar],
    generator: np.random.Generator,
    most: int,
) -> Iterator[dict[str, int]]:
    """Small sizes that satisfy bounds and conditions: all 1, all prime, then random ones."""
    names = [symbol.name for symbol in sketch.symbols]
    seen: set[tuple[int, ...]] = set()
    fixed = [(1,) * len(names), (7,) * len(names), (4, 7, 3, 5, 2, 6) * len(names)]
    for attempt in range(ATTEMPTS):
        pool = SMALL_SIZES if attempt < ATTEMPTS // 2 or seen else SMALL_SIZES + LARGER_SIZES
        drawn = generator.choice(pool, len(names))
        sizes = fixed[attempt] if attempt < len(fixed) else tuple(int(size) for size in drawn)
        key = tuple(sizes[: len(names)])
        symbols = dict(zip(names, key, strict=True))
        if key in seen or not _acceptable(sketch, symbols, params):
            continue
        seen.add(key)
        yield symbols
        if len(seen) == 2 * most or not names:
            return


def _acceptable(
    sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Scalar]
) -> bool:
    if math.prod(max(1, size) for size in symbols.values()) > LARGEST_VOLUME:
        return False
    try:
        tensor_shapes(sketch, bind_values(sketch, symbols, params), MEMORY_LIMIT)
    except (DiagnosticError, UsageError):
        return False
    return True


def _runs(
    variants: list[Variant],
    arrays: Mapping[str, Array],
    symbols: Mapping[str, int],
    params: Mapping[str, Scalar],
    seed: int,
) -> Iterator[tuple[Variant, Result]]:
    """Every variant executed on the same inputs, each in its own order and with its own poison.

    A variant whose launch conditions do not hold at these sizes is left out.
    """
    for number, variant in enumerate(variants):
        options = Options(
            collect=True,
            check_domains=True,
            shuffle=seed + number,
            poison=math.nan if number % 2 == 0 else 1e30,
            padding=0 if number < 2 else 3,
            rounding=False,
            memory_limit=MEMORY_LIMIT,
        )
        try:
            yield variant, interpret(variant.sketch, arrays, symbols, params, options)
        except UsageError:
            continue
        except DiagnosticError as error:
            if any(diagnostic.code != "SK0801" for diagnostic in error.diagnostics):
                raise


def _broken(variant: Variant, result: Result) -> Iterator[Diagnostic]:
    for violation in result.violations if variant.strict else ():
        if violation.kind not in DATA_DEPENDENT:
            diagnostic = violation.diagnostic(result.symbols)
            yield attrs.evolve(diagnostic, notes=(*diagnostic.notes, f"with {variant.title}"))


def _differences(runs: list[tuple[Variant, Result]]) -> Iterator[Diagnostic]:
    """The first output element at which two variants disagree, as an error."""
    whole = [(variant, result) for variant, result in runs if not result.violations]
    for variant, result in whole[1:]:
        reference, expected = whole[0]
        for name, array in result.outputs.items():
            if expected.outputs[name].shape != array.shape:
                continue  # a constant that is part of the meaning, as the K of a top-k is
            element = first_difference(expected.outputs[name], array)
            if element is None:
                continue
            place = show_element(name, element)
            notes = (
                f"{place} is {_show(expected.outputs[name][element])} with {reference.title}",
                f"{place} is {_show(array[element])} with {variant.title}",
                f"executed with {show_values(result.symbols)}",
            )
            yield _dependence(variant, notes)
            return


def _dependence(variant: Variant, notes: tuple[str, ...]) -> Diagnostic:
    names = ", ".join(variant.names)
    span = next(c.span for c in variant.sketch.constants if c.name in variant.names)
    if variant.strict:
        return Diagnostic(
            "SK0809",
            Severity.ERROR,
            f"the results of {variant.sketch.name} depend on its tile sizes ({names})",
            span,
            label="tuning may change it, so results must not depend on it",
            notes=notes,
            help="carry what spans tiles (a maximum, a sum) from one tile to the next, or give "
            "the tile the whole axis",
        )
    return Diagnostic(
        "SK0809",
        Severity.WARNING,
        f"the results of {variant.sketch.name} depend on the value of {names}",
        span,
        label="shapes tiles and results",
        notes=notes,
        help="right if its value is part of the meaning, as the size of a group is; a tile size "
        "must not change results",
    )


def _show(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def first_difference(expected: Array, actual: Array) -> tuple[int, ...] | None:
    """The first element at which two results differ by more than reassociation in float64."""
    if expected.dtype.kind != "f":
        different = expected != actual
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max()) if finite.size else 0.0
        close = np.isclose(actual, expected, rtol=1e-6, atol=1e-9 * scale, equal_nan=True)
        different = np.logical_not(close)
    found = np.argwhere(different)
    return tuple(int(index) for index in found[0]) if len(found) else None
