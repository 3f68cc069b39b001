"""Formulas of extents, learnt by asking: what fits everywhere is found, what fits once is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.runtime.tasks.extents import Extents, Question, Sizes, solve

NAMES = tuple(ir.Ref(name, ir.NameKind.SYMBOL) for name in "MNKP")
Rule = Callable[..., int]


def learn(
    rule: Rule,
    own: Sizes,
    start: Sizes = (),
    takes: Callable[..., bool] = lambda *_: True,
    steps: Sizes = (),
) -> tuple[ir.Expr | None, list[Sizes]]:
    """The formula of one extent, and what was asked."""
    asked: list[Sizes] = []

    def ask(sizes: Sizes) -> Extents | None:
        asked.append(sizes)
        return (rule(*sizes),) if takes(*sizes) else None

    first = start or (11, 13, 17, 19)[: len(own)]
    question = Question(first, own, (rule(*own),), steps or (1,) * len(own))
    (found,) = solve(ask, question, NAMES[: len(own)])
    return found, asked


def holds(found: ir.Expr | None, rule: Rule, sizes: Sequence[Sizes]) -> bool:
    assert found is not None
    return all(evaluate(found, dict(zip("MNKP", at, strict=False))) == rule(*at) for at in sizes)


LINES: dict[str, Rule] = {
    "affine": lambda n: 3 * n - 5,
    "falling": lambda n: 2000 - n,
    "a constant": lambda n: 7,
    "pooled": lambda n: (n - 3) // 3 + 1,
    "far apart": lambda n: (n + 5) // 32,
    "a half": lambda n: n // 2,
    "rounded up": lambda n: -(-n // 7),
    "padded to tiles": lambda n: 16 * ((n + 15) // 16),
    "twice up, once down": lambda n: 2 * ((n - 1) // 2) + 1,
    "what chunks leave": lambda n: n - 2 * ((n + 2) // 3),
    "one and a half": lambda n: 3 * n // 2,
    "two strides": lambda n: ((n - 1) // 2 + 1 - 3) // 2 + 1,
}


@pytest.mark.parametrize("rule", LINES.values(), ids=LINES)
def test_along_one_symbol(rule: Rule) -> None:
    found, asked = learn(rule, (1000,))
    assert holds(found, rule, [(size,) for size in range(3, 1500, 7)])
    assert len(asked) < 40


SEVERAL: dict[str, Rule] = {
    "a product": lambda m, n, k, p: m * n,
    "pixels of a transposed convolution": lambda m, n, k, p: 6 * (m + 2) * (2 * n - 1),
    "a sum of three": lambda m, n, k, p: m + n + k,
    "a sum with a constant": lambda m, n, k, p: m + 2 * n - 4,
    "a transposed convolution": lambda m, n, k, p: 2 * (m - 1) + 3 * (k - 1) + 1,
    "a dilated convolution": lambda m, n, k, p: (m + 400 - 4 * (k - 1) - 1) // 3 + 1,
    "pooled pixels": lambda m, n, k, p: (m // 2) * ((n - 3) // 4 + 1),
    "rows and more": lambda m, n, k, p: m * n + k * 2 + 5,
    "products of three and a sum": lambda m, n, k, p: m * n * k - n + 3 * p,
    "what is left over": lambda m, n, k, p: m + n % 3,
    "half of each": lambda m, n, k, p: m // 2 + n // 3,
}  # fmt: skip


@pytest.mark.parametrize("rule", SEVERAL.values(), ids=SEVERAL)
def test_of_several_symbols(rule: Rule) -> None:
    found, _ = learn(rule, (64, 48, 24, 9))
    sizes = [(m, n, k, p) for m in (6, 31, 64) for n in (7, 48) for k in (3, 5, 24) for p in (1, 9)]
    assert holds(found, rule, sizes)


STRANGE: dict[str, Rule] = {
    "digits": lambda m, n: m.bit_length(),
    "by chance at one size": lambda m, n: n + 4 if (m, n) == (9, 11) else m * m + 7,
    "the larger one": lambda m, n: max(m, n),
}


@pytest.mark.parametrize("rule", STRANGE.values(), ids=STRANGE)
def test_what_has_no_formula_gets_none(rule: Rule) -> None:
    assert learn(rule, (9, 11))[0] is None


def test_a_formula_that_breaks_at_the_own_sizes_is_none() -> None:
    assert learn(lambda n: min(n, 500), (1000,))[0] is None


def test_sizes_that_the_task_refuses_are_passed_over() -> None:
    found, _ = learn(lambda n: n // 4, (1000,), takes=lambda n: n % 3 != 0)
    assert holds(found, lambda n: n // 4, [(size,) for size in range(4, 100)])
    found, _ = learn(lambda n: n + 1, (20,), (19,), takes=lambda n: n < 20)
    assert holds(found, lambda n: n + 1, [(5,), (20,)])
    assert learn(lambda n: n + 1, (1000,), takes=lambda n: n in (11, 12))[0] is None


def test_steps_that_the_task_asks_for() -> None:
    rule: Rule = lambda n: n // 8 * 3  # noqa: E731
    found, asked = learn(rule, (1000,), (88,), lambda n: n % 8 == 0, (8,))
    assert holds(found, rule, [(size,) for size in range(8, 800, 8)])
    assert all(size % 8 == 0 for (size,) in asked)
