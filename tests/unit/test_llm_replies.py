"""Replies: fences as in CommonMark, exactly one block, strict JSON, messages for the model."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchc.agents.llm.replies import Block, ReplyError, fenced_blocks, json_object, single_block


def problem(text: str, language: str = "sketch") -> str:
    with pytest.raises(ReplyError) as caught:
        single_block(text, language)
    return str(caught.value)


# ---------------------------------------------------------------- fences


def test_blocks_have_their_language_text_and_place() -> None:
    text = "Words.\n```python\nx = 1\n\ny = 2\n```\nmore\n\n~~~ C++ title=x\nint x;\n~~~\n"
    assert fenced_blocks(text) == (
        Block("python", "python", "x = 1\n\ny = 2\n", 2),
        Block("cpp", "C++ title=x", "int x;\n", 9),
    )


def test_a_longer_fence_holds_shorter_ones() -> None:
    text = "````markdown\n```python\nx\n```\n~~~\n````\n"
    (block,) = fenced_blocks(text)
    assert block.text == "```python\nx\n```\n~~~\n"


def test_a_closing_fence_may_be_longer_and_trail_blanks_but_has_no_info() -> None:
    assert fenced_blocks("```a\nx\n`````  \n")[0].text == "x\n"
    (block,) = fenced_blocks("```a\nx\n``` b\ny\n```\n")
    assert block.text == "x\n``` b\ny\n"
    assert fenced_blocks("```a\n~~~\n```\n")[0].text == "~~~\n"


def test_indentation_of_the_fence_is_taken_off_the_lines() -> None:
    (block,) = fenced_blocks("  ```a\n  x\n    y\n z\n   ```\n")
    assert block.text == "x\n  y\nz\n"
    assert fenced_blocks("    ```a\n    x\n    ```\n") == ()  # an indented code block
    (block,) = fenced_blocks("```a\nx\n    ```\ny\n```\n")
    assert block.text == "x\n    ```\ny\n"


def test_inline_code_is_no_fence() -> None:
    assert fenced_blocks("```x``` is inline\n") == ()
    assert fenced_blocks("``\nx\n``\n") == ()


@pytest.mark.parametrize(
    ("info", "language"),
    [
        ("python", "python"),
        (" Python ", "python"),
        ("py", "python"),
        ('python title="a.py" {3}', "python"),
        ("{.python .numberLines}", "python"),
        ("python{1,2}", "python"),
        ("c++", "cpp"),
        ("", ""),
    ],
)
def test_info_strings(info: str, language: str) -> None:
    assert fenced_blocks(f"```{info}\nx\n```")[0].language == language


def test_an_unclosed_fence_is_marked_and_keeps_its_text() -> None:
    (block,) = fenced_blocks("```a\nx\ny\n")
    assert not block.closed
    assert block.text == "x\ny\n"


def test_windows_line_ends_and_odd_separators() -> None:
    assert single_block("\ufeff```sketch\r\na\r\nb\r\n```\r\n", "sketch") == "a\nb\n"
    # These end lines for str.splitlines, not for Markdown.
    assert single_block("```sketch\na\x0cb\u2028c\n```", "sketch") == "a\x0cb\u2028c\n"


@given(st.lists(st.text(alphabet="`~ ab\n", max_size=12), max_size=6))
def test_any_text_comes_back_from_a_fence_that_is_long_enough(parts: list[str]) -> None:
    text = "".join(f"{line}\n" for line in "\n".join(parts).split("\n"))
    fence = "`" * (3 + max(len(run) for run in (text.replace("~", " ") + " ").split("\n")))
    (block,) = fenced_blocks(f"Here:\n{fence}sketch\n{text}{fence}\nThat is it.")
    assert block.text == text
    assert block.closed


@given(st.text(alphabet="`~ a\n{}<>/think", max_size=60))
def test_no_text_makes_the_parser_fail_otherwise(text: str) -> None:
    for parse in (lambda: single_block(text, "a"), lambda: json_object(text)):
        with contextlib.suppress(ReplyError):
            assert parse() is not None


# ---------------------------------------------------------------- one block


def test_the_one_block_of_a_language_among_others() -> None:
    text = "```text\nthoughts\n```\n\n```sketch\nx\n```\n"
    assert single_block(text, "sketch") == "x\n"
    assert single_block("```c++\nint x;\n```", "cpp") == "int x;\n"


def test_a_lone_block_without_a_language_is_meant() -> None:
    assert single_block("```\nx\n```", "sketch") == "x\n"
    assert "2 in other languages (no language, text)" in problem("```\nx\n```\n```text\ny\n```")


def test_what_is_wrong_is_said_to_the_model() -> None:
    assert problem("no block") == (
        "the reply must hold one fenced block opened by ```sketch; it holds none"
    )
    assert problem("```rust\nx\n```") == (
        "the reply must hold one fenced block opened by ```sketch; it holds 1 in other languages "
        "(rust)"
    )
    two = "```sketch\nx\n```\n```sketch\ny\n```"
    assert "exactly one" in problem(two)
    assert "it holds 2 (lines 1, 4)" in problem(two)
    assert problem("```sketch\n \n```") == "the fenced block in line 1 of the reply is empty"


def test_a_reply_that_was_cut_off_is_not_used() -> None:
    assert "cut off: the fenced block that opens in line 2" in problem("A\n```sketch\nx\n")
    # Neither when a whole block stands before it: it may be the better one that was cut off.
    assert "cut off" in problem("```sketch\nx\n```\n```sketch\nbetter")


def test_a_reasoning_part_does_not_count() -> None:
    draft = "```sketch\ndraft\n```\n"
    final = "```sketch\nfinal\n```\n"
    assert single_block(f"<think>\n{draft}</think>\n{final}", "sketch") == "final\n"
    assert single_block(f"Let me see.\n{draft}</think>\n\n{final}", "sketch") == "final\n"
    assert "(lines 4, 7)" in problem(f"<think>\n\n</think>\n{final}{final}")
    assert "cut off within its reasoning" in problem(f"<think>\n{draft}")


# ---------------------------------------------------------------- JSON


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=6,
        ),
        max_size=4,
    ),
    st.sampled_from([None, 2]),
)
def test_objects_come_back(value: dict[str, object], indent: int | None) -> None:
    plain = json.dumps(value, indent=indent)
    assert json_object(plain) == value
    assert json_object(f"Here it is.\n```json\n{plain}\n```\n") == value
    assert json_object(f"  \n{plain}\n\n") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must hold one fenced block opened by ```json; it holds none"),
        ("```json\n[1]\n```", "must be one JSON object"),
        ('{"a": 1,}', "not valid JSON: "),
        ('{"a": 1}\n{"b": 2}', 'Extra data in line 2, column 1: `{"b": 2}`'),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": 1 // one\n}', "not valid JSON"),
        ("```json\n{}\n```\n```json\n{}\n```", "exactly one"),
        ('```json\n{"a": 1', "cut off"),
        ('{"a": ' * 100_000, "not valid JSON"),
    ],
)
def test_what_is_not_strict_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ReplyError) as caught:
        json_object(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500
