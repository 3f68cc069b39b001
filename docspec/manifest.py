"""Reading `docspec.toml`: every key is known, every value has its type, and what is wrong is said
with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from sketchc.base.types import DType
from sketchc.docspec.schema import (
    FRONTENDS,
    Category,
    Finding,
    Manifest,
    StatedCapabilities,
    ToolchainCommands,
)
from sketchc.lowering.registry import all_languages
from sketchc.ops.table import OPS

#: Name of the manifest in its folder.
MANIFEST = "docspec.toml"

#: What the commands of `[toolchain]` may refer to.
PLACEHOLDERS = ("source", "artefact", "folder", "inputs", "outputs")

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TABLES = ("basic", "api", "suggestions", "examples", "toolchain", "capabilities", "memory")
_TOP = ("target", "title", "language", *_TABLES)
_FILES = {
    "basic": {"files": Category.BASIC},
    "api": {"files": Category.API},
    "suggestions": {"strategies": Category.STRATEGIES, "pitfalls": Category.PITFALLS},
}
_PRECISIONS = ("ieee", "tf32", "tf32x3")
_DTYPES = tuple(dtype.value for dtype in DType)


def parse_manifest(text: str) -> tuple[Manifest | None, tuple[Finding, ...]]:
    """The manifest, or None with what is wrong with it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        line = int(found.group(1)) if found else 0
        message = re.sub(r" \(at .*\)$", "", str(error))
        return None, (Finding(MANIFEST, line, f"this is not TOML: {message}"),)
    reader = _Reader(text, [])
    manifest = reader.manifest(data)
    return (manifest if not reader.findings else None), tuple(reader.findings)


@attrs.define
class _Reader:
    """One manifest being read; collects findings."""

    text: str
    findings: list[Finding]

    def manifest(self, data: Mapping[str, Any]) -> Manifest | None:
        self.known(data, _TOP, "")
        target = self.name(data)
        title = self.string(data, "title")
        language = self.choice(
            data, "language", tuple(language.name for language in all_languages())
        )
        tables = {name: self.table(data, name) for name in _TABLES}
        files = self.files(tables)
        examples = self.examples(tables["examples"])
        toolchain = self.toolchain(tables["toolchain"]) if "toolchain" in data else None
        capabilities = self.capabilities(tables["capabilities"]) if "capabilities" in data else None
        memory = self.sizes(tables["memory"], "memory")
        if self.findings:
            return None
        return Manifest(target, title, language, files, examples, toolchain, capabilities, memory)

    # ------------------------------------------------------------ documents and examples

    def name(self, data: Mapping[str, Any]) -> str:
        target = self.string(data, "target")
        if target and not _NAME.fullmatch(target):
            self.say("target", f"{target!r} is no name: lower-case letters, digits, underscores")
        return target

    def files(self, tables: Mapping[str, Mapping[str, Any]]) -> dict[Category, tuple[str, ...]]:
        files: dict[Category, tuple[str, ...]] = {}
        seen: set[str] = set()
        for table, keys in _FILES.items():
            self.known(tables[table], tuple(keys), table)
            for key, category in keys.items():
                if key not in tables[table]:
                    self.say(table, f"[{table}] needs {key} = [...]: the Markdown files")
                    continue
                files[category] = self.strings(tables[table], key, table)
                if not files[category]:
                    self.say(key, f"[{table}] {key} names no file", table)
                for name in files[category]:
                    if name in seen:
                        self.say(key, f"{name} is named twice", table)
                    if not name.endswith(".md"):
                        self.say(key, f"{name} is no Markdown file (.md)", table)
                    seen.add(name)
        return files

    def examples(self, table: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        self.known(table, FRONTENDS, "examples")
        examples: dict[str, dict[str, str]] = {}
        for frontend in FRONTENDS:
            entries = table.get(frontend, {})
            if not isinstance(entries, dict):
                self.say(frontend, f"[examples.{frontend}] must be a table")
                continue
            for name, summary in entries.items():
                place = f"examples.{frontend}"
                if not _NAME.fullmatch(name):
                    self.say(name, f"{name!r} is no name for an example", place)
                if not isinstance(summary, str) or not summary.strip():
                    self.say(name, f"{name} needs one sentence that says what it shows", place)
            examples[frontend] = {name: str(text).strip() for name, text in entries.items()}
        return examples

    # ------------------------------------------------------------ the target itself

    def toolchain(self, table: Mapping[str, Any]) -> ToolchainCommands:
        self.known(table, ("build", "run", "timeout_seconds"), "toolchain")
        commands = {}
        for key in ("build", "run"):
            commands[key] = self.strings(table, key, "toolchain")
            for argument in commands[key]:
                for found in re.findall(r"\{([^{}]*)\}", argument):
                    if found not in PLACEHOLDERS:
                        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                        self.say(key, f"unknown placeholder {{{found}}}; known: {known}")
        if not commands["run"]:
            self.say("toolchain", "[toolchain] needs run = [...]: the command with its arguments")
        if commands["build"] and not any("{source}" in part for part in commands["build"]):
            self.say("build", "[toolchain] build never mentions {source}")
        timeout = table.get("timeout_seconds", 300.0)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
            self.say("timeout_seconds", "timeout_seconds must be a positive number")
            timeout = 300.0
        return ToolchainCommands(commands["build"], commands["run"], float(timeout))

    def capabilities(self, table: Mapping[str, Any]) -> StatedCapabilities:
        fields = {field.name: field for field in attrs.fields(StatedCapabilities)}
        self.known(table, tuple(fields), "capabilities")
        values: dict[str, Any] = {"dtypes": self.words(table, "dtypes", _DTYPES)}
        if not values["dtypes"]:
            self.say("capabilities", "[capabilities] needs dtypes = [...]")
        for key, known in (("precisions", _PRECISIONS), ("missing_operations", tuple(OPS))):
            if key in table:
                values[key] = self.words(table, key, known)
        for key in ("power_of_two_extents", "symbolic_extents", "persistent_grid"):
            if key in table:
                values[key] = table[key]
                if not isinstance(table[key], bool):
                    self.say(key, f"{key} must be true or false")
        if "maximum_elements" in table:
            values["maximum_elements"] = self.positive(table, "maximum_elements", "capabilities")
        minimum = table.get("matrix_minimum", {})
        if isinstance(minimum, dict):
            for dtype in minimum:
                if dtype not in _DTYPES:
                    self.say(dtype, f"matrix_minimum: unknown type {dtype!r}")
            values["matrix_minimum"] = self.sizes(minimum, "matrix_minimum")
        else:
            self.say("matrix_minimum", "matrix_minimum must be a table: type -> smallest extent")
        return StatedCapabilities(**values)

    def words(self, table: Mapping[str, Any], key: str, known: tuple[str, ...]) -> tuple[str, ...]:
        values = self.strings(table, key, "capabilities")
        for value in values:
            if value not in known:
                self.say(key, f"{key}: unknown {value!r}; known: {', '.join(known)}")
        return values

    def sizes(self, table: Mapping[str, Any], place: str) -> dict[str, int]:
        return {key: self.positive(table, key, place) for key in table}

    def positive(self, table: Mapping[str, Any], key: str, place: str) -> int:
        value = table[key]
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            self.say(key, f"[{place}] {key} must be a positive integer")
            return 1
        return value

    # ------------------------------------------------------------ values

    def known(self, table: Mapping[str, Any], keys: tuple[str, ...], place: str) -> None:
        for key in table:
            if key not in keys:
                where = f"[{place}] has" if place else "a manifest has"
                self.say(key, f"unknown key {key!r}; {where}: {', '.join(keys)}", place)

    def table(self, data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = data.get(key, {})
        if isinstance(value, dict):
            return value
        self.say(key, f"{key} must be a table: [{key}]")
        return {}

    def string(self, data: Mapping[str, Any], key: str) -> str:
        value = data.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
        self.say(key, f"{key} is missing" if value is None else f"{key} must be a text")
        return ""

    def choice(self, data: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
        value = self.string(data, key)
        if value and value not in known:
            self.say(key, f"unknown {key} {value!r}; known: {', '.join(known)}")
        return value

    def strings(self, table: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
        value = table.get(key, [])
        fits: Callable[[Any], bool] = lambda x: isinstance(x, str) and bool(x)  # noqa: E731
        if isinstance(value, list) and all(map(fits, value)):
            return tuple(value)
        self.say(key, f"[{place}] {key} must be a list of texts")
        return ()

    def say(self, key: str, message: str, place: str = "") -> None:
        self.findings.append(Finding(MANIFEST, self.line(key, place), message))

    def line(self, key: str, place: str) -> int:
        """The line of a key or of a table's header, as good as a search finds it; else 0."""
        lines = self.text.split("\n")
        header = f"[{place}.{key}]" if place else f"[{key}]"
        for number, line in enumerate(lines, 1):
            if line.strip() == header:
                return number
        start = next((n for n, line in enumerate(lines) if line.strip() == f"[{place}]"), 0)
        wanted = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        for number, line in enumerate(lines[start:], start + 1):
            if wanted.match(line):
                return number
        return 0
