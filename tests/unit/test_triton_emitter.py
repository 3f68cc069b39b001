"""The emitted Triton text: lint, masks, comments, index widths, barriers, launch checks."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from example_sizes import sizes_for
from example_targets import NAMES, lowered_to
from triton_cases import example, lower
from triton_sketches import SKETCHES

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.precedence import CPP, PYTHON, Code
from sketchc.lowering.python_host import wrapping
from sketchc.lowering.python_host.library import definitions, part_of
from sketchc.lowering.triton.emit import FUNCTIONS
from sketchc.lowering.triton.hazards import Hazards
from sketchc.lowering.triton.kernel import phase_magnitudes

CONFIGURATION = Path(__file__).parent.parent.parent / "pyproject.toml"

COPY = """sketch copy_rows {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: TM = 16, TN = 64;
    REQUIRE
    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, TM)):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, TN)):
            x = alloc([TM, TN])
            load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
            store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}"""


def all_kernels(target: str) -> dict[str, Kernel]:
    found = {name: lower(example(name), target)[1] for name in lowered_to(target)}
    for name, (text, _, _) in SKETCHES.items():
        if target == "triton_ascend" and "f64" in text:
            continue  # refused by the plan
        found[name] = lower(text, target)[1]
    return found


@pytest.fixture(scope="module")
def kernels() -> dict[str, dict[str, Kernel]]:
    return {target: all_kernels(target) for target in ("triton_cuda", "triton_ascend")}


@pytest.mark.parametrize("target", ["triton_cuda", "triton_ascend"])
def test_emitted_code_is_lint_free_and_formatted(
    target: str, kernels: dict[str, dict[str, Kernel]], tmp_path: Path
) -> None:
    for name, kernel in kernels[target].items():
        (tmp_path / f"{name}.py").write_text(kernel.source)
    options = ["--no-cache", "--config", str(CONFIGURATION), str(tmp_path)]
    # A symbol is spelled as a constant is, so that some conditions look turned around.
    for command in (["check", "--extend-ignore", "SIM300"], ["format", "--diff"]):
        run = [sys.executable, "-m", "ruff", *command, *options]
        done = subprocess.run(run, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("target", ["triton_cuda", "triton_ascend"])
def test_emission_is_deterministic(target: str) -> None:
    for name in ("rms", "matmul_bias_gelu"):
        assert lower(example(name), target)[1] == lower(example(name), target)[1]


def accesses(source: str) -> list[ast.Call]:
    """The tl.load and tl.store calls of a generated file."""
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("load", "store")
    ]


def mask_text(call: ast.Call) -> str:
    return next((ast.unparse(k.value) for k in call.keywords if k.arg == "mask"), "")


@pytest.mark.parametrize(
    ("require", "row_mask", "column_mask"),
    [
        ("", True, True),
        ("require: N % 64 == 0;", True, False),
        ("require: M % 16 == 0;", False, True),
        ("require: M % 16 == 0; require: N % 128 == 0;", False, False),
    ],
)
def test_masks_stand_only_where_divisibility_is_unknown(
    require: str, row_mask: bool, column_mask: bool
) -> None:
    calls = accesses(lower(COPY.replace("REQUIRE", require))[1].source)
    assert len(calls) == 2
    for call in calls:
        mask = mask_text(call)
        assert ("tm_lanes" in mask) == row_mask
        assert ("tn_lanes" in mask) == column_mask
        assert bool(mask) == (row_mask or column_mask)


def test_a_padded_tile_is_masked_even_where_its_slice_is_full() -> None:
    text = COPY.replace("TN = 64", "TN = 48")
    text = text.replace("REQUIRE", "require: M % 16 == 0; require: N % 48 == 0;")
    for call in accesses(lower(text)[1].source):
        assert mask_text(call) == "lanes_64[None, :] < TN"


@pytest.mark.parametrize("target", ["triton_cuda", "triton_ascend"])
def test_every_statement_is_traceable(target: str, kernels: dict[str, dict[str, Kernel]]) -> None:
    for name, kernel in kernels[target].items():
        joined = " ".join(line.strip().removeprefix("# ") for line in kernel.source.splitlines())
        for phase in kernel.sketch.phases:
            for statement in walk.statements(phase.body):
                if isinstance(statement, ir.Load | ir.Store | ir.Compute | ir.Bind):
                    assert statement.text, name
                    assert " ".join(statement.text.split()) in joined, (name, statement.text)


# ---------------------------------------------------------------- index widths


def largest_offset(kernel: Kernel, phase: ir.Phase, symbols: dict[str, int]) -> int:
    """The largest element offset that a phase computes, lanes up to the tile's extent included."""
    sketch, largest = kernel.sketch, 0

    def visit(body: tuple[ir.Statement, ...], values: dict[str, Any]) -> None:
        nonlocal largest
        for statement in body:
            match statement:
                case ir.For(variable, start, stop, step, inner):
                    low, high, by = (int(evaluate(e, values)) for e in (start, stop, step))
                    for value in {low, max(low, high - 1 - (high - 1 - low) % by)}:
                        visit(inner, {**values, variable: value})
                case ir.Bind(name, bound):
                    if not isinstance(bound, ir.Iota | ir.Binary):
                        values = {**values, name: evaluate(bound, values)}
                case ir.Load(access, tile) | ir.Store(tile, access):
                    lanes = iter(sketch.tile(tile).extents)
                    offset = 0
                    for subscript, extent in zip(
                        access.subscripts, sketch.extents(access.tensor), strict=True
                    ):
                        offset *= int(evaluate(extent, values))
                        match subscript:
                            case ir.ScalarSubscript(index):
                                offset += int(evaluate(index, values))
                            case ir.SliceSubscript(lower, _):
                                width = int(evaluate(next(lanes), values))
                                offset += int(evaluate(lower, values)) + width - 1
                    largest = max(largest, offset)
                case _:
                    pass

    visit(phase.body, dict(host_values(sketch, symbols, dict.fromkeys(params(sketch), 1))))
    return largest


def params(sketch: ir.Sketch) -> list[str]:
    return [param.name for param in sketch.params]


#: Examples whose indices follow from their symbols alone, by slices.
SLICES_ALONE = [
    name
    for name in NAMES
    if not any(
        word in example(name) for word in ("let:", "params:", "fetch", "iota", "if ", "views")
    )
]


@pytest.mark.sweep
@pytest.mark.parametrize("name", SLICES_ALONE)
@pytest.mark.parametrize("size", [1, 7, 300, 4000])
def test_the_index_bound_covers_every_offset(name: str, size: int) -> None:
    plan, kernel = lower(example(name))
    symbols = sizes_for(plan.sketch, (size,))
    for planned, phase in zip(plan.phases, plan.sketch.phases, strict=True):
        bounds = phase_magnitudes(plan, planned)
        assert bounds
        bound = max(
            sum(c * product(symbols[atom] for atom in m) for m, c in one.items()) for one in bounds
        )
        largest = largest_offset(kernel, phase, symbols)
        assert largest <= bound
        # ... and wastes little: the guard must not send usual sizes to 64 bits.
        assert bound <= 8 * largest + 100_000


def product(values: Any) -> int:
    total = 1
    for value in values:
        total *= value
    return total


def load_module(kernel: Kernel, folder: Path) -> ModuleType:
    path = folder / f"{kernel.name}_{kernel.target}.py"
    path.write_text(kernel.source)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_wrapper_widens_indices_beyond_two_gigaelements(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from sketchc.runtime.toolchains.triton_cuda.worker import Launch, recording

    module = load_module(lower(example("relu"))[1], tmp_path)
    for rows, expected in ((1000, "int32"), (60_000, "int64")):
        x = torch.empty((rows, 60_000), device="meta")
        launches: list[Launch] = []
        with recording(module, launches.append):
            module.relu(x)
        (launch,) = launches
        assert str(launch.arguments["INDEX"]) == expected


def test_bounded_symbols_need_no_wide_variant() -> None:
    text = COPY.replace("M, N;", "M <= 4096, N <= 4096;", 1).replace("REQUIRE", "")
    assert "INDEX" not in lower(text)[1].source


# ---------------------------------------------------------------- barriers


def barriers(text: str) -> tuple[set[int], set[int]]:
    plan, _ = lower(text)
    found = Hazards(plan.sketch).find(plan.phases[0].body)
    return found.before, found.loops


IN_PLACE = """sketch s {
    symbols: N;
    tensors: X[N]: inout f32;
    constexpr: T = 16;
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[LOAD] -> x)
        store(x -> X[i*T:(i+1)*T])
}"""


def test_a_store_over_what_was_loaded_waits_for_all_threads() -> None:
    before, loops = barriers(IN_PLACE.replace("LOAD", "i*T:(i+1)*T"))
    assert before == {3}  # the store; the next iteration touches other elements
    assert loops == {0}  # no software pipeline across the store


def test_a_load_of_an_earlier_iterations_store_waits_too() -> None:
    before, _ = barriers(IN_PLACE.replace("LOAD", "0:T"))
    assert before == {2, 3}


def test_a_loop_that_only_stores_new_elements_needs_no_barrier() -> None:
    plan, kernel = lower(example("online_softmax"))
    assert Hazards(plan.sketch).find(plan.phases[0].body).before == set()
    assert "debug_barrier" not in kernel.source


# ---------------------------------------------------------------- launch checks


def test_launch_checks_are_readable(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    text = COPY.replace("M, N;", "M, N <= 512;", 1).replace("REQUIRE", "require: N % 64 == 0;")
    module = load_module(lower(text)[1], tmp_path)
    x = torch.zeros(4, 64)
    flat = torch.zeros(1024)
    wrong: list[tuple[Any, Any, str]] = [
        (torch.zeros(4), None, "2 axes"),
        (torch.zeros(4, 63), None, "N % 64 == 0.*N = 63"),
        (torch.zeros(4, 576), None, "N <= 512"),
        (x.double(), None, "torch.float64"),
        (x, torch.zeros(4, 63), "shape"),
        (x, x, "overlaps"),
        (flat[:512].view(4, 128), flat[100:612].view(4, 128), "overlaps"),
    ]
    for argument, out, message in wrong:
        with pytest.raises(module.LaunchError, match=message):
            module.copy_rows(argument, out=out)
    assert issubclass(module.LaunchError, ValueError)


# ---------------------------------------------------------------- text helpers


def test_nested_right_operands_keep_their_parentheses() -> None:
    a, b, c = Code("a"), Code("b"), Code("c")
    for language in (PYTHON, CPP):
        for outer in ("-", "*", "/", "%", "<<", "&"):
            for inner in ("-", "*", "/", "%", "<<", "&"):
                right = language.binary(outer, a, language.binary(inner, b, c))
                left = language.binary(outer, language.binary(inner, a, b), c)
                for code, grouping in ((right, ("a", ("b", "c"))), (left, (("a", "b"), "c"))):
                    assert shape(ast.parse(code.text, mode="eval").body) == grouping
    assert PYTHON.binary("<", PYTHON.binary("<", a, b), c).text == "(a < b) < c"
    assert PYTHON.binary("&", PYTHON.binary("<", a, b), c).text == "(a < b) & c"
    assert PYTHON.postfix(PYTHON.binary("+", a, b), "[:, None]").text == "(a + b)[:, None]"
    assert CPP.unary("-", CPP.unary("-", a)).text == "-(-a)"


def shape(node: ast.AST) -> Any:
    match node:
        case ast.Name(name):
            return name
        case ast.BinOp(left, _, right):
            return (shape(left), shape(right))
        case _:
            raise AssertionError(ast.dump(node))


def test_wrapping_keeps_the_expression() -> None:
    text = "value = tl.load(" + " + ".join(f"name_{i} * (other_{i} - 1)" for i in range(9)) + ")"
    text = text[:-1] + ", mask=(aaaa < bbbb) & (cccc < dddd), other=0.0)"
    lines = wrapping.statement(text, "        ")
    assert len(lines) > 3
    assert max(len(line) for line in lines) <= wrapping.WIDTH
    joined = "if True:\n" + "\n".join(lines)
    assert ast.dump(ast.parse("if True:\n    " + text)) == ast.dump(ast.parse(joined))


def test_device_functions_come_with_what_they_call() -> None:
    functions = definitions(FUNCTIONS)
    for name in functions:
        text = part_of(FUNCTIONS, [name]).text
        defined = {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
        read = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
        assert name in defined
        assert read & set(functions) <= defined
