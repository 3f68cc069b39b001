"""What documents of a target consist of, as frozen data: the manifest, the sections of the Markdown
files in their four categories, and the examples. `loader` makes it, `selector` cuts it to a budget.

The four categories are those of the AKG kernel agent (arXiv 2512.23424, section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.lowering.language import Language


class Category(Enum):
    """Where a piece of documentation belongs. Strategies and pitfalls are the two halves of the
    suggestions."""

    BASIC = "basic"
    API = "api"
    STRATEGIES = "strategies"
    PITFALLS = "pitfalls"
    EXAMPLES = "examples"


_TOPICS = (
    "elementwise reduction matrix layout loop carried ragged inner-axis outer-axis grid phases "
    "workspace inout view broadcast-extent params require index gather scatter stride padding "
    "mask atomic fetch branch host optional scan sorting random convert low-precision integer"
)
#: Words that a `keywords:` line may hold, besides dtypes: what a sketch can show (`needs.needs_of`
#: finds them; docs/DOCSPEC.md says what each of them means).
TOPICS = tuple(_TOPICS.split())

_FAILURES = (
    "syntax api_misuse compile resource launch timeout illegal_access wrong_shape numerical "
    "nondeterministic policy"
)
#: The failure classes of docs/VERIFICATION.md: a `keywords:` line may hold them too. A caller that
#: repairs a candidate names the class among its topics.
FAILURES = frozenset(_FAILURES.split())


@attrs.frozen
class Finding:
    """One thing wrong with a folder of documents. `file` is relative to the folder; `line` counts
    from 1, 0 for the file as a whole."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class DocSpecError(UsageError):
    """Documents that cannot be used; carries every finding."""

    def __init__(self, folder: str, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        count = f"{len(findings)} finding{'s' if len(findings) != 1 else ''}"
        super().__init__("\n  ".join([f"{folder}: {count}", *map(str, findings)]))


@attrs.frozen
class Fence:
    """One fenced code block: its language, the file it is an excerpt of ("" for none), the line of
    the opening fence, and the lines between the fences."""

    language: str
    source: str
    line: int
    lines: tuple[str, ...]


@attrs.frozen
class Section:
    """One part of a document, from its heading to the next one.

    `operations` and `keywords` say what it serves (empty: everything); `signatures` are the
    interfaces of an API entry. `text` is Markdown, heading first, without the `keywords:` line.
    `line` is that of the heading in `file`.
    """

    category: Category
    file: str
    line: int
    title: str
    text: str
    operations: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    fences: tuple[Fence, ...] = ()

    @property
    def general(self) -> bool:
        """Whether the section serves every kernel: no operation named, failure classes at most."""
        return not self.operations and all(word in FAILURES for word in self.keywords)


@attrs.frozen
class Example:
    """A hand-written kernel beside the sketch that it implements.

    `entry` is the sketch's name and the kernel's entry point; `operations` is the sketch's multiset
    of operations (sorted, repeated) and `topics` what else it shows, both from
    `needs.needs_of`.
    """

    name: str
    summary: str
    sketch: str
    source: str
    sketch_file: str
    source_file: str
    entry: str
    operations: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


@attrs.frozen
class Manifest:
    """`docspec.toml`. Files are relative to the folder, in the order in which they are read;
    `examples` say in a sentence what each of them shows. `tools` are the files with which a target
    of documents builds and runs kernels; no model reads them."""

    target: str
    title: str
    language: Language
    files: Mapping[Category, tuple[str, ...]]
    examples: Mapping[str, str]
    tools: tuple[str, ...] = ()


@attrs.frozen
class DocSpec:
    """All documents of one target. `sections` are in the order of categories, files and lines."""

    manifest: Manifest
    folder: Path = attrs.field(eq=False, repr=False)
    sections: tuple[Section, ...]
    examples: tuple[Example, ...]

    @property
    def target(self) -> str:
        """The name of the target."""
        return self.manifest.target

    def of(self, category: Category) -> tuple[Section, ...]:
        """The sections of one category; none for the examples."""
        return tuple(section for section in self.sections if section.category is category)
