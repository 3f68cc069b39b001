"""Cutting the documents of a target to what one kernel needs, under a budget of tokens.

Parts are put into one order that depends on the needs alone, and the budget takes a prefix of it:
so a larger budget never loses what a smaller one had, and equal arguments give equal selections.

1. the basic documents;
2. pitfalls that serve every kernel or this one;
3. API entries, those that serve most of its operations first;
4. strategies, likewise;
5. the examples whose sketches are most similar.

What serves other kernels only is never taken. Tokens are estimated as characters / 4.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.docspec.schema import FAILURES, Category, DocSpec, Example, Section
from sketchc.ops.table import OPS

#: The order in which categories are taken.
ORDER = (
    Category.BASIC,
    Category.PITFALLS,
    Category.API,
    Category.STRATEGIES,
    Category.EXAMPLES,
)
#: Why a part was not taken.
NOT_NEEDED = "serves other kernels"
OVER_BUDGET = "over the budget"

_DTYPES = frozenset(dtype.value for dtype in DType)
_CHARACTERS_PER_TOKEN = 4
_MOST_EXAMPLES = 3
#: Between two parts of a text.
_SEPARATOR = "\n\n"


@attrs.frozen
class Part:
    """One section or example: where it stands, its text for a prompt, and its estimated tokens.
    `reason` says why it was left out ("" when it was not)."""

    category: Category
    file: str
    line: int
    title: str
    text: str
    reason: str = ""

    @property
    def tokens(self) -> int:
        """The estimated tokens of the part and of the separator behind it."""
        return estimate_tokens(self.text + _SEPARATOR)


@attrs.frozen
class Selection:
    """What was taken, in the order of categories and documents, examples by similarity; what was
    left out, in order of rank; and the operations that no API entry of the target serves."""

    taken: tuple[Part, ...]
    left_out: tuple[Part, ...]
    unserved: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """The estimated tokens of all parts that were taken."""
        return sum(part.tokens for part in self.taken)

    def text(self) -> str:
        """The taken parts as one Markdown text."""
        return _SEPARATOR.join(part.text for part in self.taken)


def estimate_tokens(text: str) -> int:
    """About how many tokens a model counts: characters / 4, rounded up."""
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def select(
    docspec: DocSpec,
    operations: Iterable[str],
    topics: Iterable[str],
    budget_tokens: int,
    categories: Collection[Category] = ORDER,
) -> Selection:
    """The parts of `categories` that serve a kernel, at most `budget_tokens` in all.

    `operations` is the sketch's multiset and `topics` what else it shows (`needs.needs_of` gives
    both), plus the failure class when a candidate is to be repaired. Raises `UsageError` for a
    negative budget.
    """
    if budget_tokens < 0:
        refuse(f"a budget of {budget_tokens} tokens is less than nothing")
    wanted, words = Counter(operations), frozenset(topics)
    needed: list[tuple[int, int, int, Part]] = []
    left_out: list[Part] = []
    for place, section in enumerate(docspec.sections):
        category = section.category
        part = Part(category, section.file, section.line, section.title, section.text)
        if category in categories and serves(section, wanted, words):
            rank = -_score(section, wanted, words)
            needed.append((ORDER.index(category), rank, place, part))
        elif category in categories:
            left_out.append(attrs.evolve(part, reason=NOT_NEEDED))
    ranked = rank_examples(docspec, wanted, words) if Category.EXAMPLES in categories else ()
    for place, example in enumerate(ranked):
        text = example_text(docspec, example)
        part = Part(Category.EXAMPLES, example.source_file, 1, example.name, text)
        if place < _MOST_EXAMPLES:
            needed.append((ORDER.index(Category.EXAMPLES), 0, place, part))
        else:
            left_out.append(attrs.evolve(part, reason=NOT_NEEDED))
    needed.sort(key=lambda entry: entry[:3])
    tokens = itertools.accumulate(part.tokens for *_, part in needed)
    fitting = sum(so_far <= budget_tokens for so_far in tokens)
    # In reading order: sections as they stand in the documents, examples as they were ranked.
    taken = sorted(needed[:fitting], key=lambda entry: (entry[0], entry[2]))
    over = [attrs.evolve(part, reason=OVER_BUDGET) for *_, part in needed[fitting:]]
    known = {name for entry in docspec.of(Category.API) for name in entry.operations}
    unserved = sorted(wanted.keys() - known)
    return Selection(tuple(part for *_, part in taken), (*over, *left_out), tuple(unserved))


def serves(section: Section, operations: Collection[str], topics: Collection[str]) -> bool:
    """Whether a section is for a kernel with these operations and topics.

    One of its operations or topics must be the kernel's; a dtype decides only where a section names
    nothing else, and a failure class never does. Basic documents serve every kernel.
    """
    if section.category is Category.BASIC or section.general:
        return True
    deciding = [word for word in section.keywords if word not in _DTYPES and word not in FAILURES]
    words = deciding if section.operations or deciding else section.keywords
    named = any(name in operations for name in section.operations)
    return named or any(word in topics for word in words)


def rank_examples(
    docspec: DocSpec, operations: Iterable[str], topics: Iterable[str]
) -> tuple[Example, ...]:
    """All examples, the most similar first; equals in the order of the manifest."""
    wanted, words = _computing(operations), Counter(set(topics))
    return tuple(sorted(docspec.examples, key=lambda example: -similarity(example, wanted, words)))


def similarity(example: Example, wanted: Counter[str], topics: Counter[str]) -> float:
    """How alike an example and a kernel are, 0 to 1: half by operations, the rest by their kinds
    (element-wise, reduction, ...) and by topics. Each is the weighted Jaccard index of multisets,
    loads and stores left out."""
    offered = _computing(example.operations)
    return (
        0.5 * _overlap(offered, wanted)
        + 0.25 * _overlap(_kinds(offered), _kinds(wanted))
        + 0.25 * _overlap(Counter(set(example.topics)), topics)
    )


def _computing(operations: Iterable[str]) -> Counter[str]:
    counted = Counter(operations)
    return Counter({name: n for name, n in counted.items() if name not in ("load", "store")})


def _kinds(operations: Counter[str]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for name, count in operations.items():
        kinds[OPS[name].category.value if name in OPS else name] += count
    return kinds


def _overlap(left: Counter[str], right: Counter[str]) -> float:
    union = sum((left | right).values())
    return sum((left & right).values()) / union if union else 0.0


def _score(section: Section, operations: Collection[str], topics: Collection[str]) -> int:
    """The rank of a section: 2 for each operation and 1 for each topic of the kernel that it names;
    0 for basic documents, which keep their order."""
    if section.category is Category.BASIC:
        return 0
    named = sum(name in operations for name in section.operations)
    return 2 * named + sum(word in topics for word in section.keywords)


def example_text(docspec: DocSpec, example: Example) -> str:
    """An example as Markdown: its sketch, then its kernel."""
    fence = docspec.manifest.language.fence
    return (
        f"## Example `{example.name}`: {example.summary}\n\n"
        f"```sketch\n{example.sketch.rstrip()}\n```\n\n"
        f"```{fence}\n{example.source.rstrip()}\n```"
    )
