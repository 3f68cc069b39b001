"""What is said to a language model and what comes back: plain frozen data, no provider in it."""

from __future__ import annotations

import hashlib
import json
from typing import Protocol

import attrs

#: The three levels of models, the most capable first; `sketchc.toml` names a model for each.
LEVELS = ("complex", "standard", "fast")


@attrs.frozen
class Message:
    """One message; `role` is "system", "user" or "assistant"."""

    role: str
    content: str


@attrs.frozen
class Request:
    """One question. `purpose` names who asks and why ("designer", "designer-repair", "coder",
    "coder-repair", "conductor", "check"); `max_output_tokens` None is the level's own limit."""

    purpose: str
    level: str
    messages: tuple[Message, ...]
    max_output_tokens: int | None = None

    @property
    def key(self) -> str:
        """SHA-256 over purpose, level and messages: what `replay` and `--resume` match on."""
        plain = [self.purpose, self.level, [[m.role, m.content] for m in self.messages]]
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@attrs.frozen
class Usage:
    """Tokens of one call; `estimated` where the provider did not count them."""

    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


@attrs.frozen
class Reply:
    """One answer. `finish` is "stop" or "length" (cut off by the token limit); `cost` is in the
    currency of the configured prices, None where no price is known; `attempts` counts tries."""

    text: str
    model: str
    finish: str = "stop"
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    attempts: int = 1


class LanguageModel(Protocol):
    """What agents talk to. `sketchc.agents.llm.client.Client` implements it."""

    def complete(self, request: Request) -> Reply:
        """Ask and wait. Raises a subclass of `errors.LlmError`."""
