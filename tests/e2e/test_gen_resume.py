"""A run that is killed at a random moment goes on where it was, and pays for no reply twice.

The model is a real HTTP server that answers as a recorded run was answered (a real one: ledgers/
holds it as it was written; record it again as tests/e2e/test_gen_recorded.py says when it is
stale); the client is the real one. Each case starts a run, kills it without warning, and resumes
it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from llm_server import LedgerReplay, LlmServer
from toolchains import require

from sketchc.agents.llm.ledger import Ledger, read_ledger

KILLS = 20
#: Seconds that the server takes for each reply, so that some runs are killed while they wait.
DELAY = 0.3


HERE = Path(__file__).resolve().parent
LEDGER = HERE / "ledgers" / "gated_norm.jsonl"


def _command(folder: Path, server: LlmServer) -> list[str]:
    header = read_ledger(LEDGER).header
    assert header is not None
    command = [sys.executable, "-m", "sketchc.cli.main", "gen", str(HERE / "tasks" / header.task)]
    command += ["-t", header.target, "--coder", header.coder, "--seed", str(header.seed)]
    command += ["--llm", "openai", "--base-url", server.base_url, "--model", "recorded"]
    return [*command, "--no-bench", "-o", str(folder)]


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if "SKETCHC_LLM" not in name}
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment)


def _results(folder: Path) -> dict[str, str]:
    """The texts that a run leaves behind: all but times and places."""
    kept = [path for path in folder.iterdir() if path.suffix in (".sketch", ".plan", ".cpp")]
    assert folder / "gated_norm.sketch" in kept
    return {path.name: path.read_text() for path in kept}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, dict[str, str]]:
    """How long a run takes that nobody kills, in seconds, and what it leaves behind."""
    require("cpp")
    folder = tmp_path_factory.mktemp("whole")
    with LlmServer(LedgerReplay(LEDGER, DELAY)) as server:
        started = time.monotonic()
        log = folder / "log.txt"
        process = _start(_command(folder / "out", server), log)
        assert process.wait(300) == 0, log.read_text()
        return time.monotonic() - started, _results(folder / "out")


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_run_goes_on(
    number: int, whole_run: tuple[float, dict[str, str]], tmp_path: Path
) -> None:
    seconds, expected = whole_run
    moment = random.Random(number).uniform(0.0, seconds)
    folder, log = tmp_path / "out", tmp_path / "log.txt"
    with LlmServer(LedgerReplay(LEDGER, DELAY)) as server:
        command = _command(folder, server)
        process = _start(command, log)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        paid = _paid(folder)
        asked_before = len(server.requests)
        if (folder / "run" / "run.json").exists():
            command = [*command, "--resume"]
        process = _start(command, log)
        assert process.wait(300) == 0, log.read_text()
        again = Counter(request.key for request in server.requests[asked_before:])
    assert _results(folder) == expected
    recorded = _replies(LEDGER)
    assert _paid(folder) == recorded
    for key, count in paid.items():
        assert again[key] <= recorded[key] - count, f"paid twice, killed after {moment:.2f} s"


def _paid(folder: Path) -> Counter[str]:
    """How often each prompt has an answer in the run's ledger, which may end in half a line."""
    path = folder / "run" / "ledger.jsonl"
    if not path.exists():
        return Counter()
    with Ledger(path):
        return _replies(path)


def _replies(path: Path) -> Counter[str]:
    from llm_server import prompt_key

    records = [record for record in read_ledger(path).records if record.reply is not None]
    return Counter(
        prompt_key([{"role": m.role, "content": m.content} for m in record.request.messages])
        for record in records
    )
