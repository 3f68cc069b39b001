"""From settings to a provider: the registry, and what to set where something is missing."""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sketchc.agents.llm.settings import LlmSettings, TargetSettings, require_prices
from sketchc.base.diagnostics import UsageError

if TYPE_CHECKING:
    from sketchc.agents.llm.client import Provider

#: Told the file in which a reply is expected.
Waiting = Callable[[Path], None]

NOTHING_CONFIGURED = """\
no language model is configured. Either say --llm openai --model NAME, or write sketchc.toml:

    [llm]
    provider = "openai"                     # or "replay:FILE", or "mailbox:DIR"
    base_url = "http://localhost:8000/v1"   # leave out for OpenAI's own
    api_key_env = "OPENAI_API_KEY"          # the variable's name, never the key
    [llm.models.complex]
    name = "NAME"

or set the environment:

    export SKETCHC_LLM=openai SKETCHC_LLM_MODEL=NAME OPENAI_API_KEY=...
    export SKETCHC_LLM_BASE_URL=http://localhost:8000/v1

Then `sketchc llm check` tries it. Without any model: --llm replay:FILE replays a recording, such as
those in examples/ledgers, and --llm mailbox:DIR asks you by files."""


def make_provider(
    settings: LlmSettings,
    target: TargetSettings | None = None,
    waiting: Waiting | None = None,
) -> Provider:
    """The provider that the settings name, with the target's models.

    `waiting` is told where a mailbox expects its reply. Takes the key out of the environment.
    Raises `UsageError` that says what to set where something is missing.
    """
    from sketchc.agents.llm.secret import take_key

    # Also where it is not needed: what runs under test can read this process's environment.
    take_key(settings.api_key_env)
    if not settings.provider:
        raise UsageError(NOTHING_CONFIGURED)
    if settings.provider not in PROVIDERS:
        msg = f"unknown provider {settings.provider!r}; known: {', '.join(PROVIDERS)}"
        raise UsageError(msg)
    return PROVIDERS[settings.provider](settings.for_target(target or TargetSettings()), waiting)


def _openai(settings: LlmSettings, waiting: Waiting | None) -> Provider:
    from sketchc.agents.llm.openai_provider import OpenAIProvider
    from sketchc.agents.llm.secret import take_key

    if not settings.models:
        msg = (
            "no model is named: say --model NAME, set SKETCHC_LLM_MODEL=NAME, or write into "
            'sketchc.toml:\n\n    [llm.models.complex]\n    name = "NAME"\n\n'
            "Levels without a model of their own use the nearest that has one."
        )
        raise UsageError(msg)
    require_prices(settings)
    key = take_key(settings.api_key_env)
    if not key and not is_local(settings.base_url):
        where = settings.base_url or "OpenAI's endpoint"
        msg = (
            f"{where} wants a key, and the environment variable {settings.api_key_env} is not set: "
            f"export {settings.api_key_env}=..., or name the variable that holds the key with "
            "api_key_env in [llm] of sketchc.toml or with SKETCHC_LLM_API_KEY_ENV"
        )
        raise UsageError(msg)
    return OpenAIProvider(settings, key)


def _replay(settings: LlmSettings, waiting: Waiting | None) -> Provider:
    from sketchc.agents.llm.replay import ReplayProvider

    path = Path(settings.location)
    if not path.is_file():
        msg = (
            f"--llm replay: there is no recording {path}; a recording is the ledger that an "
            "earlier run left in its folder"
        )
        raise UsageError(msg)
    return ReplayProvider(path)


def _mailbox(settings: LlmSettings, waiting: Waiting | None) -> Provider:
    from sketchc.agents.llm.mailbox import MailboxProvider

    return MailboxProvider(Path(settings.location), settings.mailbox_timeout, waiting)


#: provider -> how it is made.
PROVIDERS: dict[str, Callable[[LlmSettings, Waiting | None], Provider]] = {
    "openai": _openai,
    "replay": _replay,
    "mailbox": _mailbox,
}


def is_local(base_url: str) -> bool:
    """Whether an address is on this machine: a server of one's own needs no key."""
    try:
        host = urllib.parse.urlsplit(base_url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
