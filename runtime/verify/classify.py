"""The class of a failure, from behaviour and from what the tools themselves say.

A toolchain knows the stage at which it failed and the types of the exceptions behind it; compilers
name the kind of mistake in their diagnostics. One table turns these into the classes of
`verdict.FAILURES`. Which of the tool's words count is decided here and nowhere else.
"""

from __future__ import annotations

import re

import attrs

from sketchc.runtime.sandbox.results import SHORT
from sketchc.runtime.toolchains.base import ToolchainError

#: These stages are classes already: the toolchain has seen the behaviour itself.
_SETTLED = frozenset({"timeout", "illegal_access", "wrong_shape", "policy", "infrastructure"})
#: Where the words of the tools stand: the message and the first lines of what was printed.
_LOG_CHARACTERS = 20_000
_HEADLINE_CHARACTERS = 600


@attrs.frozen
class Row:
    """One rule; the first that fits decides. Empty fields fit everything.

    `kinds` are types of exceptions of which one must have been raised, `says` a pattern that the
    first diagnostic (`where` "message") or anything printed ("log") must contain. `language` is
    "python" or "c++".
    """

    failure: str
    stages: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    says: str = ""
    where: str = "message"
    language: str = ""


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
#: How Triton's compilers print an exception of their own at the end of a CompilationError.
_QUOTED_MISUSE = (
    r"^(\w+Error: )*(AttributeError|NameError|UnboundLocalError|TypeError|ImportError|"
    r"ModuleNotFoundError)(\(|: )|unsupported AST node type|"
    r"(did you forget to|must be) .{0,40}(@triton\.jit|constexpr)"
)
_QUOTED_SYNTAX = r"^(\w+Error: )*(SyntaxError|IndentationError|TabError)(\(|: )"
#: g++, which names no codes: what its parser says, and what its name look-up says.
_CPP_SYNTAX = (
    r"error: (expected |stray |missing terminating|unterminated|invalid preprocessing|extraneous|"
    r"'else' without|invalid suffix|too many decimal points|[^\n]*before '[^']*' token|"
    r"a function-definition is not allowed here|[^\n]* at end of input)"
)
_CPP_MISUSE = (
    r"was not declared|has not been declared|is not a member of|has no member named|"
    r"does not name a type|is not a (class|namespace|template|type)|no matching function|"
    r"too (many|few) (template )?arguments|wrong number of template arguments|"
    r"cannot convert|invalid conversion|could not convert|no match for|"
    r"invalid operands|invalid types|not declared in this scope|No such file or directory|"
    r"request for member|is not captured|undefined symbol|undefined reference|"
    r"there are no arguments to|"
    r"cannot be used as a function|no type named|has incomplete type|"
    r"call of overloaded|invalid use of|target specific option mismatch|is not valid for|"
    r"invalid (controlling|increment|form of) "
)

#: What gcc's driver says of a part of it that somebody killed, and what is said of a tool that was:
#: tools have no bound of their own at which they are killed.
_COMPILER_KILLED = r"Killed signal terminated program"
_TOOL_KILLED = r"\bended with status -9\b"

TABLE: tuple[Row, ...] = (
    # A process that was killed while the machine was short of memory, for all that it had taken.
    Row("infrastructure", kinds=frozenset({SHORT})),
    Row("infrastructure", ("compile",), says=_COMPILER_KILLED, where="log", language="c++"),
    Row("infrastructure", ("compile",), says=_TOOL_KILLED, language="python"),
    Row("illegal_access", kinds=frozenset({"IllegalAccessError"})),
    Row("illegal_access", ("launch",), says=_MEMORY_FAULT, where="log"),
    Row("timeout", says=r"no answer within|took more than [\d.]+ s"),
    Row("syntax", kinds=_UNPARSABLE),
    Row("syntax", ("compile",), says=_QUOTED_SYNTAX),
    Row("resource", kinds=_EXHAUSTED),
    Row("resource", says=_OUT_OF_RESOURCE),
    Row("resource", ("launch",), says=_OUT_OF_RESOURCE, where="log"),
    # Errors of a wrapper's own checks may quote anything: they are what they say.
    Row("launch", ("launch",), kinds=frozenset({"LaunchError"})),
    # Its own limits, not the kernel's: the compiler has taken the kernel before.
    Row("launch", ("launch",), kinds=frozenset({"InterpreterError"})),
    Row("api_misuse", kinds=_MISUSED),
    Row("syntax", ("compile",), says=_CPP_SYNTAX, language="c++"),
    Row("api_misuse", ("compile", "launch"), says=_CPP_MISUSE, language="c++"),
    Row("api_misuse", ("compile",), says=_QUOTED_MISUSE, language="python"),
)


def classify(error: ToolchainError, language: str) -> str:
    """The class of a failure of a kernel in this language ("python" or "c++"); the stage itself
    where no row of the table fits."""
    if error.stage in _SETTLED:
        return error.stage
    for row in TABLE:
        if row.language in ("", language) and _fits(row, error):
            return row.failure
    return error.stage


def _fits(row: Row, error: ToolchainError) -> bool:
    if row.stages and error.stage not in row.stages:
        return False
    if row.kinds and not row.kinds & set(error.kinds):
        return False
    if not row.says:
        return True
    text = after_the_source(str(error))
    if row.where == "log":
        text += "\n" + error.log[-_LOG_CHARACTERS:]
    return re.search(row.says, text, re.IGNORECASE | re.MULTILINE) is not None


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
