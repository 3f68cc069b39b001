"""Loading the documents of a target: the manifest, the Markdown files and the examples, all
checked. Nothing is run here; `sketchc docspec check --run` builds and runs the examples."""

from __future__ import annotations

import os
import re
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.base.diagnostics import DiagnosticError, Source, has_errors, refuse
from sketchc.docspec.markdown import parse_document
from sketchc.docspec.needs import needs_of
from sketchc.docspec.schema import (
    Category,
    DocSpec,
    DocSpecError,
    Example,
    Fence,
    Finding,
    Manifest,
    Section,
)
from sketchc.lowering.documents.manifest import TABLES, Values
from sketchc.lowering.documents.target import (
    MANIFEST,
    NAME,
    NO_NAME,
    described_in,
    spoken_by,
    user_target_folders,
)
from sketchc.lowering.language import Language
from sketchc.lowering.registry import all_languages, all_targets, load_language

if TYPE_CHECKING:
    from sketchc.base.diagnostics import Diagnostic
    from sketchc.ir import nodes as ir

_DOCUMENTS = ("basic", "api", "suggestions", "examples")
_TOP = ("target", "title", "language", *_DOCUMENTS, *TABLES)
_FILES = {
    "basic": {"files": Category.BASIC},
    "api": {"files": Category.API},
    "suggestions": {"strategies": Category.STRATEGIES, "pitfalls": Category.PITFALLS},
}


def parse_manifest(folder: Path, text: str) -> tuple[Manifest | None, tuple[Finding, ...]]:
    """The manifest of a folder, or None with what is wrong with it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        line = int(found.group(1)) if found else 0
        message = re.sub(r" \(at .*\)$", "", str(error))
        return None, (Finding(MANIFEST, line, f"this is not TOML: {message}"),)
    except RecursionError:
        return None, (Finding(MANIFEST, 0, "this is not TOML: too many brackets in brackets"),)
    reader = _Reader(folder, text)
    return reader.manifest(data), tuple(reader.findings)


@attrs.define
class _Reader:
    """One manifest being read; collects findings."""

    folder: Path
    text: str
    findings: list[Finding] = attrs.field(factory=list)

    def manifest(self, data: Mapping[str, Any]) -> Manifest | None:
        top = Values(data, "", self.say)
        top.known(_TOP)
        target = top.text("target")
        if target and not NAME.fullmatch(target):
            self.say("target", f"{target!r} is no name: {NO_NAME}")
        title = top.text("title")
        own_name = Path(os.path.abspath(self.folder)).name
        others = spoken_by(one for one in all_targets() if one.name != own_name)
        found = described_in(self.folder, data, others, self.say)
        language = found.language or self.known_language(data.get("language"))
        tables = {name: top.table(name) for name in _DOCUMENTS}
        files = self.files(tables)
        examples = self.examples(tables["examples"])
        if self.findings or language is None:
            return None
        own = () if found.tools is None else found.tools.own_files
        return Manifest(target, title, language, files, examples, own)

    def known_language(self, name: object) -> Language | None:
        """The language that a manifest only names, where a target has it."""
        known = [language.name for language in all_languages()]
        if name in known:
            return load_language(str(name))
        if isinstance(name, str) and name:
            message = f"unknown language {name!r}; known: {', '.join(known)}"
            self.say("language", message + "; a new one is a table: [language]")
        return None

    # ------------------------------------------------------------ documents and examples

    def files(self, tables: Mapping[str, Values]) -> dict[Category, tuple[str, ...]]:
        files: dict[Category, tuple[str, ...]] = {}
        seen: set[str] = set()
        for table, keys in _FILES.items():
            tables[table].known(tuple(keys))
            for key, category in keys.items():
                if key not in tables[table].data:
                    self.say(table, f"[{table}] needs {key} = [...]: the Markdown files")
                    continue
                files[category] = tables[table].texts(key)
                if not files[category]:
                    self.say(key, f"[{table}] {key} names no file", table)
                for name in files[category]:
                    if name in seen:
                        self.say(key, f"{name} is named twice", table)
                    if not name.endswith(".md"):
                        self.say(key, f"{name} is no Markdown file (.md)", table)
                    seen.add(name)
        return files

    def examples(self, table: Values) -> dict[str, str]:
        table.known(("torch",))
        entries = table.data.get("torch", {})
        if not isinstance(entries, dict):
            self.say("torch", "[examples.torch] must be a table")
            return {}
        for name, summary in entries.items():
            if not NAME.fullmatch(name):
                self.say(name, f"{name!r} is no name for an example", "examples.torch")
            if not isinstance(summary, str) or not summary.strip():
                message = f"{name} needs one sentence that says what it shows"
                self.say(name, message, "examples.torch")
        return {name: str(text).strip() for name, text in entries.items()}

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


_EXAMPLES = "examples"
#: The import of a shared module in an example, replaced by its text: a kernel is one file.
_IMPORT = re.compile(r"^from sketchc\.docspec\.shared\.(\w+) import [^\n]*\n", re.MULTILINE)
#: Files that a folder may hold although its manifest does not name them.
_IGNORED = ("__pycache__", "__init__.py")


def folder_of(target_or_folder: str | Path) -> Path:
    """The folder of a registered target, or the folder itself. Raises `UsageError` for neither."""
    name = str(target_or_folder)
    folders = {target.name: target.documents for target in all_targets() if target.documents}
    if name in folders:
        return Path(__file__).resolve().parent / folders[name]
    folder = user_target_folders().get(name, Path(target_or_folder))
    if not folder.is_dir():
        known = ", ".join(folders)
        refuse(f"{name} is no folder with documents and no target that has some: {known}")
    return folder


def load(target_or_folder: str | Path) -> DocSpec:
    """The documents of a registered target or of a folder.

    Raises `UsageError` when there is no such target or folder, and `DocSpecError` (one of those)
    with every finding when something is wrong with the documents.
    """
    spec, findings = inspect(folder_of(target_or_folder))
    if spec is None or findings:
        raise DocSpecError(str(target_or_folder), findings)
    return spec


def inspect(folder: Path) -> tuple[DocSpec | None, tuple[Finding, ...]]:
    """The documents of a folder as far as they can be read (None without a manifest), and
    everything that is wrong with them, by file and line."""
    reader = _Folder(folder)
    text = reader.text(MANIFEST)
    if text is None:
        return None, tuple(reader.findings)
    manifest, found = parse_manifest(folder, text)
    reader.findings += found
    if manifest is None:
        return None, tuple(reader.findings)
    spec = reader.documents(manifest)
    order = {name: place for place, name in enumerate(reader.read)}
    findings = sorted(reader.findings, key=lambda x: (order.get(x.file, len(order)), x.line))
    return spec, tuple(findings)


@lru_cache(maxsize=128)
def _elaborated(file: str, text: str) -> tuple[int, ir.Sketch | None, tuple[Diagnostic, ...]]:
    """The number of sketches in the text (1 where it does not parse), the sketch if it is one, and
    the diagnostics. Cached, since a run loads the same documents for each of its prompts."""
    from sketchc.checker.api import elaborate
    from sketchc.parsing.parser import parse

    try:
        tree, found = parse(Source(file, text))
    except DiagnosticError as error:
        return 1, None, tuple(error.diagnostics)
    if tree is None or has_errors(found):
        return 1, None, tuple(found)
    if len(tree.sketches) != 1:
        return len(tree.sketches), None, tuple(found)
    sketch, more = elaborate(tree.sketches[0], {})
    return 1, sketch, (*found, *more)


@attrs.define
class _Folder:
    """One folder being read; collects findings. `read` holds the files in order."""

    folder: Path
    findings: list[Finding] = attrs.field(factory=list)
    read: list[str] = attrs.field(factory=list)

    def documents(self, manifest: Manifest) -> DocSpec:
        sections: list[Section] = []
        for category, files in manifest.files.items():
            for name in files:
                if (text := self.text(name)) is not None:
                    parsed, found = parse_document(name, text, category, manifest.language.fence)
                    sections += parsed
                    self.findings += found
        examples = [
            example
            for name, summary in manifest.examples.items()
            if (example := self.example(name, summary, manifest.language)) is not None
        ]
        if not manifest.examples:
            self.say(MANIFEST, 0, "there is no example: [examples.torch]")
        texts: dict[str, str] = {}
        for example in examples:
            texts[Path(example.sketch_file).name] = example.sketch
            texts[Path(example.source_file).name] = example.source
        for section in sections:
            for fence in section.fences:
                if fence.source and (wrong := _no_excerpt(fence, texts)):
                    self.say(section.file, fence.line, wrong)
        for name in manifest.tools:
            self.text(name)
        self.strays()
        return DocSpec(manifest, self.folder, tuple(sections), tuple(examples))

    def example(self, name: str, summary: str, language: Language) -> Example | None:
        """An example with what its sketch needs; None where a file is missing or wrong."""
        sketch_file = f"{_EXAMPLES}/{name}.sketch"
        source_file = f"{_EXAMPLES}/{name}{language.suffix}"
        text, source = self.text(sketch_file), self.text(source_file)
        if text is None or source is None:
            return None
        source = _IMPORT.sub(_shared_text, source)
        count, sketch, found = _elaborated(sketch_file, text)
        if count != 1:
            self.say(sketch_file, 1, "an example is one sketch")
            return None
        for diagnostic in found:
            if has_errors([diagnostic]):
                message = f"{diagnostic.code}: {diagnostic.message}"
                self.say(sketch_file, diagnostic.span.line, message)
        if sketch is None:
            return None
        if sketch.name != name:
            message = f"the sketch is named {sketch.name!r}, its file {name!r}"
            self.say(sketch_file, sketch.span.line, message)
        # A runner is told the entry's name, and what it does with it is its own affair.
        if not language.by_runner and f"{sketch.name}(" not in source:
            self.say(source_file, 0, f"nothing here is named {sketch.name!r}")
        needs, files = needs_of(sketch), (text, source, sketch_file, source_file)
        return Example(name, summary, *files, sketch.name, needs.operations, needs.topics)

    # ------------------------------------------------------------ files

    def text(self, name: str) -> str | None:
        """The text of a file of the folder; None, and a finding, if it cannot be read."""
        path = self.folder / name
        self.read.append(name)
        try:
            if Path(name).is_absolute() or self.folder.resolve() not in path.resolve().parents:
                self.say(name, 0, "this file lies outside the folder")
                return None
            return path.read_text("utf-8")
        except FileNotFoundError:
            self.say(name, 0, "this file is missing")
        except UnicodeDecodeError as error:
            line = path.read_bytes()[: error.start].count(b"\n") + 1
            self.say(name, line, "this is not UTF-8")
        except OSError as error:
            self.say(name, 0, f"this file cannot be read: {error.strerror}")
        except (RuntimeError, ValueError) as error:  # A loop of links; a name that no file has.
            self.say(name, 0, f"this file cannot be read: {error}")
        return None

    def strays(self) -> None:
        """Report the files that the manifest does not name: forgotten, or left behind."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            hidden = any(part.startswith(".") or part in _IGNORED for part in Path(name).parts)
            if path.is_file() and not hidden and name not in self.read:
                self.say(name, 0, f"{MANIFEST} does not name this file")

    def say(self, file: str, line: int, message: str) -> None:
        self.findings.append(Finding(file, line, message))


def _shared_text(found: re.Match[str]) -> str:
    """The definitions of the shared module that a kernel's import line names; the line itself where
    there is no such module."""
    path = Path(__file__).with_name("shared") / f"{found[1]}.py"
    return path.read_text("utf-8").partition("\n\n\n")[2] if path.exists() else found[0]


def _no_excerpt(fence: Fence, texts: Mapping[str, str]) -> str:
    """Why a block of code is not contiguous lines of an example's file, indentation aside; "" where
    it is. `texts` are the files that can be read."""
    if fence.source not in texts:
        known = ", ".join(texts) or "none"
        return f"{fence.source} is no file of an example that can be read; those are: {known}"
    wanted = _dedented(fence.lines)
    lines, count = texts[fence.source].split("\n"), len(wanted)
    if not "".join(wanted).strip():
        return "this code block is empty"
    for start in range(len(lines) - count + 1):
        same = lines[start].strip() == wanted[0].strip()
        if same and _dedented(lines[start : start + count]) == wanted:
            return ""
    return f"this is no excerpt of {fence.source}: its lines do not stand there in a row"


def _dedented(lines: Sequence[str]) -> list[str]:
    """The lines without their common indentation and without blanks at their ends."""
    return [line.rstrip() for line in textwrap.dedent("\n".join(lines)).split("\n")]
