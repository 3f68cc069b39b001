"""Workspaces that are never in use together share memory, and none that are."""

from __future__ import annotations

from pathlib import Path

import pytest
from toolchains import require
from triton_cases import Array, lower

from sketchc.lowering.workspaces import shared_memory
from sketchc.runtime.toolchains.launching import workspace_bytes

from every_target import agreement, disagreements  # isort: skip


def step(out: str, *sources: str, depth: int = 1) -> str:
    """One phase: the sum of what is read, squashed, so that each has a part in the result."""
    lines = ['@llm_hint("parallel", "grididx")', "for i in range(0, N, T):"]
    for place, source in enumerate(sources):
        lines += [f"    x{place} = alloc([T])", f"    load({source}[i:i+T] -> x{place})"]
    lines += [f"    add(x0, x{place}, x0)" for place in range(1, len(sources))]
    lines += ["    mul(x0, 0.75, x0)", "    add(x0, 1.0, x0)", f"    store(x0 -> {out}[i:i+T])"]
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


def network(steps: str, spaces: str) -> str:
    return f"""sketch network {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    workspace: {spaces};
    constexpr: T = 32;
{steps}}}
"""


CHAIN = network(
    step("A", "X") + step("B", "A") + step("C", "B") + step("D", "C") + step("Y", "D"),
    "A[N]: f32; B[N]: f32; C[N]: f32; D[N]: f32",
)
SKIPS = network(
    step("A", "X")
    + step("B", "A")
    + step("C", "B", "A")
    + step("D", "C", "A")
    + step("E", "D", "C")
    + step("Y", "E", "X"),
    "A[N]: f32; B[N]: f32; C[N]: f32; D[N]: f32; E[N]: f32",
)
#: B is read in the second iteration before it is written there; F has an initial value.
LOOP = network(
    step("A", "X")
    + step("B", "A")
    + "    for turn in range(3):\n"
    + step("C", "B", depth=2)
    + step("D", "C", "B", depth=2)
    + step("B", "D", "C", depth=2)
    + step("E", "B", "F")
    + step("Y", "E"),
    "A[N]: f32; B[N]: f32; C[N]: f32; D[N]: f32; E[N]: f32; F[N]: f32 = 2",
)


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["cpp", "triton_cuda", "triton_ascend"])
def test_results_are_those_of_memory_of_its_own(target: str, tmp_path: Path) -> None:
    require(target)
    runs: list[tuple[dict[str, int], dict[str, Array]]] = [({"N": n}, {}) for n in (1, 31, 97)]
    sketches = {"chain": CHAIN, "skips": SKIPS, "loop": LOOP}
    texts = {name: (text.replace("network", name), runs) for name, text in sketches.items()}
    wrong = disagreements(target, texts, tmp_path, agreement)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "shared", "buffers"),
    [
        (CHAIN, {"C": "A", "D": "B"}, 2),
        # A is read till D is written; B and E are short.
        (SKIPS, {"D": "B", "E": "A"}, 3),
        (LOOP, {"C": "A", "E": "A"}, 4),
    ],
)
def test_memory_is_shared_where_lifetimes_allow(
    text: str, shared: dict[str, str], buffers: int
) -> None:
    sketch = lower(text, "cpp")[1].sketch
    assert shared_memory(sketch) == shared
    found = workspace_bytes(sketch, {"N": 100}, {})
    assert found == buffers * 400
