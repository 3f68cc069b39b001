"""A run that is killed at a random moment goes on where it was, and pays for no reply twice.

The model is a real HTTP server that answers as a recorded run was answered (a real one: ledgers/
holds it as it was written); the client is the real one. A first run, which nobody kills, gets the
recorded replies in their order, whatever the prompts are worth today; the others must ask exactly
what it asked. Each case starts a run, kills it without warning, resumes it, kills that, and so on;
the last one may end.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import attrs
import pytest
from llm_server import LedgerReplay, LlmServer, recorded_answers
from shared_work import shared
from toolchains import require

from sketchc.agents.llm.ledger import Ledger, read_ledger
from sketchc.runtime.tasks.task import TorchTask

#: Kills in all: so many cases of so many each.
CASES, KILLS = 5, 4
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


@attrs.frozen
class Whole:
    """A run that nobody killed: how long another takes, the texts that it left, and its ledger."""

    seconds: float
    texts: dict[str, str]
    ledger: Path


@pytest.fixture(scope="module")
def imported() -> Iterator[None]:
    """What the commands import to run their task, of which there is one here that nobody kills."""
    with TorchTask(HERE / "tasks" / "gated_norm.py") as task:
        task.prepare_beside("1")
        yield


@pytest.fixture(scope="module")
def whole_run(imported: None, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    require("cpp")
    return shared("whole-run", lambda: _whole_run(tmp_path_factory.mktemp("whole")))


def _whole_run(folder: Path) -> Whole:
    log, out = folder / "log.txt", folder / "out"
    with LlmServer(recorded_answers(LEDGER, DELAY)) as server:
        assert _start(_command(out, server), log).wait(300) == 0, log.read_text()
    assert len(server.requests) >= 2
    ledger = out / "run" / "ledger.jsonl"
    # What the first one had to make, the others find: how long they take, the second one tells.
    with LlmServer(LedgerReplay(ledger, DELAY)) as server:
        started = time.monotonic()
        assert _start(_command(folder / "again", server), log).wait(300) == 0, log.read_text()
        seconds = time.monotonic() - started
    assert _results(folder / "again") == _results(out)
    return Whole(seconds, _results(out), ledger)


@pytest.mark.sweep(12)
@pytest.mark.parametrize("number", range(CASES))
def test_a_run_that_is_killed_again_and_again_goes_on(
    number: int, whole_run: Whole, tmp_path: Path
) -> None:
    chance = random.Random(number)
    kills = 0
    for attempt in count():  # a run may be over before it was killed so often
        folder = tmp_path / str(attempt)
        folder.mkdir()
        # What is left of a run takes less than all of it.
        spans = [whole_run.seconds, *[0.7 * whole_run.seconds] * (KILLS - kills - 1)]
        moments = [chance.uniform(0.0, span) for span in spans]
        kills += _killed_run(folder, moments, whole_run)
        if kills == KILLS:
            break


def _killed_run(folder: Path, moments: list[float], whole: Whole) -> int:
    """A run that is killed so many seconds after each start, then left alone; how many kills there
    were before it was over."""
    out, log = folder / "out", folder / "log.txt"
    kills: list[tuple[float, Counter[str], int]] = []
    with LlmServer(LedgerReplay(whole.ledger, DELAY)) as server:
        for moment in moments:
            process = _start(_next(out, server), log)
            try:
                assert process.wait(moment) == 0, log.read_text()
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait(60)
            kills.append((moment, _paid(out), len(server.requests)))
        else:
            process = _start(_next(out, server), log)
            assert process.wait(300) == 0, log.read_text()
        asked = [request.key for request in server.requests]
    assert _results(out) == whole.texts
    recorded = _replies(whole.ledger)
    assert _paid(out) == recorded
    for moment, paid, before in kills:
        again = Counter(asked[before:])
        for key, times in paid.items():
            assert again[key] <= recorded[key] - times, f"paid twice, killed after {moment:.2f} s"
    return len(kills)


def _next(out: Path, server: LlmServer) -> list[str]:
    """The command that starts the run, or goes on with it."""
    resumes = (out / "run" / "run.json").exists()
    return [*_command(out, server), *(["--resume"] if resumes else [])]


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
