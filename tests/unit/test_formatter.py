"""The formatter: idempotent, keeps comments, never changes meaning, one canonical style."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.base.diagnostics import Source
from sketchc.cli.main import run
from sketchc.parsing import syntax
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse
from sketchc.parsing.unparse import expression_text

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.sketch"))

#: Every construct, laid out badly, with comments in odd places.
MESSY = """\
# file
sketch  everything {
    symbols: M, N<=1024; params: eps: f32=1e-5; groups: i64 = 1, views: i64;
    let: OH=(M + 2*N - 3)//2+1; scale = 1/sqrt(N)
    tensors:
        X[M, N]: in f32;  # first
        # before the second
        Y[M|1, N]: out f32 = -inf, MASK[M]: in bool?
        ACC[]: inout f32;
    workspace: PART[M, 4]: f32
    views: XF[M*N] = X;
    constexpr: T = 128 in [64,128], C: bool = True; m0, k0 = 128, -256;
    require: N%2==0, M>0 and not N==7 or C


    a, b = 128, 0xff
    @llm_hint("parallel",'grididx')   # hint
    @llm_hint( "pipeline" , stages=3 )
    for i in range(0,ceil(M,T),2):   # loop

        let=alloc([T,N],f32,init=-inf,llm_hint="fast")
        lambda = alloc(
            [T],   # inside

            dtype=f16,
        )   # behind
        m = i*T+iota(T,0,N)
        load(X[i*T:(i+1)*T:2,::-1]->let,pad=0,where=m<M and present(MASK))
        load(X[m[:,None],n[None,:]] -> let)
        reduce_max(let,axis=0,views)
        gemm(first_operand_with_a_long_name, second_operand_with_a_long_name, a_tile, trans_a=True)
        if i<3 : pass
        # before else
        else:
            store(views -> Y[i, 0:N], unique=True)
            # end of the else
        # end of the loop
        for j in range(3): add(a,b,c) ; mul(a,b,c);   # both
    # end of the sketch
}
# between
avaliable_tiling:
    T = 64,   # point
    (T = 128)
sketch b { symbols: ; } # last
# end
"""
MESSY = MESSY.replace("T = 64,   # point", "T = 64   # point")


def parsed(text: str) -> tuple[syntax.File, Source]:
    source = Source("test", text)
    tree, found = parse(source)
    assert tree is not None, found
    return tree, source


def formatted(text: str) -> str:
    return format_file(*parsed(text))


def check_properties(text: str) -> None:
    """What must hold of every file that parses."""
    tree, source = parsed(text)
    once = format_file(tree, source)
    again, _ = parsed(once)
    assert again == tree
    assert [comment.text for comment in again.comments] == [c.text for c in tree.comments]
    assert formatted(once) == once
    assert not any(line != line.rstrip() for line in once.splitlines())
    assert "\n\n\n" not in once


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_canonical(path):
    text = path.read_text("utf-8")
    assert formatted(text) == text
    check_properties(text)


def test_messy_file():
    check_properties(MESSY)
    lines = formatted(MESSY).splitlines()
    for expected in (
        "    params: eps: f32 = 1e-5, groups: i64 = 1, views: i64;",
        "        X[M, N]: in f32;  # first",
        "        # before the second",
        '    @llm_hint("parallel", "grididx")  # hint',
        "    for i in range(0, ceil(M, T), 2):  # loop",
        "        # inside",
        "        lambda = alloc([T], f16)  # behind",
        "        load(X[i*T:(i+1)*T:2, ::-1] -> let, pad=0, where=m < M and present(MASK))",
        "        reduce_max(let, views, axis=0)",
        "            # end of the else",
        "        # end of the loop",
        "            mul(a, b, c)  # both",
        "    # end of the sketch",
        "available_tiling:",
        "    T = 64  # point",
        "}  # last",
        "# end",
    ):
        assert expected in lines
    assert all(len(line) <= 100 for line in lines)


def mutate(text: str, seed: int) -> str:
    """Other comments, empty lines, line breaks and blanks: the same tree, or no sketch at all."""
    chosen = random.Random(seed)
    lines = text.splitlines()
    for number in range(chosen.randrange(1, 8)):
        at = chosen.randrange(len(lines))
        match chosen.randrange(5):
            case 0:
                lines[at] += f"  # comment {number}"
            case 1:
                lines.insert(at, " " * chosen.randrange(20) + f"# own line {number}")
            case 2:
                lines.insert(at, "")
            case 3:
                places = [i for i, character in enumerate(lines[at]) if character in ",("]
                if places:
                    place = chosen.choice(places) + 1
                    behind = chosen.choice(["", "  # inside"])
                    lines[at : at + 1] = [
                        lines[at][:place] + behind,
                        " " * 12 + lines[at][place:],
                    ]
            case 4:
                lines[at] = lines[at].replace(",", " ,  ").replace("*", " * ")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(200))
def test_mutants_keep_meaning_and_comments(seed):
    texts = [MESSY, *(path.read_text("utf-8") for path in EXAMPLES)]
    text = mutate(texts[seed % len(texts)], seed)
    if parse(Source("test", text))[0] is not None:
        check_properties(text)


def test_most_mutants_parse():
    texts = [mutate(MESSY, seed) for seed in range(100)]
    assert sum(parse(Source("test", text))[0] is not None for text in texts) > 50


LEAVES = st.one_of(
    st.sampled_from("abc").map(syntax.Name),
    st.sampled_from(["0", "12", "1.5", "inf"]).map(lambda text: syntax.Number(0, text)),
    st.booleans().map(syntax.Boolean),
)


def extend(inner: st.SearchStrategy[syntax.Expression]) -> st.SearchStrategy[syntax.Expression]:
    operators = ["+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or"]
    parts = st.one_of(
        inner,
        st.builds(syntax.Slice, st.none() | inner, st.none() | inner, st.none() | inner),
        st.just(syntax.NewAxis()),
    )
    return st.one_of(
        st.builds(syntax.Unary, st.sampled_from(["-", "+", "not"]), inner),
        st.builds(syntax.Binary, st.sampled_from(operators), inner, inner),
        st.builds(syntax.Call, st.just("min"), st.lists(inner, max_size=3).map(tuple)),
        st.builds(syntax.Subscript, inner, st.lists(parts, max_size=3).map(tuple)),
        st.builds(syntax.List, st.lists(inner, max_size=3).map(tuple)),
    )


@settings(max_examples=400, deadline=None)
@given(st.recursive(LEAVES, extend, max_leaves=12))
def test_expressions_parse_back_to_their_tree(node):
    file, _ = parsed(f"sketch t {{\n    y, z = {expression_text(node)}, 0\n}}\n")
    assert file.sketches[0].body[0].values[0] == node


# ---------------------------------------------------------------- the command


def test_fmt_rewrites_checks_and_shows_differences(tmp_path, capsys):
    path = tmp_path / "messy.sketch"
    path.write_text(MESSY, "utf-8")
    assert run(["fmt", "--check", str(path)]) == 1
    assert run(["fmt", "--diff", str(path)]) == 1
    assert "+    for i in range(0, ceil(M, T), 2):  # loop" in capsys.readouterr().out
    assert path.read_text("utf-8") == MESSY
    assert run(["fmt", str(path)]) == 0
    assert path.read_text("utf-8") == formatted(MESSY)
    assert [entry.name for entry in tmp_path.iterdir()] == ["messy.sketch"]
    assert run(["fmt", "--check", "--diff", str(tmp_path)]) == 0


def test_fmt_leaves_a_broken_file_alone(tmp_path, capsys):
    path = tmp_path / "broken.sketch"
    path.write_text("sketch a {\n    exp(x y)\n}\n", "utf-8")
    assert run(["fmt", str(path)]) == 1
    assert "SK0100" in capsys.readouterr().err
    assert path.read_text("utf-8") == "sketch a {\n    exp(x y)\n}\n"
