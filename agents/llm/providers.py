"""Makes a provider from its settings, and a client of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sketchc.agents.llm.client import Client, Provider
from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.mailbox import MailboxProvider
from sketchc.agents.llm.replay import ReplayProvider
from sketchc.agents.llm.secret import take_key
from sketchc.agents.llm.settings import (
    NOTHING_CONFIGURED,
    LlmSettings,
    TargetSettings,
    is_local,
    require_prices,
)
from sketchc.base.diagnostics import UsageError, refuse


def make_provider(settings: LlmSettings, target: TargetSettings | None = None) -> Provider:
    """The provider that the settings name, with the target's models.

    Takes the key out of the environment. Raises `UsageError` that says what to set where something
    is missing.
    """
    # Also where it is not needed: what runs under test can read this process's environment.
    take_key(settings.api_key_env)
    if not settings.provider:
        raise UsageError(NOTHING_CONFIGURED)
    if settings.provider not in PROVIDERS:
        refuse(f"unknown provider {settings.provider!r}; known: {', '.join(PROVIDERS)}")
    return PROVIDERS[settings.provider](settings.for_target(target or TargetSettings()))


def make_client(
    provider: Provider,
    ledger: Ledger,
    settings: LlmSettings,
    noted: Callable[[str], None],
    waiting: Callable[[Path], None],
    **more: Any,
) -> Client:
    """A client of the provider, which goes on where the ledger ends; `noted` hears of changes since
    a recording, `waiting` of a reply that somebody is to write; `more` is as for `Client`."""
    if isinstance(provider, ReplayProvider | MailboxProvider):
        # What a run that goes on has been given already, it does not get again.
        provider.advance(ledger.records)
    if isinstance(provider, ReplayProvider):
        provider.noted = noted
    if isinstance(provider, MailboxProvider):
        provider.waiting = waiting
    return Client(provider, ledger, settings.caps, settings.retry, **more)


def _openai(settings: LlmSettings) -> Provider:
    from sketchc.agents.llm.openai_provider import OpenAIProvider

    if not settings.models:
        refuse(
            "no model is named: say --model NAME, set SKETCHC_LLM_MODEL=NAME, or write into "
            'sketchc.toml:\n\n    [llm.models.complex]\n    name = "NAME"\n\n'
            "Levels without a model of their own use the nearest that has one."
        )
    require_prices(settings)
    key = take_key(settings.api_key_env)
    if not key and not is_local(settings.base_url):
        where = settings.base_url or "OpenAI's endpoint"
        refuse(
            f"{where} wants a key, and the environment variable {settings.api_key_env} is not set: "
            f"export {settings.api_key_env}=..., or name the variable that holds the key with "
            "api_key_env in [llm] of sketchc.toml or with SKETCHC_LLM_API_KEY_ENV"
        )
    return OpenAIProvider(settings, key)


def _replay(settings: LlmSettings) -> Provider:
    path = Path(settings.location)
    if not path.is_file():
        refuse(
            f"--llm replay: there is no recording {path}; a recording is the ledger that an "
            "earlier run left in its folder"
        )
    return ReplayProvider(path)


def _mailbox(settings: LlmSettings) -> Provider:
    return MailboxProvider(Path(settings.location), settings.mailbox_timeout)


#: provider -> how it is made.
PROVIDERS: dict[str, Callable[[LlmSettings], Provider]] = {
    "openai": _openai,
    "replay": _replay,
    "mailbox": _mailbox,
}
