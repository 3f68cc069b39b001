"""The table that turns what tools say into classes of failure. Kernels that are really broken are
in tests/e2e/test_foreign_kernels.py."""

from __future__ import annotations

import pytest

from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.verify.evidence import _RAISED, _SEEN, after_the_source, classify, headline
from sketchc.runtime.verify.verdict import FAILURES

QUOTED = """at 2:8:
def kernel(X):
    shared_memory = "out of resource"
    x = tl.foo(X)
        ^
"""


@pytest.mark.parametrize(
    ("stage", "message", "kinds", "language", "expected"),
    [
        ("compile", "a.cpp:3:1: error: expected ';' before '}' token", (), "c++", "syntax"),
        (
            "compile",
            "a.cpp:3:1: error: 'f' was not declared",
            (),
            "c++",
            "api_misuse",
        ),
        ("compile", "a.cpp:3:1: error: static assertion failed: no", (), "c++", "compile"),
        ("compile", "cc1plus: out of memory allocating 65536 bytes", (), "c++", "resource"),
        ("launch", "the process was ended by SIGSEGV", (), "c++", "illegal_access"),
        ("launch", "the process was ended by SIGABRT", (), "c++", "launch"),
        ("compile", "line 3: invalid syntax", ("SyntaxError",), "python", "syntax"),
        ("compile", QUOTED + "AttributeError(\"no 'foo'\")", (), "python", "api_misuse"),
        ("compile", QUOTED + "NameError('y is not defined')", (), "python", "api_misuse"),
        ("compile", QUOTED + "ValueError('shapes differ')", (), "python", "compile"),
        ("compile", "out of resource: shared memory", ("OutOfResources",), "python", "resource"),
        ("compile", "error: ub overflow, requires 3145728 bits", (), "python", "resource"),
        (
            "launch",
            "numel (2097152) exceeds triton maximum tensor numel (1048576)",
            ("InterpreterError", "ValueError"),
            "python",
            "resource",
        ),
        ("launch", "N is 3", ("LaunchError", "TypeError"), "python", "launch"),
        ("launch", "TypeError('x')", ("InterpreterError", "TypeError"), "python", "launch"),
        ("launch", "Triton Error [CUDA]: an illegal memory access", (), "python", "illegal_access"),
        ("launch", "CUDA out of memory", ("OutOfMemoryError",), "python", "resource"),
        ("launch", "missing 1 required argument: 'Z'", ("TypeError",), "python", "api_misuse"),
        ("compile", "mlir-opt took more than 120 s", (), "python", "timeout"),
    ],
)
def test_what_tools_say(
    stage: str, message: str, kinds: tuple[str, ...], language: str, expected: str
) -> None:
    assert classify(ToolchainError(stage, message, "", kinds), language) == expected


@pytest.mark.parametrize("stage", ["timeout", "illegal_access", "wrong_shape", "policy"])
def test_what_a_toolchain_has_seen_is_not_doubted(stage: str) -> None:
    error = ToolchainError(stage, "error: expected ';' out of resource SyntaxError: no")
    assert classify(error, "c++") == stage


def test_what_nothing_is_known_of_keeps_its_stage() -> None:
    for stage in ("compile", "launch", "infrastructure"):
        assert classify(ToolchainError(stage, "something else"), "python") == stage


def test_every_class_of_the_table_is_one() -> None:
    assert {row.failure for row in (*_SEEN, *_RAISED)} <= set(FAILURES)


def test_a_quoted_source_says_nothing() -> None:
    said = QUOTED + "ValueError('shapes differ')"
    assert after_the_source(said) == "ValueError('shapes differ')"
    assert headline(said) == "at 2:8: ValueError('shapes differ')"
    assert after_the_source("plain") == "plain"
