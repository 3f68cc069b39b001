"""Settings of the agents: `sketchc.toml`, the environment, the command line, in rising order.

    [llm]
    provider = "openai"                   # openai | replay:FILE | mailbox:DIR
    base_url = "http://localhost:8000/v1" # any OpenAI-compatible endpoint
    api_key_env = "OPENAI_API_KEY"        # the name of the variable, never the key itself
    timeout = 300.0                       # seconds per call
    stream = true
    [llm.models.complex]
    name = "..."
    max_output_tokens = 16384
    context_tokens = 131072
    price_input = 0.0                     # per million tokens
    price_output = 0.0
    temperature = 0.7
    [llm.retry]  attempts, first_delay, longest_delay
    [llm.caps]   calls, tokens, cost, seconds
    [gen]        workflow, coder, max_attempts, max_repairs, docs_tokens
    [target.triton_ascend]
    models = { complex = "other-model" }
    log_folder = "runs/ascend"
    workflow = "coder-only"
    runs = 31                             # samples of a measurement
    warmup_seconds = 0.5
    verify_timeout = 300.0                # seconds per run of a kernel
    devices = [0]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from sketchc.agents.llm.client import Caps, RetryPolicy


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
class LlmSettings:
    """Where replies come from. `provider` is "" where nothing is configured; `location` is the
    file of `replay` or the folder of `mailbox`."""

    provider: str = ""
    location: str = ""
    base_url: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    timeout: float = 300.0
    stream: bool = True
    models: Mapping[str, ModelSettings] = attrs.field(factory=dict)
    retry: RetryPolicy = RetryPolicy()
    caps: Caps = Caps()


@attrs.frozen
class TargetSettings:
    """Settings of one target; None: what holds elsewhere."""

    models: Mapping[str, str] = attrs.field(factory=dict)
    log_folder: Path | None = None
    workflow: str | None = None
    coder: str | None = None
    runs: int = 31
    warmup_seconds: float = 0.5
    verify_timeout: float = 300.0
    devices: tuple[int, ...] = (0,)


@attrs.frozen
class Configuration:
    """All settings of one run. `path` is the file they came from, None without one."""

    llm: LlmSettings = LlmSettings()
    workflow: str = "default"
    coder: str = "builtin"
    max_attempts: int = 5
    max_repairs: int = 4
    #: Budget of the DocSpec excerpts in one Coder prompt, in tokens (estimated).
    docs_tokens: int = 12_000
    targets: Mapping[str, TargetSettings] = attrs.field(factory=dict)
    path: Path | None = None

    def target(self, name: str) -> TargetSettings:
        """The settings of a target, defaults where the file says nothing."""
        return self.targets.get(name, TargetSettings())


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Configuration:
    """Read `path`, or `sketchc.toml` from here upwards, and apply the environment.

    Raises `UsageError` naming file, key and what is expected there for anything unknown or of the
    wrong type.
    """
    raise NotImplementedError
