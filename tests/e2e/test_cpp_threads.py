"""How many threads a C++ kernel takes: one where its work is small, with the same results."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from cpp_cases import (
    PARAMS,
    TILES,
    Array,
    assert_equal,
    example,
    inputs,
    load_module,
    lower,
    reference,
)
from native_kernel import NativeKernel
from toolchains import ready, require

from sketchc.ir.evaluate import evaluate, host_values
from sketchc.lowering.cpp.library.texts import LIBRARY
from sketchc.lowering.plan import Plan
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

require("cpp")

_LIMIT = re.compile(r"(least_shared_work = )(\d+);")
_FOUND = _LIMIT.search(LIBRARY.pieces["least_shared_work"].text)
assert _FOUND is not None
LIMIT = int(_FOUND[2])

#: Scratch memory, streamed outputs, initial values with atomics, several launches, host loops.
SIZES = {
    "relu": {"M": 1, "N": 997},
    "softmax": {"M": 1, "N": 101},
    "layer_norm": {"M": 1, "N": 37},
    "rms": {"B": 2, "F": 3, "D1": 1, "D2": 29},
    "matmul": {"M": 1, "N": 67, "K": 31},
    "cumsum_two_phase": {"M": 1, "N": 300},
    "histogram": {"N": 1},
    "heat": {"M": 1, "N": 41},
}


def work(plan: Plan, symbols: dict[str, int], params: dict[str, Any] | None = None) -> int:
    """That of the launch which does most."""
    values = host_values(plan.sketch, symbols, params or {})
    works = [phase.work for phase in plan.phases]
    return max(int(evaluate(each, values)) for each in works if each is not None)


def around(plan: Plan, symbols: dict[str, int], params: dict[str, Any]) -> list[dict[str, int]]:
    """The largest sizes that one thread does alone, and the next ones, along the first symbol that
    is 1."""
    name = next(name for name, value in symbols.items() if value == 1)
    few, many = 1, 2
    while work(plan, {**symbols, name: many}, params) < LIMIT:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        if work(plan, {**symbols, name: middle}, params) < LIMIT:
            few = middle
        else:
            many = middle
    return [{**symbols, name: few}, {**symbols, name: many}]


@pytest.mark.parametrize("name", SIZES)
def test_results_do_not_depend_on_the_number_of_threads(name: str, tmp_path: Path) -> None:
    """On both sides of the limit, a kernel and those that share all work, or none, agree bit by
    bit, and with the interpreter."""
    plan, kernel = lower(example(name), TILES.get(name))
    params = PARAMS.get(name, {})
    kernels = []
    for limit in (LIMIT, 0, 2**62):
        text, changes = _LIMIT.subn(rf"\g<1>{limit};", kernel.source)
        assert changes == 1
        folder = tmp_path / str(limit)
        folder.mkdir()
        kernels.append(NativeKernel(ready(attrs.evolve(kernel, source=text), folder)))
    for symbols in around(plan, SIZES[name], params):
        given = inputs(plan.sketch, symbols, params)
        wanted = reference(plan.sketch, given, symbols, params)
        found: list[dict[str, Array]] = []
        for each in kernels:
            tensors = {name: array.copy() for name, array in given.items()}
            assert each(tensors, symbols, params) == 0
            found.append(tensors)
        assert_equal(plan.sketch, found[0], wanted, 64.0)
        for output in wanted:
            np.testing.assert_array_equal(found[0][output], found[1][output])
            np.testing.assert_array_equal(found[0][output], found[2][output])


def test_work_is_counted_by_launch_at_valid_lanes() -> None:
    plan, _ = lower(example("heat"))
    few, many = (work(plan, {"M": 5, "N": 5}, {"steps": steps}) for steps in (1, 1000))
    assert few == many  # one launch of a loop of launches
    plan, _ = lower(example("matmul"), {"TM": 128, "TN": 128, "TK": 256})
    assert work(plan, {"M": 8, "N": 8, "K": 8}) < 2**13


def test_work_that_the_host_does_not_know_is_shared(tmp_path: Path) -> None:
    """A loop whose end only the kernel finds out."""
    text = """sketch sums {
    symbols: M, K;
    tensors: ENDS[M]: in i64; X[M, K]: in f32; Y[M]: out f32;
    @llm_hint("parallel", "grididx")
    for i in range(M):
        end = fetch(ENDS[i])
        total = alloc([1], f32, init=0)
        for k in range(end):
            x = alloc([1])
            load(X[i, k%K:k%K+1] -> x)
            add(total, x, total)
        store(total -> Y[i:i+1])
}"""
    plan, kernel = lower(text)
    assert plan.phases[0].work is None
    assert "threads_for" not in kernel.source
    native = NativeKernel(ready(kernel, tmp_path))
    x = np.arange(21, dtype=np.float32).reshape(3, 7)
    tensors = {"ENDS": np.array([0, 3, 9]), "X": x, "Y": np.empty(3, np.float32)}
    assert native(tensors, {"M": 3, "K": 7}) == 0
    wanted = [0, x[1, :3].sum(), x[2].sum() + x[2, :2].sum()]
    np.testing.assert_array_equal(tensors["Y"], wanted)


def test_calls_at_the_same_time(tmp_path: Path) -> None:
    """Several threads of Python call one module, with sizes on both sides of the limit."""
    _, kernel = lower(example("softmax"))
    module = load_module(TOOLCHAIN.build_module(kernel, tmp_path), "softmax_module")
    values = [torch.randn(rows, 101) for rows in (1, 7, 99, 100, 211)]
    wanted = [torch.softmax(x, dim=-1) for x in values]

    def calls(seed: int) -> None:
        for number in range(100):
            place = (seed + number) % len(values)
            x = values[place]
            found = module.softmax(x.numpy() if number % 2 else x)
            torch.testing.assert_close(torch.as_tensor(found), wanted[place])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(calls, seed) for seed in range(4)]:
            done.result(timeout=120)
