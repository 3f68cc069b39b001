"""Settings of models and of the provider that asks them."""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

import attrs

from sketchc.agents.llm.client import Caps, RetryPolicy
from sketchc.agents.llm.messages import LEVELS
from sketchc.base.diagnostics import refuse

FILE_NAME = "sketchc.toml"


@attrs.frozen
class ModelSettings:
    """One level's model. Prices are per million tokens, None where unknown."""

    name: str = ""
    max_output_tokens: int = 16_384
    context_tokens: int = 131_072
    price_input: float | None = None
    price_output: float | None = None
    temperature: float | None = None


@attrs.frozen
class TargetSettings:
    """Settings of one target; None: the general setting holds. `models` has its own levels only."""

    models: Mapping[str, ModelSettings] = attrs.field(factory=dict)
    log_folder: Path | None = None
    workflow: str | None = None
    coder: str | None = None
    runs: int = 31
    warmup_seconds: float = 0.5
    verify_timeout: float = 300.0
    devices: tuple[int, ...] = ()


@attrs.frozen
class LlmSettings:
    """Where replies come from. `provider` is "" where nothing is configured; `location` is the
    file of `replay` or the folder of `mailbox`. `models` holds the levels that are configured."""

    provider: str = ""
    location: str = ""
    base_url: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    timeout: float = 300.0
    mailbox_timeout: float | None = None
    stream: bool = True
    models: Mapping[str, ModelSettings] = attrs.field(factory=dict)
    retry: RetryPolicy = RetryPolicy()
    caps: Caps = Caps()

    def for_target(self, target: TargetSettings) -> LlmSettings:
        """These settings with the target's models, and a model for every level if for any."""
        named = {
            level: model for level, model in {**self.models, **target.models}.items() if model.name
        }
        models = {level: nearest_model(named, level) for level in LEVELS}
        found = {level: model for level, model in models.items() if model is not None}
        return attrs.evolve(self, models=found)


def nearest_model(models: Mapping[str, ModelSettings], level: str) -> ModelSettings | None:
    """The model of `level`, else of the nearest level that has one, the more capable first."""
    place = LEVELS.index(level)
    # A stable sort: of two equally near levels the more capable one stays first.
    order = sorted(LEVELS, key=lambda other: abs(LEVELS.index(other) - place))
    return next((models[other] for other in order if other in models), None)


def require_prices(llm: LlmSettings) -> None:
    """Raises `UsageError` where a cap on cost is set and a model that may be asked has no price;
    `llm` is as `for_target` leaves it."""
    if llm.caps.cost is None:
        return
    unpriced: dict[tuple[str, str], list[str]] = {}
    for level, model in llm.models.items():
        prices = {"price_input": model.price_input, "price_output": model.price_output}
        missing = " and ".join(key for key, price in prices.items() if price is None)
        if missing:
            unpriced.setdefault((model.name, missing), []).append(level)
    if not unpriced:
        return
    lacks = "; ".join(
        f"{name} (level{'s' if len(levels) > 1 else ''} {', '.join(levels)}) has no {missing}"
        for (name, missing), levels in unpriced.items()
    )
    (name, _), (level, *_) = next(iter(unpriced.items()))
    refuse(
        f"the cap on cost ({llm.caps.cost:g}; --max-cost, or cost in [llm.caps]) needs the prices "
        f"of all models: {lacks}. Set them in {FILE_NAME} where the model is named, per million "
        f'tokens, such as:\n\n    [llm.models.{level}]\n    name = "{name}"\n'
        "    price_input = ...\n    price_output = ...\n\n"
        "or cap tokens instead: --max-tokens, or tokens in [llm.caps]"
    )


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
