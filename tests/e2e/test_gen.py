"""`sketchc gen` as a user meets it: the workflows that ask no model, and every way to misuse it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_tasks import small_task
from toolchains import require

from sketchc.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
TASKS = ROOT / "examples" / "tasks"
SKETCHES = ROOT / "examples"
NO_MODEL = {"SKETCHC_LLM", "SKETCHC_LLM_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"}

USE = """
import torch
from {module} import Model, ModelNew, get_init_inputs
model, new = Model(*get_init_inputs()), ModelNew(*get_init_inputs())
torch.manual_seed(0)
x = 3 * torch.randn(5, 300)
torch.testing.assert_close(new(x), model(x))
print("equal")
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    for name in NO_MODEL:
        monkeypatch.delenv(name, raising=False)


def _gen(name: str, target: str, workflow: str, folder: Path) -> list[str]:
    """The command for an example's task at small sizes."""
    return ["gen", str(small_task(name, folder)), "-t", target, "--workflow", workflow]


def _trace(folder: Path) -> dict[str, object]:
    data: dict[str, object] = json.loads((folder / "trace.json").read_text())
    return data


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_coder_only_with_a_sketch_asks_no_model(name: str, tmp_path: Path) -> None:
    require("cpp")
    arguments = _gen(name, "cpp", "coder-only", tmp_path)
    arguments += ["--sketch", str(SKETCHES / f"{name}.sketch"), "--no-bench", "-o", "out"]
    assert run(arguments) == 0
    out = tmp_path / "out"
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["verdict"]["passed"] is True
    assert [step["agent"] for step in _trace(out)["steps"]] == ["coder", "verifier", "conductor"]  # type: ignore[attr-defined]
    assert "passed" in (out / "SUMMARY.md").read_text()
    assert (out / f"{name}.sketch").exists()


def test_the_drop_in_that_is_left_behind_computes(tmp_path: Path) -> None:
    require("cpp")
    arguments = _gen("softmax", "cpp", "coder-only", tmp_path)
    arguments += ["--sketch", str(SKETCHES / "softmax.sketch"), "--no-bench", "-o", "out"]
    assert run(arguments) == 0
    (dropin,) = [
        path for path in (tmp_path / "out").glob("*.py") if "class ModelNew" in path.read_text()
    ]
    ran = subprocess.run(
        [sys.executable, "-c", USE.format(module=dropin.stem)],
        cwd=dropin.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stdout == "equal\n", ran.stderr


def test_a_wrong_sketch_fails_where_nobody_can_mend_it(tmp_path: Path) -> None:
    require("cpp")
    wrong = (SKETCHES / "softmax.sketch").read_text().replace("reduce_max", "reduce_min")
    (tmp_path / "wrong.sketch").write_text(wrong.replace("exp(", "abs("))
    arguments = _gen("softmax", "cpp", "coder-only", tmp_path)
    assert run([*arguments, "--sketch", "wrong.sketch", "--no-bench", "-o", "out"]) == 1
    trace = _trace(tmp_path / "out")
    assert trace["outcome"] in ("failed", "exhausted")
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert verdict["verdict"]["failure"] == "design"


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
def test_verifier_only_judges_a_kernel_file(target: str, tmp_path: Path) -> None:
    require(target)
    kernel = tmp_path / ("softmax.cpp" if target == "cpp" else "softmax_kernel.py")
    sketch = str(SKETCHES / "softmax.sketch")
    assert run(["lower", sketch, "-t", target, "-o", str(kernel), "-q"]) == 0
    arguments = _gen("softmax", target, "verifier-only", tmp_path)
    arguments += ["--kernel", str(kernel), "--sketch", sketch, "--no-bench"]
    if target == "cpp":  # in Triton's interpreter it takes long: see test_foreign_kernels.py
        assert run([*arguments, "-o", "right"]) == 0
    text = kernel.read_text()
    powers = {
        "= sketch::exp(": "= std::fabs(",
        "= exponential(": "= tl.abs(",
        "= tl.exp(": "= tl.abs(",
    }
    ((good, bad),) = [pair for pair in powers.items() if pair[0] in text]
    kernel.write_text(text.replace(good, bad))
    assert run([*arguments, "-o", "wrong"]) == 1
    assert _trace(tmp_path / "wrong")["outcome"] == "rejected"


def test_a_kernels_only_function_is_found(tmp_path: Path) -> None:
    require("cpp")
    kernel, sketch = tmp_path / "k.cpp", str(SKETCHES / "relu.sketch")
    assert run(["lower", sketch, "-t", "cpp", "-o", str(kernel), "-q"]) == 0
    text = kernel.read_text()
    kernel.write_text(text.replace("int64_t relu(", "int64_t other("))
    arguments = _gen("relu", "cpp", "verifier-only", tmp_path)
    arguments += ["--kernel", str(kernel), "--sketch", sketch, "--no-bench", "-q"]
    assert run([*arguments, "-o", "found"]) == 0
    assert run([*arguments, "-o", "named", "--entry", "none"]) == 2
    assert not Path("named").exists()


def test_a_given_sketch_that_does_not_hold_is_shown_as_check_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.sketch").write_text(
        "sketch bad {\n    symbols: M;\n    store(x -> Y[0:M])\n}\n"
    )
    arguments = ["gen", str(TASKS / "relu.py"), "-t", "cpp", "--workflow", "coder-only"]
    assert run([*arguments, "--sketch", "bad.sketch", "-o", "out"]) == 1
    said = capsys.readouterr().err
    assert "SK02" in said
    assert "bad.sketch:3" in said
    assert not Path("out").exists()


def test_files_of_others_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine", "notes.txt").write_text("keep")
    arguments = ["gen", str(TASKS / "relu.py"), "-t", "cpp", "--workflow", "coder-only"]
    assert run([*arguments, "--sketch", str(SKETCHES / "relu.sketch"), "-o", "mine"]) == 2
    assert "notes.txt" in capsys.readouterr().err
    assert [path.name for path in Path("mine").iterdir()] == ["notes.txt"]


def test_a_target_that_cannot_run_here_is_told_before_anything_is_paid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    arguments = ["gen", str(TASKS / "softmax.py"), "-t", "cpp", "--llm", "mailbox:letters"]
    assert run([*arguments, "-o", "out"]) == 2
    assert "g++" in capsys.readouterr().err
    assert not Path("letters").exists()
    assert not Path("out").exists()


def test_without_a_model_it_says_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["gen", str(TASKS / "softmax.py"), "-t", "cpp", "-o", "out", "--designer", "llm"]
    assert run(given) == 2
    said = capsys.readouterr().err
    for word in ("--llm", "openai", "replay:", "mailbox:", "sketchc.toml", "SKETCHC_LLM"):
        assert word in said
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py", "-t", "cpp"], "missing.py"),
        ([str(TASKS / "softmax.py"), "-t", "metal"], "unknown target"),
        ([str(TASKS / "softmax.py"), "-t", "cpp", "--workflow", "evolve"], "unknown workflow"),
        ([str(TASKS / "softmax.py"), "-t", "cpp", "--workflow", "verifier-only"], "--kernel"),
        ([str(TASKS / "softmax.py"), "-t", "cpp", "--sketch", "x.sketch"], "coder-only"),
        ([str(TASKS / "softmax.py"), "-t", "cpp", "--llm", "replay:none.jsonl"], "none.jsonl"),
        ([str(TASKS / "softmax.py"), "-t", "cpp", "--llm", "telepathy"], "telepathy"),
        ([str(TASKS / "softmax.py"), "-t", "cpp", "--workflow", "coder-only"], "--sketch"),
        (
            [
                str(TASKS / "add.py"),
                "-t",
                "cpp",
                "--workflow",
                "verifier-only",
                "--kernel",
                "empty.cpp",
            ],
            "is empty",
        ),
        ([str(TASKS / "softmax.py"), "-t", "cpp", "--config", "none.toml"], "none.toml"),
        (
            [str(TASKS / "softmax.py"), "-t", "cpp", "--llm", "mailbox:m", "--resume", "-o", "o"],
            "no run to go on",
        ),
    ],
)
def test_misuse_is_one_clear_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.cpp").write_text("\n")
    assert run(["gen", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_broken_task_is_told_apart_from_a_broken_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "broken.py"
    task.write_text((TASKS / "softmax.py").read_text().replace("torch.softmax", "torch.sotfmax"))
    assert run(["gen", str(task), "-t", "cpp", "--llm", "mailbox:letters", "-o", "out"]) == 2
    assert "sotfmax" in capsys.readouterr().err
    assert not Path("letters").exists() or not list(Path("letters").iterdir())


def test_a_folder_with_a_run_is_not_used_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    require("cpp")
    arguments = _gen("add", "cpp", "coder-only", tmp_path)
    arguments += ["--sketch", str(SKETCHES / "add.sketch"), "--no-bench", "-q", "-o", "out"]
    assert run(arguments) == 0
    assert run(arguments) == 2
    assert "--resume" in capsys.readouterr().err
    # A finished run has nothing left to do: the same end once more.
    assert run([*arguments, "--resume"]) == 0


def test_the_trace_is_printed_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    require("cpp")
    arguments = [*_gen("add", "cpp", "coder-only", tmp_path), "--json"]
    arguments += ["--sketch", str(SKETCHES / "add.sketch"), "--no-bench", "-q"]
    assert run(arguments) == 0
    trace = json.loads(capsys.readouterr().out)
    assert trace["outcome"] == "passed"
    assert Path("sketchc-runs/add-cpp-1/trace.json").exists()
