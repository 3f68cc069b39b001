"""The words of `llm_hint`: which are known, which name hardware, which contradict each other.

Hints never change meaning (R9); the one exception is `"init_zero"`, which means `init=0`. What is
wrong with a hint is therefore only ever a warning.
"""

from __future__ import annotations

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, Span
from sketchc.checker.context.context import Context, closest
from sketchc.parsing import syntax

LOOP_HINTS = frozenset(
    [
        "parallel",
        "grididx",
        "grididx.x",
        "grididx.y",
        "grididx.z",
        "threadidx",
        "threadidx.x",
        "threadidx.y",
        "threadidx.z",
        "coreidx",
        "warp",
        "simd",
        "pipeline",
        "vectorize",
        "unroll",
        "async",
        "tensor_core",
    ]
)
TILE_HINTS = frozenset(
    [
        "fastest",
        "fast",
        "medium",
        "slow",
        "accumulator",
        "input_cache",
        "output_buffer",
        "temp_workspace",
        "shared_between_threads",
        "init_zero",
        "no_init",
        "async",
        "tensor_core",
    ]
)

#: Words that name a memory of one chip, with the portable word that says what was meant.
HARDWARE_HINTS = {
    "l1_buffer": "fast",
    "l1": "fast",
    "l2": "medium",
    "l2_cache": "medium",
    "l0a": "fastest",
    "l0b": "fastest",
    "l0c": "fastest",
    "l0a_buffer": "fastest",
    "l0b_buffer": "fastest",
    "l0c_buffer": "fastest",
    "ub": "fast",
    "unified_buffer": "fast",
    "shared_memory": "fast",
    "shared": "fast",
    "smem": "fast",
    "sram": "fast",
    "tmem": "fast",
    "register": "fastest",
    "registers": "fastest",
    "register_file": "fastest",
    "gm": "slow",
    "global_memory": "slow",
    "hbm": "slow",
    "dram": "slow",
    "ddr": "slow",
    "threadblock": "grididx",
    "blockidx": "grididx",
    "blockidx.x": "grididx.x",
    "blockidx.y": "grididx.y",
    "blockidx.z": "grididx.z",
    "aicore": "coreidx",
    "vector_core": "coreidx",
    "openmp": "parallel",
}
_GRID = ("grididx", "coreidx")

#: Words of which one list has one at most: a tile lies in one memory.
_LEVELS = frozenset(["fastest", "fast", "medium", "slow"])


def tile_hints(context: Context, words: tuple[syntax.String, ...]) -> tuple[str, ...]:
    """The known words of an alloc; warns of the others."""
    return tuple(word.value for word in words if _known(context, word, words, TILE_HINTS))


def loop_hints(context: Context, node: syntax.For) -> tuple[tuple[str, ...], int | None]:
    """The known words of a loop, and its `stages`; warns of the rest."""
    words = [word for hint in node.hints for word in hint.words]
    known = tuple(
        word.value
        for hint in node.hints
        for word in hint.words
        if _known(context, word, hint.words, LOOP_HINTS)
    )
    stages: int | None = None
    for hint in node.hints:
        for keyword in hint.keywords:
            match keyword:
                case syntax.Keyword(name="stages", value=syntax.Number(value=int(count))) if (
                    count >= 1
                ):
                    stages = count
                case syntax.Keyword(name="stages"):
                    context.warn(
                        keyword.span,
                        "SK0606",
                        "`stages` is an integer of at least 1",
                        "ignored",
                    )
                case _:
                    context.warn(
                        keyword.span,
                        "SK0606",
                        f"unknown loop hint `{keyword.name}=`",
                        "ignored",
                    )
    on_grid = next((word for word in words if word.value.split(".")[0] in _GRID), None)
    if on_grid is not None and "parallel" not in known:
        context.warn(
            on_grid.span,
            "SK0609",
            f'a loop hinted "{on_grid.value}" without "parallel" is sequential',
            "says where, not that",
            fixes=(
                Fix(
                    'add "parallel"',
                    (Edit(on_grid.span, f'"parallel", "{on_grid.value}"'),),
                ),
            ),
        )
    return known, stages


def _known(
    context: Context, word: syntax.String, words: tuple[syntax.String, ...], known: frozenset[str]
) -> bool:
    """Whether a word of the list `words` is known; warns of it where it is not."""
    if word.value in known:
        return True
    portable = HARDWARE_HINTS.get(word.value.lower())
    if portable is not None and portable in known:
        context.warn(
            word.span,
            "SK0605",
            f'"{word.value}" names hardware; a sketch says what, not where',
            "ignored",
            fixes=(_portable_fix(word, words, portable),),
        )
        return False
    meant = closest(word.value, known)
    context.warn(
        word.span,
        "SK0606",
        f'unknown hint "{word.value}"',
        "ignored" if meant is None else f'did you mean "{meant}"?',
        fixes=() if meant is None else (_meant(word, meant),),
    )
    return False


def _meant(word: syntax.String, meant: str) -> Fix:
    """The hint that a misspelt one most likely is. Two are more than advice: `"parallel"` is
    checked to hold, and `"init_zero"` gives a value."""
    advice = meant not in ("parallel", "init_zero")
    return Fix(f'say "{meant}"', (Edit(word.span, f'"{meant}"'),), safe=advice)


def _portable_fix(word: syntax.String, words: tuple[syntax.String, ...], portable: str) -> Fix:
    """Say the portable word, or nothing where the list says as much, or names another memory."""
    place = words.index(word)
    said = {other.value for other in words}
    said |= {HARDWARE_HINTS.get(other.value.lower(), "") for other in words[:place]}
    if not said & ({portable} | (_LEVELS if portable in _LEVELS else set())):
        return Fix(f'say "{portable}"', (Edit(word.span, f'"{portable}"'),), safe=True)
    if place:
        return Fix("leave it out", (Edit(_after(words[place - 1].span, word.span), ""),), safe=True)
    return Fix("leave it out", (Edit(_before(word.span, words[1].span), ""),), safe=True)


def _after(first: Span, last: Span) -> Span:
    """From the end of one to the end of the other."""
    return records.evolve(
        first.to(last), start=first.end, line=first.end_line, column=first.end_column
    )


def _before(first: Span, last: Span) -> Span:
    """From the start of one to the start of the other."""
    return records.evolve(
        first.to(last), end=last.start, end_line=last.line, end_column=last.column
    )
