"""A failed verdict as evidence: small, plain data for the Conductor and for prompts.

The same candidate with the same seed gives the same bytes in every folder and on every machine:
numbers have four significant digits, and what tools printed is freed of paths, addresses, times and
of frames that are not the kernel's.

A failure's class comes from behaviour and from what the tools themselves say (`classify`). A
toolchain knows the stage at which it failed and the types of the exceptions behind it; compilers
name the kind of mistake in their diagnostics. One table turns these into the classes of
`verdict.FAILURES`, together with the rules in the targets' records for the words of their tools.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from sketchc.lowering.registry import targets_in
from sketchc.lowering.target import FailureRule, out_of_resource
from sketchc.runtime.cases.drawing import base_kind
from sketchc.runtime.sandbox.worker import SHORT
from sketchc.runtime.tasks.inputs import KINDS, LIKE, NON_CONTIGUOUS
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.verdict import FAILURES, Verdict

#: These stages are classes already: the toolchain has seen the behaviour itself.
_SETTLED = frozenset({"timeout", "illegal_access", "wrong_shape", "policy", "infrastructure"})
#: How much of what a tool printed is kept, and looked at beside its message.
LOG_CHARACTERS = 20_000
_HEADLINE_CHARACTERS = 600

_UNPARSABLE = frozenset({"SyntaxError", "IndentationError", "TabError"})
_MISUSED = frozenset(
    {
        *("AttributeError", "NameError", "UnboundLocalError", "TypeError", "ImportError"),
        *("ModuleNotFoundError", "MissingEntryError", "UnsupportedLanguageConstruct"),
    }
)
_EXHAUSTED = frozenset({"OutOfResources", "MemoryError", "OutOfMemoryError"})

_OUT_OF_RESOURCE = (
    r"out of resource|uses too much (shared|global|local) data|"
    r"too many (registers|resources requested)|"
    r"overflows? (the )?shared memory|register allocation failed|"
    r"virtual memory exhausted|out of memory|std::bad_alloc|cannot allocate memory"
)
_MEMORY_FAULT = (
    r"SIGSEGV|SIGBUS|illegal (memory )?access|an illegal memory access|misaligned address"
)
_QUOTED_SYNTAX = r"^(\w+Error: )*(SyntaxError|IndentationError|TabError)(\(|: )"

#: The rules for all targets, in two parts; the first rule that fits decides. A target's rules for
#: kernels that are too large go between the parts.
_SEEN: tuple[FailureRule, ...] = (
    # A process that was killed while the machine was short of memory, and held little of it itself.
    FailureRule("infrastructure", kinds=frozenset({SHORT})),
    FailureRule("illegal_access", kinds=frozenset({"IllegalAccessError"})),
    FailureRule("illegal_access", ("launch",), says=_MEMORY_FAULT, where="log"),
    FailureRule("timeout", says=r"no answer within|took more than [\d.]+ s"),
    FailureRule("syntax", kinds=_UNPARSABLE),
    FailureRule("syntax", ("compile",), says=_QUOTED_SYNTAX),
    FailureRule("resource", kinds=_EXHAUSTED),
    *out_of_resource(_OUT_OF_RESOURCE),
)
_RAISED: tuple[FailureRule, ...] = (
    # Errors of a wrapper's own checks may quote anything: their type decides, not their text.
    FailureRule("launch", ("launch",), kinds=frozenset({"LaunchError"})),
    # Limits of an interpreter, not of the kernel: the compiler has taken the kernel before.
    FailureRule("launch", ("launch",), kinds=frozenset({"InterpreterError"})),
    FailureRule("api_misuse", kinds=_MISUSED),
)


def classify(error: ToolchainError, language: str) -> str:
    """The class of a failure of a kernel in this language ("python" or "c++"); the stage itself
    where no rule fits."""
    if error.stage in _SETTLED:
        return error.stage
    fitting = (rule.failure for rule in _rules(language) if _fits(rule, error))
    return next(fitting, error.stage)


@cache
def _rules(language: str) -> tuple[FailureRule, ...]:
    """The rules for all targets and those of the targets with this language, in order."""
    own = dict.fromkeys(rule for target in targets_in(language) for rule in target.failures)
    first = [rule for rule in own if rule.failure == "infrastructure"]
    large = [rule for rule in own if rule.failure == "resource"]
    last = [rule for rule in own if rule not in first + large]
    return (*first, *_SEEN, *large, *_RAISED, *last)


def _fits(rule: FailureRule, error: ToolchainError) -> bool:
    if rule.stages and error.stage not in rule.stages:
        return False
    if rule.kinds and not rule.kinds & set(error.kinds):
        return False
    if not rule.says:
        return True
    text = after_the_source(str(error))
    if rule.where == "log":
        text += "\n" + error.log[-LOG_CHARACTERS:]
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


#: How much of a log is kept, and of one line.
LOG_LINES = 40
_HEAD_LINES = 25
_LINE_CHARACTERS = 240
#: Lines of the source that a compiler quotes before the line it complains about.
_QUOTED_LINES = 8
_CASES = 16

_INPUTS = {
    **KINDS,
    NON_CONTIGUOUS: "signed, of one scale, not contiguous in memory",
    LIKE: "cut from the task's own, or these over again",
}

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PATH = re.compile(r"(?<![\w/.])/(?:[^\s/:'\"`<>()\[\],]+/)+([^\s/:'\"`<>()\[\],]*)")
_OWN_MODULE = re.compile(r"\bsketchc\.runtime\.[\w.]*\.(\w+: )")
_ADDRESS = re.compile(r"(?<=\bat )0x[0-9a-fA-F]+|\b0x[0-9a-fA-F]{9,}\b")
_TIME = re.compile(r"\b(in|after|took) \d+(\.\d+)? ?(s|ms|us|seconds|minutes)\b")
_PROCESS = re.compile(r"\b(pid|process|thread)[ =:]+\d+\b", re.IGNORECASE)
_FRAME = re.compile(r'^\s*File "([^"]*)", line (\d+)(?:, in (.*))?$')
_DIAGNOSTIC = re.compile(
    r"^(\S+:\d+(?::\d+)?: |cc1plus: |g\+\+: )?(fatal error|error|warning|note): "
)
_NOISE = re.compile(
    r"^\s*(Traceback \(most recent call last\):|"
    r"The above exception was the direct cause .*|"
    r"During handling of the above exception, .*|"
    r"compilation terminated\.|collect2: .*|WrapperError: .*)$"
)


def evidence(verdict: Verdict) -> dict[str, Any]:
    """What is known of the first failure; {} for a verdict without one.

    Keys: "failure" and "meaning" (the class), "reason", "case" (sizes, kind of input), "output",
    "elements", "wrong", "first_wrong" (index, expected, actual, error, allowed, and the reference's
    value before_rounding where one was rounded), "sketch_right" and "code_as_sketch" (True or
    False), "undecided" (why these could not be found out), "cases" (how each ended) and "log"
    (lines). Keys of which nothing is known are left out.
    """
    if not verdict.failures:
        return {}
    case = verdict.failures[0]
    found: dict[str, Any] = {
        "failure": case.failure,
        "meaning": FAILURES.get(case.failure, ""),
        "reason": headline(_neutral(case.reason)),
    }
    # No sizes are to blame for a failure to build.
    builds = case.failure in ("syntax", "compile", "api_misuse")
    if len(verdict.cases) > 1 or case.comparisons or not builds:
        kind = case.drawn_as or case.kind
        found["case"] = {
            "sizes": dict(case.shape.symbols),
            "inputs": kind,
            "inputs_are": _INPUTS.get(base_kind(kind), "the task's own"),
        }
    wrong = next((c for c in case.comparisons if not c.passed), None)
    if wrong is not None:
        found |= _wrong(wrong)
    if case.sketch_right is not None:
        found["sketch_right"] = case.sketch_right
    if case.code_as_sketch is not None:
        found["code_as_sketch"] = case.code_as_sketch
    if case.undecided:
        found["undecided"] = "whether the sketch or the code is wrong: " + _neutral(case.undecided)
    if len(verdict.cases) > 1:
        found["cases"] = [
            f"{one.shape.text} ({one.kind}): {one.failure or 'passed'}"
            for one in verdict.cases[:_CASES]
        ]
    # What was printed before the time was up depends on the machine.
    log = [] if case.failure == "timeout" else clean_log(case.log, verdict.sketch)
    if log:
        found["log"] = log
    return found


def _wrong(comparison: Comparison) -> dict[str, Any]:
    found: dict[str, Any] = {"output": comparison.name, "elements": comparison.elements}
    if comparison.wrong:
        found["wrong"] = comparison.wrong
    if (first := comparison.first) is not None:
        shown: dict[str, float | int | None]
        shown = {"expected": first.expected, "actual": first.actual}
        if comparison.allowed is not None:  # with four digits, the values may look the same
            shown |= {"error": first.error, "allowed": comparison.allowed}
        shown["before_rounding"] = first.before
        values = {name: rounded(value) for name, value in shown.items() if value is not None}
        found["first_wrong"] = {"index": list(first.index), **values}
    return found


def rounded(value: float | int) -> float | int | str:
    """Four significant digits; NaN and infinities as text, since JSON has none."""
    if isinstance(value, int):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)


def clean_log(text: str, name: str) -> list[str]:
    """The lines that matter of what a tool printed about the kernel `name`, at most `LOG_LINES`."""
    lines = [_neutral(line.rstrip()) for line in text.splitlines()]
    kept = _without_frames(_without_warnings(lines), name)
    lines = [line for line in kept if line.strip() and not _NOISE.match(line)]
    lines = _without_repeats(_shortened_quotes(lines))
    if len(lines) > LOG_LINES:
        tail = LOG_LINES - _HEAD_LINES - 1
        lines = [*lines[:_HEAD_LINES], "...", *lines[-tail:]]
    return [line[:_LINE_CHARACTERS] for line in lines]


def _neutral(text: str) -> str:
    """Text without what differs between machines and runs."""
    text = _ESCAPES.sub("", text)
    text = _PATH.sub(lambda found: found[1] or "...", text)
    text = _OWN_MODULE.sub(r"\1", text)
    text = _ADDRESS.sub("0x...", text)
    text = _TIME.sub(r"\1 ... \3", text)
    return _PROCESS.sub(r"\1 ...", text)


def _without_warnings(lines: list[str]) -> Iterator[str]:
    """Leaves out warnings of a compiler, with the lines below them, where there are errors."""
    found = [_DIAGNOSTIC.match(line) for line in lines]
    if not any(match and match[2].endswith("error") for match in found):
        yield from lines
        return
    kept = True
    for line, match in zip(lines, found, strict=True):
        if match is not None and match[2] != "note":
            kept = match[2] != "warning"
        if kept:
            yield line


def _without_frames(lines: Iterable[str], name: str) -> Iterator[str]:
    """Leaves out the frames of a Python traceback that are not in the kernel's own file, and gives
    those that are in two short lines."""
    inside = False
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            inside = not frame[1].startswith(f"{name}.")
            if not inside:
                place = f" in {frame[3]}" if frame[3] else ""
                yield f"line {frame[2]}{place}:"
            continue
        if inside and line.startswith("    "):
            continue
        inside = False
        yield line


def _shortened_quotes(lines: list[str]) -> list[str]:
    """Keeps the last lines of each excerpt of source that ends in a caret."""
    found: list[str] = []
    start = 0
    for line in lines:
        if re.search(r"\bat \d+:\d+:$", line):
            start = len(found) + 1
        if line.strip() == "^" and start and len(found) - start > _QUOTED_LINES:
            found[start:-_QUOTED_LINES] = ["..."]
            start = 0
        found.append(line)
    return found


def _without_repeats(lines: list[str]) -> list[str]:
    """Leaves out long lines that were there before: tracebacks and their causes say things twice.
    Short ones (braces, carets) may well come again."""
    seen: set[str] = set()
    found = []
    for line in lines:
        text = line.strip()
        if len(text) > 20 and text in seen:
            continue
        seen.add(text)
        found.append(line)
    return found
