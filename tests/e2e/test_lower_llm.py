"""`sketchc lower --coder llm` as a user starts it: code is accepted only when it is right.

The model is a real HTTP server with a script; its replies are test inputs: built-in code that is
broken in one place, and edits that mend it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from llm_server import Action, LlmServer, reply, unauthorized
from toolchains import require

from sketchc.api.sketches import load_sketch
from sketchc.cli.main import run
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.runtime.store.origins import read_origin
from sketchc.runtime.toolchains.base import ToolchainStatus
from sketchc.runtime.toolchains.cpp.toolchain import CppToolchain

#: A ragged loop of tiles, a reduction that needs its identity, and a param.
SKETCH = """
sketch row_scale {
    symbols: M <= 5, N <= 20;
    params: scale: f32 = 2.0;
    tensors: X[M, N]: in f32; Y[M]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        total = alloc([1], f32, init=0)
        for j in range(cdiv(N, 8)):
            x = alloc([8], f32)
            part = alloc([1], f32)
            load(X[i, j*8:(j+1)*8] -> x)
            exp(x, x)
            reduce_sum(x, 0, part)
            add(total, part, total)
        mul(total, scale, total)
        store(total -> Y[i])
}
"""
FENCE = {
    "cpp": "cpp",
    "cuda_c": "cuda",
    **dict.fromkeys(("triton_cuda", "triton_ascend", "tilelang_cuda"), "python"),
}


TRITON = {
    "a dropped mask": (
        "part = tl.sum(tl.where(lanes_8 < N - j * 8, x, 0.0), axis=0)",
        "part = tl.sum(x, axis=0)",
        "numerical",
    ),
    "a wrong identity": (
        "total = tl.full((), 0.0, tl.float32)",
        "total = tl.full((), 1.0, tl.float32)",
        "numerical",
    ),
    "off by one": (
        "part = tl.sum(tl.where(lanes_8 < N - j * 8, x, 0.0), axis=0)",
        "part = tl.sum(tl.where(lanes_8 < N - j * 8 - 1, x, 0.0), axis=0)",
        "numerical",
    ),
    "a syntax error": ("total = total + part", "total = total + (part", "syntax"),
    "a name that does not exist": (
        "total = total + part",
        "total = tl.added(total, part)",
        "api_misuse",
    ),
}
#: Where lanes meet behind the loop.
HELD = "part_lanes = tl.where(lanes_8 < N - j * 8, part_lanes + x, part_lanes)"
TRITON_CUDA = TRITON | {
    "a dropped mask": (HELD, "part_lanes = part_lanes + x", "numerical"),
    "off by one": (HELD, HELD.replace("j * 8,", "j * 8 - 1,"), "numerical"),
}
#: target -> name -> (line of the built-in code, what stands there instead, class of failure).
BREAKS = {
    "cpp": {
        "a dropped mask": (
            "for (int64_t lane = 0; lane < std::min<int64_t>(8, N - j * 8); ++lane) {",
            "for (int64_t lane = 0; lane < 8; ++lane) {",
            "numerical|illegal_access",
        ),
        "a wrong identity": ("float total = 0.0f;", "float total = 1.0f;", "numerical"),
        "off by one": (
            "for (int64_t j = 0; j < sketch::ceil_div(N, 8); ++j) {",
            "for (int64_t j = 0; j + 1 < sketch::ceil_div(N, 8); ++j) {",
            "numerical",
        ),
        "a syntax error": ("total = total + part_;", "total = total + part_", "syntax"),
        "a name that does not exist": (
            "const float x_exp = sketch::exp(x);",
            "const float x_exp = sketch::exponential(x);",
            "api_misuse",
        ),
    },
    "cuda_c": {
        "a dropped mask": (
            "for (int64_t lane = thread; "
            "lane < std::min<int64_t>(8, N - j * 8); lane += threads) {",
            "for (int64_t lane = thread; lane < 8; lane += threads) {",
            "numerical|illegal_access",
        ),
        "a syntax error": ("total = total + part_;", "total = total + part_", "syntax"),
        "a name that does not exist": (
            "const float x_exp = sketch::exp(x);",
            "const float x_exp = sketch::exponential(x);",
            "api_misuse",
        ),
    },
    "triton_cuda": TRITON_CUDA,
    "triton_ascend": TRITON,
    "tilelang_cuda": {
        "a dropped mask": (
            "if number < count:",
            "if number < 8:",
            "numerical|illegal_access",
        ),
        "a syntax error": ("total = total + part", "total = total + (part", "syntax"),
        "a name that does not exist": ("x_exp = T.exp(x)", "x_exp = T.expo(x)", "api_misuse"),
    },
}
#: The two Triton targets share what they check; the slower one gets fewer.
FEW = ("a dropped mask", "a syntax error", "a name that does not exist")
CASES = [
    (target, name)
    for target, found in BREAKS.items()
    for name in found
    if target != "triton_ascend" or name in FEW
]


@pytest.fixture
def sketch(tmp_path: Path) -> Path:
    path = tmp_path / "row_scale.sketch"
    path.write_text(SKETCH)
    return path


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration but what a test says, and a key for the server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    for name in ("OPENAI_BASE_URL", "SKETCHC_LLM_MODEL", "SKETCHC_LLM_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-tests")


def built_in(sketch: Path, target: str) -> str:
    _, tree = load_sketch(str(sketch))
    return load_target(target).emit(build_plan(tree, target).plan).source


def code(text: str, target: str) -> str:
    """The text of a kernel without the comment that holds its sketch."""
    return read_origin(text, load_target(target).language)[0]


def fenced(target: str, text: str) -> Action:
    return reply(f"```{FENCE[target]}\n{text}```\n")


def edit(text: str, line: str, replacement: str) -> Action:
    """The one line of `text` that holds `line`, replaced in the edit form."""
    (whole,) = [found for found in text.splitlines() if found.strip() == line]
    new = whole.replace(line, replacement)
    return reply(f"```edit\n<<<<<<< SEARCH\n{whole}\n=======\n{new}\n>>>>>>> REPLACE\n```\n")


def lower(sketch: Path, target: str, server: LlmServer | None, *more: str) -> int:
    where = []
    if server is not None:
        where = ["--llm", "openai", "--base-url", server.base_url, "--model", "m"]
    arguments = ["lower", str(sketch), "--target", target, "--coder", "llm", *where, *more]
    return run(arguments)


def prompt(server: LlmServer, number: int) -> str:
    return str(server.requests[number].body["messages"][-1]["content"])


# ---------------------------------------------------------------- right and wrong code


@pytest.mark.sweep
@pytest.mark.parametrize(("target", "name"), CASES)
def test_broken_code_is_accepted_only_once_it_is_mended(
    target: str, name: str, sketch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require(target)
    line, broken, failure = BREAKS[target][name]
    right = built_in(sketch, target)
    assert right.count(line) == 1
    wrong = right.replace(line, broken)
    script = [fenced(target, wrong), edit(wrong, broken, line)]
    with LlmServer(script) as server:
        status = lower(sketch, target, server, "-o", "out", "--seed", "7")
    captured = capsys.readouterr()
    assert status == 0, captured.err
    assert code(Path("out").read_text(), target) == right
    assert "accepted" in captured.err
    assert "2 attempts, 2 calls, 22 tokens in, 14 out" in captured.err
    told = prompt(server, 1)
    assert re.search(rf"^({failure}): ", told, re.MULTILINE), told
    assert f"| {next(x for x in wrong.splitlines() if broken in x)}" in told


@pytest.mark.sweep
@pytest.mark.parametrize("target", FENCE)
def test_right_code_is_accepted_at_once(
    target: str, sketch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require(target)
    right = built_in(sketch, target)
    with LlmServer([fenced(target, right)]) as server:
        assert lower(sketch, target, server) == 0
    captured = capsys.readouterr()
    assert code(captured.out, target) == right
    assert "1 attempt, 1 call, " in captured.err


def test_code_that_lets_torch_work_is_refused(
    sketch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("triton_cuda")
    right = built_in(sketch, "triton_cuda")
    cheating = re.sub(
        r"\n    X_dense = .*", "\n    Y.copy_(torch.exp(X).sum(-1) * scale)\n    return Y\n", right,
        flags=re.DOTALL,
    )  # fmt: skip
    assert "torch.exp" in cheating
    with LlmServer([fenced("triton_cuda", cheating)]) as server:
        assert lower(sketch, "triton_cuda", server, "--max-attempts", "1", "-o", "out") == 1
    assert not Path("out").exists()
    assert "policy" in capsys.readouterr().err


def test_exhausted_attempts_write_nothing(sketch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    line, broken, _ = BREAKS["cpp"]["a wrong identity"]
    right = built_in(sketch, "cpp")
    wrong = right.replace(line, broken)
    worse = "float total = 3.0f;"
    script = [fenced("cpp", wrong), edit(wrong, broken, worse)]
    with LlmServer(script) as server:
        status = lower(sketch, "cpp", server, "--max-attempts", "2", "-o", "out", "--module", "m")
    captured = capsys.readouterr()
    assert status == 1
    assert captured.out == ""
    assert not Path("out").exists()
    assert not Path("m").exists()
    assert "not accepted; 2 attempts, 2 calls" in captured.err
    assert "numerical" in captured.err


def test_the_default_is_four_attempts(sketch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    texts = [built_in(sketch, "cpp")]
    for number in range(5):
        texts.append(texts[0].replace("float total = 0.0f;", f"float total = {number + 1}.0f;"))
    script = [fenced("cpp", texts[1])]
    for old, new in zip(range(1, 5), range(2, 6), strict=True):
        script.append(edit(texts[old], f"float total = {old}.0f;", f"float total = {new}.0f;"))
    with LlmServer(script) as server:
        assert lower(sketch, "cpp", server) == 1
        assert len(server.requests) == 4
    assert "attempt 1: numerical" in prompt(server, 3)
    assert "attempt 2: numerical" in prompt(server, 3)
    assert "attempt 3: numerical" not in prompt(server, 3)
    capsys.readouterr()


def test_no_usable_reply_is_said(sketch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    with LlmServer([reply("no")] * 3) as server:
        assert lower(sketch, "cpp", server, "-o", "out") == 1
    assert "no usable reply in 3 tries" in capsys.readouterr().err
    assert not Path("out").exists()


# ---------------------------------------------------------------- ledger, replay, module


def test_a_ledger_replays_without_a_server(
    sketch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    line, broken, _ = BREAKS["cpp"]["off by one"]
    right = built_in(sketch, "cpp")
    wrong = right.replace(line, broken)
    script = [fenced("cpp", wrong), edit(wrong, broken, line)]
    with LlmServer(script) as server:
        assert lower(sketch, "cpp", server, "--ledger", "calls.jsonl", "-o", "one") == 0
        # The same again: what is paid for is used.
        assert lower(sketch, "cpp", server, "--ledger", "calls.jsonl", "-o", "two") == 0
        assert len(server.requests) == 2
    assert lower(sketch, "cpp", None, "--llm", "replay:calls.jsonl", "-o", "three") == 0
    assert Path("one").read_text() == Path("two").read_text() == Path("three").read_text()
    assert code(Path("one").read_text(), "cpp") == right
    assert "a-key-for-tests" not in Path("calls.jsonl").read_text()
    capsys.readouterr()


def test_the_module_of_a_models_cpp_is_a_drop_in(
    sketch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    right = built_in(sketch, "cpp")
    mine = right.replace("// mul(total, scale, total)", "// by a model")
    assert mine != right
    with LlmServer([fenced("cpp", mine)]) as server:
        assert lower(sketch, "cpp", server, "-o", "out.cpp", "--module", "made") == 0
    assert code((Path("made") / "row_scale.cpp").read_text(), "cpp") == mine
    use = (
        "import torch, row_scale_module as m\nx = torch.randn(5, 19)\n"
        "torch.testing.assert_close(m.row_scale(x, scale=3.0), 3 * x.exp().sum(-1))\n"
        "print('equal')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", use], cwd="made", capture_output=True, text=True, check=False
    )
    assert ran.stdout == "equal\n", ran.stderr
    capsys.readouterr()


# ---------------------------------------------------------------- misuse


def test_a_refused_key_stops_it(sketch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    with LlmServer([unauthorized()]) as server:
        assert lower(sketch, "cpp", server, "-o", "out") == 3
    assert "authentication" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--coder", "llm", "--emit", "plan"], "--emit plan"),
        (["--ledger", "x"], "--ledger goes with --coder llm"),
        (["--no-start"], "--no-start goes with --coder llm"),
        (["--coder", "llm"], "--llm"),
        (["--coder", "llm", "--llm", "replay:nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_misuse_is_one_line(
    arguments: Sequence[str], words: str, sketch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    assert run(["lower", str(sketch), "--target", "cpp", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_target_that_cannot_run_says_what_to_install(
    sketch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = ToolchainStatus("cpp", False, False, "", {}, ("g++",), "apt-get install g++")
    monkeypatch.setattr(CppToolchain, "status", lambda self: lacking)
    assert run(["lower", str(sketch), "--target", "cpp", "--coder", "llm"]) == 2
    text = capsys.readouterr().err
    assert "missing: g++" in text
    assert "apt-get install g++" in text
