"""The tables of `docspec.toml` that make a folder of documents a target (docs/RUNNERS.md): its
language, what it can do, its memories, and how its kernels are built and run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import DType
from sketchc.lowering.hardware import load_hardware
from sketchc.lowering.language import Language
from sketchc.lowering.plan import Capabilities
from sketchc.lowering.target import FailureRule, Packages, Tools
from sketchc.ops.table import OPS, PRECISIONS

#: The tables that a target of documents has; `language` may also be the name of a known language.
TABLES = ("toolchain", "environment", "capabilities", "memory", "failures")
#: What `language` says of a language that no other target has.
LANGUAGE = ("name", "title", "standard", "suffixes", "fence", "syntax", "imports")
#: How kernels are built and run, and what the commands may refer to.
TOOLCHAIN = (
    *("build", "run", "programs", "files", "timeout_seconds", "how_it_runs", "at_own_speed"),
    *("advice", "never_built"),
)
COMMANDS = ("build", "run")
PLACEHOLDERS = ("source", "artefact", "entry", "target", "python")
ENVIRONMENT = ("packages", "pythons")
#: What the target can do: of the fields of `lowering.plan.Capabilities`.
CAPABILITIES = (
    *("default_hardware", "dtypes", "precisions", "power_of_two_extents", "symbolic_extents"),
    *("persistent_grid", "maximum_elements", "matrix_minimum", "missing_operations", "atomics"),
)
#: The classes of failure that patterns can tell from what a build prints.
FAILURES = ("syntax", "api_misuse")

_SWITCHES = ("power_of_two_extents", "symbolic_extents", "persistent_grid")
_ATOMICS = ("add", "max", "min")
_DTYPES = tuple(dtype.value for dtype in DType)
#: More elements than any tile has.
_NO_MAXIMUM = 2**40
_WORD = re.compile(r"[a-z][a-z0-9_+-]*")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!-]+")
_PYTHON = re.compile(r"3\.\d+")
_SUFFIX = re.compile(r"\.[a-z0-9_+-]+(\.[a-z0-9_+-]+)*")
#: Endings of files that are no kernel's wherever they lie: sketches, and what runs leave.
_TAKEN = (".sketch", ".plan", ".json", ".jsonl", ".md", ".toml")

#: Told what is wrong with a key of a table: (key, message, table).
Say = Callable[[str, str, str], None]


@attrs.frozen
class Described:
    """What a manifest says of its target. `language` is None for the name of a known one, and
    `capabilities` None where the documents belong to a target that has code of its own."""

    language: Language | None
    imports: tuple[str, ...] = ()
    capabilities: Capabilities | None = None
    tools: Tools | None = None
    failures: tuple[FailureRule, ...] = ()


@attrs.frozen
class Values:
    """One table of a manifest, whose values are taken out by their types; `say` hears of each that
    does not fit."""

    data: Mapping[str, Any]
    place: str
    say: Say

    def known(self, keys: tuple[str, ...]) -> None:
        """Say which keys are none of `keys`."""
        for key in self.data:
            if key not in keys:
                where = f"[{self.place}] has" if self.place else "a manifest has"
                self.say(key, f"unknown key {key!r}; {where}: {', '.join(keys)}", self.place)

    def table(self, key: str) -> Values:
        """The table `key`; an empty one where there is none."""
        value = self.data.get(key, {})
        if not isinstance(value, dict):
            self.say(key, f"{key} must be a table: [{key}]", self.place)
            value = {}
        return Values(value, f"{self.place}.{key}" if self.place else key, self.say)

    def text(self, key: str, default: str | None = None) -> str:
        """The text of a key: `default` where there is none, and a finding where that is None."""
        value = self.data.get(key, default)
        if isinstance(value, str) and (value.strip() or default is not None):
            return value.strip()
        told = f"{key} is missing" if value is None else f"{key} must be a text"
        self.say(key, f"[{self.place}] {told}" if self.place else told, self.place)
        return ""

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The list of texts of a key."""
        value = self.data.get(key, [*default])
        if isinstance(value, list) and all(text and isinstance(text, str) for text in value):
            return tuple(value)
        self.say(key, f"[{self.place}] {key} must be a list of texts", self.place)
        return ()

    def words(self, key: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """The list of texts of a key, each one of `known`."""
        values = self.texts(key)
        for value in values:
            if value not in known:
                message = f"{key}: unknown {value!r}; known: {', '.join(known)}"
                self.say(key, message, self.place)
        return tuple(value for value in values if value in known)

    def flag(self, key: str) -> bool:
        """The truth value of a key; False where there is none."""
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            self.say(key, f"{key} must be true or false", self.place)
        return value is True

    def count(self, key: str, default: int) -> int:
        """The positive integer of a key."""
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            self.say(key, f"[{self.place}] {key} must be a positive integer", self.place)
            return default
        return value

    def counts(self) -> dict[str, int]:
        """All keys with their positive integers."""
        return {key: self.count(key, 1) for key in self.data}


def described(data: Mapping[str, Any], name: str, say: Say) -> Described:
    """What the manifest `data` of the target `name` says of it; `say` hears what is wrong."""
    manifest = Values(data, "", say)
    tables = {key: manifest.table(key) for key in TABLES}
    language, imports = _language(manifest)
    memory = tables["memory"].counts()
    if not any(key in data for key in ("toolchain", "capabilities")):
        for key in TABLES:
            if key in data:
                say(key, f"[{key}] belongs to a target with [toolchain] and [capabilities]", "")
        return Described(language, imports)
    if language is None and isinstance(data.get("language"), str):
        say("language", "a target with [toolchain] describes its language: [language]", "")
    capabilities = _capabilities(tables["capabilities"], name, memory)
    tools = _tools(tables["toolchain"], tables["environment"])
    return Described(language, imports, capabilities, tools, _failures(tables["failures"]))


def _language(manifest: Values) -> tuple[Language | None, tuple[str, ...]]:
    """The language that the manifest describes, and what its kernels may include; None for one
    that it only names."""
    if not isinstance(manifest.data.get("language"), dict):
        manifest.text("language")
        return None, ()
    table = manifest.table("language")
    table.known(LANGUAGE)
    name, title = table.text("name"), table.text("title")
    suffixes = table.texts("suffixes")
    fence = table.text("fence", name) or name
    syntax: Literal["c", "other"] = "c"
    match table.text("syntax", "c"):
        case "other":
            syntax = "other"
        case "c":
            pass
        case other:
            table.say("syntax", f'syntax is "c" or "other", not {other!r}', table.place)
    for key, text in (("name", name), ("fence", fence)):
        if text and not _WORD.fullmatch(text):
            table.say(key, f"{text!r} is no word: lower-case letters, digits, _ + -", table.place)
    if not suffixes or not all(map(_SUFFIX.fullmatch, suffixes)):
        message = '[language] needs suffixes = [".x", ...], in lower case'
        table.say("suffixes", message, table.place)
        suffixes = (".none",)
    for suffix in suffixes:
        if suffix.endswith(_TAKEN):
            table.say("suffixes", f"files that end in {suffix} are no kernels", table.place)
    standard = table.text("standard", title) or title
    found = Language(name, title, standard, suffixes, fence, syntax, hosted=False, by_runner=True)
    return found, table.texts("imports")


def _capabilities(table: Values, name: str, memory: Mapping[str, int]) -> Capabilities:
    table.known(CAPABILITIES)
    dtypes = table.words("dtypes", _DTYPES)
    if not dtypes:
        table.say("capabilities", "[capabilities] needs dtypes = [...]", "")
    minimum, atomics = table.table("matrix_minimum"), table.table("atomics")
    minimum.known(_DTYPES)
    atomics.known(_ATOMICS)
    chip = table.text("default_hardware")
    try:
        if chip:
            load_hardware(chip)
    except UsageError as error:
        table.say("default_hardware", str(error), table.place)
    switches = {key: table.flag(key) for key in _SWITCHES}
    return Capabilities(
        name=name,
        default_hardware=chip,
        dtypes=frozenset(dtypes),
        precisions=frozenset({"ieee", *table.words("precisions", PRECISIONS)}),
        maximum_elements=table.count("maximum_elements", _NO_MAXIMUM),
        matrix_minimum=minimum.counts(),
        ops_missing=frozenset(table.words("missing_operations", tuple(OPS))),
        atomics={key: frozenset(atomics.words(key, _DTYPES)) for key in atomics.data},
        own_memory=tuple(memory.items()),
        power_of_two_extents=switches["power_of_two_extents"],
        symbolic_extents=switches["symbolic_extents"],
        persistent_grid=switches["persistent_grid"],
    )


def _tools(table: Values, environment: Values) -> Tools:
    """How kernels are built and run."""
    table.known(TOOLCHAIN)
    never = table.text("never_built", "")
    commands = {key: _command(table, key) for key in COMMANDS}
    if never and (commands["run"] or commands["build"]):
        table.say("never_built", "[toolchain] has never_built, or build and run", table.place)
    if not never and not commands["run"]:
        message = "[toolchain] needs run = [...], or never_built = the reason why there is none"
        table.say("toolchain", message, "")
    if commands["build"] and not any("{source}" in part for part in commands["build"]):
        table.say("build", "[toolchain] build never mentions {source}", table.place)
    timeout = table.data.get("timeout_seconds", 300)
    if (
        isinstance(timeout, bool)
        or not isinstance(timeout, int | float)
        or not (0 < timeout < math.inf)
    ):
        table.say("timeout_seconds", "timeout_seconds must be a positive number", table.place)
        timeout = 300
    return Tools(
        build=commands["build"],
        run=commands["run"],
        programs=table.texts("programs"),
        files=table.texts("files"),
        timeout=float(timeout),
        how_it_runs=table.text("how_it_runs", "by its runner"),
        at_own_speed=table.flag("at_own_speed"),
        advice=table.text("advice", ""),
        never_built=never,
        packages=_packages(environment),
    )


def _command(table: Values, key: str) -> tuple[str, ...]:
    command = table.texts(key)
    for argument in command:
        if "\0" in argument:
            table.say(key, f"[{table.place}] {key} holds a zero byte", table.place)
        for found in re.findall(r"\{([^{}]*)\}", argument):
            if found not in PLACEHOLDERS:
                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                table.say(key, f"unknown placeholder {{{found}}}; known: {known}", table.place)
    return command


def _packages(table: Values) -> Packages | None:
    """The Python packages of the target's own environment; None where it needs none."""
    if not table.data:
        return None
    table.known(ENVIRONMENT)
    packages, pythons = table.texts("packages"), table.texts("pythons")
    if not packages or not all(map(_PACKAGE.fullmatch, packages)):
        message = '[environment] needs packages = ["name==version", ...], the most telling first'
        table.say("packages", message, table.place)
        return None
    for version in pythons:
        if not _PYTHON.fullmatch(version):
            table.say("pythons", f'{version!r} is no version of Python, as "3.11"', table.place)
    return Packages(packages, pythons)


def _failures(table: Values) -> tuple[FailureRule, ...]:
    table.known(FAILURES)
    rules = []
    for key in table.data:
        says = table.text(key)
        try:
            re.compile(says)
        except (re.error, OverflowError, RecursionError) as error:
            table.say(key, f"{key} is no pattern: {error}", table.place)
            continue
        rules.append(FailureRule(key, ("compile",), says=says))
    return tuple(rules)
