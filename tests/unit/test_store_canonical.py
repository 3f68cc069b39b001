"""The canonical hash: equal for spellings of one sketch, different for everything that counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.parsing import syntax
from sketchc.parsing.formatter import format_file
from sketchc.parsing.lexer import tokenize
from sketchc.parsing.parser import parse, tables
from sketchc.runtime.store.canonical import canonical_hash

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SKETCHES = sorted(EXAMPLES.glob("*.sketch"))


def tree_of(text: str) -> syntax.Sketch:
    tree, found = parse(Source("x.sketch", text))
    assert tree is not None, found
    return tree.sketches[0]


def hash_of(text: str) -> str:
    return canonical_hash(tree_of(text))


def local_names(body: tuple[syntax.Statement, ...]) -> set[str]:
    """What a body makes: tiles, loop variables, fetched values (bindings at the top may be
    constants, whose names count)."""
    found: set[str] = set()
    for statement in body:
        match statement:
            case syntax.For():
                found |= {statement.variable.id} | local_names(statement.body)
            case syntax.If():
                found |= local_names(statement.body) | local_names(statement.orelse)
            case syntax.Alloc() | syntax.Fetch():
                found.add(statement.name)
            case _:
                pass
    return found


def renamed(text: str) -> str:
    """Every name that the body makes, spelled in another way."""
    names = local_names(tree_of(text).body)
    tokens, _ = tokenize(Source("x.sketch", text), tables())
    for token in sorted(tokens, key=lambda token: -token.start):
        if token.text in names:
            text = f"{text[: token.start]}other_{token.text}{text[token.end :]}"
    return text


@pytest.mark.parametrize("path", SKETCHES, ids=lambda path: path.stem)
def test_layout_comments_and_local_names_do_not_count(path: Path) -> None:
    text = path.read_text()
    expected = hash_of(text)
    tree, _ = parse(Source("x.sketch", text))
    assert tree is not None
    other = renamed(text)
    assert "other_" in other
    assert hash_of(other) == expected
    without = re.sub(r"#[^\n]*", "", format_file(tree, Source("x.sketch", text)))
    assert hash_of(f"# another comment\n{without}") == expected
    assert hash_of(re.sub(r"\bsketch \w+", "sketch named_otherwise", text)) == expected


def test_no_two_examples_are_taken_for_one() -> None:
    hashes = {hash_of(path.read_text()) for path in SKETCHES}
    assert len(hashes) == len(SKETCHES)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["rms", "masked_select", "power_iteration", "causal_attention"])
def test_every_other_token_counts(name: str) -> None:
    """Whatever edit of one token gives another tree gives another hash, but a consistent renaming:
    a token is replaced in one place only, so that none of these is one."""
    text = (EXAMPLES / f"{name}.sketch").read_text()
    expected, plain = hash_of(text), tree_of(text)
    tokens, _ = tokenize(Source("x.sketch", text), tables())
    tried = 0
    for token in tokens:
        for new in _replacements(token.text):
            edited = text[: token.start] + new + text[token.end :]
            tree, _ = parse(Source("x.sketch", edited))
            if tree is None or not tree.sketches or tree.sketches[0] == plain:
                continue
            if tree.sketches[0].name != plain.name:
                continue
            if _made_once(text, token.text) and new == "renamed_once":
                continue  # a name that nothing uses: renaming it is consistent
            tried += 1
            assert canonical_hash(tree.sketches[0]) != expected, (token.text, new, token.line)
    assert tried > 40


def _replacements(text: str) -> list[str]:
    if re.fullmatch(r"\d+", text):
        return [str(int(text) + 1), f"{text}.0"]
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        return ["renamed_once"]
    return {"+": ["-"], "*": ["+"], "<": ["<="], "//": ["%"]}.get(text, [])


def _made_once(text: str, name: str) -> bool:
    return len(re.findall(rf"\b{re.escape(name)}\b", text)) == 1


TWO_LOOPS = """sketch two {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32; Z[N]: out f32;
    constexpr: T = 16;
    @llm_hint("parallel")
    for {a} in range(ceil(N, T)):
        {x} = alloc([T])
        load(X[{a}*T:({a}+1)*T] -> {x})
        store({x} -> Y[{a}*T:({a}+1)*T])
    @llm_hint("parallel")
    for {b} in range(ceil(N, T)):
        {y} = alloc([T])
        load(X[{b}*T:({b}+1)*T] -> {y})
        store({y} -> Z[{b}*T:({b}+1)*T])
}}
"""


def test_a_name_may_be_used_again_or_not_in_another_block() -> None:
    again = hash_of(TWO_LOOPS.format(a="i", x="x", b="i", y="x"))
    fresh = hash_of(TWO_LOOPS.format(a="i", x="x", b="j", y="y"))
    swapped = hash_of(TWO_LOOPS.format(a="x", x="i", b="y", y="j"))
    assert again == fresh == swapped


TWO_TILES = """sketch one {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: in f32; Z[N]: out f32;
    constexpr: T = 16;
    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        x = alloc([T])
        y = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        load(Y[i*T:(i+1)*T] -> y)
        sub({operands}, {destination})
        store({destination} -> Z[i*T:(i+1)*T])
}}
"""


def test_which_tile_is_meant_counts() -> None:
    variants = [("x, y", "x"), ("y, x", "x"), ("x, x", "x"), ("y, y", "x"), ("x, y", "y")]
    found = {hash_of(TWO_TILES.format(operands=o, destination=d)) for o, d in variants}
    assert len(found) == len(variants)


def test_a_branch_that_this_choice_of_constants_does_not_take_counts() -> None:
    """The typed IR has only the branch taken."""
    text = TWO_TILES.format(operands="x, y", destination="x")
    branch = "        if T > 64:\n            {op}(x, y, x)\n        store("
    add, mul = (text.replace("        store(", branch.format(op=op)) for op in ("add", "mul"))
    assert len({hash_of(text), hash_of(add), hash_of(mul)}) == 3


def test_a_constant_bound_in_the_body_keeps_its_name() -> None:
    """`--set` binds it by that name."""
    text = TWO_LOOPS.format(a="i", x="x", b="j", y="y").replace("constexpr: T = 16;", "T = 16")
    assert hash_of(text) != hash_of(re.sub(r"\bT\b", "TILE", text))
