"""The words of `llm_hint`: which are known, which name hardware, which contradict each other.

Hints never change meaning (R9); the one exception is `"init_zero"`, which means `init=0`. What is
wrong with a hint is therefore only ever a warning.
"""

from __future__ import annotations

from sketchc.base.diagnostics import Edit, Fix
from sketchc.checker.context.context import Context
from sketchc.parsing import syntax
from sketchc.parsing.errors import nearest

_LOOP = """parallel grididx grididx.x grididx.y grididx.z threadidx threadidx.x threadidx.y
threadidx.z coreidx warp simd pipeline vectorize unroll async tensor_core"""
_TILE = """fastest fast medium slow accumulator input_cache output_buffer temp_workspace
shared_between_threads init_zero no_init async tensor_core"""
LOOP_HINTS = frozenset(_LOOP.split())
TILE_HINTS = frozenset(_TILE.split())

#: Words that name a memory or the cores of one chip, by the portable word that says what was meant.
_HARDWARE = {
    "fastest": "l0a l0b l0c l0a_buffer l0b_buffer l0c_buffer register registers register_file",
    "fast": "l1_buffer l1 ub unified_buffer shared_memory shared smem sram tmem",
    "medium": "l2 l2_cache",
    "slow": "gm global_memory hbm dram ddr",
    "grididx": "threadblock blockidx",
    "grididx.x": "blockidx.x",
    "grididx.y": "blockidx.y",
    "grididx.z": "blockidx.z",
    "coreidx": "aicore vector_core",
    "parallel": "openmp",
}
#: Each of these words -> its portable word.
HARDWARE_HINTS = {word: portable for portable, words in _HARDWARE.items() for word in words.split()}
_GRID = ("grididx", "coreidx")

#: Words of which a list may have only one: a tile lies in one memory.
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
                    message = "`stages` is an integer of at least 1"
                    context.warn(keyword.span, "SK0606", message, "ignored")
                case _:
                    message = f"unknown loop hint `{keyword.name}=`"
                    context.warn(keyword.span, "SK0606", message, "ignored")
    on_grid = next((word for word in words if word.value.split(".")[0] in _GRID), None)
    if on_grid is not None and "parallel" not in known:
        context.warn(
            on_grid.span,
            "SK0609",
            f'a loop hinted "{on_grid.value}" without "parallel" is sequential',
            "says where, not that",
            fixes=(Fix('add "parallel"', (Edit(on_grid.span, f'"parallel", "{on_grid.value}"'),)),),
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
    meant = nearest(word.value, known, 0.7)
    message = f'unknown hint "{word.value}"'
    if meant is None:
        context.warn(word.span, "SK0606", message, "ignored")
        return False
    # Two are more than advice: `"parallel"` is checked to hold, and `"init_zero"` gives a value.
    advice = meant not in ("parallel", "init_zero")
    fix = Fix(f'say "{meant}"', (Edit(word.span, f'"{meant}"'),), safe=advice)
    context.warn(word.span, "SK0606", message, f'did you mean "{meant}"?', fixes=(fix,))
    return False


def _portable_fix(word: syntax.String, words: tuple[syntax.String, ...], portable: str) -> Fix:
    """A fix that says `portable`, or deletes the word if the list names it or another memory."""
    place = words.index(word)
    said = {other.value for other in words}
    said |= {HARDWARE_HINTS.get(other.value.lower(), "") for other in words[:place]}
    if not said & ({portable} | (_LEVELS if portable in _LEVELS else set())):
        return Fix(f'say "{portable}"', (Edit(word.span, f'"{portable}"'),), safe=True)
    here = word.span  # from the end of the word before, or up to the start of the next one
    gap = words[place - 1].span.after.to(here) if place else here.to(words[1].span.before)
    return Fix("leave it out", (Edit(gap, ""),), safe=True)
