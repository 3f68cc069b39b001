"""`sketchc check` and `sketchc explain`: formats, exit status, bad input, what is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from explained import block

from sketchc.api import Request, check_file
from sketchc.base.explain import page
from sketchc.cli.commands.check import _PARALLEL_FROM, map_files
from sketchc.cli.main import COMMANDS, run
from sketchc.parsing.parser import MAXIMUM_SIZE

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.sketch"))
WRONG = "sketch a {\n    exp(x y)\n}\n"


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_examples_pass_with_their_proofs(capsys):
    assert run(["check", "--static", *map(str, EXAMPLES)]) == 0
    out = capsys.readouterr().out
    assert "rms.sketch: rms_norm" in out
    assert ": proved" in out
    assert f"{len(EXAMPLES)} files, 0 errors" in out


def test_lint_is_check_and_quiet_says_nothing_when_all_is_well(capsys):
    assert run(["lint", "--quiet", str(EXAMPLES[0])]) == 0
    assert capsys.readouterr().out == ""


def test_all_diagnostics_of_all_files(tmp_path, capsys):
    first = write(tmp_path, "a.sketch", WRONG)
    second = write(tmp_path, "b.sketch", "sketch b {\n    y = exp(x)\n    neg(a b)\n}\n")
    assert run(["check", first, second]) == 1
    out = capsys.readouterr().out
    for words in ("a.sketch:2:11", "b.sketch:2:9", "b.sketch:3:11", "SK0100", "SK0116"):
        assert words in out


def test_directories_are_walked(tmp_path, capsys):
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", "a.sketch", WRONG)
    write(tmp_path, "b.txt", "not a sketch")
    assert run(["check", str(tmp_path)]) == 1
    assert "1 file, 1 error" in capsys.readouterr().out


def test_machine_formats(tmp_path, capsys):
    path = write(tmp_path, "a.sketch", WRONG)
    assert run(["check", "--format", "json", path, str(EXAMPLES[0])]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [d["code"] for d in document["diagnostics"]] == ["SK0100"]
    assert document["sketches"][0]["proofs"][0]["tier"] == "proved"
    assert run(["check", "--format", "sarif", path]) == 1
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"][0]["ruleId"] == "SK0100"


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", "SK0133", "no sketch"),
        (b"# only a comment", "SK0133", "no sketch"),
        (b"abc\0def", "SK0131", "byte offset 3"),
        (b"sketch \xff\xfe", "SK0131", "byte offset 7"),
        (b"x" * (10 * 2**20), "SK0132", "10,485,760 bytes"),
        (b"#" * (MAXIMUM_SIZE + 1), "SK0132", f"{MAXIMUM_SIZE + 1:,} bytes"),
    ],
)
def test_what_is_no_sketch_gets_one_message(content, code, words, tmp_path, capsys):
    path = write(tmp_path, "a.sketch", content)
    for command in ("check", "fmt"):
        assert run([command, path]) == 1
        captured = capsys.readouterr()
        text = captured.out + captured.err
        assert text.count("error[") == 1
        assert code in text
        assert words in text


def test_a_file_of_the_largest_size_is_read(tmp_path, capsys):
    text = EXAMPLES[0].read_text("utf-8")
    padded = text + "#" * (MAXIMUM_SIZE - len(text.encode()))
    assert run(["check", write(tmp_path, "a.sketch", padded)]) == 0


@pytest.mark.parametrize("command", ["check", "fmt"])
def test_what_cannot_be_read_is_misuse(command, tmp_path, capsys):
    missing = str(tmp_path / "missing.sketch")
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, words in ((missing, "No such file"), (str(empty), "holds no *.sketch files")):
        assert run([command, path]) == 2
        captured = capsys.readouterr().err
        assert words in captured
        assert captured.count("error:") == 1


def test_one_missing_file_does_not_hide_the_others(tmp_path, capsys):
    assert run(["check", str(tmp_path / "missing.sketch"), write(tmp_path, "a.sketch", WRONG)]) == 2
    captured = capsys.readouterr()
    assert "SK0100" in captured.out
    assert "missing.sketch" in captured.err
    assert "1 file, 1 error, 0 warnings" in captured.out


def test_standard_input():
    text = EXAMPLES[0].read_text("utf-8")
    command = [sys.executable, "-m", "sketchc.cli.main", "check", "-"]
    found = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert "<stdin>: " in found.stdout


def test_target_reports_what_the_target_refuses(capsys):
    text = str(ROOT / "tests/golden/diagnostics/SK0701_scratch_overflow.sketch")
    assert run(["check", text]) == 0
    assert run(["check", text, "--target", "triton_ascend"]) == 1
    assert "SK0701" in capsys.readouterr().out


UNBOUNDED = """sketch rows {
    symbols: M, D;
    tensors: X[M, D]: in f32; S[M]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([D])
        s = alloc([1])
        load(X[i, :] -> x)
        reduce_sum(x, 0, s)
        store(s -> S[i])
}
"""


def test_what_a_targets_scratch_bounds_is_a_claim(tmp_path, capsys):
    path = tmp_path / "rows.sketch"
    path.write_text(UNBOUNDED, "utf-8")
    claim = "scratch      tiles without a bound: checked at launch (D <= 65536)"
    assert run(["check", str(path)]) == 0
    assert "scratch  " not in capsys.readouterr().out
    assert run(["check", str(path), "--target", "triton_cuda"]) == 0
    out = capsys.readouterr().out
    assert claim in out
    assert "1 checked at launch" in out
    assert run(["check", str(path), "--target", "cpp"]) == 0
    assert "scratch  " not in capsys.readouterr().out


def test_results_that_depend_on_tile_sizes_are_refuted_unless_only_proofs_are_asked(capsys):
    text = str(ROOT / "tests/golden/diagnostics/SK0809_tile_size_changes_results.sketch")
    assert run(["check", text, "--static"]) == 0
    assert "tile-size" not in capsys.readouterr().out
    for flags in ([], ["--execute"]):
        assert run(["check", text, *flags]) == 1
        out = capsys.readouterr().out
        assert "error[SK0809]" in out
        assert "tile-size" in out
        assert ": refuted" in out


def test_static_leaves_out_the_runs_at_several_tile_sizes_alone(capsys, tmp_path):
    text = (ROOT / "examples/relu.sketch").read_text()
    sketch = tmp_path / "squares.sketch"
    sketch.write_text(text.replace("store(", "if M*M % 3 != 2:\n            store("))
    assert run(["check", "--static", str(sketch)]) == 0
    out = capsys.readouterr().out
    assert "tile-size" not in out
    assert "Y: tested" in out  # no proof decides whether it is covered


def test_results_that_do_not_depend_on_tile_sizes_are_a_verdict(capsys):
    assert run(["check", str(ROOT / "examples/matmul.sketch")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "tile-size" in line]
    assert "TM, TN, TK: tested (results agree 5 times at M = 1, " in line
    assert "with TM = 32, TN = 32, TK = 16 | TM = 1, TN = 1, TK = 1 | " in line
    assert "most iterations of loops: i 7, j 7, k " in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "tpu"], "unknown target 'tpu'"),
        (["--set", "T"], "NAME=VALUE"),
        (["--set", "NO_SUCH_NAME=3"], "NO_SUCH_NAME"),
        (["--format", "xml"], "xml"),
    ],
)
def test_misuse(arguments, words, capsys):
    assert run(["check", str(EXAMPLES[0]), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_settings_bind_constants():
    rms = str(ROOT / "examples" / "rms.sketch")
    assert run(["check", "-q", rms, "--set", "TILE_SIZE=7,eps=1e-3"]) == 0


def test_many_files_are_shared_out_with_the_same_result(tmp_path):
    paths = []
    for number in range(_PARALLEL_FROM * 2):
        text = EXAMPLES[number % len(EXAMPLES)].read_text("utf-8") if number % 3 else WRONG
        paths.append(write(tmp_path, f"{number:02}.sketch", text))
    function = partial(check_file, request=Request(static=True))
    assert map_files(function, paths) == [function(path) for path in paths]


# ---------------------------------------------------------------- explain, help


def test_explain(capsys):
    assert run(["explain", "sk0111"]) == 0
    assert capsys.readouterr().out.startswith("# SK0111: ")
    assert run(["explain", "--list"]) == 0
    assert "SK0111  a header without its colon" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "near"), [("SK011", "SK0111"), ("111", "SK0111"), ("SK01111", "SK0111")]
)
def test_explain_names_near_codes(code, near, capsys):
    assert run(["explain", code]) == 2
    assert near in capsys.readouterr().err


def test_explain_reads_nothing_but_its_pages(capsys):
    assert run(["explain", "../../README"]) == 2
    assert run(["explain"]) == 2


@pytest.mark.parametrize("command", ["check", "lint", "explain", "fmt"])
def test_help_has_an_example(command, capsys):
    assert command in COMMANDS
    assert run([command, "--help"]) == 0
    assert "Example" in capsys.readouterr().out


def test_unproved_claims_are_errors_unless_allowed(tmp_path, capsys):
    text = page("SK0502")
    example = block(text, "Example")
    assert example is not None
    path = write(tmp_path, "unproved.sketch", example)
    assert run(["check", path]) == 1
    assert "error[SK0502]" in capsys.readouterr().out
    assert run(["check", "--allow-unproved", path]) == 0
    out = capsys.readouterr().out
    assert "warning[SK0502]" in out
    assert ": unproved" in out
    for flags, status in (([], 1), (["--allow-unproved"], 0)):
        assert run(["lower", path, "--target", "cpp", "-o", os.devnull, *flags]) == status
        assert "SK0502" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["inf", "nan", "2.5", "true", str(10**30)])
def test_sizes_are_integers(size, capsys):
    assert run(["check", "--symbols", f"M={size}", str(EXAMPLES[0])]) == 2
    assert "--symbols: the size M" in capsys.readouterr().err


def test_sizes_name_all_symbols_of_a_sketch(tmp_path, capsys):
    path = write(tmp_path, "a.sketch", ODD.format(index="i"))
    rms, softmax = (str(ROOT / "examples" / f"{name}.sketch") for name in ("rms", "softmax"))
    assert run(["check", "--symbols", "Q=3", path]) == 2
    assert "--symbols Q: no sketch has such a symbol; there are: N" in capsys.readouterr().err
    assert run(["check", "--symbols", "M=3", rms, softmax]) == 2
    assert "takes sizes of all symbols; give N too" in capsys.readouterr().err
    # Sizes of one sketch are those of another that has fewer symbols, too.
    assert run(["check", "--symbols", "M=3,N=14", path, softmax]) == 1
    assert "error[SK0801]: the condition N % 7 != 0" in capsys.readouterr().out


def test_settings_that_do_not_fit_are_errors(capsys):
    path = str(ROOT / "examples" / "matmul.sketch")
    (name, *_) = sorted(check_file(path, Request()).names.bindable)
    assert run(["check", "--quiet", "--set", f"{name}={10**30}", path]) == 1
    assert "SK0214" in capsys.readouterr().out


ODD = """sketch odd {{
    symbols: N;
    params: alpha: i64;
    tensors: X[N]: in f32; Y[N]: out f32;
    require: N % 7 != 0;
    require: alpha > 100;
    @llm_hint("parallel", "grididx")
    for i in range(N):
        x = alloc([1])
        load(X[i] -> x)
        store(x -> Y[{index}])
}}
"""


def test_sizes_that_no_launch_accepts_are_refused(tmp_path, capsys):
    path = write(tmp_path, "a.sketch", ODD.format(index="i"))
    assert run(["check", "--symbols", "N=14", path]) == 1
    out = capsys.readouterr().out
    assert "error[SK0801]: the condition N % 7 != 0 does not hold" in out
    assert "with N = 14" in out
    assert run(["check", "--symbols", "N=13", "--quiet", path]) == 0


def test_claims_of_a_refuted_sketch_are_shown(tmp_path, capsys):
    path = write(tmp_path, "a.sketch", ODD.format(index="i // 2"))
    assert run(["check", path]) == 1
    out = capsys.readouterr().out
    assert "  in-bounds    X: proved" in out
    assert "  independent  Y: refuted (for " in out
    assert "counter-example: N = " in out
    assert out.count(" both write Y[0]") == 2  # in the diagnostic and beside the claim
    assert "2 refuted" in out.splitlines()[-1]
    assert run(["check", "--format", "json", path]) == 1
    (sketch,) = json.loads(capsys.readouterr().out)["sketches"]
    assert {proof["tier"] for proof in sketch["proofs"]} >= {"proved", "refuted"}
