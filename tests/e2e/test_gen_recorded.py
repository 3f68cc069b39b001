"""The recorded runs in examples/ledgers replay to the end, and other workflows on their replies.

What varies in a run matches exactly; constant parts of prompts (the language with its operations,
facts of a chip, documents) may have changed since. To record a run anew, with a real model:

    sketchc gen examples/tasks/softmax.py --target cpp --llm openai -o out
    sketchc gen examples/tasks/attention.py --target triton_ascend --coder llm --llm openai -o out

(or `--llm mailbox:DIR`), and copy out/run/ledger.jsonl over the file in examples/ledgers.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest
from llm_server import LlmServer, recorded_answers
from toolchains import require

from sketchc.agents.llm.ledger import Header, read_ledger
from sketchc.agents.prompts import hardware, language
from sketchc.cli.main import run
from sketchc.ops.table import OPS

ROOT = Path(__file__).resolve().parents[2]
LEDGERS = sorted((ROOT / "examples" / "ledgers").glob("*.jsonl"))
SOFTMAX = ROOT / "examples" / "ledgers" / "softmax.jsonl"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    for name in ("SKETCHC_LLM", "SKETCHC_LLM_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@attrs.frozen
class Recorded:
    """One recording: its header, and how many replies it holds."""

    header: Header
    replies: int


def _recorded(path: Path) -> Recorded:
    contents = read_ledger(path)
    assert contents.header is not None
    return Recorded(contents.header, sum(r.reply is not None for r in contents.records))


def _command(header: Header) -> list[str]:
    task = ROOT / "examples" / "tasks" / header.task
    return ["gen", str(task), "--target", header.target, "--coder", header.coder, "--no-bench"]


def _trace(folder: str) -> dict[str, object]:
    trace: dict[str, object] = json.loads(Path(folder, "trace.json").read_text())
    return trace


def test_both_kinds_of_recordings_ship() -> None:
    headers = [_recorded(path).header for path in LEDGERS]
    assert ("softmax.py", "cpp") in [(header.task, header.target) for header in headers]
    assert ("triton_ascend", "llm") in [(header.target, header.coder) for header in headers]


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.stem)
def test_a_recording_replays_to_a_verified_kernel(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = _recorded(path)
    require(recorded.header.target)
    where = ["--store", "store.sqlite"]
    assert run([*_command(recorded.header), "--llm", f"replay:{path}", "-o", "out", *where]) == 0
    trace = _trace("out")
    assert trace["outcome"] == "passed"
    _require_stored(capsys, trace)
    assert trace["totals"]["calls"] == recorded.replies  # type: ignore[index]
    verdict = json.loads(Path("out", "verdict.json").read_text())["verdict"]
    assert verdict["passed"]
    # Every call of the recording was asked for again; parts that are constant may be newer.
    again = read_ledger(Path("out", "run", "ledger.jsonl")).records
    assert [r.request.key for r in again] == [
        r.request.key for r in read_ledger(path).records if r.reply is not None
    ]
    assert all(r.request.parts for r in again)


def test_a_recording_survives_another_operation_and_another_chip_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    changed = {**OPS, "tanhh": attrs.evolve(OPS["tanh"], name="tanhh", doc="a new operation")}
    monkeypatch.setattr(language, "OPS", changed)
    render = hardware.render
    monkeypatch.setattr(hardware, "render", lambda *a, **k: render(*a, **k) + "It is fast.\n")
    header = _recorded(SOFTMAX).header
    assert run([*_command(header), "--llm", f"replay:{SOFTMAX}", "-o", "out", "--no-store"]) == 0
    said = capsys.readouterr().err
    assert said.count("of the prompts has changed since this was recorded") == 2
    assert "'language' of the prompts has changed" in said
    assert f"'hardware of cpp, {header.hardware}' of the prompts has changed" in said
    assert "'the Designer'" not in said
    asked = read_ledger(Path("out", "run", "ledger.jsonl")).records[0].request
    assert "a new operation" in asked.messages[0].content


def _require_stored(capsys: pytest.CaptureFixture[str], trace: dict[str, object]) -> None:
    """The store has the run with its ledger and trace, and every verdict of its Verifier."""

    def shown(*arguments: str) -> list[dict[str, object]]:
        capsys.readouterr()
        assert run(["store", *arguments, "--store", "store.sqlite", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return found if isinstance(found, list) else [found]

    (listed,) = shown("list", "runs")
    (stored,) = shown("show", str(listed["id"])[:8])
    lines = Path("out", "run", "ledger.jsonl").read_text().splitlines()
    assert stored["ledger"] == [json.loads(line) for line in lines]
    assert stored["trace"] == trace
    assert stored["outcome"] == "passed"
    verdicts = shown("list", "verdicts")
    steps: list[dict[str, object]] = trace["steps"]  # type: ignore[assignment]
    judged = [step["outcome"] for step in steps if step["agent"] == "verifier"]
    assert [("passed" if v["passed"] else "failed") for v in reversed(verdicts)] == judged
    (last,) = shown("show", str(verdicts[0]["id"]))
    assert last["run"] == stored["id"]
    assert last["evidence"] == json.loads(Path("out", "verdict.json").read_text())["verdict"]


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.stem)
def test_recordings_name_no_places(path: Path) -> None:
    text = path.read_text()
    for word in ("/tmp", "/work", "/home", "/root", "http://", "https://", "site-packages"):
        assert word not in text


def test_another_task_does_not_fit_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    relu = str(ROOT / "examples" / "tasks" / "relu.py")
    assert run(["gen", relu, "-t", "cpp", "--llm", f"replay:{SOFTMAX}", "-o", "out"]) == 2
    assert "softmax.py" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_changed_prompt_is_a_miss_that_shows_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "softmax.py"
    text = (ROOT / "examples" / "tasks" / "softmax.py").read_text()
    task.write_text(text.replace("Softmax of every row", "The softmax of each row"))
    assert run(["gen", str(task), "-t", "cpp", "--llm", f"replay:{SOFTMAX}", "-o", "out"]) == 3
    said = capsys.readouterr()
    assert "The softmax of each row" in said.out + said.err
    assert "replay_miss" in said.out


def test_kernelgen_only_stops_before_verification() -> None:
    require("cpp")
    header = _recorded(SOFTMAX).header
    with LlmServer(recorded_answers(SOFTMAX)) as server:
        arguments = [*_command(header), "--seed", str(header.seed), "--llm", "openai"]
        arguments += ["--base-url", server.base_url, "--model", "recorded", "-o", "out"]
        assert run([*arguments, "--workflow", "kernelgen-only"]) == 0
    trace = _trace("out")
    assert trace["outcome"] == "generated"
    assert [step["agent"] for step in trace["steps"]] == ["designer", "coder"]  # type: ignore[attr-defined]
    assert "NOT VERIFIED" in Path("out", "SUMMARY.md").read_text()


@pytest.mark.sweep
def test_a_cap_stops_cleanly_and_the_run_goes_on_without_it() -> None:
    path = next(p for p in LEDGERS if _recorded(p).header.target == "triton_ascend")
    recorded = _recorded(path)
    require("triton_ascend")
    with LlmServer(recorded_answers(path)) as server:
        arguments = [*_command(recorded.header), "--seed", str(recorded.header.seed)]
        arguments += ["--llm", "openai", "--base-url", server.base_url, "--model", "recorded"]
        arguments += ["-o", "out"]
        assert run([*arguments, "--max-calls", "1"]) == 3
        assert "calls" in str(_trace("out")["reason"])
        assert len(server.requests) == 1
        assert run([*arguments, "--resume"]) == 0
        assert len(server.requests) == recorded.replies
    assert _trace("out")["outcome"] == "passed"


def test_an_interrupt_while_a_reply_is_awaited_ends_at_once(tmp_path: Path) -> None:
    require("cpp")
    header = _recorded(SOFTMAX).header
    with LlmServer(recorded_answers(SOFTMAX, delay=60.0)) as server:
        command = [sys.executable, "-m", "sketchc.cli.main", *_command(header), "-o", "out"]
        command += ["--llm", "openai", "--base-url", server.base_url, "--model", "recorded"]
        process = subprocess.Popen(
            [*command, "--seed", str(header.seed)],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while not server.requests and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert _trace("out")["outcome"] == "stopped"


@pytest.mark.sweep
def test_of_both_designers_one_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a run of its own. Nothing is timed here: the built-in's is kept, and it says so."""
    require("cpp")
    task = str(ROOT / "examples" / "tasks" / "softmax.py")
    command = ["gen", task, "--target", "cpp", "--designer", "both", "--no-bench", "-q"]
    assert run([*command, "-o", "out"]) == 2
    assert "needs a model" in capsys.readouterr().err
    command += ["--llm", f"replay:{SOFTMAX}"]
    assert run(command) == 2
    assert "-o DIR" in capsys.readouterr().err
    assert run([*command, "-o", "out"]) == 0
    assert "kept the built-in Designer's: both passed, and nothing" in capsys.readouterr().out
    choice = json.loads(Path("out", "choice.json").read_text())
    assert choice["kept"] == "builtin"
    for designer, workflow in (("builtin", "builtin"), ("llm", "default")):
        trace = json.loads(Path("out", designer, "trace.json").read_text())
        assert (trace["outcome"], trace["workflow"]) == ("passed", workflow)
    kept = {
        path.name: path.read_bytes() for path in Path("out", "builtin").iterdir() if path.is_file()
    }
    assert kept == {name: Path("out", name).read_bytes() for name in choice["files"]}
    assert run([*command, "-o", "out", "--resume"]) == 0
    Path("out", "notes.txt").write_text("mine")
    assert run([*command, "-o", "out"]) == 2
    assert "holds other files (notes.txt)" in capsys.readouterr().err
