"""Kernels as a model might write them, good and broken, for one sketch: Y = X + X."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from sketchc.base.diagnostics import Source
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.design import SketchTask
from sketchc.runtime.verify.verdict import Verdict
from sketchc.runtime.verify.verify import Candidate, verify

SKETCH = """sketch twice {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "coreidx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        add(x, x, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""

CPP = """#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

extern "C" int64_t twice(const float *X, float *Y, int64_t N)
{
    for (int64_t i = 0; i < N; ++i) {
        Y[i] = X[i] + X[i];
    }
    return 0;
}
"""

TRITON = '''import torch
import triton
import triton.language as tl


@triton.jit
def twice_kernel(X, Y, N, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < N
    x = tl.load(X + lanes, mask=mask, other=0.0)
    tl.store(Y + lanes, x + x, mask=mask)


def twice(X, *, out=None):
    """Y = X + X."""
    Y = torch.empty_like(X) if out is None else out
    N = X.numel()
    twice_kernel[(triton.cdiv(N, 64),)](X, Y, N, BLOCK=64)
    return Y
'''

_PLANS: dict[str, Plan] = {}


def base(target: str) -> str:
    """The kernel that is right."""
    return CPP if target == "cpp" else TRITON


def edited(target: str, *edits: tuple[str, str]) -> str:
    """The right kernel with texts replaced; each must be there."""
    source = base(target)
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return source


def tree() -> syntax.Sketch:
    """The sketch's syntax tree."""
    parsed, found = parse(Source("twice.sketch", SKETCH))
    assert parsed is not None, found
    return parsed.sketches[0]


def candidate(target: str, source: str) -> Candidate:
    """The source as a foreign kernel for the sketch."""
    if target not in _PLANS:
        _PLANS[target] = build_plan(tree(), target).plan
    plan = _PLANS[target]
    language, chip = load_target(target).language.name, plan.hardware.name
    kernel = Kernel(target, chip, "twice", "twice", language, source, plan.sketch, foreign=True)
    return Candidate(plan, kernel, toolchain(target))


def judge(
    target: str,
    source: str,
    folder: Path | None = None,
    timeout: float = 60.0,
    compile_timeout: float = 120.0,
    cases: int = 1,
) -> Verdict:
    """Verify against the sketch at its own sizes alone (or at more cases)."""
    made = candidate(target, source)
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return verify(
            made,
            stack.enter_context(SketchTask(made.plan)),
            place,
            seed=7,
            select=lambda found: [c for c in found if not c[0].drawn][-cases:],
            small=True,
            timeout=timeout,
            compile_timeout=compile_timeout,
        )
