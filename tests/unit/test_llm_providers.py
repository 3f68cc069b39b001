"""Providers from settings: the key leaves the environment, and what is missing is named."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from llm_server import LlmServer, reply

from sketchc.agents.llm.client import Caps
from sketchc.agents.llm.messages import LEVELS, Message, Request
from sketchc.agents.llm.providers import PROVIDERS, make_provider
from sketchc.agents.llm.settings import (
    NOTHING_CONFIGURED,
    LlmSettings,
    ModelSettings,
    TargetSettings,
    is_local,
    require_prices,
)
from sketchc.base.diagnostics import UsageError

NAME, KEY = "SKETCHC_TEST_PROVIDER_KEY", "sk-test-aaaabbbbccccdddd"


def openai(base_url: str, **models: str) -> LlmSettings:
    named = {level: ModelSettings(name) for level, name in models.items()}
    return LlmSettings("openai", base_url=base_url, api_key_env=NAME, models=named)


def refusal(settings: LlmSettings) -> str:
    with pytest.raises(UsageError) as caught:
        make_provider(settings)
    return str(caught.value)


def test_the_key_goes_to_the_server_and_leaves_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(NAME, KEY)
    with LlmServer([reply("a"), reply("b")]) as server:
        provider = make_provider(openai(server.base_url, complex="m"))
        assert NAME not in os.environ
        request = Request("check", "complex", (Message("user", "Hello."),))
        assert provider.send(request, "1", lambda _: None).text == "a"
        # A second provider of the same process has it, too.
        again = make_provider(openai(server.base_url, complex="m"))
        assert again.send(request, "2", lambda _: None).text == "b"
        assert {got.headers["authorization"] for got in server.requests} == {f"Bearer {KEY}"}
    assert KEY not in repr(vars(provider)["_settings"])


def test_levels_and_target_choose_the_model() -> None:
    with LlmServer([reply("a")] * 3) as server:
        settings = openai(server.base_url, complex="large", fast="small")
        target = TargetSettings(models={"complex": ModelSettings("special")})
        provider = make_provider(settings, target)
        for level in LEVELS:
            provider.send(Request("check", level, (Message("user", "."),)), level, lambda _: None)
        assert [got.body["model"] for got in server.requests] == ["special", "special", "small"]


def test_nothing_configured_says_all_that_is_needed() -> None:
    assert refusal(LlmSettings()) == NOTHING_CONFIGURED
    assert "no model is named" in refusal(LlmSettings("openai"))
    unpriced = LlmSettings("openai", models={"fast": ModelSettings("m")}, caps=Caps(cost=1.0))
    assert '[llm.models.complex]\n    name = "m"\n    price_input' in refusal(unpriced)
    assert "unknown provider 'x'; known: openai, replay, mailbox" in refusal(LlmSettings("x"))


@pytest.mark.parametrize("base_url", ["", "https://api.example.org/v1"])
def test_a_key_that_is_not_set_is_asked_for(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = f"{NAME}_UNSET"
    monkeypatch.setenv(other, "  ")
    settings = LlmSettings(
        "openai", base_url=base_url, api_key_env=other, models={"fast": ModelSettings("m")}
    )
    message = refusal(settings)
    assert f"export {other}=..." in message
    assert (base_url or "OpenAI's endpoint") in message


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.1/v1", True),
        ("http://127.1.2.3:1/", True),
        ("http://[::1]:8000/v1", True),
        ("http://models.localhost/v1", True),
        ("", False),
        ("https://localhost.example.org/v1", False),
        ("https://example.org/localhost", False),
        ("http://192.168.1.5:8000/v1", False),
        ("http://[::1", False),
    ],
)
def test_which_servers_need_no_key(address: str, local: bool) -> None:
    assert is_local(address) is local


def test_files_are_where_the_settings_say(tmp_path: Path) -> None:
    message = refusal(LlmSettings("replay", str(tmp_path / "none.jsonl")))
    assert f"there is no recording {tmp_path}/none.jsonl" in message
    provider = make_provider(LlmSettings("mailbox", str(tmp_path / "letters")))
    assert provider.name == "mailbox"
    assert (tmp_path / "letters").is_dir()
    assert set(PROVIDERS) == {"openai", "replay", "mailbox"}


def test_the_key_leaves_the_environment_with_every_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, KEY)
    make_provider(LlmSettings("mailbox", str(tmp_path), api_key_env=NAME))
    assert NAME not in os.environ


def test_a_cap_on_cost_needs_the_prices_of_every_model() -> None:
    priced = ModelSettings("priced", price_input=0.0, price_output=2.0)
    half = ModelSettings("half", price_input=1.0)
    capped = LlmSettings(models={"complex": priced, "fast": half}, caps=Caps(cost=0.5))
    for settings in (
        LlmSettings(models={"complex": half}),  # no cap
        LlmSettings(models={"complex": half}, caps=Caps(tokens=5)),
        LlmSettings(models={"complex": priced}, caps=Caps(cost=0.0)),
    ):
        require_prices(settings.for_target(TargetSettings()))
    with pytest.raises(UsageError) as caught:
        require_prices(capped.for_target(TargetSettings()))
    said = str(caught.value)
    assert "the cap on cost (0.5; --max-cost, or cost in [llm.caps])" in said
    assert "half (level fast) has no price_output." in said
    assert "priced" not in said.replace("unpriced", "")
    # A target's own model has no prices but its own.
    other = TargetSettings(models={"complex": ModelSettings("other")})
    with pytest.raises(UsageError) as caught:
        require_prices(capped.for_target(other))
    said = str(caught.value)
    assert "other (levels complex, standard) has no price_input and price_output; half" in said
    # What it says to write is accepted as it is printed, numbers filled in.
    example = said[said.index("    [llm.models") : said.index("\n\nor cap")].replace("...", "1.0")
    assert tomllib.loads(example)["llm"]["models"]["complex"] == {
        "name": "other",
        "price_input": 1.0,
        "price_output": 1.0,
    }
