"""For every operation, the combinations of types that the checker accepts compile and run.

A sample is tried that has every accepted type in every place; SKETCHC_OPERATION_TYPES=60 tries so
many combinations of each operation, and SKETCHC_SEED other ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import operation_types as types
import pytest
from every_target import run_everything
from operation_types import PACK, Trial
from shared_work import shared
from toolchains import require
from triton_cases import Array, Case, assert_close, lower, make_case

from sketchc.base.diagnostics import DiagnosticError, Severity
from sketchc.lowering.registry import TARGETS

SEED = int(os.environ["SKETCHC_SEED"])
WANTED = int(os.environ.get("SKETCHC_OPERATION_TYPES", "0"))
#: Where each sketch compiles by itself: one of so many trials.
ASCEND_STEP = 1 if WANTED else 6
#: These take the compilers of MLIR long, and are tried in tests of their own.
SLOW_ON_ASCEND = ("topk", "sort")
#: So many combinations of an operation are asked about.
ASKED = max(80, 4 * WANTED)


def chosen() -> list[Trial]:
    """The accepted trials to run, those of one operation together."""

    def make() -> list[Trial]:
        found = []
        for every in types.trials().values():
            asked = types.covering(every, ASKED, SEED)
            accepted = types.accepted(asked)
            found += types.covering(accepted, WANTED, SEED) if accepted else []
        return found

    return shared(f"operation-types-{SEED}-{WANTED}", make)


def packs(target: str) -> Iterator[list[Trial]]:
    """The trials of a target that it has the types for, `PACK` in a sketch."""
    every = chosen()
    if target == "triton_ascend":
        # It has no f64, of which test_features.py sees that it is said.
        every = [t for t in every if not any("f64" in kind for kind in t.kinds)]
        every = [t for t in every if t.operation not in SLOW_ON_ASCEND][::ASCEND_STEP]
    size = PACK if target == "triton_ascend" else 3 * PACK
    for start in range(0, len(every), size):
        yield every[start : start + size]


def case(
    target: str, name: str, pack: Sequence[Trial]
) -> tuple[tuple[Case, list[Trial]] | None, list[str]]:
    """The pack's trials, without those that the target refuses with a diagnostic; what it refuses
    otherwise is a text."""
    left = list(pack)
    while left:
        text, owners = types.sketch(name, left)
        try:
            kernel = lower(text, target)[1]
        except DiagnosticError as error:
            errors = [d for d in error.diagnostics if d.severity is Severity.ERROR]
            bad = {owners[d.span.line] for d in errors if d.span and d.span.line in owners}
            if not bad or any(not d.code.startswith("SK07") for d in errors):
                return None, [f"{[(d.code, d.message) for d in errors]}\n{text}"]
            left = [trial for number, trial in enumerate(left) if number not in bad]
            continue
        tensors = types.inputs(text)
        params = {p.name: types.PARAMS[p.name] for p in kernel.sketch.params}
        return (make_case(kernel, {}, params, tensors), left), []
    return None, []


def differences(case: Case, pack: Sequence[Trial], found: dict[str, Array]) -> list[str]:
    """Results are as exact as the type in which they are computed, which is f32 for operands that
    are no f64, also where the destination is f64."""
    wrong = []
    for name, expected in case.expected.items():
        trial = pack[int(re.sub(r"\D*(\d+).*", r"\1", name))]
        result = found[name]
        if expected.dtype == np.float64 and "f64" not in trial.kinds[:-1]:
            result, expected = result.astype(np.float32), expected.astype(np.float32)
        try:
            assert_close(result, expected, factor=16.0, terms=16)
        except AssertionError as error:
            wrong.append(f"{trial.title}: {error}")
    return wrong


def run(target: str, prefix: str, groups: list[list[Trial]], folder: Path) -> list[str]:
    """What is wrong with packs of trials."""
    cases, wrong = [], []
    for number, pack in enumerate(groups):
        made, refused = case(target, f"{prefix}_{number}", pack)
        wrong += refused
        if made is not None:
            cases.append(made)
    results = run_everything(target, [made for made, _ in cases], folder, "-O0")
    for (made, kept), found in zip(cases, results, strict=True):
        reply = [found] if isinstance(found, str) else differences(made, kept, found)
        wrong += [f"{made.kernel.name}: {each}" for each in reply]
    return wrong


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_accepted_compiles_and_runs(target: str, tmp_path: Path) -> None:
    require(target)
    wrong = run(target, "types", list(packs(target)), tmp_path)
    assert not wrong, "\n\n".join(wrong)
