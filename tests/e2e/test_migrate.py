"""`sketchc migrate` of kernels that sketchc wrote: every pair of targets, by the comment at the
kernel's end and by the store, with and without a task, and of kernels that somebody changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from toolchains import require

from sketchc.cli.main import run
from sketchc.lowering.registry import TARGETS, load_target

#: Ragged tiles, a reduction that needs its identity, a param, and a tile size that is open.
SKETCH = """\
# Each row's sum of exponentials, scaled.
sketch row_scale {
    symbols: M, N;
    params: scale: f32 = 2.0;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    constexpr: T = 16 in [8, 16];

    @llm_hint("parallel", "grididx")
    for i in range(M):
        total = alloc([1], f32, init=0)
        for j in range(0, N, T):
            x = alloc([T], f32)
            part = alloc([1], f32)
            load(X[i, j:j+T] -> x)
            exp(x, x)
            reduce_sum(x, 0, part)
            add(total, part, total)
        mul(total, scale, total)
        store(total -> Y[i])
}
"""
TASK = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x, scale):
        return torch.exp(x).sum(1) * scale

def get_inputs():
    return [torch.randn(6, 40), 2.0]
"""
PAIRS = [(old, new) for old in TARGETS for new in TARGETS if old != new]
#: A line of the built-in C++ code, and what somebody made of it.
LINE = "total = total * static_cast<float>(scale);"
CHANGED = "total = total * static_cast<float>(scale) + 1.0f;"


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder with the sketch and its task, a store of its own, and no settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("SKETCHC_STORE", str(tmp_path / "store.sqlite"))
    for name in ("SKETCHC_LLM", "SKETCHC_LLM_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    Path("row_scale.sketch").write_text(SKETCH)
    Path("task.py").write_text(TASK)


def lowered(target: str, *more: str) -> Path:
    """The kernel's file as `sketchc lower` writes it."""
    file = Path(f"mine{load_target(target).language.suffix}")
    assert run(["lower", "row_scale.sketch", "-t", target, "-q", "-o", str(file), *more]) == 0
    return file


def migrate(file: Path, old: str, new: str, *more: str) -> int:
    return run(["migrate", str(file), "--from", old, "--to", new, "--seed", "7", *more])


def kernel_of(folder: str, target: str) -> str:
    return (Path(folder) / f"row_scale{load_target(target).language.suffix}").read_text()


def without_comment(text: str) -> str:
    """The kernel's text, from whose end somebody took the comment."""
    found = re.split(r"\n\n(?://|#) ---- made by sketchc", text)
    assert len(found) == 2
    return found[0]


# ---------------------------------------------------------------- kernels as they were written


@pytest.mark.sweep
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_file_alone_is_enough_for_every_pair(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require(old), require(new)
    file = lowered(old)
    assert migrate(file, old, new, "-o", "out", "--no-store") == 0
    told = capsys.readouterr()
    assert "found in the comment at the kernel's end" in told.err
    assert "no task is known: compared with the original alone" in told.err
    assert "against the original alone: no task is known" in told.out
    # What was made is what `lower` makes, and can be migrated in turn.
    made = kernel_of("out", new)
    assert without_comment(made) == without_comment(lowered(new).read_text())
    verdict = json.loads(Path("out/verdict.json").read_text())["verdict"]
    assert verdict["verdict"] == "passed"
    assert verdict["task"].endswith(file.name)
    assert "compared with the original alone" in Path("out/SUMMARY.md").read_text()


def test_what_was_migrated_is_migrated_back(capsys: pytest.CaptureFixture[str]) -> None:
    """The store remembers the first run, whose original is no task for the second one."""
    require("cpp"), require("cuda_c")
    first = lowered("cpp")
    assert migrate(first, "cpp", "cuda_c", "-o", "there", "-q") == 0
    capsys.readouterr()
    assert migrate(Path("there/row_scale.cu"), "cuda_c", "cpp", "-o", "back", "-q") == 0
    assert "against the original alone: no task is known" in "".join(capsys.readouterr())
    assert kernel_of("back", "cpp") == first.read_text()


def test_a_param_stays_as_it_was_set_and_tiles_are_chosen_anew() -> None:
    require("cpp"), require("cuda_c")
    lowered("cpp", "--set", "scale=3.5", "--set", "T=8")
    assert migrate(Path("mine.cpp"), "cpp", "cuda_c", "-o", "out", "-q", "--no-store") == 0
    options = json.loads(Path("out/trace.json").read_text())["options"]
    assert options["constants"] == {"scale": 3.5}
    verdict = json.loads(Path("out/verdict.json").read_text())["verdict"]
    assert verdict["constants"] == {"T": 16}
    assert verdict["params"] == {"scale": 3.5}


def test_what_was_said_of_launches_stays_behind() -> None:
    require("triton_cuda"), require("cpp")
    file = lowered("triton_cuda", "--set", "scale=3.5", "--set", "num_warps=2")
    assert migrate(file, "triton_cuda", "cpp", "-o", "out", "-q", "--no-store") == 0
    options = json.loads(Path("out/trace.json").read_text())["options"]
    assert options["constants"] == {"scale": 3.5}


def test_a_task_is_compared_with_where_one_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp"), require("cuda_c")
    file = lowered("cuda_c")
    assert migrate(file, "cuda_c", "cpp", "--task", "task.py", "-o", "out", "--no-bench") == 0
    assert "original alone" not in "".join(capsys.readouterr())
    assert json.loads(Path("out/trace.json").read_text())["task"] == "task.py"
    # The task's own form, for which there is a drop-in.
    assert "class ModelNew" in Path("out/row_scale_dropin.py").read_text()


def test_a_task_that_the_sketch_does_not_compute_refutes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    require("cpp"), require("cuda_c")
    Path("other.py").write_text(TASK.replace("* scale", "* scale + 1"))
    file = lowered("cuda_c")
    assert migrate(file, "cuda_c", "cpp", "--task", "other.py", "-o", "out") == 1
    assert "design" in capsys.readouterr().out


def test_a_run_leaves_a_kernel_that_names_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp"), require("cuda_c")
    asked = ["gen", "task.py", "-t", "cpp", "--workflow", "coder-only", "--no-bench", "-q"]
    assert run([*asked, "--sketch", "row_scale.sketch", "-o", "made", "--no-store"]) == 0
    capsys.readouterr()
    Path("task.py").unlink()  # the run has put a copy beside the kernel
    file = Path("made/row_scale.cpp")
    assert migrate(file, "cpp", "cuda_c", "-o", "out", "--no-store") == 0
    told = capsys.readouterr()
    assert "the comment at the kernel's end names it" in told.err
    assert "original alone" not in told.out + told.err
    assert "row_scale_task.py" in json.loads(Path("out/trace.json").read_text())["task"]


def test_the_store_knows_a_kernel_whose_comment_is_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    require("cpp"), require("cuda_c")
    assert run(["verify", "row_scale.sketch", "--task", "task.py", "-t", "cpp"]) == 0
    Path("task.py").unlink()
    file = lowered("cpp")
    file.write_text(without_comment(file.read_text()))
    capsys.readouterr()
    assert migrate(file, "cpp", "cuda_c", "-o", "out", "--no-bench") == 0
    told = capsys.readouterr()
    assert "the sketch of mine.cpp is found in the store" in told.err
    assert "the store names it for this kernel" in told.err
    assert json.loads(Path("out/trace.json").read_text())["outcome"] == "passed"


# ---------------------------------------------------------------- kernels that were changed


def test_a_changed_body_is_noticed_not_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    file = lowered("cpp")
    text = file.read_text()
    assert text.count(LINE) == 1
    file.write_text(text.replace(LINE, CHANGED))
    assert migrate(file, "cpp", "cuda_c", "-o", "out", "--no-store") == 1
    told = capsys.readouterr()
    assert "mine.cpp no longer does what the sketch in the comment at the kernel's end says" in (
        told.err
    )
    assert "numerical" in told.out
    assert not Path("out").exists()


def test_a_changed_body_is_noticed_beside_a_task_too(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    file = lowered("cpp")
    file.write_text(file.read_text().replace(LINE, CHANGED))
    more = ("--task", "task.py", "-o", "out", "--no-store", "--json", "-q")
    assert migrate(file, "cpp", "cuda_c", *more) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == "failed"
    assert "no longer does" in found["reason"]
    assert found["verdict"]["failure"] == "numerical"


def test_a_changed_sketch_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    file = lowered("cpp")
    text = file.read_text()
    changed = text.replace("mul(total, scale, total)\n//         store", "store")
    assert changed != text
    file.write_text(changed)
    assert migrate(file, "cpp", "cuda_c", "-o", "out", "--no-store") == 1
    assert "no longer does" in capsys.readouterr().err


def test_a_change_without_effect_is_run_and_then_accepted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    require("cpp"), require("cuda_c")
    file = lowered("cpp")
    file.write_text(f"// Copyright of somebody.\n{file.read_text()}")
    assert migrate(file, "cpp", "cuda_c", "-o", "out", "--no-store") == 0
    assert "it does what the sketch says, in " in capsys.readouterr().err


# ---------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    "damaged",
    ['{"nam"', '{"settings": 5, "name"', '{"settings": [1], "name"', '{"task": 5, "name"'],
)
def test_a_damaged_comment_says_what_to_do(
    damaged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lowered("cpp")
    file.write_text(file.read_text().replace('{"name"', damaged))
    assert migrate(file, "cpp", "cuda_c") == 2
    told = capsys.readouterr().err
    assert "was changed and cannot be read; delete the comment" in told


def test_code_behind_the_comment_is_not_taken_for_a_sketch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = lowered("cpp")
    file.write_text(f"{file.read_text()}int more;\n")
    assert migrate(file, "cpp", "cuda_c") == 2
    assert "it has to be the last thing in the file" in capsys.readouterr().err


def test_a_kernel_that_was_never_right_is_run_beside_its_sketch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The store has it, with the sketch that somebody gave beside it."""
    require("cpp"), require("cuda_c")
    file = lowered("cpp")
    code = file.read_text().partition("// ---- made by")[0]
    code = code.replace("float>(scale)", "float>(2*scale)")
    file.write_text(code)
    asked = ["gen", "task.py", "-t", "cpp", "--workflow", "verifier-only", "--kernel", "mine.cpp"]
    assert run([*asked, "--sketch", "row_scale.sketch", "-o", "made", "-q"]) == 1
    assert migrate(file, "cpp", "cuda_c", "-o", "out") == 1
    assert "nothing is migrated. Add --no-store to have a model read" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_sketch_with_errors_is_shown_with_its_diagnostics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = lowered("cpp")
    file.write_text(file.read_text().replace("exp(x, x)\n//", "exp(x, gone)\n//"))
    assert migrate(file, "cpp", "cuda_c") == 1
    told = capsys.readouterr().err
    assert "SK0201" in told
    assert "mine.cpp (its sketch)" in told
    assert migrate(file, "cpp", "cuda_c", "--json") == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "SK0201"


@pytest.mark.parametrize(
    ("old", "new", "more", "said"),
    [
        ("cuda_c", "cpp", (), "mine.cpp is no kernel for cuda_c, which takes CUDA-C (.cu)"),
        ("cpp", "cpp", (), "mine.cpp is for cpp already; say --hardware"),
        ("cpp", "gpu", (), "unknown target 'gpu'"),
        ("cpp", "cuda_c", ("--signature", "x"), "--signature is for kernels by others"),
    ],
)
def test_misuse_is_one_line(
    old: str, new: str, more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lowered("cpp")
    assert migrate(file, old, new, *more) == 2
    assert said in capsys.readouterr().err


def test_a_kernel_for_another_target_of_the_same_language(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = lowered("triton_ascend")
    assert migrate(file, "triton_cuda", "cpp") == 2
    assert "mine.py was made for triton_ascend; say --from triton_ascend" in capsys.readouterr().err


def test_a_kernel_by_others_needs_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    file = lowered("cpp")
    file.write_text(without_comment(file.read_text()))
    assert migrate(file, "cpp", "cuda_c", "--no-store") == 2
    assert "a model has to read it; say --llm" in capsys.readouterr().err


# ---------------------------------------------------------------- what a run leaves


def test_the_page_of_a_run_shows_sketch_and_kernel_and_no_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    require("cpp"), require("cuda_c")
    file = lowered("cpp")
    assert migrate(file, "cpp", "cuda_c", "-o", "out", "-q", "--no-store") == 0
    assert run(["report", "out", "-o", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "row_scale.cu" in page
    assert "sketchc verify" not in page  # there is nothing to verify it against
    summary = Path("out/SUMMARY.md").read_text()
    assert "sketchc migrate mine.cpp --from cpp --to cuda_c" in summary
    assert "| sketch | the comment at the kernel's end |" in summary
    capsys.readouterr()
