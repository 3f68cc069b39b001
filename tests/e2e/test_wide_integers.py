"""Integers have 64 bits, everywhere alike: launches that fit give what the interpreter gives, and
launches that do not are refused by the interpreter and by every target, before anything is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from native_kernel import NativeKernel
from toolchains import ready, require
from triton_cases import Case, make_case, run_cases

from sketchc.base.diagnostics import DiagnosticError, Source, UsageError
from sketchc.interpreter.api import interpret
from sketchc.launch.conditions import broken
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

Sizes = dict[str, int]
GUARD = 4096
POISON = 77.0


@attrs.frozen
class Wide:
    """A sketch with launches (sizes, params) that fit 64 bits, and ones that do not."""

    declarations: str
    body: str
    fits: tuple[tuple[int, dict[str, int]], ...]
    leaves: tuple[tuple[int, dict[str, int]], ...]

    @property
    def text(self) -> str:
        return f"""sketch wide {{
    symbols: N;
    {self.declarations}
    tensors: X[N]: in f32; Y[N]: out f32 = 0;
    require: N >= 1;
    constexpr: T = 4;

    @llm_hint("parallel")
    for i in range(N):
        x = alloc([1])
{self.body}
}}
"""


CASES = {
    "product": Wide(
        "params: k: i64; require: k >= 1;",
        """        load(X[i:i+1] -> x)
        store(x -> Y[i*k:i*k+1])""",
        fits=((1, {"k": 1}), (7, {"k": 1}), (7, {"k": 3}), (3, {"k": 2**61}), (1, {"k": 2**62})),
        leaves=((8, {"k": 2**61}), (13, {"k": 2**61}), (5, {"k": 2**63 - 1}), (1000, {"k": 2**54})),
    ),
    "quotient": Wide(
        "params: k: i64; require: k >= 1;",
        """        load(X[i:i+1] -> x)
        store(x -> Y[(i*k)//k:(i*k)//k+1])""",
        fits=((1, {"k": 1}), (13, {"k": 7}), (2, {"k": 2**61}), (5, {"k": 2**60 + 1})),
        leaves=((13, {"k": 2**61}), (5, {"k": 2**62}), (1, {"k": 2**63 - 1})),
    ),
    "random": Wide(
        "",
        """        load(X[(i*6364136223846793005 + 1442695040888963407) % N] -> x)
        store(x -> Y[i:i+1])""",
        fits=((1, {}),),
        leaves=((2, {}), (13, {}), (1000, {})),
    ),
    "literal": Wide(
        "",
        """        load(X[i:i+1] -> x)
        store(x -> Y[i*4611686018427387904:i*4611686018427387904+1])""",
        fits=((1, {}),),
        leaves=((2, {}), (13, {})),
    ),
    "lets": Wide(
        "params: a: i64; b: i64 = 1; let: AB = (a*b)//a; require: a >= 1 and AB >= 1;",
        """        load(X[i:i+1] -> x)
        store(x -> Y[i*AB:i*AB+1])""",
        fits=((5, {"a": 3}), (5, {"a": 2**61}), (5, {"a": 2**40, "b": 2**20})),
        leaves=((5, {"a": 2**62, "b": 3}), (5, {"a": 2**40, "b": 2**30})),
    ),
    "lanes": Wide(
        "params: k: i64;",
        """        y = alloc([T])
        p = (i + iota(T))*k
        load(X[(i + iota(T))*k - k*i] -> y, pad=0, where=p < N)
        fill(0, x)
        store(y -> Y[i*T:(i+1)*T])""",
        fits=((1, {"k": 1}), (13, {"k": -1}), (3, {"k": 2**59}), (3, {"k": -(2**59)})),
        leaves=((5, {"k": 2**61}), (5, {"k": -(2**62)}), (9, {"k": -(2**63)})),
    ),
    "loops": Wide(
        "params: step: i64; require: step >= 1;",
        """        load(X[i:i+1] -> x)
        for j in range(0, N, step):
            store(x -> Y[i:i+1])""",
        fits=((5, {"step": 1}), (5, {"step": 2**62})),
        leaves=((5, {"step": 2**63 - 1}),),
    ),
}
FITS = [(name, *launch) for name, case in CASES.items() for launch in case.fits]
LEAVES = [(name, *launch) for name, case in CASES.items() for launch in case.leaves]


def lower(name: str, target: str) -> Kernel:
    tree, found = parse(Source("wide.sketch", CASES[name].text))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], target, None, {}, allow_unproved=True).plan
    return load_target(target).emit(plan)


def tensors(size: int) -> dict[str, Any]:
    return {"X": np.arange(1, size + 1, dtype=np.float32)}


# ---------------------------------------------------------------- the interpreter


@pytest.mark.parametrize(("name", "size", "params"), LEAVES)
def test_the_interpreter_refuses(name: str, size: int, params: dict[str, int]) -> None:
    kernel = lower(name, "cpp")
    with pytest.raises(DiagnosticError) as refused:
        interpret(kernel.sketch, tensors(size), {}, params)
    assert [d.code for d in refused.value.diagnostics] == ["SK0801"]


# ---------------------------------------------------------------- C++


@pytest.mark.parametrize("name", CASES)
def test_the_function_itself_refuses(name: str, tmp_path: Path) -> None:
    """The bare C function, with memory around the output that it must not touch."""
    require("cpp")
    kernel = lower(name, "cpp")
    artefact = TOOLCHAIN.compile(kernel, tmp_path)
    assert artefact.details["warnings"] == ""
    native = NativeKernel(artefact)
    for expected, launches in ((True, CASES[name].fits), (False, CASES[name].leaves)):
        for size, params in launches:
            memory = np.full(size + 2 * GUARD, POISON, np.float32)
            given = {**tensors(size), "Y": memory[GUARD : GUARD + size]}
            status = native(given, {"N": size}, {"b": 1, **params} if name == "lets" else params)
            assert (status == 0) is expected, (size, params, status)
            assert (memory[:GUARD] == POISON).all()
            assert (memory[GUARD + size :] == POISON).all()
            if expected:
                outputs = interpret(kernel.sketch, tensors(size), {}, params).outputs
                np.testing.assert_array_equal(memory[GUARD : GUARD + size], outputs["Y"])
            else:
                assert (memory == POISON).all()


# ---------------------------------------------------------------- Triton


def test_triton_agrees(tmp_path: Path) -> None:
    """All launches of all sketches, in one process of Triton's interpreter."""
    require("triton_cuda")
    kernels = {name: lower(name, "triton_cuda") for name in CASES}
    fitting = [
        make_case(kernels[name], {"N": size}, params, tensors(size)) for name, size, params in FITS
    ]
    for launch, case, found in zip(FITS, fitting, run_cases(fitting, tmp_path / "f"), strict=True):
        assert isinstance(found, dict), (launch, found)
        np.testing.assert_array_equal(found["Y"], case.expected["Y"], str(launch))
    refused = [
        attrs.evolve(
            make_case(kernels[name], {"N": size}, CASES[name].fits[0][1], tensors(size))
            if name not in ("random", "literal")
            else make_case(kernels[name], {"N": 1}, {}, tensors(1)),
            params=params,
            symbols={"N": size},
            tensors=tensors(size),
            expected={},
        )
        for name, size, params in LEAVES
    ]
    for launch, found in zip(LEAVES, run_cases(refused, tmp_path / "r"), strict=True):
        assert isinstance(found, str), launch
        assert found.startswith("LaunchError"), (launch, found)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "triton_cuda"])
def test_toolchains_agree(target: str, name: str, tmp_path: Path) -> None:
    """The last launch that fits and the first that does not, as users launch."""
    toolchain: Any = require(target)
    kernel = lower(name, target)
    artefact = ready(kernel, tmp_path)
    size, params = CASES[name].fits[-1]
    expected = interpret(kernel.sketch, tensors(size), {}, params).outputs
    given = {**tensors(size), "Y": np.full(size, POISON, np.float32)}
    found = toolchain.run(artefact, given, {"N": size}, params)
    np.testing.assert_array_equal(found["Y"], expected["Y"])
    size, params = CASES[name].leaves[0]
    with pytest.raises(ToolchainError) as failed:
        toolchain.run(artefact, tensors(size), {"N": size}, params)
    assert failed.value.stage == "launch"


# ---------------------------------------------------------------- what was loaded

LOADED = {
    "lanes": """        ids = alloc([T], i64)
        x = alloc([T])
        load(I[i:i+T] -> ids)
        load(X[ids*4 + 1] -> x, pad=0)
        atomic_max(x -> Y[ids*ids])""",
    "fetched": """        s = fetch(I[i])
        x = alloc([1])
        load(X[i*s:i*s+1] -> x, pad=0)
        atomic_max(x -> Y[s*s:s*s+1])""",
    "quotient": """        s = fetch(I[i])
        x = alloc([1])
        k = s*3
        load(X[(k*k)//3:(k*k)//3+1] -> x, pad=0)
        atomic_max(x -> Y[(s*k)//3:(s*k)//3+1])""",
    "lane": """        s = fetch(I[i])
        x = alloc([T])
        load(X[iota(T)*s*s] -> x, pad=0)
        atomic_max(x -> Y[(iota(T) - s)*s])""",
    "loop": """        s = fetch(I[i])
        for j in range(s, s + s, 4611686018427387904):
            x = alloc([1])
            load(X[j:j+1] -> x, pad=0)
            atomic_max(x -> Y[j:j+1])""",
}
#: Numbers whose sums and products leave 64 bits, some of them back into the range of the tensors.
FAR = (2**62, -(2**62), 2**61 + 1, -(2**63), 2**63 - 1, 2**32, -(2**32), 3 * 2**61)


def loaded(name: str, target: str) -> Kernel:
    step = "range(0, N, T)" if name == "lanes" else "range(N)"
    text = f"""sketch loaded {{
    symbols: N;
    tensors: I[N]: in i64; X[N]: in f32; Y[N]: out f32 = 0;
    constexpr: T = 4;
    require: N >= 1;

    @llm_hint("parallel")
    for i in {step}:
{LOADED[name]}
}}
"""
    tree, found = parse(Source("loaded.sketch", text))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], target, None, {}, allow_unproved=True).plan
    return load_target(target).emit(plan)


@pytest.mark.parametrize("name", LOADED)
def test_loaded_numbers_that_leave_64_bits(name: str, tmp_path: Path) -> None:
    """An error of the interpreter where they do; C++ stays within its tensors all the same."""
    require("cpp")
    kernel = loaded(name, "cpp")
    native = NativeKernel(TOOLCHAIN.compile(kernel, tmp_path))
    refused = []
    for far in FAR:
        given = {**tensors(8), "I": np.full(8, far, np.int64)}
        memory = np.full(8 + 2 * GUARD, POISON, np.float32)
        assert native({**given, "Y": memory[GUARD : GUARD + 8]}, {"N": 8}, {}) == 0
        assert (memory[:GUARD] == POISON).all()
        assert (memory[GUARD + 8 :] == POISON).all()
        try:
            expected = interpret(kernel.sketch, given).outputs["Y"]
        except DiagnosticError as error:
            refused.append(error.diagnostics[0].code)
        else:
            np.testing.assert_array_equal(memory[GUARD : GUARD + 8], expected)
    assert len(refused) >= 4
    assert set(refused) <= {"SK0811", "SK0802"}


def test_loaded_numbers_in_triton(tmp_path: Path) -> None:
    """Triton's interpreter reads and writes where the kernel says: it ends, and in range."""
    require("triton_cuda")
    written = {"Y": np.zeros(8, np.float32)}
    cases = [
        Case(kernel, {**tensors(8), "I": np.full(8, far, np.int64)}, {"N": 8}, {}, written)
        for kernel in (loaded(name, "triton_cuda") for name in LOADED)
        for far in FAR
    ]
    for case, found in zip(cases, run_cases(cases, tmp_path), strict=True):
        assert isinstance(found, dict), (case.kernel.source, case.tensors["I"][0], found)


# ---------------------------------------------------------------- what the host fetched

FETCHED = """sketch fetched {
    symbols: N;
    tensors: I[N]: in i64; X[N]: in f32; Y[N]: out f32 = 0;
    constexpr: T = 4;
    require: N >= 2;

    n = fetch(I[0])
    m = n*n
    for r in range(2):
        s = fetch(I[r])
        @llm_hint("parallel")
        for i in range(N):
            x = alloc([1])
            load(X[i:i+1] -> x)
            atomic_max(x -> Y[i*s + m:i*s + m + 1])
}
"""
#: (first number, second number), and whether a launch accepts them.
NUMBERS = [(0, 1, True), (1, 1, True), (-2, 3, True), (2**31, 2**58, True), (2**32, 1, False)]
NUMBERS += [(1, 2**61, False), (1, -(2**60), False), (-(2**63), 0, False)]


@pytest.mark.parametrize("target", [None, *TARGETS])
def test_numbers_that_the_host_fetched(target: str | None, tmp_path: Path) -> None:
    """Refused as soon as they are known, by the interpreter (None) too."""
    tree, found = parse(Source("fetched.sketch", FETCHED))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], target or "cpp", None, {}, allow_unproved=True).plan
    kernel = load_target(target or "cpp").emit(plan)
    toolchain: Any = None if target is None else require(target)
    artefact = None if target is None else ready(kernel, tmp_path)
    if target == "triton_cuda":
        given = [{**tensors(8), "I": np.array([a, b] * 4)} for a, b, _ in NUMBERS]
        written = {"Y": np.zeros(8, np.float32)}
        cases = [Case(kernel, each, {"N": 8}, {}, written) for each in given]
        for (*_, fits), each, result in zip(
            NUMBERS, given, run_cases(cases, tmp_path), strict=True
        ):
            if fits:
                assert isinstance(result, dict), result
                expected = interpret(kernel.sketch, each).outputs["Y"]
                np.testing.assert_array_equal(result["Y"], expected)
            else:
                assert isinstance(result, str)
                assert result.startswith("LaunchError"), result
        return
    for first, second, fits in NUMBERS:
        each = {**tensors(8), "I": np.array([first, second] * 4)}
        if target is None:
            if not fits:
                with pytest.raises(DiagnosticError) as refused:
                    interpret(kernel.sketch, each)
                assert refused.value.diagnostics[0].code == "SK0801"
            continue
        every = {**each, "Y": np.full(8, POISON, np.float32)}
        if fits:
            result = toolchain.run(artefact, every, {"N": 8}, {})
            expected = interpret(kernel.sketch, each).outputs["Y"]
            np.testing.assert_array_equal(result["Y"], expected)
        else:
            with pytest.raises(ToolchainError):
                toolchain.run(artefact, every, {"N": 8}, {})


# ---------------------------------------------------------------- sizes

EMPTY = """sketch empty {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 4;

    @llm_hint("parallel")
    for i in range(M):
        for j in range(0, N, T):
            x = alloc([T])
            load(X[i, j:j+T] -> x)
            store(x -> Y[i, j:j+T])
}
"""


def test_sizes_that_no_memory_has(tmp_path: Path) -> None:
    """A tensor without elements may have any other extent; indices must fit all the same."""
    require("cpp")
    tree, found = parse(Source("empty.sketch", EMPTY))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], "cpp", None, {}).plan
    native = NativeKernel(TOOLCHAIN.compile(load_target("cpp").emit(plan), tmp_path))
    for columns, fits in ((1, True), (2**48 - 1, True), (2**48, False), (2**60, False)):
        arrays = {name: np.zeros((0, columns), np.float32) for name in "XY"}
        status = native(arrays, {"M": 0, "N": columns}, {})
        assert (status == 0) is fits, (columns, status)
        assert (broken(plan.sketch, {"M": 0, "N": columns}, {}) is None) is fits
    assert broken(plan.sketch, {"M": 2**32, "N": 2**32}, {}) is not None


DATA = """sketch data {
    symbols: N;
    params: k: i64;
    tensors: X[N]: in i64; Y[N]: out i64;
    constexpr: T = 4;

    @llm_hint("parallel")
    for i in range(0, N, T):
        x = alloc([T])
        load(X[i:i+T] -> x)
        add(x, k, x)
        store(x -> Y[i:i+T])
}
"""


def test_params_beyond_64_bits(tmp_path: Path) -> None:
    """Data wraps; a number that no i64 holds is refused, not cut off."""
    require("triton_cuda")
    tree, found = parse(Source("data.sketch", DATA))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], "triton_cuda", None, {}).plan
    kernel = load_target("triton_cuda").emit(plan)
    given = {"X": np.arange(5, dtype=np.int64)}
    fits = [make_case(kernel, {"N": 5}, {"k": k}, given) for k in (2**63 - 1, -(2**63))]
    for case, result in zip(fits, run_cases(fits, tmp_path / "fits"), strict=True):
        assert isinstance(result, dict), result
        np.testing.assert_array_equal(result["Y"], case.expected["Y"])
    leaves = [attrs.evolve(fits[0], params={"k": k}) for k in (2**63, -(2**63) - 1)]
    for case, result in zip(leaves, run_cases(leaves, tmp_path / "leaves"), strict=True):
        assert isinstance(result, str)
        assert result.startswith("LaunchError"), result
        with pytest.raises(UsageError):
            interpret(kernel.sketch, given, {}, case.params)
