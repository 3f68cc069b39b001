"""The house as the documents show it: files that exist, arrows that point one way, rooms that can
be walked."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest

from sketchc.lowering.registry import TARGETS
from sketchc.ops.table import OPS

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("sketchc", "grammar", "lowering", "agents", "docspec", "runtime")
NAMED = re.compile(rf"`((?:{'|'.join((*PARTS, 'tests', 'examples', 'docs'))})/[^`\s]*)`")
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md"])
#: In running text, a module or folder whose path may begin in the middle (`passes/pipeline.py`).
PATH = re.compile(r"(?<![\w/.$~<-])[a-z_]\w*(?:/\w+)+(?:\.(?:py|hpp|lark))?(?!\w|/|\.\w)")
#: What stands for a part of a name in an instruction.
PLACEHOLDER = re.compile(r"[…*<]|NAME|xxxx")
#: A file in a folder of the user's.
USERS = "sketchc/sketchc.toml"
#: Modules that a folder may hold, and lines that a file may have.
MOST_MODULES, MOST_LINES = 20, 800
#: Reason -> modules and folders that may name operations in collections and comparisons.
NAMING = {
    "the op table, and that of the functions of expressions": ("sketchc/ops/",),
    "what an operation is in the language of a target": tuple(
        f"{module.rpartition('.')[0].removeprefix('sketchc.').replace('.', '/')}/"
        for module in TARGETS.values()
    ),
    "the functions of expressions in the language of a host": (
        "lowering/python_host/expressions.py",
        "lowering/c_source/",
    ),
    "how lanes move in each operation that moves them, and what `rand` is made of": (
        "lowering/loops/nest_maker.py",
    ),
    "`pow` and `int` have a value where no single comparison says it": (
        "sketchc/launch/conditions.py",
    ),
    "the keyword `where=` of accesses": (
        "sketchc/checker/calls/memory.py",
        "sketchc/parsing/prepass.py",
    ),
    "composites are written out by their names": ("sketchc/checker/calls/composites.py",),
    "advice on one algorithm, the softmax in one pass": ("sketchc/lints/passes.py",),
    "what ATen's operations are made of": (
        "agents/autosketch/rolling.py",
        "agents/autosketch/rules/folds.py",
        "agents/autosketch/rules/lookups.py",
        "agents/autosketch/loops.py",
        "agents/autosketch/means.py",
        "agents/autosketch/rules/orders.py",
        "agents/autosketch/phases.py",
        "agents/autosketch/rules/pointwise.py",
        "agents/autosketch/calls.py",
        "agents/autosketch/templates/attention.py",
        "agents/autosketch/templates/passes.py",
        "agents/autosketch/templates/writer.py",
        "agents/autosketch/rules/views.py",
    ),
    "operations and methods of PyTorch and Triton": (
        "runtime/bench/roofline.py",
        "runtime/tasks/worker/torch_worker.py",
        "runtime/guards/module_guard.py",
        "runtime/guards/wrapper_guard.py",
        "runtime/tasks/worker/operations.py",
        "runtime/tasks/worker/trace.py",
    ),
    "functions of the C library, instructions and operations of MLIR": (
        "runtime/guards/binary.py",
        "runtime/toolchains/cpp/toolchain.py",
        "runtime/toolchains/triton_ascend/linalg.py",
    ),
    "steps of the plan in a file of OpenCL": ("docspec/opencl/runner.py",),
    "keys of messages between processes": (
        "runtime/bench/server.py",
        "runtime/tasks/worker/task_file.py",
    ),
}
#: Operations whose names are also operators and functions of expressions, or atomics, or a word
#: for what is printed.
SHARED = frozenset(("min", "max", "abs", "ceil", "add", "log"))


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "benchmarks/draw_rooms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file. To parse all takes seconds, and several tests look at each."""
    return ast.parse(path.read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """The trees are gone after the last test of this file: they fill 300 MB."""
    yield
    parsed.cache_clear()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A module and all statements in it, without the expressions, which are most of its tree."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from statements(child)


def docstrings(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """What a file documents, and the docstring; the latter is empty where there is none."""
    for node in statements(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield node, ast.get_docstring(node) or ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text("utf-8"))
    files = [name for name in named if not PLACEHOLDER.search(name)]
    assert [name for name in files if name != USERS and not (ROOT / name).exists()] == []


def test_paths_that_begin_in_the_middle_exist() -> None:
    """Of documents and docstrings: those that end in .py, and those below a folder of ours."""
    folders = {"tests", "examples", "docs", "benchmarks", *PARTS}
    present = [path.relative_to(ROOT) for part in folders for path in (ROOT / part).rglob("*")]
    both = {path.parts for each in present for path in (each, each.with_suffix(""))}
    ends = {"/".join(parts[start:]) for parts in both for start in range(len(parts))}
    rooms = {path.parent.name for path in present if path.parts[0] in PARTS}
    texts = {page.name: page.read_text("utf-8") for page in PAGES}
    for part in (*PARTS, "tests", "benchmarks"):
        for path in (ROOT / part).rglob("*.py"):
            if "golden" not in path.parts:
                texts[str(path)] = "\n".join(text for _, text in docstrings(path))
    found = {name: PATH.findall(text) for name, text in texts.items()}
    assert [
        (name, path)
        for name, paths in found.items()
        for path in paths
        if (path.split("/")[0] in rooms or path.endswith(".py")) and path not in ends
        if not PLACEHOLDER.search(path)
    ] == []


def test_public_functions_and_methods_have_docstrings() -> None:
    def missing(body: list[ast.stmt], place: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                if not ast.get_docstring(node):
                    yield f"{place}.{node.name}"
                if isinstance(node, ast.ClassDef):
                    yield from missing(node.body, f"{place}.{node.name}")

    found: list[str] = []
    for path in [ROOT / "setup.py", *(p for part in PARTS for p in (ROOT / part).rglob("*.py"))]:
        if "examples" not in path.parts:  # those of docspec: kernels that are documents
            found += missing(parsed(path).body, str(path))
    assert found == []


def test_the_picture_is_that_of_the_sources(drawing: ModuleType) -> None:
    assert drawing.picture() == drawing.PICTURE.read_text("utf-8"), (
        "python benchmarks/draw_rooms.py"
    )


def test_no_packages_import_each_other_in_circles(drawing: ModuleType) -> None:
    known = drawing.modules()
    graph = drawing.imports(known)
    containers = {name.rpartition(".")[0] for name in known} - {""}
    for container in sorted(containers):
        rooms: nx.DiGraph[str] = nx.DiGraph()
        for user, used in graph.edges:
            pair = drawing.room_of(user, container), drawing.room_of(used, container)
            if all(pair) and pair[0] != pair[1]:
                rooms.add_edge(*pair)
        packages = {room for room in rooms if known[f"{container}.{room}"].name == "__init__.py"}
        circles = [found for found in nx.strongly_connected_components(rooms) if len(found) > 1]
        assert [found for found in circles if found & packages] == [], container


def test_folders_and_files_can_be_taken_in() -> None:
    folders = {path.parent for part in PARTS for path in (ROOT / part).rglob("*.py")}
    for folder in sorted(folders - {ROOT / "examples" / "tasks"}):
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MOST_MODULES, folder
    for part in (*PARTS, "tests", "benchmarks"):
        for path in (ROOT / part).rglob("*.[hp]*"):
            if path.suffix in (".py", ".hpp") and "golden" not in path.parts:
                assert path.read_text("utf-8").count("\n") <= MOST_LINES, path


def test_facts_are_imported_at_their_door() -> None:
    """As the import contract asks of the product, here also of what is beside it."""
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
        for part in (*PARTS, "tests", "benchmarks")
        for path in sorted((ROOT / part).rglob("*.py"))
        if path.parent != ROOT / "sketchc/checker/facts" and "golden" not in path.parts
        for node in statements(parsed(path))
        if isinstance(node, ast.ImportFrom)
        if (node.module or "").startswith("sketchc.checker.facts.")
    ]
    assert found == []


def operations_in(node: ast.AST) -> Iterator[str]:
    """The operations that a comparison, a `match`, a collection or the begin of a name names."""
    words: list[ast.expr | None] = []
    match node:
        case ast.Compare(left, _, others):
            words = [left, *others]
        case ast.Set(elements) | ast.Tuple(elements) | ast.List(elements):
            words = [*elements]
        case ast.Dict(keys, values):
            words = [*keys, *values]
        case ast.MatchValue(value):
            words = [value]
        case ast.Call(ast.Attribute(value, "split" | "startswith")):
            words = [value, *node.args]
            prefixes = tuple(set(re.findall(r"'(\w+_)'", ast.unparse(node))))
            yield from (name for name in OPS if name.startswith(prefixes))
    for word in words:
        if isinstance(word, ast.Constant) and isinstance(word.value, str):
            named = [name for name in word.value.split() if name in OPS.keys() - SHARED]
            yield from named if len(named) == len(word.value.split()) else ()


def test_facts_of_operations_stand_in_the_op_table() -> None:
    allowed = tuple(name for names in NAMING.values() for name in names)
    found = {
        f"{name}:{node.lineno}": names
        for part in PARTS
        for path in sorted((ROOT / part).rglob("*.py"))
        if not (name := path.relative_to(ROOT).as_posix()).startswith(allowed)
        for node in ast.walk(parsed(path))
        if (names := [*operations_in(node)])
    }
    assert found == {}
