"""Loading the documents of a target: the manifest, the Markdown files and the examples, all
checked. Nothing is run here; `sketchc docspec check --run` builds and runs the examples."""

from __future__ import annotations

import textwrap
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sketchc.base.diagnostics import DiagnosticError, UsageError
from sketchc.docspec.manifest import MANIFEST, parse_manifest
from sketchc.docspec.markdown import parse_document
from sketchc.docspec.needs import needs_of
from sketchc.docspec.schema import (
    DocSpec,
    DocSpecError,
    Example,
    Fence,
    Finding,
    Manifest,
    Section,
)
from sketchc.lowering.registry import all_targets, load_language

if TYPE_CHECKING:
    from sketchc.base.diagnostics import Diagnostic
    from sketchc.ir import nodes as ir

_EXAMPLES = "examples"
#: Files that a folder may hold although its manifest does not name them.
_IGNORED = ("__pycache__", "__init__.py")


def folder_of(target_or_folder: str | Path) -> Path:
    """The folder of a registered target, or the folder itself. Raises `UsageError` for neither."""
    name = str(target_or_folder)
    folders = {target.name: target.documents for target in all_targets() if target.documents}
    if name in folders:
        return Path(__file__).resolve().parent / folders[name]
    folder = Path(target_or_folder)
    if not folder.is_dir():
        known = ", ".join(folders)
        msg = f"{name} is no folder with documents and no target that has some: {known}"
        raise UsageError(msg)
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
    reader = _Folder(folder, [])
    text = reader.text(MANIFEST)
    if text is None:
        return None, tuple(reader.findings)
    manifest, found = parse_manifest(text)
    reader.findings += found
    if manifest is None:
        return None, tuple(reader.findings)
    spec = reader.documents(manifest)
    order = {name: place for place, name in enumerate(reader.read)}
    findings = sorted(reader.findings, key=lambda x: (order.get(x.file, len(order)), x.line))
    return spec, tuple(findings)


@lru_cache(maxsize=128)
def _elaborated(file: str, text: str) -> tuple[int, ir.Sketch | None, tuple[Diagnostic, ...]]:
    """How many sketches the text has (1 where it cannot be read), the one, and what was found.
    Kept, since a run loads the same documents for each of its prompts."""
    from sketchc.base.diagnostics import Source, has_errors
    from sketchc.checker.elaboration.elaborate import elaborate
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
    findings: list[Finding]
    read: list[str] = attrs.field(factory=list)

    def documents(self, manifest: Manifest) -> DocSpec:
        sections: list[Section] = []
        for category, files in manifest.files.items():
            for name in files:
                text = self.text(name)
                if text is not None:
                    parsed, found = parse_document(name, text, category)
                    sections += parsed
                    self.findings += found
        examples = [
            example
            for frontend, entries in manifest.examples.items()
            for name, summary in entries.items()
            if (example := self.example(manifest, frontend, name, summary)) is not None
        ]
        if not any(manifest.examples.values()):
            self.say(MANIFEST, 0, "there is no example: [examples.torch]")
        for section in sections:
            for fence in section.fences:
                if fence.source:
                    self.excerpt(section, fence, examples)
        self.strays(manifest)
        return DocSpec(manifest, self.folder, tuple(sections), tuple(examples))

    # ------------------------------------------------------------ examples

    def example(self, manifest: Manifest, frontend: str, name: str, summary: str) -> Example | None:
        source_file = f"{_EXAMPLES}/{name}{load_language(manifest.language).suffix}"
        sketch_file = f"{_EXAMPLES}/{name}.sketch"
        sketch = self.text(sketch_file)
        source = self.text(source_file)
        if sketch is None or source is None:
            return None
        example = Example(name, frontend, summary, sketch, source, sketch_file, source_file, name)
        return self.elaborated(example)

    def elaborated(self, example: Example) -> Example | None:
        """The example with what its sketch does; None when the sketch is wrong."""
        from sketchc.base.diagnostics import has_errors

        count, sketch, found = _elaborated(example.sketch_file, example.sketch)
        if count != 1:
            self.say(example.sketch_file, 1, "an example is one sketch")
            return None
        for diagnostic in found:
            if has_errors([diagnostic]):
                text = f"{diagnostic.code}: {diagnostic.message}"
                self.say(example.sketch_file, diagnostic.span.line, text)
        if sketch is None:
            return None
        if sketch.name != example.name:
            text = f"the sketch is named {sketch.name!r}, its file {example.name!r}"
            self.say(example.sketch_file, sketch.span.line, text)
        if f"{sketch.name}(" not in example.source:
            self.say(example.source_file, 0, f"nothing here is named {sketch.name!r}")
        needs = needs_of(sketch)
        return attrs.evolve(
            example, entry=sketch.name, operations=needs.operations, topics=needs.topics
        )

    def excerpt(self, section: Section, fence: Fence, examples: list[Example]) -> None:
        """Every fenced block of code is contiguous lines of an example, indentation aside."""
        texts = {
            Path(file).name: text
            for example in examples
            for file, text in (
                (example.sketch_file, example.sketch),
                (example.source_file, example.source),
            )
        }
        if fence.source not in texts:
            known = ", ".join(texts) or "none"
            self.say(
                section.file,
                fence.line,
                f"{fence.source} is no file of an example that can be read; those are: {known}",
            )
            return
        wanted = _dedented(fence.lines)
        lines = texts[fence.source].split("\n")
        count = len(wanted)
        if not "".join(wanted).strip():
            self.say(section.file, fence.line, "this code block is empty")
        elif not any(
            lines[start].strip() == wanted[0].strip()
            and _dedented(tuple(lines[start : start + count])) == wanted
            for start in range(len(lines) - count + 1)
        ):
            self.say(
                section.file,
                fence.line,
                f"this is no excerpt of {fence.source}: its lines do not stand there in a row",
            )

    # ------------------------------------------------------------ files

    def text(self, name: str) -> str | None:
        """The text of a file of the folder; None, and a finding, when it cannot be had."""
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

    def strays(self, manifest: Manifest) -> None:
        """Files that nothing names: forgotten in the manifest, or left behind."""
        named = {MANIFEST, *(name for names in manifest.files.values() for name in names)}
        for entries in manifest.examples.values():
            for name in entries:
                named.add(f"{_EXAMPLES}/{name}.sketch")
                named.add(f"{_EXAMPLES}/{name}{load_language(manifest.language).suffix}")
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            hidden = any(part.startswith(".") or part in _IGNORED for part in Path(name).parts)
            if path.is_file() and not hidden and name not in named:
                self.say(name, 0, f"{MANIFEST} does not name this file")

    def say(self, file: str, line: int, message: str) -> None:
        self.findings.append(Finding(file, line, message))


def _dedented(lines: tuple[str, ...]) -> list[str]:
    """The lines without their common indentation and without blanks at their ends."""
    return [line.rstrip() for line in textwrap.dedent("\n".join(lines)).split("\n")]
