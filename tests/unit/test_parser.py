"""The parser: every construct of the language, layouts, limits, and errors that name themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source, has_errors
from sketchc.base.types import DType
from sketchc.parsing import syntax
from sketchc.parsing.parser import cache_folder, parse, tables

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.sketch"))


def tree(text: str) -> syntax.File:
    file, found = parse(Source("test", text))
    assert file is not None, found
    assert not has_errors(found)
    return file


def sketch(sections: str = "", body: str = "") -> syntax.Sketch:
    lines = [*sections.splitlines(), *body.splitlines()]
    inner = "".join(f"    {line}\n" for line in lines)
    return tree(f"sketch test {{\n{inner}}}\n").sketches[0]


def statement(text: str) -> syntax.Statement:
    (found,) = sketch(body=text).body
    return found


def value(text: str) -> syntax.Expression:
    found = statement(f"y = {text}")
    assert isinstance(found, syntax.Binding)
    return found.values[0]


def codes(text: str) -> list[str]:
    file, found = parse(Source("test", text))
    assert (file is None) == has_errors(found)
    return [diagnostic.code for diagnostic in found]


def body_codes(body: str) -> list[str]:
    inner = "".join(f"    {line}\n" for line in body.splitlines())
    return codes(f"sketch test {{\n{inner}}}\n")


name = syntax.Name


def number(text: str) -> syntax.Number:
    return syntax.Number(0, text)


# ---------------------------------------------------------------- sections


def test_examples_parse():
    assert EXAMPLES
    for path in EXAMPLES:
        assert len(tree(path.read_text("utf-8")).sketches) == 1


def test_sections_with_every_part():
    found = sketch(
        "symbols: M, N <= 2*512;\n"
        "params: eps: f32 = 1e-5; groups: i64\n"
        "let: H = (M + 2)//2\n"
        "tensors: X[M|1, N]: in f32?; Y[M]: out f32 = -inf; Z[]: inout f16; W[M]: bool\n"
        "workspace: P[M, 4]: f32;\n"
        "views: XF[M*N] = X;\n"
        "constexpr: T: i64 = 128 in [64, 128], eps2, C: bool = True, U in [1, 2]\n"
        "require: M % 2 == 0, not N == 7;"
    )
    symbols, params, lets, tensors, workspace, views, constants, require = found.sections
    assert [s.name for s in symbols.items] == ["M", "N"]
    assert symbols.items[1].upper_bound == syntax.Binary("*", number("2"), number("512"))
    assert [(p.name, p.dtype) for p in params.items] == [
        ("eps", DType.F32),
        ("groups", DType.I64),
    ]
    assert lets.items[0].name == "H"
    x, y, z, w = tensors.items
    assert (x.role, x.dtype, x.optional) == ("in", DType.F32, True)
    assert [extent.broadcastable for extent in x.extents] == [True, False]
    assert (y.role, y.initial) == ("out", syntax.Unary("-", number("inf")))
    assert (z.role, z.extents, z.dtype) == ("inout", (), DType.F16)
    assert (w.role, w.dtype) == (None, DType.BOOL)
    assert workspace.items[0].name == "P"
    assert (views.items[0].name, views.items[0].base) == ("XF", "X")
    t, eps, c, u = constants.items
    assert (t.dtype, t.value, len(t.choices)) == (DType.I64, number("128"), 2)
    assert (eps.dtype, eps.value, eps.choices) == (None, None, ())
    assert (c.dtype, c.value) == (DType.BOOL, syntax.Boolean(True))
    assert (u.value, len(u.choices)) == (None, 2)
    assert len(require.items) == 2


def test_sections_share_a_line_and_go_on_over_deeper_ones():
    spread = sketch(
        "symbols: M,\n    N\ntensors:\n    X[M]: f32;\n    Y[N]: f32\n    Z[M]: f32\n", "exp(x, y)"
    )
    joined = sketch("symbols: M, N; tensors: X[M]: f32; Y[N]: f32; Z[M]: f32;", "exp(x, y)")
    assert spread == joined


def test_section_words_are_names_elsewhere():
    found = sketch("params: a: i64, views: i64;", "let = alloc([4])\nexp(let, views)")
    assert [param.name for param in found.sections[0].items] == ["a", "views"]
    assert found.body[1] == syntax.Compute("exp", (name("let"), name("views")))


def test_constants_of_the_public_listings():
    (section,) = sketch("constexpr: eps, m0, k0, n0 = 128, -256, 64;").sections
    assert section.from_tuple
    assert [constant.name for constant in section.items] == ["eps", "m0", "k0", "n0"]
    assert [constant.value for constant in section.items] == [
        None,
        number("128"),
        syntax.Unary("-", number("256")),
        number("64"),
    ]
    bound = statement("m0, k0 = 128, 256")
    assert bound == syntax.Binding((name("m0"), name("k0")), (number("128"), number("256")))


@pytest.mark.parametrize(
    "block",
    [
        "available_tiling:\n    T = 64, K = 32\n    T = 128, K = 16\n",
        "available_tiling:\n  (T = 64, K = 32)\n  (T = 128, K = 16)\n",
        "available_tiling:\nT = 64, K = 32\n\n# the other\nT = 128, K = 16\n",
        "available_tiling:\n(T = 64, K = 32)\n(T = 128, K = 16)\nsketch b { symbols: M; }\n",
        "  available_tiling:\n  T = 64, K = 32\nT = 128, K = 16",
        "available_tiling: { (T=64, K=32), (T=128, K=16) }\n",
        "available_tiling { (T=64, K=32);\n (T=128, K=16), }\n",
    ],
)
def test_tuning_points(block):
    found = tree("sketch a { symbols: M; }\n" + block).sketches[0]
    points = [dict(point.values) for point in found.tilings]
    assert points == [
        {"T": number("64"), "K": number("32")},
        {"T": number("128"), "K": number("16")},
    ]
    assert not found.misspelt_tiling
    misspelt = tree("sketch a { symbols: M; }\n" + block.replace("available", "avaliable"))
    assert misspelt.sketches[0].misspelt_tiling
    assert misspelt.sketches[0] == found


# ---------------------------------------------------------------- statements


def test_alloc():
    found = statement('t = alloc([T, 4], f16, init=-inf, llm_hint=["fast", "accumulator"])')
    assert found == syntax.Alloc(
        "t",
        (name("T"), number("4")),
        DType.F16,
        syntax.Unary("-", number("inf")),
        (syntax.String("fast"), syntax.String("accumulator")),
    )
    assert statement('t = alloc([T], dtype=f32, llm_hint="l1_buffer")') == syntax.Alloc(
        "t", (name("T"),), DType.F32, None, (syntax.String("l1_buffer"),)
    )


def test_memory_accesses():
    load = statement("load(X[b, i*T:(i+1)*T:2, :, ::-1] -> x, pad=0, where=m < M)")
    assert isinstance(load, syntax.Transfer)
    assert load.operation == "load"
    scalar, strided, whole, backwards = load.access.subscripts
    assert scalar == name("b")
    assert strided.step == number("2")
    assert whole == syntax.Slice(None, None, None)
    assert backwards == syntax.Slice(None, None, syntax.Unary("-", number("1")))
    assert [keyword.name for keyword in load.keywords] == ["pad", "where"]
    store = statement("store(x -> Y[m[:, None], n], unique=True, covers=true)")
    assert isinstance(store, syntax.Transfer)
    assert store.operation == "store"
    assert store.access.subscripts[0] == syntax.Subscript(
        name("m"), (syntax.Slice(None, None, None), syntax.NewAxis())
    )
    atomic = statement("atomic_add(x -> ACC[])")
    assert atomic == syntax.Transfer("atomic_add", name("x"), syntax.Subscript(name("ACC"), ()))
    fetched = statement("n = fetch(IDX[3])")
    assert fetched == syntax.Fetch("n", syntax.Subscript(name("IDX"), (number("3"),)))


def test_calls():
    late = statement("reduce_max(x, axis=0, m)")
    assert isinstance(late, syntax.Compute)
    assert late.late_positional
    assert late.arguments == (name("x"), name("m"))
    assert statement("gemm(a, b, dst=c)").keywords == (syntax.Keyword("dst", name("c")),)
    assert len(statement("topk(v, i, [0, 1], dv, di, largest=True)").arguments) == 5
    spread = statement("add(\n        a,  # one\n    b,\n            c,\n    )")
    assert spread == statement("add(a, b, c)")


def test_loops_branches_and_hints():
    found = statement(
        '@llm_hint("parallel", "grididx")\n@llm_hint(["pipeline"], stages=3)\n'
        "for i in range(0, N, 2):\n    if i < 3 and not i == 1:\n        pass\n"
        "    else:\n        exp(x, y)\n"
    )
    assert isinstance(found, syntax.For)
    assert [word.value for hint in found.hints for word in hint.words] == [
        "parallel",
        "grididx",
        "pipeline",
    ]
    assert found.hints[1].keywords == (syntax.Keyword("stages", number("3")),)
    assert len(found.arguments) == 3
    (branch,) = found.body
    assert isinstance(branch, syntax.If)
    assert branch.body == (syntax.Pass(),)
    assert branch.orelse == (syntax.Compute("exp", (name("x"), name("y"))),)
    assert statement("for i in range(3): exp(x, y); neg(y, y)") == statement(
        "for i in range(3):\n    exp(x, y)\n    neg(y, y)"
    )


# ---------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a + b*c", "a + (b*c)"),
        ("a - b - c", "(a - b) - c"),
        ("a/b//c%d", "((a/b)//c)%d"),
        ("-a*b", "(-a)*b"),
        ("a < b + 1 and not c == d or e", "((a < (b+1)) and (not (c == d))) or e"),
        ("-x[1]", "-(x[1])"),
        ("ceil(M, T) - 1", "(ceil(M, T)) - 1"),
    ],
)
def test_precedence(text, same):
    assert value(text) == value(same)


def test_parentheses_change_the_tree_and_belong_to_the_span():
    assert value("a - (b - c)") != value("a - b - c")
    text = "sketch t {\n    y = (a + b)*c\n}\n"
    binding = tree(text).sketches[0].body[0]
    left = binding.values[0].left
    assert text[left.span.start : left.span.end] == "(a + b)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0x1F", 31),
        ("1_000", 1000),
        ("0b101", 5),
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("1e-5", 1e-5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1_0.2_5e1_0", 10.25e10),
        ("inf", float("inf")),
    ],
)
def test_numbers(text, expected):
    found = value(text)
    assert isinstance(found, syntax.Number)
    assert (found.value, type(found.value)) == (expected, type(expected))
    assert found.text == text


def test_nan_equals_itself_in_trees():
    assert value("nan") == value("nan")


# ---------------------------------------------------------------- layout

PLAIN = "sketch a {\n    symbols: M;\n    for i in range(M):\n        exp(x, y)\n}\n"


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("\n", "\r\n"),
        "\ufeff" + PLAIN,
        PLAIN.replace("    ", "\t"),
        PLAIN.replace("    ", "  "),
        PLAIN.replace("}", "    }"),
        PLAIN.rstrip("\n"),
        PLAIN.replace("\n", "\n\n   \n# comment\n"),
        PLAIN.replace(" {\n", "\n{\n"),
    ],
)
def test_layouts_of_the_same_tree(text):
    assert tree(text) == tree(PLAIN)


def test_comments_are_kept_in_order():
    file = tree("# one\n" + PLAIN.replace("(M):", "(M):  # two") + "# three")
    assert [(c.text, c.own_line) for c in file.comments] == [
        ("# one", True),
        ("# two", False),
        ("# three", True),
    ]


def test_spans_are_those_of_the_text():
    text = PLAIN.replace("exp(x, y)", "load(X[i*4:(i+1)*4] -> x)")
    load = tree(text).sketches[0].body[0].body[0]
    assert text[load.span.start : load.span.end] == "load(X[i*4:(i+1)*4] -> x)"
    assert (load.span.line, load.span.column) == (4, 9)
    upper = load.access.subscripts[0].upper
    assert text[upper.span.start : upper.span.end] == "(i+1)*4"


# ---------------------------------------------------------------- errors


def test_one_run_reports_every_wrong_line():
    body = (
        "for i in range(M)\n    exp(x y)\nload(X[0:4], x)\ny = exp(x)\n"
        "if a = 3:\n    pass\nelse:\n    z = 12ab\nw = a ** b"
    )
    assert body_codes(body) == [
        "SK0111",
        "SK0100",
        "SK0115",
        "SK0116",
        "SK0127",
        "SK0102",
        "SK0127",
    ]


def test_errors_of_one_sketch_leave_the_next_alone():
    text = "sketch { exp(x y)\n}\nsketch b {\n    exp(x, y)\n    add(a b)\n}\nkernel c\n"
    assert codes(text) == ["SK0100", "SK0100", "SK0100", "SK0122"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for i in range(3):\nexp(x, y)", ["SK0110"]),
        ("exp(x, y)\n    exp(x, y)\n    exp(y, x)", ["SK0108"]),
        ("for i in range(3):\n        exp(x, y)\n    exp(x, y)", ["SK0108"]),
        ("tensor: X[M]: f32", ["SK0112"]),
        ("exp(x, y)\nsymbols: M", ["SK0113"]),
        ("for i in range(3):\n    symbols: M", ["SK0113"]),
        ("for in in range(3):\n    exp(x, y)", ["SK0114"]),
        ("x = (a + b\ny = 3", ["SK0105"]),
        ("add(a,\nfor i in range(3):\n    exp(x, y)", ["SK0105"]),
        ("add(a, b]", ["SK0106"]),
        ("x = 9223372036854775808", ["SK0103"]),
        ("x = " + "9" * 10_000, ["SK0103"]),
        ("x = 1e999", ["SK0103"]),
        ("@llm_hint('x', \"y\")\nexp(x, y)", ["SK0120"]),
        ("@foo()\nfor i in range(3): pass", ["SK0120"]),
        ("for i in N:\n    pass", ["SK0118"]),
        ("for i in range(1, 2, 3, 4):\n    pass", ["SK0118"]),
        ("x = a < b < c", ["SK0123"]),
        ("x[3] = 4", ["SK0115"]),
        ("load(x -> X[0:3])", ["SK0115"]),
        ("exp(x -> y)", ["SK0115"]),
        ("alloc([3])", ["SK0116"]),
        ("x = alloc(3)", ["SK0117"]),
        ("x = alloc([3], float32)", ["SK0119"]),
        ("a, b = 1, 2, 3", ["SK0124"]),
        ("x = alloc([3], init=0, init=1)", ["SK0126"]),
        ("else:\n    pass", ["SK0128"]),
    ],
)
def test_mistakes_have_their_own_codes(body, expected):
    assert body_codes(body) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 10_000 + "1" + ")" * 10_000,
        "x = " + "(" * 65 + "1" + ")" * 65,
        "x = " + "-" * 10_000 + "1",
        "x = " + "+".join("a" * 10_000),
        "exp(" + "[" * 10_000,
        "\n".join(" " * depth + f"for i{depth} in range(3):" for depth in range(1000)),
    ],
)
def test_deep_nesting_is_refused(text):
    assert "SK0121" in body_codes(text)


def test_nesting_below_the_limit_is_read():
    inner = "(" * 60 + "1" + ")" * 60
    assert value(inner) == number("1")
    loops = "\n".join("    " * depth + f"for i{depth} in range(3):" for depth in range(16))
    assert isinstance(statement(f"{loops}\n{'    ' * 16}pass"), syntax.For)


# ---------------------------------------------------------------- tables


def test_every_rule_of_the_grammar_has_a_conversion():
    from sketchc.parsing.conversion import RULES
    from sketchc.parsing.conversion_statements import Converter

    methods = {name.removeprefix("_on_") for name in dir(Converter) if name.startswith("_on_")}
    known = methods | RULES.keys()
    needed = {rule.name for rule in tables().rules if not rule.inlined and not rule.passed}
    assert needed == known


def run_parser(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program = (
        "from sketchc.parsing.parser import parse; from sketchc.base.diagnostics import Source;"
        "print(parse(Source('t', 'sketch a { symbols: M; }'))[0] is not None)"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )


def test_a_damaged_or_unwritable_cache_costs_nothing_but_time(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert run_parser(environment).stdout == "True\n"
    (cached,) = Path(cache_folder()).iterdir()
    whole = cached.read_bytes()
    for content in (b"", b"garbage", whole[:100], whole[:-1] + b"x"):
        cached.write_bytes(content)
        assert run_parser(environment).stdout == "True\n"
        assert len(cached.read_bytes()) > 1000
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert run_parser({"XDG_CACHE_HOME": str(blocked)}).stdout == "True\n"


@pytest.mark.parametrize(
    ("word", "meant"), [("input", "in"), ("output", "out"), ("Output", "out"), ("in_out", "inout")]
)
def test_another_name_of_a_role_is_taken_for_what_it_says(word: str, meant: str) -> None:
    text = f"sketch f {{\n    symbols: N;\n    tensors: X[N]: {word} f32;\n}}\n"
    _, found = parse(Source("a", text))
    (fix,) = next(each for each in found if each.code == "SK0119").fixes
    assert [edit.replacement for edit in fix.edits] == [meant]
