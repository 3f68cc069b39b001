"""Sketches with `types:`: each instance is the sketch with its types written out, and whatever has
tensors chooses by their types."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from toolchains import require

from sketchc.api.checking import Request, check_text
from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.cli import main
from sketchc.ir.nodes import Tier
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import built_in_targets, load_target
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

torch = pytest.importorskip("torch")

#: A row's sum times a param, in the types of its tensors; rows are longer than a tile.
SKETCH = """\
sketch scaled {
    types: E in [f16, bf16, f32, i32], F in [f32, f64];
    symbols: M, N;
    params: factor: f32 = 2.0;
    tensors: X[M, N]: in E; BIAS[N]: in F?; Y[M, N]: out F;
    constexpr: T = 32 in [32, 64];

    @llm_hint("parallel", "grididx")
    for i in range(M):
        for j in range(0, N, T):
            x = alloc([T], E)
            load(X[i, j:j+T] -> x)
            y = alloc([T], F)
            cast(x, y)
            mul(y, factor, y)
            if present(BIAS):
                bias = alloc([T], F)
                load(BIAS[j:j+T] -> bias)
                add(y, bias, y)
            store(y -> Y[i, j:j+T])
}
"""
INSTANCES = {
    f"scaled_{e}_{f}": {"E": e, "F": f}
    for e in ("f16", "bf16", "f32", "i32")
    for f in ("f32", "f64")
}
TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i32": "int32"}
TARGETS = [target.name for target in built_in_targets()]
EXAMPLE = Path(__file__).parents[2] / "examples" / "programs" / "mixed_precision.sketch"
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, bias):
        return {result} + bias

def get_inputs():
    return [torch.randn(7, 65).to(torch.{dtype}), torch.randn(65)]

def get_init_inputs():
    return []
"""


def written_out(name: str) -> str:
    """The text of an instance without `types:`."""
    text = re.sub(r" *types:.*\n", "", SKETCH).replace("sketch scaled {", f"sketch {name} {{")
    for variable, dtype in INSTANCES[name].items():
        text = re.sub(rf"\b{variable}\b", dtype, text)
    return text


def run(*arguments: object, status: int = 0) -> str:
    """What a command of sketchc prints; it must end with `status`."""
    with CliRunner().isolation() as streams:
        found = main.run([str(each) for each in arguments])
        printed = b"".join(stream.getvalue() for stream in streams[:2] if stream).decode()
    assert found == status, printed
    return printed


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("generic") / "scaled.sketch"
    file.write_text(SKETCH)
    return file


def test_an_instance_is_the_sketch_with_its_types_written_out():
    generic = check(Source("generic", SKETCH))
    trees = {tree.name: tree for tree in generic.tree.sketches}
    checked = {one.sketch.name: one for one in generic.sketches}
    assert set(trees) == set(checked) == set(INSTANCES)
    for name in INSTANCES:
        plain = check(Source("plain", written_out(name)))
        (own,) = plain.sketches
        claims = [(proof.claim, proof.subject, proof.tier) for proof in own.proofs]
        assert claims == [(p.claim, p.subject, p.tier) for p in checked[name].proofs]
        for target in TARGETS:
            if "f64" in INSTANCES[name].values() and target == "triton_ascend":
                continue
            emit = load_target(target).emit
            made, wanted = (
                emit(build_plan(tree, target).plan).source
                for tree in (trees[name], plain.tree.sketches[0])
            )
            assert made == wanted


def test_what_is_wrong_with_every_instance_is_told_once():
    wrong = SKETCH.replace("mul(y,", "mul(z,")
    report = check_text(Source("wrong", wrong), Request(static=True))
    assert [found.code for found in report.diagnostics] == ["SK0201"]


def test_every_claim_of_every_instance_is_told(path):
    output = run("check", path)
    assert all(f"{path}: {name}\n" in output for name in INSTANCES)
    report = check_text(Source("generic", SKETCH), Request())
    assert {proof.tier for each in report.sketches for proof in each.proofs} <= {
        Tier.PROVED,
        Tier.TESTED,
    }


def test_the_text_is_formatted_as_it_was_written():
    source = Source("generic", SKETCH)
    tree, _ = parse(source)
    assert format_file(tree, source) == SKETCH
    messy = SKETCH.replace("types: E in [f16,", "types:   E   in [ f16 ,").replace(
        ", F in", "; F in"
    )
    tree, found = parse(Source("messy", messy))
    assert not found
    assert format_file(tree, Source("messy", messy)) == SKETCH


@pytest.mark.parametrize("name", ["scaled_bf16_f32", "scaled_i32_f64"])
def test_the_interpreter_runs_an_instance_by_its_name(path, tmp_path, name):
    result = tmp_path / "y.npz"
    run("run", path, "--sketch", name, "--symbols", "M=3,N=33", "--out", result)
    assert np.load(result)["Y"].dtype == np.dtype(TORCH[INSTANCES[name]["F"]])
    for command in (["run", path, "--symbols", "M=3,N=33"], ["lower", path, "-t", "cpp"]):
        printed = run(*command, status=2)
        assert all(instance in printed for instance in INSTANCES)


def test_two_sketches_of_one_name_are_a_mistake_of_the_user(tmp_path):
    twice = tmp_path / "twice.sketch"
    for text in (SKETCH, written_out("scaled_f16_f32")):
        twice.write_text(text + "\n" + text)
        for command in (["lower", "-t", "cpp"], ["run", "--symbols", "M=1,N=2"]):
            assert run(command[0], twice, *command[1:], status=2 if text != SKETCH else 1)


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_task_chooses_the_instance_by_its_types(path, tmp_path, dtype, target):
    require(target)
    task = tmp_path / "task.py"
    task.write_text(TASK.format(dtype=dtype, result="x.float() * 2.0"))
    output = run("verify", path, "--task", task, "-t", target, "--json")
    short = next(own for own, theirs in TORCH.items() if theirs == dtype)
    assert f'"scaled_{short}_f32"' in output
    task.write_text(TASK.format(dtype=dtype, result="x.float() * 2.5"))
    run("verify", path, "--task", task, "-t", target, status=1)


def inputs(dtype: str, columns: int):
    values = torch.linspace(-7, 9, 3 * columns).reshape(3, columns)
    return values.to(getattr(torch, TORCH[dtype]))


def agrees(function) -> None:
    """Whether a function for all instances computes what PyTorch does, at ragged sizes."""
    for columns in (1, 31, 32, 33, 67):
        for e in ("f16", "bf16", "f32", "i32"):
            for f in ("f32", "f64"):
                wide = getattr(torch, TORCH[f])
                x, bias = inputs(e, columns), inputs(f, columns)[0]
                wanted = x.to(wide) * 0.5
                torch.testing.assert_close(
                    function(x, bias, factor=0.5), wanted + bias, rtol=0, atol=0
                )
                out = torch.full((3, columns), torch.nan, dtype=wide)
                assert function(x, factor=0.5, out=out) is out
                torch.testing.assert_close(out, wanted, rtol=0, atol=0)


@pytest.mark.sweep
def test_one_module_serves_all_types(path, tmp_path, monkeypatch):
    require("cpp")
    folder = tmp_path / "module"
    run("lower", path, "-t", "cpp", "--module", folder, "-q")
    monkeypatch.syspath_prepend(folder)
    module = importlib.import_module("scaled_dropin")
    assert "sketchc" not in (folder / "scaled_dropin.py").read_text().replace("Made by sketchc", "")
    agrees(module.scaled)
    with pytest.raises(TypeError, match="pass out="):
        module.scaled(inputs("f16", 5))
    with pytest.raises(TypeError, match=r"no kernel here for torch\.float64"):
        module.scaled(inputs("f64", 5))
    array = module.scaled(np.ones((2, 3), np.float16), np.zeros(3, np.float64))
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float64
    assert (array == 2).all()
    compiled = torch.compile(lambda x, b: module.scaled(x, b) + 1, fullgraph=True, backend="eager")
    assert (compiled(torch.ones(2, 3), torch.ones(3)) == 4).all()


def test_an_absent_tensor_of_another_type_decides_nothing():
    require("cpp")
    import sketchc

    text = SKETCH.replace("F in [f32, f64]", "F in [f32, f64], G in [f16, f32]")
    text = text.replace("BIAS[N]: in F?", "BIAS[N]: in G?").replace(
        "Y[M, N]: out F", "Y[M, N]: out f64"
    )
    text = text.replace("E in [f16, bf16, f32, i32], F in [f32, f64], ", "E in [f16, i32], ")
    text = text.replace(", F)", ", f64)").replace("bias = alloc([T], f64)", "bias = alloc([T], G)")
    function = sketchc.kernel(text, target="cpp")
    for e in ("f16", "i32"):
        x = inputs(e, 33)
        assert (function(x) == x.double() * 2).all()
        for g in ("f16", "f32"):
            bias = inputs(g, 33)[0]
            assert (function(x, bias) == x.double() * 2 + bias.double()).all()


def test_a_kernel_serves_all_types(path):
    require("cpp")
    import sketchc

    kernel = sketchc.kernel(path, target="cpp")
    agrees(kernel)
    assert all(f"{name}(" in kernel.code for name in INSTANCES)


@pytest.mark.parametrize("target", TARGETS)
def test_the_example_is_what_its_task_computes(target):
    require(target)
    run("verify", EXAMPLE, "--task", EXAMPLE.with_suffix(".py"), "-t", target)


def test_a_program_calls_the_instance_for_its_tensors():
    text = SKETCH + (
        "\nprogram chain {\n    symbols: M, N;\n    tensors: X[M, N]: in bf16; Y[M, N]: out f64;\n"
        "    buffers: ONCE[M, N]: f32;\n\n    scaled(X -> ONCE)\n    scaled(X=ONCE, Y=Y)\n}\n"
    )
    source = Source("chain", text)
    tree, found = parse(source)
    assert not found
    assert [entry.name for entry in tree.entries] == ["chain"]
    assert format_file(tree, source) == text
    result = check(source)
    (sketch,) = [one.sketch for one in result.sketches if one.sketch.name == "chain"]
    from sketchc.interpreter.api import interpret
    from sketchc.interpreter.inputs import random_inputs

    given = random_inputs(sketch, {"X": (3, 37)}, np.random.default_rng(1))
    outputs = interpret(sketch, given, {"M": 3, "N": 37}).outputs
    assert outputs["Y"].dtype == np.float64
    np.testing.assert_array_equal(outputs["Y"], given["X"].astype(np.float64) * 4)
