"""Options of launches (`num_warps`, `num_stages`) are set as constants are, in the commands and in
the tuning space; where nothing is said, the emitter's rules decide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_tuning_space import LISTED, OPEN, example, space

from sketchc.base.diagnostics import UsageError
from sketchc.cli.main import run
from sketchc.lowering.registry import load_target

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: A loop that streams tiles, one whose stages the sketch names, a product, and no loop at all.
NAMES = ("sum_middle", "matmul_half", "conv2d", "gelu")


def lowered(
    capsys: pytest.CaptureFixture[str], file: str, *more: str, target: str = "triton_cuda"
) -> str:
    path = file if "/" in file else str(EXAMPLES / f"{file}.sketch")
    assert run(["lower", path, "--target", target, "--quiet", *more]) == 0
    return re.sub(r"(?m)^# .*\n", "", capsys.readouterr().out)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_set_is_launched_with(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for warps in (1, 2, 16):
        found = lowered(capsys, name, "--set", f"num_warps={warps}")
        assert re.findall(r"num_warps=(\S+?)[,)]", found) == [str(warps)]


def test_stages_are_those_of_every_loop_that_loads_ahead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in NAMES[:-1]:
        for stages in (1, 5):
            found = lowered(capsys, name, "--set", f"num_stages={stages}")
            assert set(re.findall(r"num_stages=(\d+)", found)) == {str(stages)}, name


def test_the_plan_says_what_its_loops_became(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(EXAMPLES / "sum_middle.sketch")
    more = ["--set", "num_stages=2", "--emit", "plan"]
    assert run(["lower", path, "--target", "triton_cuda", "--quiet", *more]) == 0
    said = '# hint "pipeline" of loop m: num_stages=2 (as asked for)'
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_0_is_what_is_chosen_without_a_word(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = lowered(capsys, name, "--set", "num_warps=0,num_stages=0")
    assert said == lowered(capsys, name)


@pytest.mark.parametrize("value", ["3", "-1", "2.5", "true", "64"])
def test_another_value_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(EXAMPLES / "gelu.sketch")
    assert run(["lower", path, "--target", "triton_cuda", "--set", f"num_warps={value}"]) == 2
    assert "num_warps is one of 1, 2, 4, 8, 16, or 0" in capsys.readouterr().err


def test_a_target_without_such_launches_refuses_the_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(EXAMPLES / "gelu.sketch")
    for target in ("cpp", "triton_ascend", "cuda_c"):
        assert run(["lower", path, "--target", target, "--set", "num_warps=4"]) == 2
        assert "no constexpr or param 'num_warps'" in capsys.readouterr().err


def test_a_constant_of_the_sketch_has_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.sketch"
    file.write_text(OPEN.replace("TM", "num_warps"))
    found = lowered(capsys, str(file), "--set", "num_warps=32,TN=64")
    assert "num_warps=32" not in found
    assert found == lowered(capsys, str(file), "--set", "TN=64,num_warps=32")
    axes = space(file.read_text(), "triton_cuda").axes
    assert [axis.name for axis in axes].count("num_warps") == 1


def test_they_are_axes_of_the_space() -> None:
    options = {o.name: o.values for o in load_target("triton_cuda").capabilities.launch_options}
    for name in NAMES:
        axes = {axis.name: axis.values for axis in example(name, "triton_cuda").axes}
        loops, products = name != "gelu", name in ("matmul_half", "conv2d")
        # Of what has been measured with products alone, where there are any.
        expected = {"num_warps": (4, 8), "num_stages": (2, 3, 4)} if products else options
        assert set(expected["num_warps"]) <= set(options["num_warps"])
        assert axes["num_warps"] == (0, *expected["num_warps"])
        assert axes.get("num_stages") == ((0, *expected["num_stages"]) if loops else None)
    assert "num_warps" not in {axis.name for axis in example("gelu", "cpp").axes}


def test_what_is_set_does_not_vary() -> None:
    found = example("sum_middle", "triton_cuda", num_stages=4, TM=8)
    assert [axis.name for axis in found.axes] == ["TN", "num_warps"]
    assert found.plan({"num_warps": 2}).plan.options == {"num_warps": 2, "num_stages": 4}
    assert found.plan({"num_warps": 0}).plan.options == {"num_stages": 4}


def test_points_of_one_program_keep_their_own_options() -> None:
    """Plans of points are substitutions in each other's: no option may come along."""
    found = example("sum_middle", "triton_cuda")
    emit = load_target("triton_cuda").emit
    texts = {}
    for stages in (0, 1, 5):
        for warps in (0, 2):
            point = {"TM": 8, "TN": 128, "num_stages": stages, "num_warps": warps}
            texts[stages, warps] = emit(found.plan(point).plan).source
    assert len(set(texts.values())) == len(texts)
    for (stages, warps), text in texts.items():
        point = {"TM": 8, "TN": 128, "num_stages": stages, "num_warps": warps}
        assert emit(example("sum_middle", "triton_cuda").plan(point).plan).source == text


def test_an_available_tiling_is_combined_with_them() -> None:
    found = space(LISTED, "triton_cuda")
    warps = {axis.name: axis.values for axis in found.axes}["num_warps"]
    assert len(found.points) == 2 * len(warps)
    assert found.points[0] == found.default == {"TM": 8, "TN": 64, "num_warps": 0}
    tiles = {(point["TM"], point["TN"]) for point in found.points}
    assert tiles == {(8, 64), (16, 32)}


def test_a_rule_is_apart_from_every_number() -> None:
    found = example("gelu", "triton_cuda")
    coordinates = {tuple(found.vector({**found.default, "num_warps": n})) for n in (0, 1, 2)}
    assert len(coordinates) == 3


def test_in_python_too() -> None:
    with pytest.raises(UsageError, match="num_stages is one of"):
        example("matmul", "triton_cuda").plan({"num_stages": 9})
