"""What is said and known of Triton kernels by others, for all Triton targets alike."""

from __future__ import annotations

from sketchc.lowering.target import FailureRule

#: What a kernel may import: the module or anything below it.
IMPORTS = (
    *("torch", "triton", "math", "typing", "__future__"),
    *("collections.abc", "dataclasses", "enum", "functools", "itertools", "operator"),
)
#: Parts of Triton that are no language: its compiler and its runtime.
EXITS = frozenset(
    {"runtime", "compiler", "backends", "tools", "testing", "knobs", "add_pre_run_hook"}
)

#: How Triton's compilers print an exception of their own at the end of a CompilationError.
_QUOTED_MISUSE = (
    r"^(\w+Error: )*(AttributeError|NameError|UnboundLocalError|TypeError|ImportError|"
    r"ModuleNotFoundError)(\(|: )|unsupported AST node type|"
    r"(did you forget to|must be) .{0,40}(@triton\.jit|constexpr)"
)
#: What is said of a tool that somebody killed: tools have no bound at which they are.
_TOOL_KILLED = r"\bended with status -9\b"
FAILURES = (
    FailureRule("infrastructure", ("compile",), says=_TOOL_KILLED),
    FailureRule("api_misuse", ("compile",), says=_QUOTED_MISUSE),
)
