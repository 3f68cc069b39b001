"""What the tests of language models share: a question, a key, a provider for a scripted server."""

from __future__ import annotations

import pytest
from llm_server import Action, LlmServer

from sketchc.agents.llm.ledger import Header
from sketchc.agents.llm.messages import LlmError, Message, Reply, Request
from sketchc.agents.llm.openai_provider import OpenAIProvider
from sketchc.agents.llm.settings import LlmSettings, ModelSettings

KEY = "sk-test-A1b2C3d4E5f6G7h8"
QUESTION = Request("designer", "complex", (Message("system", "Be brief."), Message("user", "Hi?")))
HEADER = Header("softmax.py", "cpp", "host", "default", "builtin", 1)
MODEL = ModelSettings(name="m")
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])


def provider_of(
    server: LlmServer,
    stream: bool = True,
    timeout: float = 10.0,
    key: str = KEY,
    model: ModelSettings = MODEL,
) -> OpenAIProvider:
    settings = LlmSettings(
        provider="openai",
        base_url=server.base_url,
        stream=stream,
        timeout=timeout,
        models={"complex": model},
    )
    return OpenAIProvider(settings, key)


def ask(provider: OpenAIProvider, request: Request = QUESTION, key: str = "k1") -> Reply:
    return provider.send(request, key, lambda characters: None)


def outcome(action: Action, stream: bool, timeout: float = 10.0) -> LlmError:
    """The error that one scripted action leads to."""
    with LlmServer([action]) as server, pytest.raises(LlmError) as caught:
        ask(provider_of(server, stream, timeout))
    assert server.surprises == []
    return caught.value
