"""Kernels that a model might write, broken in every way: each ends in the right class of failure,
and whatever the text is, in a verdict."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from foreign_kernels import base, edited, judge
from toolchains import require

from sketchc.runtime.verify.evidence import evidence
from sketchc.runtime.verify.verdict import FAILURES

TRITON = ("triton_cuda", "triton_ascend")
Edits = tuple[tuple[str, str], ...]


def edit(old: str, new: str) -> Edits:
    return ((old, new),)


STATEMENT = "Y[i] = X[i] + X[i];"
END = "return 0;"
HEAD = "#include <cmath>"
#: (class, what is done to the right kernel)
CPP: tuple[tuple[str, Edits], ...] = (
    ("syntax", edit("X[i];", "X[i]")),
    ("syntax", edit("return 0;\n}", "return 0;\n")),
    ("syntax", edit("int64_t i = 0;", "int64_t i = @0;")),
    ("api_misuse", edit("X[i] + X[i]", "std::twofold(X[i])")),
    ("api_misuse", edit("X[i] + X[i]", "X.at(i) + X.at(i)")),
    ("api_misuse", edit("X[i] + X[i]", "INPUT[i] + INPUT[i]")),
    ("api_misuse", edit("X[i] + X[i]", "std::fma(X[i])")),
    ("api_misuse", edit("int64_t twice(", "int64_t thrice(")),
    ("api_misuse", edit("X[i] + X[i]", "nowhere(X[i])") + edit(HEAD, "float nowhere(float);")),
    ("compile", edit(END, 'static_assert(sizeof(float) == 8, "no");\n    return 0;')),
    ("compile", edit(HEAD, "#error not yet\n#include <cmath>")),
    ("compile", edit(END, "int64_t i;\n    double i;\n    return 0;")),
    ("compile", edit(STATEMENT, "X[i] = Y[i];")),
    ("resource", edit(END, "return -1;")),
    ("resource", edit(END, "std::vector<float> v(N << 40);\n    Y[0] = v[7];\n    return 0;")),
    ("resource", edit(END, "return std::calloc(N, 1LL << 40) == nullptr ? -1 : 0;")),
    ("launch", edit(END, "return 9;")),
    ("launch", edit(END, "std::abort();")),
    ("launch", edit(END, "std::exit(3);")),
    ("launch", edit(END, "throw N;")),
    ("timeout", edit("++i", "i += 0")),
    ("timeout", edit(END, "for (volatile int64_t n = 0;; n = n + 1) {\n    }")),
    (
        "timeout",
        edit(END, "while (static_cast<volatile float *>(Y)[0] == Y[0]) {\n    }\n return 0;"),
    ),
    ("illegal_access", edit("Y[i] =", "Y[i + 5000] =")),
    ("illegal_access", edit("i < N", "i < N + 1")),
    ("illegal_access", edit("Y[i] =", "const_cast<float *>(X)[i] =")),
    ("illegal_access", edit("Y[i] =", "Y[-1] =")),
    ("numerical", edit("X[i] + X[i]", "X[i]")),
    ("numerical", edit("i < N", "i < N - 1")),
    ("numerical", edit("X[i] + X[i]", "X[i] + X[i] + std::sqrt(-1.0f)")),
    (
        "nondeterministic",
        edit("X[i] + X[i]", "(X[i] + X[i]) * (1.0f + 1.2e-7f * (__builtin_ia32_rdtsc() & 7))"),
    ),
    ("policy", edit(END, 'return std::system("true");')),
    ("policy", edit(END, '__asm__("nop");\n    return 0;')),
    ("policy", edit(HEAD, "#include <fstream>")),
    ("policy", edit(HEAD, '__attribute__((constructor)) void early() {}\n#include "data.bin"')),
)
KERNEL_SUM = "x + x, mask"
LOAD = "tl.load(X + lanes, mask=mask, other=0.0)"
LAUNCH = "twice_kernel[(triton.cdiv(N, 64),)](X, Y, N, BLOCK=64)"
RETURN = "    return Y\n"
SLOW = "    for i in range(2147483647):\n        x = x * 1.000001 + 0.5\n"
PYTHON: tuple[tuple[str, Edits], ...] = (
    ("syntax", edit("(X, Y, N, BLOCK: tl.constexpr):", "(X, Y, N, BLOCK: tl.constexpr:")),
    ("syntax", edit("    N = X.numel()", "      N = X.numel()")),
    ("syntax", edit(KERNEL_SUM, "x + , mask")),
    ("api_misuse", edit(KERNEL_SUM, "tl.twofold(x), mask")),
    ("api_misuse", edit("other=0.0", "otherwise=0.0")),
    ("api_misuse", edit(KERNEL_SUM, "x + y, mask")),
    ("api_misuse", edit("torch.empty_like", "torch.empty_alike")),
    ("api_misuse", edit("def twice(X", "def thrice(X")),
    ("api_misuse", edit("import triton.language as tl", "from triton import nothing as tl")),
    ("api_misuse", edit("X, *, out=None", "X, Z, *, out=None")),
    ("compile", edit("    mask =", "    tl.static_assert(BLOCK > 99)\n    mask =")),
    ("compile", edit(KERNEL_SUM, "x + tl.arange(0, 32), mask")),
    ("compile", edit(KERNEL_SUM, "tl.reshape(x, (7, 9)), mask")),
    ("resource", edit("BLOCK=64", "BLOCK=1 << 21")),
    ("launch", edit(LAUNCH, "raise ValueError('not today')")),
    ("launch", edit("(triton.cdiv(N, 64),)", "(-1,)")),
    ("launch", edit("torch.empty_like(X) if out is None else out", "torch.empty(-N0)")
     + edit("def twice(", "N0 = 3\n\n\ndef twice(")),
    ("launch", edit("(triton.cdiv(N, 64),)", "(1, 1, 1, 1)")),
    ("timeout", edit(RETURN, "    while N:\n        pass\n    return Y\n")),
    ("timeout", edit("    tl.store", SLOW + "    tl.store")),
    ("illegal_access", edit(LOAD, "tl.load(X + lanes + 4096)")),
    ("illegal_access", edit("tl.store(Y + lanes, x + x, mask=mask)", "tl.store(Y + lanes, x + x)")),
    ("illegal_access", edit("tl.store(Y", "tl.store(X")),
    ("illegal_access", edit("tl.store(Y + lanes", "tl.store(Y + lanes - 1")),
    ("wrong_shape", edit(RETURN, "")),
    ("wrong_shape", edit("return Y", "return Y, Y")),
    ("wrong_shape", edit("return Y", "return Y[:-1]")),
    ("wrong_shape", edit("return Y", "return Y.double()")),
    ("wrong_shape", edit("return Y", "return 'Y'")),
    ("wrong_shape", edit("return Y", "return Y.to(torch.complex64)")),
    ("numerical", edit(KERNEL_SUM, "x, mask")),
    ("numerical", edit("mask = lanes < N", "mask = lanes < N - 1")),
    ("numerical", edit(KERNEL_SUM, "x / 0.0, mask")),
    ("policy", edit(LAUNCH, "torch.add(X, X, out=Y)")),
    ("policy", edit("    return Y\n", "    return X + X\n")),
    ("policy", edit(LAUNCH, "Y.copy_(X)")),
    ("policy", edit("import torch\n", "import torch\nimport subprocess\n")),
    ("policy", edit("import torch\n", "import torch\ntorch.Tensor.mean = torch.Tensor.sum\n")),
    ("policy", edit("    return Y\n", "    torch.set_num_threads(3)\n    return Y\n")),
)  # fmt: skip
#: Only where a GPU's compiler is asked: pipelined tiles that do not fit into shared memory.
PRODUCT = """total = tl.zeros((128, 128), tl.float32)
    square = tl.arange(0, 128)[:, None] * 128 + tl.arange(0, 128)[None, :]
    for k in tl.range(N, num_stages=5):
        left = tl.load(X + square + k * 16384)
        right = tl.load(X + square + k * 16384 + 77)
        total = tl.dot(left, right, total)
    tl.store(Y + square, total)
    x = tl.load"""
CUDA: tuple[tuple[str, Edits], ...] = (
    ("resource", edit("x = tl.load", PRODUCT)),
    ("resource", edit("BLOCK=64)", "BLOCK=64, num_warps=64)")),
)


def identify(value: object) -> str:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize("target", ["cpp", *TRITON])
def test_the_right_kernel_passes(target: str) -> None:
    require(target)
    verdict = judge(target, base(target), cases=20)
    assert verdict.passed, verdict.failures
    assert len(verdict.cases) >= 6
    assert evidence(verdict) == {}


@pytest.mark.sweep
@pytest.mark.parametrize(("failure", "edits"), CPP, ids=identify)
def test_each_class_in_cpp(failure: str, edits: Edits) -> None:
    require("cpp")
    check("cpp", failure, edited("cpp", *edits))


@pytest.mark.sweep
@pytest.mark.parametrize("target", TRITON)
@pytest.mark.parametrize(("failure", "edits"), PYTHON, ids=identify)
def test_each_class_in_triton(target: str, failure: str, edits: Edits) -> None:
    require(target)
    check(target, failure, edited(target, *edits))


@pytest.mark.parametrize(("failure", "edits"), CUDA, ids=identify)
def test_resources_of_a_gpu(failure: str, edits: Edits) -> None:
    require("triton_cuda")
    check("triton_cuda", failure, edited("triton_cuda", *edits))


def check(target: str, failure: str, source: str) -> None:
    quick = 3.0 if failure == "timeout" else 60.0
    verdict = judge(target, source, timeout=quick)
    assert verdict.failure == failure, [(c.failure, c.reason, c.log) for c in verdict.cases]
    assert verdict.failure in FAILURES
    found = evidence(verdict)
    assert found["failure"] == failure
    assert found["reason"]
    assert len(found.get("log", ())) <= 40


def test_a_compiler_that_does_not_end_is_stopped() -> None:
    require("cpp")
    bomb = """
template <int N, int M> struct Sum {
    static constexpr int value = Sum<N - 1, M>::value + Sum<N - 1, M + 1>::value
        + Sum<N - 1, M + N>::value;
};
template <int M> struct Sum<0, M> { static constexpr int value = M; };
static const int slow = Sum<800, 0>::value;
"""
    verdict = judge("cpp", base("cpp") + bomb, compile_timeout=2.0)
    assert verdict.failure == "timeout", verdict.failures


@pytest.mark.parametrize("target", ["cpp", *TRITON])
def test_a_kernel_that_prints_a_lot_is_judged_by_its_numbers(target: str) -> None:
    require(target)
    if target == "cpp":
        noise = '    for (int k = 0; k < 300000; ++k) {\n        std::puts("noise");\n    }\n'
        edits = edit(END, f"{noise}    return 0;") + edit(HEAD, "#include <cmath>\nEXTRA")
        source = edited("cpp", *edits).replace("EXTRA", 'extern "C" int puts(const char *);')
        source = source.replace("std::puts", "puts")
    else:
        source = edited(target, *edit(RETURN, "    print('noise\\n' * 300000)\n    return Y\n"))
    verdict = judge(target, source)
    assert verdict.passed, verdict.failures


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["cpp", *TRITON])
@pytest.mark.parametrize("source", ["", "\x00", "\ud800", "\n" * 10_000, "(" * 5_000, "é = 1"])
def test_texts_that_are_no_kernels(target: str, source: str) -> None:
    require(target)
    verdict = judge(target, source)
    assert verdict.failure in ("syntax", "api_misuse", "compile"), verdict.failures


def mutated(source: str, generator: random.Random) -> str:
    """The source with up to three lines deleted, repeated, swapped or cut."""
    lines = source.split("\n")
    for _ in range(generator.randint(1, 3)):
        place = generator.randrange(len(lines))
        match generator.randrange(4):
            case 0:
                del lines[place]
            case 1:
                lines.insert(place, lines[place])
            case 2:
                other = generator.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
            case _:
                lines[place] = lines[place][: generator.randint(0, len(lines[place]))]
    return "\n".join(lines)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("target", "count"), [("cpp", 25), ("triton_cuda", 12), ("triton_ascend", 25)]
)
def test_mutated_texts_always_end_in_a_verdict(target: str, count: int, tmp_path: Path) -> None:
    require(target)
    generator = random.Random(20)
    seen = set()
    for number in range(count):
        source = mutated(base(target), generator)
        verdict = judge(target, source, tmp_path / str(number), timeout=5.0)
        assert verdict.cases
        assert verdict.passed or verdict.failure in FAILURES
        assert verdict.failure != "infrastructure", (source, verdict.failures)
        seen.add(verdict.failure)
    assert len(seen) >= 3, "the mutations reach different ends"
