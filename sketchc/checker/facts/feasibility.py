"""A quick, sound refutation of systems of integer inequalities, without isl.

Fourier-Motzkin elimination (Fourier 1826; Motzkin 1936; see Schrijver, Theory of Linear and Integer
Programming, 12.2) with the integer tightening of Pugh's Omega test (1991): each inequality is
divided by the gcd of its coefficients and its constant rounded down. It answers True only when no
integer point exists. False means "not refuted here": `polyhedra` then asks isl.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from sketchc.checker.facts import budget
from sketchc.checker.facts.affine import ONE, Fact, Linear, add

_Key = tuple[tuple[int, int], ...]
_Rows = dict[_Key, int]

#: More rows than this and elimination gives up: the typical system has a dozen.
ROW_LIMIT = 300


class _Empty(Exception):
    """The system has a row that no integer satisfies."""


def infeasible(facts: Iterable[Fact]) -> bool:
    """True when no integer point satisfies all facts; False when that could not be shown."""
    try:
        rows = _rows(_eliminate_equalities(facts))
        return _eliminate(rows)
    except _Empty:
        return True


def _eliminate_equalities(facts: Iterable[Fact]) -> list[Linear]:
    """Inequalities alone: an equality with a unit coefficient replaces that variable, any other
    becomes two inequalities."""
    inequalities: list[Linear] = []
    equalities: list[Linear] = []
    for fact in facts:
        (equalities if fact.equality else inequalities).append(fact.form)
    while equalities:
        form = equalities.pop()
        _check_divisibility(form)
        pivot = next((a for a, c in form.items() if a != ONE and c in (1, -1)), None)
        if pivot is None:
            inequalities.append(form)
            inequalities.append({atom: -c for atom, c in form.items()})
            continue
        sign = form[pivot]
        equalities = [add(f, form, -sign * f[pivot]) if pivot in f else f for f in equalities]
        inequalities = [add(f, form, -sign * f[pivot]) if pivot in f else f for f in inequalities]
    return inequalities


def _check_divisibility(form: Linear) -> None:
    divisor = gcd(*(c for atom, c in form.items() if atom != ONE))
    rest = form.get(ONE, 0)
    if (divisor == 0 and rest != 0) or (divisor > 1 and rest % divisor):
        raise _Empty


def _insert(rows: _Rows, items: list[tuple[int, int]], rest: int) -> None:
    """Add one inequality; of two with the same variables the tighter one stays."""
    if not items:
        if rest < 0:
            raise _Empty
        return
    divisor = gcd(*(c for _, c in items))
    if divisor > 1:
        items = [(atom, c // divisor) for atom, c in items]
        rest //= divisor
    items.sort()
    key = tuple(items)
    known = rows.get(key)
    if known is None or rest < known:
        rows[key] = rest


def _rows(forms: Iterable[Linear]) -> _Rows:
    rows: _Rows = {}
    for form in forms:
        budget.spend(2)
        items = [(atom, c) for atom, c in form.items() if atom != ONE and c]
        _insert(rows, items, form.get(ONE, 0))
    return rows


def _eliminate(rows: _Rows) -> bool:
    """Project variables out one by one, cheapest first. False when all are gone without conflict
    (or the system grew too large)."""
    while rows:
        if len(rows) > ROW_LIMIT:
            return False
        positive: dict[int, int] = {}
        negative: dict[int, int] = {}
        for key in rows:
            for atom, c in key:
                side = positive if c > 0 else negative
                side[atom] = side.get(atom, 0) + 1
        one_sided = (positive.keys() | negative.keys()) - (positive.keys() & negative.keys())
        if one_sided:
            rows = {k: r for k, r in rows.items() if not any(a in one_sided for a, _ in k)}
            continue
        atom = min(positive, key=lambda a: positive[a] * negative[a] - positive[a] - negative[a])
        rows = _project(rows, atom)
    return False


def _project(rows: _Rows, atom: int) -> _Rows:
    result: _Rows = {}
    lower: list[tuple[int, dict[int, int], int]] = []
    upper: list[tuple[int, dict[int, int], int]] = []
    for key, rest in rows.items():
        others = dict(key)
        c = others.pop(atom, 0)
        if c == 0:
            known = result.get(key)
            result[key] = rest if known is None else min(known, rest)
        elif c > 0:
            lower.append((c, others, rest))
        else:
            upper.append((-c, others, rest))
    budget.spend(len(rows) + 3 * len(lower) * len(upper))
    for c, others, rest in lower:
        for d, more, bound in upper:
            total = {a: d * x for a, x in others.items()}
            for a, x in more.items():
                total[a] = total.get(a, 0) + c * x
            _insert(result, [(a, x) for a, x in total.items() if x], d * rest + c * bound)
    return result
