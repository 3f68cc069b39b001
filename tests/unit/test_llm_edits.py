"""Edits: what applies gives exactly the wanted text; what does not is explained to the model."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sketchc.agents.llm.replies import EDIT_FORMAT, Edit, ReplyError, apply_edits, parse_edits

TEXT = """\
def f(x):
    y = x + 1
    return y

def g(x):
    y = x + 1
    return y * 2
"""


def written(edits: list[Edit], separate: bool) -> str:
    """A reply with these edits, with markers and a fence that nothing in them looks like."""
    lines = [line for edit in edits for line in (*edit.search, *edit.replace)]
    width = 7
    while any(line.startswith(mark * width) for line in lines for mark in "<=>"):
        width += 1
    fence = "`" * (3 + max((len(line) for line in lines), default=0))
    parts = [
        "\n".join(
            [
                f"{'<' * width} SEARCH",
                *edit.search,
                "=" * width,
                *edit.replace,
                f"{'>' * width} REPLACE",
            ]
        )
        for edit in edits
    ]
    blocks = parts if separate else ["\n\n".join(parts)]
    return "\n".join(f"Some words.\n\n{fence}edit\n{block}\n{fence}" for block in blocks)


def refused(text: str, *edits: tuple[str, str]) -> str:
    with pytest.raises(ReplyError) as caught:
        apply_edits(text, [edit(*pair) for pair in edits])
    return str(caught.value)


def edit(search: str, replace: str) -> Edit:
    return Edit(tuple(search.split("\n")), tuple(replace.split("\n")) if replace else ())


# ---------------------------------------------------------------- properties

LINES = st.lists(
    st.text(alphabet="ab =<>`| \t", max_size=9)
    | st.sampled_from(["=======", "<<<<<<< SEARCH", ">>>>>>> REPLACE", "```", "x = 1", ""]),
    max_size=25,
)


def derived(old: list[str], new: list[str]) -> list[Edit]:
    """Edits that turn `old` into `new`: a diff, with context until each search is unique."""
    opcodes = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    changes = [code[1:] for code in opcodes if code[0] != "equal"]
    spans = [_unique_span(old, a, b) for a, b, _, _ in changes]
    while True:
        joined = [spans[0]]
        for a, b in spans[1:]:
            if a <= joined[-1][1]:  # contexts meet: one edit
                joined[-1] = (min(a, joined[-1][0]), max(b, joined[-1][1]))
            else:
                joined.append((a, b))
        joined = [_unique_span(old, a, b) for a, b in joined]
        if joined == spans:
            break
        spans = joined
    edits = []
    for a, b in spans:
        inside = [change for change in changes if a <= change[0] and change[1] <= b]
        c = inside[0][2] - (inside[0][0] - a)
        d = inside[-1][3] + (b - inside[-1][1])
        edits.append(Edit(tuple(old[a:b]), tuple(new[c:d])))
    return edits


def _unique_span(old: list[str], a: int, b: int) -> tuple[int, int]:
    """The smallest span around [a, b) that stands in `old` once and is not blank."""
    while (a, b) != (0, len(old)):
        part = old[a:b]
        places = [i for i in range(len(old) - len(part) + 1) if old[i : i + len(part)] == part]
        if len(places) == 1 and any(line.strip() for line in part):
            break
        a, b = max(0, a - 1), min(len(old), b + 1)
    return a, b


@given(LINES, LINES, st.booleans())
def test_edits_from_a_diff_give_the_target(old: list[str], new: list[str], separate: bool) -> None:
    assume(old != new)
    assume(any(line.strip() for line in old))
    edits = derived(old, new)
    source = "".join(f"{line}\n" for line in old)
    target = "".join(f"{line}\n" for line in new)
    parsed = parse_edits(written(edits, separate))
    assert list(parsed) == edits
    assert apply_edits(source, parsed) == target
    assert apply_edits(source, parsed[::-1]) == target  # their order says nothing


@given(LINES, st.data())
def test_one_line_replaced(lines: list[str], data: st.DataObject) -> None:
    places = [i for i, line in enumerate(lines) if line.strip() and lines.count(line) == 1]
    assume(places)
    index = data.draw(st.sampled_from(places))
    ending = data.draw(st.sampled_from(["", "\n"]))
    assume(not (ending == "" and lines[-1] == ""))  # the last newline would end a line
    expected = [*lines[:index], "new", "lines", *lines[index + 1 :]]
    changed = apply_edits("\n".join(lines) + ending, [Edit((lines[index],), ("new", "lines"))])
    assert changed == "\n".join(expected) + ending


# ---------------------------------------------------------------- applying


def test_edits_are_meant_for_the_text_as_shown() -> None:
    edits = [edit("def f(x):", "def g(x):"), edit("def g(x):", "def h(x):")]
    assert apply_edits(TEXT, edits).count("def g(x):") == 1
    assert "def h(x):" in apply_edits(TEXT, edits)


def test_lines_can_be_added_and_removed() -> None:
    assert apply_edits("a\nb\n", [edit("a", "a\na2")]) == "a\na2\nb\n"
    assert apply_edits("a\nb\n", [edit("a", "")]) == "b\n"
    assert apply_edits("a\nb\n", [edit("a\nb", "")]) == ""
    assert apply_edits("a\nb", [edit("b", "c")]) == "a\nc"


def test_blanks_at_the_ends_of_lines_are_forgiven_and_nothing_else() -> None:
    assert apply_edits("a  \n\t b\n", [edit("a\n\t b ", "c")]) == "c\n"
    assert "only the indentation differs" in refused("    a\n", ("  a", "b"))
    assert "occurs nowhere" in refused("a b\n", ("a  b", "c"))
    # An exact place wins over ones that are alike but for blanks.
    assert apply_edits("a \na\n", [edit("a", "b")]) == "a \nb\n"
    assert "occurs 2 times" in refused("a \na\t\n", ("a", "b"))


def test_whole_lines_only() -> None:
    assert "occurs nowhere" in refused("xx = 1\n", ("x = 1", "x = 2"))


# ---------------------------------------------------------------- refusing


def test_a_search_that_occurs_twice_is_told_where() -> None:
    message = refused(TEXT, ("    y = x + 1", "    y = x"))
    assert message == (
        "the search of edit 1 occurs 2 times in the text (at lines 2, 6): add lines before or "
        "after it until it occurs once"
    )


def test_a_search_that_occurs_nowhere_is_told_the_nearest_line() -> None:
    message = refused(TEXT, ("def g(x):\n    y = x + 2\n    return y * 2", "pass"))
    assert message == (
        "the search of edit 1 occurs nowhere in the text; nearest is line 6, `    y = x + 1`, for "
        "which it has `    y = x + 2`"
    )
    message = refused(TEXT, ("    return y * 3", "pass"))
    assert "nearest is line 7, `    return y * 2`" in message
    assert "the text ends after line 7" in refused(TEXT, ("    return y * 2\n    more", "pass"))
    assert "the text is empty" in refused("", ("a", "b"))


def test_line_numbers_in_a_search_are_recognised() -> None:
    assert "line numbers" in refused(TEXT, (" 2|     y = x + 1\n 3|     return y", "pass"))


def test_overlapping_edits_are_refused() -> None:
    message = refused("a\nb\nc\n", ("b\nc", "x"), ("a\nb", "y"))
    assert message == "edits 1 and 2 overlap in line 2: join them into one"
    assert "overlap" in refused("a\n", ("a", "x"), ("a", "x"))


def test_edits_that_change_nothing_are_refused() -> None:
    assert "change nothing" in refused("a\nb\n", ("a", "a"))


# ---------------------------------------------------------------- parsing


def problem(text: str) -> str:
    with pytest.raises(ReplyError) as caught:
        parse_edits(text)
    return str(caught.value)


def block(*lines: str, language: str = "edit") -> str:
    return "\n".join([f"```{language}", *lines, "```"])


ONE = ("<<<<<<< SEARCH", "a", "=======", "b", ">>>>>>> REPLACE")


def test_several_edits_in_one_block_or_in_several() -> None:
    expected = (edit("a", "b"), edit("a", "b"))
    assert parse_edits(block(*ONE, "", *ONE)) == expected
    assert parse_edits(block(*ONE) + "\nand\n" + block(*ONE)) == expected
    # Blocks that show something else are no edits, and the label does not matter.
    text = block("x = 1", language="python") + "\n" + block(*ONE, language="python")
    assert parse_edits(text) == expected[:1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "it holds no edit"),
        ("\n".join(ONE), "the edits stand outside of a fenced block"),
        (block("x = 1"), "expected the line <<<<<<< SEARCH, not `x = 1`"),
        (block(*ONE, "x = 1"), "the edit in line 7 of the reply: expected the line"),
        (block(*ONE[:2], *ONE[3:]), "the edit in line 2 of the reply: no line ======="),
        (block(*ONE[:4]), "no line >>>>>>> REPLACE"),
        (block(*ONE[:4], *ONE), "no line >>>>>>> REPLACE"),
        (block(ONE[0], *ONE[2:]), "searches for nothing"),
        (block(ONE[0], "  ", "", *ONE[2:]), "searches for nothing"),
        (block(*ONE[:4], "=======", ONE[4]), "two lines ======="),
        ("```edit\n" + "\n".join(ONE), "cut off"),
    ],
)
def test_what_is_no_edit_is_explained(text: str, message: str) -> None:
    assert message in problem(text)


def test_the_form_shown_to_models_parses() -> None:
    (shown,) = parse_edits(EDIT_FORMAT)
    assert shown.search == ("lines of the text exactly as they are now",)
    assert shown.replace == ("the lines that take their place",)
