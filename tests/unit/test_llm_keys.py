"""The key of the language model shows nowhere, whatever a server does with it."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest
from llm_cases import HEADER, KEY, QUESTION, both_ways, provider_of
from llm_server import (
    Action,
    LlmServer,
    Raw,
    Script,
    failure,
    reply,
)

from sketchc.agents.llm.client import Client, RetryPolicy
from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.messages import (
    LlmError,
)
from sketchc.agents.llm.openai_provider import OpenAIProvider, hide_key
from sketchc.agents.llm.settings import LlmSettings
from sketchc.base.diagnostics import UsageError


def echo_script(key: str) -> Script:
    """Shows the key wherever a server can."""
    said = f"Incorrect key: {key}. You sent Bearer {key[:12]} and {key[:8]}****{key[-4:]}"
    actions: Sequence[Action] = [
        failure(401, said, {"X-Echo": key}),
        failure(400, said, {"X-Echo": key}, param=key),
        failure(500, said, {"X-Echo": key}, type=key),
        failure(404, said),
        Raw(503, said.encode(), "text/plain", {"X-Echo": key}),
        Raw(200, said.encode(), headers={"X-Echo": key}),
        Raw(200, f"data: {key}\n\n".encode(), "text/event-stream"),
        Raw(200, json.dumps({"choices": key}).encode()),
        Raw(200, json.dumps({"error": {"message": said}}).encode()),
        reply("", refusal=said),
        reply(f"here is {key}!", model=key),
    ]
    return actions


@both_ways
def test_the_key_never_shows_even_where_the_server_echoes_it(
    stream: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.jsonl"
    shown: list[str] = []
    script = echo_script(KEY)
    assert isinstance(script, Sequence)
    ledger = Ledger(path)
    ledger.begin(HEADER)
    with caplog.at_level(logging.DEBUG), LlmServer(script) as server:
        provider = provider_of(server, stream)
        client = Client(provider, ledger, retry=RetryPolicy(attempts=1))
        for _ in script:
            try:
                shown.append(repr(client.complete(QUESTION)))
            except LlmError as error:
                shown += [repr(error), "".join(traceback.format_exception(error))]
        shown.append(repr(provider._translator))
    ledger.close()
    assert len(server.requests) == len(script)
    assert all(sent.headers["authorization"] == f"Bearer {KEY}" for sent in server.requests)
    assert "here is [key removed]!" in shown[-2]
    assert len(caplog.records) > len(script)
    everything = "\n".join([*shown, path.read_text(), caplog.text])
    for piece in (KEY, KEY[:12], KEY[-8:]):
        assert piece not in everything
    assert f"****{KEY[-4:]}" not in everything


def test_hiding_a_key_leaves_other_text_alone() -> None:
    text = "the field 'required' of EMPTY is none of ours"
    for key in ("", "EMPTY", "sk-no-key-required", KEY):
        assert hide_key(text, key) == text
    assert hide_key(f"a {KEY}{KEY} b {KEY[3:18]} c", KEY).count("[key removed]") == 3


@pytest.mark.parametrize("key", ["sk-abc\ndef12345", "sk-ab cd12345678", "sk-äöü-12345678"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        OpenAIProvider(LlmSettings(base_url="http://127.0.0.1:1/v1"), key)
    assert "sk-" not in str(caught.value)
