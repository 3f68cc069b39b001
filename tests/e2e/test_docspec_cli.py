"""`sketchc docspec` as a user calls it: what is printed, where, and the exit status."""

from __future__ import annotations

from pathlib import Path

import documents
import pytest
from toolchains import require

from sketchc.cli.main import run
from sketchc.lowering.registry import target_names

EXAMPLES = Path(__file__).parents[2] / "examples"
Capture = pytest.CaptureFixture[str]


def test_list_has_a_line_for_each_target(capsys: Capture) -> None:
    assert run(["docspec", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(target_names())
    assert "12 examples" in next(line for line in lines if line.startswith("cpp"))


def test_show_prints_what_was_asked_for(capsys: Capture) -> None:
    assert run(["docspec", "show", "cpp", "--category", "pitfalls"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## Reading or writing beyond the edge\n")
    assert "## Losing NaN" in text
    assert "# Interfaces" not in text
    assert "keywords:" not in text


def test_show_prints_everything(capsys: Capture) -> None:
    assert run(["docspec", "show", "cpp"]) == 0
    text = capsys.readouterr().out
    for piece in ("# Kernels in C++ for a CPU", "### Matrix product", "## Example `softmax`"):
        assert piece in text


def test_show_for_a_sketch_reports_what_it_took(capsys: Capture) -> None:
    sketch = str(EXAMPLES / "matmul.sketch")
    assert run(["docspec", "show", "cpp", "--for", sketch, "--budget", "6000"]) == 0
    out, err = capsys.readouterr()
    assert "### Matrix product" in out
    assert "### f16 and bf16" not in out
    assert "f16 and bf16  (serves other kernels)" in err
    assert "matmul_bias" in err
    taken = int(err.splitlines()[-1].split()[0])
    assert 0 < taken <= 6000
    assert len(out) <= 4 * 6000 + 1


def test_a_small_budget_keeps_the_basics(capsys: Capture) -> None:
    sketch = str(EXAMPLES / "softmax.sketch")
    assert run(["docspec", "show", "cpp", "--for", sketch, "--budget", "500"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# Kernels in C++ for a CPU")
    assert "over the budget" in err


def test_topics_bring_in_more(capsys: Capture) -> None:
    arguments = ["docspec", "show", "cpp", "-q", "--for", str(EXAMPLES / "relu.sketch")]
    assert run(arguments) == 0
    assert "### Transposition" not in capsys.readouterr().out
    assert run([*arguments, "--topic", "layout"]) == 0
    out, err = capsys.readouterr()
    assert "### Transposition" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "fortran"], "no target that has some: triton_cuda, triton_ascend, cpp"),
        (["show", "cpp", "--budget", "5"], "go with --for FILE"),
        (["show", "cpp", "--category", "jokes"], "'jokes' is not one of"),
        (["show", "cpp", "--for", "missing.sketch"], "missing.sketch"),
        (
            ["show", "cpp", "--for", str(EXAMPLES / "relu.sketch"), "--topic", "fun"],
            "unknown topic",
        ),
        (["show", "cpp", "--for", str(EXAMPLES / "relu.sketch"), "--budget", "-1"], "-1"),
        (["check", "nowhere"], "nowhere is no folder with documents"),
    ],
)
def test_misuse_is_one_message(arguments: list[str], said: str, capsys: Capture) -> None:
    assert run(["docspec", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_sketch_with_errors_is_diagnosed(tmp_path: Path, capsys: Capture) -> None:
    sketch = tmp_path / "wrong.sketch"
    sketch.write_text(documents.SKETCH.replace("mul(", "mull("))
    assert run(["docspec", "show", "cpp", "--for", str(sketch)]) == 1
    assert "SK" in capsys.readouterr().err


def test_check_of_good_documents(tmp_path: Path, capsys: Capture) -> None:
    assert run(["docspec", "check", str(documents.write(tmp_path))]) == 0
    assert ": fine: basic " in capsys.readouterr().out


def test_check_says_everything_with_file_and_line(tmp_path: Path, capsys: Capture) -> None:
    api = documents.FILES["api.md"].replace("ops: exp", "ops: expo")
    folder = documents.write(tmp_path, api_md=api, pitfalls_md=None)
    assert run(["docspec", "check", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{folder}/api.md:20: unknown operation 'expo'; did you mean exp, exp2, expm1?",
        f"{folder}/pitfalls.md: this file is missing",
    ]
    assert err.endswith("2 findings\n")


def test_documents_of_ones_own_are_run_under_a_known_target(
    tmp_path: Path, capsys: Capture
) -> None:
    require("cpp")
    manifest = documents.MANIFEST.replace('"toy"', '"cpp"')
    folder = documents.write(tmp_path, docspec_toml=manifest)
    assert run(["docspec", "check", str(folder), "--run", "--seed", "7"]) == 0
    assert "scale: passed: " in capsys.readouterr().out
    wrong = documents.SOURCE.replace("i < N", "i < N - 1")
    api = documents.FILES["api.md"].replace("i < N", "i < N - 1")
    folder = documents.write(tmp_path, docspec_toml=manifest, examples_scale_cpp=wrong, api_md=api)
    assert run(["docspec", "check", str(folder), "--run", "--seed", "7"]) == 1
    assert "scale: failed (numerical" in capsys.readouterr().out


def test_a_target_that_cannot_run_is_misuse(tmp_path: Path, capsys: Capture) -> None:
    folder = str(documents.write(tmp_path))
    assert run(["docspec", "check", folder, "--run"]) == 2
    assert "unknown toolchain 'toy'" in capsys.readouterr().err
