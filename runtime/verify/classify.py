"""The class of a failure, from behaviour and from what the tools themselves say.

A toolchain knows the stage at which it failed and the types of the exceptions behind it; compilers
name the kind of mistake in their diagnostics. One table turns these into the classes of
`verdict.FAILURES`, together with the rules in the targets' records for the words of their tools.
"""

from __future__ import annotations

import re
from functools import cache

from sketchc.lowering.registry import targets_in
from sketchc.lowering.target import FailureRule
from sketchc.runtime.sandbox.results import SHORT
from sketchc.runtime.toolchains.base import ToolchainError

#: These stages are classes already: the toolchain has seen the behaviour itself.
_SETTLED = frozenset({"timeout", "illegal_access", "wrong_shape", "policy", "infrastructure"})
#: Where the words of the tools stand: the message and the first lines of what was printed.
_LOG_CHARACTERS = 20_000
_HEADLINE_CHARACTERS = 600


_UNPARSABLE = frozenset({"SyntaxError", "IndentationError", "TabError"})
_MISUSED = frozenset(
    {
        *("AttributeError", "NameError", "UnboundLocalError", "TypeError"),
        *(
            "ImportError",
            "ModuleNotFoundError",
            "MissingEntryError",
            "UnsupportedLanguageConstruct",
        ),
    }
)
_EXHAUSTED = frozenset({"OutOfResources", "MemoryError", "OutOfMemoryError"})

_OUT_OF_RESOURCE = (
    r"out of resource|exceeds triton maximum tensor numel|TRITON_MAX_TENSOR_NUMEL|"
    r"uses too much (shared|global|local) data|"
    r"too many (registers|resources requested)|(ub|cbuf|l0[abc]|cc) overflow|"
    r"overflows? (the )?(unified buffer|shared memory)|register allocation failed|"
    r"virtual memory exhausted|out of memory|std::bad_alloc|cannot allocate memory"
)
_MEMORY_FAULT = (
    r"SIGSEGV|SIGBUS|illegal (memory )?access|an illegal memory access|misaligned address"
)
_QUOTED_SYNTAX = r"^(\w+Error: )*(SyntaxError|IndentationError|TabError)(\(|: )"

#: The rules for all targets; the first that fits decides.
TABLE: tuple[FailureRule, ...] = (
    # A process that was killed while the machine was short of memory, for all that it had taken.
    FailureRule("infrastructure", kinds=frozenset({SHORT})),
    FailureRule("illegal_access", kinds=frozenset({"IllegalAccessError"})),
    FailureRule("illegal_access", ("launch",), says=_MEMORY_FAULT, where="log"),
    FailureRule("timeout", says=r"no answer within|took more than [\d.]+ s"),
    FailureRule("syntax", kinds=_UNPARSABLE),
    FailureRule("syntax", ("compile",), says=_QUOTED_SYNTAX),
    FailureRule("resource", kinds=_EXHAUSTED),
    FailureRule("resource", says=_OUT_OF_RESOURCE),
    FailureRule("resource", ("launch",), says=_OUT_OF_RESOURCE, where="log"),
    # Errors of a wrapper's own checks may quote anything: they are what they say.
    FailureRule("launch", ("launch",), kinds=frozenset({"LaunchError"})),
    # Its own limits, not the kernel's: the compiler has taken the kernel before.
    FailureRule("launch", ("launch",), kinds=frozenset({"InterpreterError"})),
    FailureRule("api_misuse", kinds=_MISUSED),
)


def classify(error: ToolchainError, language: str) -> str:
    """The class of a failure of a kernel in this language ("python" or "c++"); the stage itself
    where no row of the table fits."""
    if error.stage in _SETTLED:
        return error.stage
    for rule in _rules(language):
        if _fits(rule, error):
            return rule.failure
    return error.stage


@cache
def _rules(language: str) -> tuple[FailureRule, ...]:
    """The rules for all targets, between those of the targets with this language."""
    own = dict.fromkeys(rule for target in targets_in(language) for rule in target.failures)
    first = [rule for rule in own if rule.failure == "infrastructure"]
    return (*first, *TABLE, *(rule for rule in own if rule not in first))


def _fits(rule: FailureRule, error: ToolchainError) -> bool:
    if rule.stages and error.stage not in rule.stages:
        return False
    if rule.kinds and not rule.kinds & set(error.kinds):
        return False
    if not rule.says:
        return True
    text = after_the_source(str(error))
    if rule.where == "log":
        text += "\n" + error.log[-_LOG_CHARACTERS:]
    return re.search(rule.says, text, re.IGNORECASE | re.MULTILINE) is not None


def after_the_source(message: str) -> str:
    """What a compiler says behind the excerpt of the source that it quotes, which ends in a line
    with a caret; the whole message where there is none."""
    quoted = list(re.finditer(r"^[ \t]*\^[ \t]*$", message, re.MULTILINE))
    rest = message[quoted[-1].end() :].strip() if quoted else ""
    return rest or message


def headline(message: str) -> str:
    """A message as one line, without the source that it quotes."""
    said = after_the_source(message)
    if said is not message:
        said = f"{message.splitlines()[0].strip()} {said}"
    said = " ".join(said.split())
    return said if len(said) <= _HEADLINE_CHARACTERS else said[:_HEADLINE_CHARACTERS] + "..."
