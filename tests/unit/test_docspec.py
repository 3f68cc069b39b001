"""Documents of targets: what is accepted, what is refused with file and line, and selection."""

from __future__ import annotations

import itertools
from pathlib import Path

import attrs
import documents
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchc.base.diagnostics import Source, UsageError
from sketchc.checker.api import check
from sketchc.docspec.loader import (
    folder_of,
    inspect,
    load,
)
from sketchc.docspec.markdown import KEYWORDS, OPERATIONS
from sketchc.docspec.needs import needs_of
from sketchc.docspec.schema import (
    FAILURES,
    TOPICS,
    Category,
    DocSpec,
    DocSpecError,
    Section,
)
from sketchc.docspec.selector import (
    NOT_NEEDED,
    ORDER,
    OVER_BUDGET,
    Part,
    Selection,
    estimate_tokens,
    rank_examples,
    select,
    serves,
)
from sketchc.lowering.documents import manifest
from sketchc.lowering.registry import DOCUMENTED, TARGETS, all_targets
from sketchc.ops.table import OPS
from sketchc.runtime.verify.verdict import FAILURES as FAILURE_CLASSES

API = documents.FILES["api.md"]
#: Targets for which every sketch can be written.
SERVED = [*TARGETS, "opencl"]
MANIFEST = documents.MANIFEST


def findings(folder: Path) -> list[str]:
    return [str(finding) for finding in inspect(folder)[1]]


# ---------------------------------------------------------------- what is read


def test_a_folder_is_read(tmp_path: Path) -> None:
    spec = load(documents.write(tmp_path))
    assert spec.target == "toy"
    assert [section.title for section in spec.of(Category.BASIC)] == ["Basics", "Entry"]
    loop, exponential = spec.of(Category.API)
    assert (loop.title, loop.line, loop.signatures) == ("for", 5, ("for (;;)",))
    assert loop.operations == ("mul", "add")
    assert loop.keywords == ("f32", "elementwise")
    assert "keywords:" not in loop.text
    assert "ops: mul, add" in loop.text
    assert exponential.signatures == ("float exp(float)",)
    (example,) = spec.examples
    assert example.operations == ("load", "mul", "store")
    assert set(example.topics) == {"elementwise", "f32", "params", "ragged"}
    assert example.entry == "scale"


def test_headings_inside_code_are_no_headings(tmp_path: Path) -> None:
    text = "# Basics\n\n```text\n## not a heading\n```\n\n## Heading\n\nText.\n"
    spec = load(documents.write(tmp_path, basic_md=text))
    assert [section.title for section in spec.of(Category.BASIC)] == ["Basics", "Heading"]


def test_a_target_of_documents_alone_states_what_it_can_do(tmp_path: Path) -> None:
    more = """
[toolchain]
build = ["cc", "-O2", "{source}", "-o", "{artefact}"]
run = ["{artefact}", "--entry={entry}"]
timeout_seconds = 20

[capabilities]
default_hardware = "cpu"
dtypes = ["f32", "f16"]
precisions = ["ieee"]
power_of_two_extents = true
matrix_minimum = { f16 = 16 }
missing_operations = ["atan2"]

[memory]
scratch = 196608
"""
    language = '[language]\nname = "toy"\ntitle = "Toy"\nsuffixes = [".toy"]\n'
    whole = MANIFEST.replace('language = "c++"\n', "") + language + more
    folder = documents.write(tmp_path / "whole" / "toy", docspec_toml=whole)
    (folder / "examples" / "scale.cpp").rename(folder / "examples" / "scale.toy")
    for path in folder.glob("*.md"):
        text = path.read_text("utf-8").replace("scale.cpp", "scale.toy").replace("```cpp", "```toy")
        path.write_text(text, "utf-8")
    assert not findings(folder)
    # A language of another target has that one's rules for how kernels are called.
    said = findings(documents.write(tmp_path / "borrowed" / "toy", docspec_toml=MANIFEST + more))
    assert said == ["docspec.toml:4: a target with [toolchain] describes its language: [language]"]


def test_failure_classes_are_those_of_verification() -> None:
    assert set(FAILURES) <= set(FAILURE_CLASSES)
    assert not set(TOPICS) & set(FAILURES)


# ---------------------------------------------------------------- what is refused


MANIFESTS = [
    ("target = ", "target == ", "docspec.toml:2: this is not TOML"),
    ('target = "toy"', 'target = "To y"', "docspec.toml:2: 'To y' is no name"),
    ('title = "A toy"', "", "docspec.toml: title is missing"),
    ('"c++"', '"fortran"', "docspec.toml:4: unknown language 'fortran'; known: ascendc, c++, "),
    ("title", "titel", "docspec.toml:3: unknown key 'titel'"),
    ("[basic]", "[basics]", "docspec.toml:6: unknown key 'basics'"),
    ("[basic]\nfiles", "[basic]\nfile", "docspec.toml:7: unknown key 'file'; [basic] has: files"),
    ('["basic.md"]', '"basic.md"', "docspec.toml:7: [basic] files must be a list of texts"),
    ('["api.md"]', "[]", "docspec.toml:10: [api] files names no file"),
    ('pitfalls = ["pitfalls.md"]', "", "docspec.toml:12: [suggestions] needs pitfalls"),
    ('"pitfalls.md"', '"basic.md"', "docspec.toml:14: basic.md is named twice"),
    ('"pitfalls.md"', '"pitfalls.rst"', "docspec.toml:14: pitfalls.rst is no Markdown file"),
    ("[examples.torch]", "[examples.numpy]", "docspec.toml:16: unknown key 'numpy'"),
    ('"one loop"', '""', "docspec.toml:17: scale needs one sentence that says what it shows"),
    ('scale = "one loop"', "", "docspec.toml: there is no example"),
]


@pytest.mark.parametrize(("old", "new", "said"), MANIFESTS)
def test_a_wrong_manifest_is_said_with_its_line(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in MANIFEST
    folder = documents.write(tmp_path, docspec_toml=MANIFEST.replace(old, new))
    assert any(found.startswith(said) for found in findings(folder)), findings(folder)


TABLES = [
    ('[toolchain]\nrun = ["{exe}"]', "unknown placeholder {exe}"),
    ('[toolchain]\nbuild = ["cc", "{source}"]', "[toolchain] needs run"),
    ('[toolchain]\nbuild = ["cc"]\nrun = ["x"]', "build never mentions {source}"),
    ('[toolchain]\nrun = ["x"]\ntimeout_seconds = 0', "timeout_seconds must be a positive number"),
    ("[toolchain]\nshell = true", "unknown key 'shell'"),
    ('[capabilities]\ndtypes = ["f12"]', "dtypes: unknown 'f12'"),
    ("[capabilities]\nprecisions = []", "[capabilities] needs dtypes"),
    ('[capabilities]\ndtypes = ["f32"]\nspeed = 9', "unknown key 'speed'"),
    ('[capabilities]\ndtypes = ["f32"]\npersistent_grid = 1', "must be true or false"),
    ('[capabilities]\ndtypes = ["f32"]\nmissing_operations = ["ex"]', "unknown 'ex'"),
    ('[capabilities]\ndtypes = ["f32"]', "[capabilities] default_hardware is missing"),
    ('[capabilities]\ndefault_hardware = "abacus"', "unknown hardware 'abacus'"),
    ('[capabilities]\natomics = { sub = ["f32"] }', "unknown key 'sub'"),
    ('[toolchain]\nnever_built = "no"\nrun = ["x"]', "never_built, or build and run"),
    ('[environment]\npackages = ["numpy"]', "belongs to a target with [toolchain]"),
    ('[toolchain]\n[environment]\npackages = ["numpy"]', "needs packages = ["),
    ('[toolchain]\n[environment]\npackages = ["n==1"]\npythons = ["4"]', "no version of Python"),
    ('[toolchain]\n[failures]\nsyntax = "("', "syntax is no pattern"),
    ('[toolchain]\n[failures]\ncompile = "x"', "unknown key 'compile'"),
    ("[memory]\nscratch = -1", "scratch must be a positive integer"),
    ('[memory]\nscratch = "big"', "scratch must be a positive integer"),
]


@pytest.mark.parametrize(("table", "said"), TABLES)
def test_a_wrong_table_is_refused(table: str, said: str, tmp_path: Path) -> None:
    folder = documents.write(tmp_path, docspec_toml=f"{MANIFEST}\n{table}\n")
    found = findings(folder)
    assert any(said in line for line in found), found
    assert all(line.startswith("docspec.toml:") for line in found)


LANGUAGES = [
    ('name = "Cl"', "'Cl' is no word"),
    ('name = "cl"\ntitle = "CL"', "needs suffixes"),
    ('name = "cl"\ntitle = "CL"\nsuffixes = ["cl"]', "needs suffixes"),
    ('name = "cl"\ntitle = "CL"\nsuffixes = [".cl"]\nsyntax = "lisp"', "not 'lisp'"),
    ('name = "cl"\nsuffixes = [".cl"]', "[language] title is missing"),
]


@pytest.mark.parametrize(("table", "said"), LANGUAGES)
def test_a_wrong_language_is_refused(table: str, said: str, tmp_path: Path) -> None:
    text = MANIFEST.replace('language = "c++"\n', "") + f"\n[language]\n{table}\n"
    found = findings(documents.write(tmp_path, docspec_toml=text))
    assert any(said in line for line in found), found


DOCUMENTS = [
    ("ops: mul, add", "ops: mull, add", "api.md:8: unknown operation 'mull'; did you mean mul"),
    ("ops: mul, add", "ops: mul, mul", "api.md:8: a word stands twice on the ops: line"),
    ("keywords: f32", "keywords: f31", "api.md:9: unknown keyword 'f31'; did you mean f32"),
    ("keywords: f32, elementwise", "ops: exp", "api.md:9: a second ops: line"),
    ("`for (;;)`", "for (;;)", "api.md:7: a signature is inline code"),
    ("```text\nfloat exp(float)\n```\n\n", "", "api.md:18: the entry 'exp' has no signature"),
    ("ops: exp\n", "", "api.md:18: the entry 'exp' has neither ops: nor keywords:"),
    ("### exp", "### for", "api.md:18: the heading 'for' stands on line 5 already"),
    ("A loop.", "A loop.\nops: sub", "api.md:12: ops: stands directly below a heading"),
    ("# Interfaces", "Interfaces", "api.md:1: a document begins with its title"),
    ("## Loops", "# Loops", "api.md:3: a document has one title"),
    ("```cpp from=scale.cpp", "```cpp", "api.md:13: say which example this is part of"),
    ("```cpp from=scale.cpp", "```", "api.md:13: a code block names its language"),
    ("```cpp from=scale.cpp", "```rust", "api.md:13: a code block names its language"),
    ("cpp from=scale.cpp", "cpp of=scale.cpp", "api.md:13: unknown 'of=scale.cpp'"),
    ("from=scale.cpp", "from=other.cpp", "api.md:13: other.cpp is no file of an example"),
    ("```text", "```text from=scale.cpp", "api.md:22: a ```text block is no excerpt"),
    ("i < N", "i <= N", "api.md:13: this is no excerpt of scale.cpp"),
    ("    Y[i]", "      Y[i]", "api.md:13: this is no excerpt of scale.cpp"),
    ("```\n\nNot here.", "\n\nNot here.", "api.md:22: this code block is never closed"),
    ("\n\nNot here.\n", "\n\n## Empty\n\nsignature: `f`\nops: exp\n", ""),
    ("\n\nNot here.\n", "\n\n## Empty\n", "api.md:26: the section 'Empty' says nothing"),
]


@pytest.mark.parametrize(("old", "new", "said"), DOCUMENTS)
def test_a_wrong_document_is_said_with_its_line(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in API
    folder = documents.write(tmp_path, api_md=API.replace(old, new, 1))
    found = findings(folder)
    assert any(line.startswith(said) for line in found) if said else not found, found


def test_an_excerpt_is_contiguous(tmp_path: Path) -> None:
    excerpt = "```cpp from=scale.cpp\n#include <cstdint>\n    return 0;\n```\n"
    folder = documents.write(tmp_path, basic_md=f"# Basics\n\n{excerpt}")
    assert findings(folder) == [
        "basic.md:3: this is no excerpt of scale.cpp: its lines do not stand there in a row"
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"basic_md": None}, "basic.md: this file is missing"),
        ({"docspec_toml": None}, "docspec.toml: this file is missing"),
        ({"examples_scale_sketch": None}, "examples/scale.sketch: this file is missing"),
        ({"examples_scale_cpp": None}, "examples/scale.cpp: this file is missing"),
        ({"examples_scale_cpp": "int x;\n"}, "examples/scale.cpp: nothing here is named 'scale'"),
        (
            {"examples_scale_sketch": documents.SKETCH.replace("mul", "mull")},
            "examples/scale.sketch:11: SK",
        ),
        (
            {"examples_scale_sketch": documents.SKETCH.replace("sketch scale", "sketch other")},
            "examples/scale.sketch:1: the sketch is named 'other'",
        ),
        (
            {"examples_scale_sketch": documents.SKETCH * 2},
            "examples/scale.sketch:",
        ),
    ],
)
def test_missing_and_wrong_files(changes: dict[str, str | None], said: str, tmp_path: Path) -> None:
    found = findings(documents.write(tmp_path, **changes))
    assert any(line.startswith(said) for line in found), found


@pytest.mark.parametrize("name", ["../outside.md", "link.md"])
def test_files_outside_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("# Out\n\nside\n")
    folder = tmp_path / "documents"
    folder.mkdir()
    documents.write(folder, docspec_toml=MANIFEST.replace("basic.md", name), basic_md=None)
    (folder / "link.md").symlink_to(tmp_path / "outside.md")
    assert f"{name}: this file lies outside the folder" in findings(folder)


@pytest.mark.parametrize("name", ["loop.md", "nul\\u0000.md", "folder.md"])
def test_files_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    folder = documents.write(tmp_path, docspec_toml=MANIFEST.replace("basic.md", name))
    (folder / "basic.md").unlink()
    (folder / "loop.md").symlink_to(folder / "loop.md")
    (folder / "folder.md").mkdir()
    assert len(findings(folder)) == 1
    assert "this file cannot be read" in findings(folder)[0]


def test_a_file_that_nothing_names_is_found(tmp_path: Path) -> None:
    folder = documents.write(tmp_path)
    (folder / "examples" / "forgotten.cpp").write_text("")
    (folder / ".hidden").write_text("")
    assert findings(folder) == ["examples/forgotten.cpp: docspec.toml does not name this file"]


def test_text_that_is_no_text(tmp_path: Path) -> None:
    folder = documents.write(tmp_path)
    (folder / "basic.md").write_bytes(b"# Basics\n\n\xff\n")
    assert findings(folder) == ["basic.md:3: this is not UTF-8"]


def test_load_raises_one_message_with_everything(tmp_path: Path) -> None:
    folder = documents.write(tmp_path, basic_md=None, pitfalls_md=None)
    with pytest.raises(DocSpecError) as caught:
        load(folder)
    assert len(caught.value.findings) == 2
    assert "2 findings\n  basic.md: this file is missing\n" in str(caught.value)


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="triton_cuda, triton_ascend, cpp"):
        load("fortran")


# ---------------------------------------------------------------- the targets' own documents


def test_every_target_has_documents() -> None:
    assert all(target.documents for target in all_targets())
    for target in (*TARGETS, *DOCUMENTED):
        assert folder_of(target).is_dir()


@pytest.mark.parametrize("target", [*TARGETS, *DOCUMENTED])
def test_the_documents_of_a_target_are_without_findings(target: str) -> None:
    assert findings(folder_of(target)) == []


@pytest.mark.parametrize("target", SERVED)
def test_every_operation_is_served(target: str) -> None:
    statements = ("load", "store", "atomic_add", "atomic_max", "atomic_min")
    assert select(load(target), [*OPS, *statements], (), 0).unserved == ()


#: What an example of the repository shows besides its operations.
CONSTRUCTS = {
    "conv2d": {"gather", "scatter", "padding", "optional", "branch"},
    "segment_max": {"atomic", "gather", "scatter"},
    "masked_select": {"mask", "scatter", "atomic", "scan"},
    "power_iteration": {"host", "fetch"},
    "cross_entropy": {"fetch"},
    "upsample_zeros": {"stride"},
    "topk": {"sorting"},
    "add_noise": {"random"},
}


@pytest.mark.parametrize("target", SERVED)
def test_every_construct_is_served(target: str) -> None:
    served = {word for section in load(target).sections for word in section.keywords}
    assert set().union(*CONSTRUCTS.values()) <= served


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_constructs_are_seen_in_a_sketch(name: str) -> None:
    path = Path(__file__).parents[2] / "examples" / f"{name}.sketch"
    (checked,) = check(Source(path.name, path.read_text("utf-8"))).sketches
    assert set(needs_of(checked.sketch).topics) >= CONSTRUCTS[name]


# ---------------------------------------------------------------- selection


@pytest.fixture(scope="module")
def spec() -> DocSpec:
    return load("cpp")


NEEDS = st.tuples(
    st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=8),
    st.sets(st.sampled_from(sorted(KEYWORDS)), max_size=6),
)
BUDGETS = st.integers(0, 16000)


def parts_of(selection: Selection, category: Category) -> list[Part]:
    return [part for part in selection.taken if part.category is category]


@given(NEEDS, BUDGETS)
def test_a_selection_never_exceeds_its_budget(
    spec: DocSpec, needs: tuple[list[str], set[str]], budget: int
) -> None:
    selection = select(spec, *needs, budget)
    assert selection.tokens <= budget
    assert estimate_tokens(selection.text()) <= budget
    parts = [*selection.taken, *selection.left_out]
    places = {(part.file, part.line) for part in parts}
    assert len(places) == len(parts) == len(spec.sections) + len(spec.examples)
    assert {part.reason for part in selection.left_out} <= {NOT_NEEDED, OVER_BUDGET}


@given(NEEDS, BUDGETS, BUDGETS)
def test_a_larger_budget_loses_nothing(
    spec: DocSpec, needs: tuple[list[str], set[str]], one: int, other: int
) -> None:
    less = select(spec, *needs, min(one, other))
    more = select(spec, *needs, max(one, other))
    assert set(less.taken) <= set(more.taken)


@given(NEEDS, BUDGETS, st.randoms())
def test_the_order_of_needs_does_not_matter(
    spec: DocSpec, needs: tuple[list[str], set[str]], budget: int, random: object
) -> None:
    operations, topics = needs
    shuffled = sorted(operations, key=lambda _: random.random())  # type: ignore[attr-defined]
    again = select(spec, shuffled, sorted(topics, reverse=True), budget)
    assert select(spec, operations, topics, budget) == again


@given(NEEDS, BUDGETS)
def test_what_is_needed_comes_first(
    spec: DocSpec, needs: tuple[list[str], set[str]], budget: int
) -> None:
    operations, topics = needs
    selection = select(spec, operations, topics, budget)
    sections = {(section.file, section.line): section for section in spec.sections}
    for part in selection.taken:
        if part.category is not Category.EXAMPLES:
            assert serves(sections[part.file, part.line], operations, topics)
    over = [part for part in selection.left_out if part.reason == OVER_BUDGET]
    if over and selection.taken:
        last = max(ORDER.index(part.category) for part in selection.taken)
        assert last <= min(ORDER.index(part.category) for part in over)
    for category in (Category.PITFALLS, Category.API, Category.STRATEGIES):

        def matched(section: Section) -> int:
            named = sum(name in operations for name in section.operations)
            return 2 * named + sum(word in topics for word in section.keywords)

        taken = [matched(sections[p.file, p.line]) for p in parts_of(selection, category)]
        missed = [matched(sections[p.file, p.line]) for p in over if p.category is category]
        assert not taken or not missed or min(taken) >= max(missed)


def test_basic_documents_and_pitfalls_are_always_there(spec: DocSpec) -> None:
    selection = select(spec, ("gemm",), ("f32",), 1 << 20)
    assert len(parts_of(selection, Category.BASIC)) == len(spec.of(Category.BASIC))
    titles = [part.title for part in parts_of(selection, Category.PITFALLS)]
    assert "Reading or writing beyond the edge" in titles
    assert "Losing NaN" not in titles


def test_operations_choose_entries(spec: DocSpec) -> None:
    def titles(*operations: str) -> list[str]:
        selection = select(spec, operations, (), 1 << 20)
        return [part.title for part in parts_of(selection, Category.API)]

    assert "Matrix product" in titles("gemm")
    assert "Matrix product" not in titles("exp")
    assert "Vector versions of C functions" in titles("exp")


def test_a_type_alone_decides_only_where_nothing_else_is_named(spec: DocSpec) -> None:
    section = spec.of(Category.API)[0]
    both = attrs.evolve(section, operations=("gemm",), keywords=("f32",))
    alone = attrs.evolve(section, operations=(), keywords=("f32",))
    assert not serves(both, ("exp",), ("f32",))
    assert serves(alone, ("exp",), ("f32",))
    assert serves(attrs.evolve(alone, keywords=("numerical",)), ("exp",), ())


@pytest.mark.parametrize("name", ["softmax", "matmul_bias", "sum_middle", "swish", "abs_max"])
def test_the_most_similar_example_comes_first(spec: DocSpec, name: str) -> None:
    example = next(example for example in spec.examples if example.name == name)
    assert rank_examples(spec, example.operations, example.topics)[0] == example


def test_similar_kernels_are_found(spec: DocSpec) -> None:
    def first(operations: tuple[str, ...], *topics: str) -> str:
        return rank_examples(spec, operations, topics)[0].name

    assert first(("gemm", "add", "relu"), "matrix", "loop") == "matmul_bias"
    assert first(("tanh", "mul"), "elementwise") == "swish"


def test_categories_can_be_chosen(spec: DocSpec) -> None:
    chosen = (Category.STRATEGIES, Category.PITFALLS)
    selection = select(spec, ("exp",), ("numerical",), 1 << 20, chosen)
    assert {part.category for part in selection.taken} == set(chosen)
    assert all(part.text in selection.text() for part in selection.taken)


def test_a_negative_budget_is_refused(spec: DocSpec) -> None:
    with pytest.raises(UsageError, match="less than nothing"):
        select(spec, (), (), -1)


# ---------------------------------------------------------------- the page about them


def test_the_page_lists_every_topic_and_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "DOCSPEC.md").read_text("utf-8")
    table = page.partition("<!-- topics -->")[2].partition("<!-- end of topics -->")[0]
    rows = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert rows == list(TOPICS)


def test_the_page_of_runners_lists_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "RUNNERS.md").read_text("utf-8")
    tables = (manifest.LANGUAGE, manifest.TOOLCHAIN, manifest.ENVIRONMENT, manifest.CAPABILITIES)
    for key in itertools.chain(*tables, manifest.FAILURES):
        assert f"{key} = " in page
    for table in ("language", *manifest.TABLES):
        assert f"\n[{table}]" in page
    for placeholder in manifest.PLACEHOLDERS:
        assert f"{{{placeholder}}}" in page
