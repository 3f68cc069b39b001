"""The scripted server as the tests of whole runs use it: answering from a recorded ledger."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from llm_cases import HEADER, KEY, QUESTION, ask, provider_of
from llm_server import (
    LedgerReplay,
    LlmServer,
    prompt_key,
)

from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.messages import (
    BadRequestError,
    Message,
    Reply,
    Request,
    TimeoutFailure,
    Usage,
)
from sketchc.agents.llm.openai_provider import OpenAIProvider
from sketchc.agents.llm.settings import LlmSettings, ModelSettings


def test_a_recorded_ledger_answers_by_exact_messages(tmp_path: Path) -> None:
    """The server of the kill-and-resume tests, as a process of its own."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.begin(HEADER)
    other = Request("coder", "complex", (Message("user", "Other?"),))
    for request, text, finish in [
        (QUESTION, "one", "length"),
        (other, "µ", "stop"),
        (QUESTION, "two", "stop"),
    ]:
        ledger.append(request, "openai", Reply(text, "m-rec", finish, Usage(5, 6)))
    ledger.append(QUESTION, "openai", None, "server", "HTTP 500")
    ledger.close()
    server = Path(__file__).parent.parent / "llm_server.py"
    command = [sys.executable, str(server), "--ledger", str(path), "--port", "0", "--delay", "0.01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base_url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
            settings = LlmSettings(base_url=base_url, models={"complex": ModelSettings(name="m")})
            provider = OpenAIProvider(settings, KEY)
            got = [ask(provider, request) for request in (QUESTION, other, QUESTION, QUESTION)]
            with pytest.raises(BadRequestError, match="not in the ledger"):
                ask(provider, Request("coder", "complex", (Message("user", "Unknown?"),)))
            with urllib.request.urlopen(base_url.replace("/v1", "/answered")) as page:
                answered = json.load(page)
        finally:
            process.terminate()
    assert [(one.text, one.finish, one.model) for one in got] == [
        ("one", "length", "m-rec"),
        ("µ", "stop", "m-rec"),
        ("two", "stop", "m-rec"),
        ("two", "stop", "m-rec"),
    ]
    assert got[0].usage == Usage(5, 6)
    assert sorted(answered.values()) == [1, 3]


def test_a_client_that_has_gone_was_not_answered(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.begin(HEADER)
    ledger.append(QUESTION, "openai", Reply("one", "m"))
    ledger.close()
    with LlmServer(LedgerReplay(tmp_path / "ledger.jsonl", delay=0.4)) as server:
        with pytest.raises(TimeoutFailure):
            ask(provider_of(server, timeout=0.1))
        patient = provider_of(server)
        assert ask(patient).text == "one"
    messages = [{"role": m.role, "content": m.content} for m in QUESTION.messages]
    assert server.answered == {prompt_key(messages): 1}
    assert len(server.requests) == 2
