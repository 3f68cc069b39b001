"""Requests to a language model and its replies, as plain frozen data that knows no provider, and
the errors of calls.

A message is made of text that varies from run to run (the task, diagnostics, replies) and of
constant parts (the language, a target's documents, facts of a chip), which have a name and a
version. Two requests ask the same where what varies is the same and the parts have the same names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import attrs

#: The three levels of models, the most capable first; `sketchc.toml` names a model for each.
LEVELS = ("complex", "standard", "fast")


@attrs.frozen
class Part:
    """A constant part of a prompt: text that sketchc itself brings along, by its name."""

    name: str
    text: str

    @property
    def version(self) -> str:
        """A digest of the text."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


Piece = str | Part


def _pieces(given: str | Sequence[Piece]) -> tuple[Piece, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@attrs.frozen(slots=False)
class Message:
    """One message; `role` is "system", "user" or "assistant". A text stands for one piece."""

    role: str
    pieces: tuple[Piece, ...] = attrs.field(converter=_pieces)

    @cached_property
    def content(self) -> str:
        """The whole text, as the model gets it."""
        return "".join(piece if isinstance(piece, str) else piece.text for piece in self.pieces)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The constant parts, in their order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Part))

    @property
    def varying(self) -> list[Any]:
        """The texts, and the names of the parts: equal for two messages that ask the same."""
        return [piece if isinstance(piece, str) else {"part": piece.name} for piece in self.pieces]


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
        """SHA-256 over purpose, level and what varies in the messages: what `replay` and `--resume`
        match on."""
        return self._digest([[m.role, m.varying] for m in self.messages])

    @property
    def whole_key(self) -> str:
        """SHA-256 over purpose, level and whole texts: the key in ledgers that know no parts."""
        return self._digest([[m.role, [m.content]] for m in self.messages])

    @property
    def parts(self) -> tuple[Part, ...]:
        """The constant parts of all messages, in their order."""
        return tuple(part for message in self.messages for part in message.parts)

    def _digest(self, messages: list[Any]) -> str:
        text = json.dumps([self.purpose, self.level, messages], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@attrs.frozen
class Usage:
    """Tokens of one call; `estimated` where the provider did not count them."""

    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False


#: English text and code, roughly.
CHARACTERS_PER_TOKEN = 4


def estimate_tokens(characters: int) -> int:
    """Tokens in so many characters, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)


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
        """Ask, and wait for the reply. Raises a subclass of `LlmError`."""


class LlmError(Exception):
    """A call that gave no usable reply. `kind` is stable (it stands in ledgers and traces);
    `retry` says whether the same call may succeed later; `retry_after` is what the server asked for
    in seconds, None where it did not."""

    kind = "llm"
    retry = False

    def __init_subclass__(cls, kind: str, retry: bool = False) -> None:
        cls.kind, cls.retry = kind, retry

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class AuthenticationError(LlmError, kind="authentication"):
    """The key is missing, wrong, or not allowed to use the model."""


class RateLimitError(LlmError, kind="rate_limit", retry=True):
    """Too many requests in a time (HTTP 429)."""


class ServerError(LlmError, kind="server", retry=True):
    """HTTP 5xx, or a body that is not what the API promises."""


class ConnectionFailure(LlmError, kind="connection", retry=True):
    """No connection, or one that broke."""


class TimeoutFailure(LlmError, kind="timeout", retry=True):
    """No complete reply in time."""


class BadRequestError(LlmError, kind="bad_request"):
    """The server refuses the request as such (HTTP 4xx)."""


class ContextOverflowError(LlmError, kind="context_overflow"):
    """The prompt is longer than the model's context: ask again with less."""


class QuotaError(LlmError, kind="quota"):
    """The account has no money or quota left: waiting does not help."""


class ContentFilterError(LlmError, kind="content_filter"):
    """The server withheld the reply, or the model declined to give one."""


class TruncatedError(LlmError, kind="truncated"):
    """The reply was cut off by the limit on output tokens, with a raised limit as well."""


class ReplayMissError(LlmError, kind="replay_miss"):
    """A recording does not hold this prompt."""


class CapReachedError(LlmError, kind="cap_reached"):
    """A cap on calls, tokens, money or wall time is reached: the run stops and can be resumed.
    `cap` names it: "calls", "tokens", "money", "seconds"."""

    def __init__(self, cap: str, message: str) -> None:
        self.cap = cap
        super().__init__(message)
