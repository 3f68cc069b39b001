"""All targets give one answer, the interpreter's, for every example and for random sketches.

All run a sketch with the same tiles, at the same sizes, on the same inputs. The tiles are the
smallest ones of the sketch's lists; the sizes are such that every loop, of the grid or in order,
runs at least twice in the interpreter. Loops of which the checker proves that no launch runs them
twice are left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from agreement_cases import launch, loops, plans, subjects
from every_target import run_everything
from example_targets import LOWERED, NAMES
from toolchains import require
from triton_cases import lower

from sketchc.lowering.registry import TARGETS

#: How many random sketches are compared.
DRAWN = 20
#: The sketches are dealt out to so many batches, each built and run together: a multiple of the
#: parts of the sweeps, so that the targets of one part prepare the same batches.
BATCHES = 12
CASES = [(target, batch) for target in sorted(TARGETS) for batch in range(BATCHES)]
#: Loops of the grid, in order, and around launches; those over `once` and `same` never run twice.
LOOPS = """sketch turns {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 16, SAME = 1;

    for once in range(1):
        @llm_hint("parallel", "grididx")
        for i in range(M):
            for same in range(SAME):
                for j in range(0, N, T):
                    x = alloc([T])
                    load(X[i, j:j+T] -> x)
                    store(x -> Y[i, j:j+T])
}
"""


@pytest.mark.sweep
@pytest.mark.parametrize(("target", "batch"), CASES)
def test_a_target_agrees_with_all_others(target: str, batch: int, tmp_path: Path) -> None:
    require(target)
    chosen = [one for one in subjects(DRAWN)[batch::BATCHES] if target in plans(one)]
    launches = [launch(one) for one in chosen]
    cases = [each.case(plans(one)[target][1]) for one, each in zip(chosen, launches, strict=True)]
    wrong = []
    answers = run_everything(target, cases, tmp_path)
    for each, case, found in zip(launches, cases, answers, strict=True):
        reply = found if isinstance(found, str) else each.wrong(case.kernel.sketch, found)
        if reply:
            wrong.append(f"{each.title}: {reply}\n{each.subject.text}")
    assert not wrong, "\n\n".join(wrong)


def test_one_wrong_element_is_told() -> None:
    """Of an example, and of a random sketch: the last one, which lies behind the first tile."""
    chosen = subjects(DRAWN)
    for subject in (chosen[NAMES.index("relu")], chosen[-1]):
        each = launch(subject)
        sketch = plans(subject)["cpp"][0].sketch
        assert each.wrong(sketch, each.expected) == ""
        for name, array in each.expected.items():
            changed = array.copy()
            changed.flat[-1] = not changed.flat[-1] if array.dtype == np.bool_ else 99
            assert name in each.wrong(sketch, {**each.expected, name: changed})


def test_loops_that_never_run_twice_are_left_out() -> None:
    sketch = lower(LOOPS, "cpp")[0].sketch
    assert {goal.name for goal in loops(sketch)} == {"i", "j"}


@pytest.mark.sweep
def test_examples_are_compared_on_all_targets_that_take_them() -> None:
    found = {(one.name, target) for one in subjects(0) for target in plans(one)}
    assert found == set(LOWERED)
