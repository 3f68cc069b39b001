"""The client: caps, retries with back-off, the ledger, and replies already paid for, around a
provider. Agents see only `complete`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.messages import Reply, Request

#: Called with the number of output characters so far while a reply streams in.
Streamed = Callable[[int], None]


class Provider(Protocol):
    """Where replies come from. One try per call: the client retries."""

    name: str  # "openai", "replay", "mailbox"

    def send(self, request: Request, idempotency_key: str, streamed: Streamed) -> Reply:
        """One try. Raises an `LlmError`."""


@attrs.frozen
class Spend:
    """What a run has used so far, calls of earlier processes of the same run included."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0  # wall time of this process


@attrs.frozen
class Caps:
    """Limits of one run; None is no limit. `cost` is in the currency of the prices."""

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


@attrs.frozen
class RetryPolicy:
    """How often and how patiently a failed call is tried again (delays in seconds)."""

    attempts: int = 5
    first_delay: float = 1.0
    longest_delay: float = 60.0
    #: A server that asks for a longer pause than this (Retry-After) ends the call.
    longest_retry_after: float = 300.0


class Client:
    """`complete` = reuse a paid reply, or check the caps, ask, retry, record."""

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        caps: Caps = Caps(),
        retry: RetryPolicy = RetryPolicy(),
        consumed: int = 0,
        streamed: Callable[[Request, int], None] | None = None,
    ) -> None:
        """`consumed`: how many records of the ledger belong to work that is done already. Later
        ones are replies that were paid for and not used (the run was killed): a request with the
        same key gets them, in order, without a call."""
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        """Raises `LlmError`; `CapReachedError` before a call that a cap forbids."""
        raise NotImplementedError

    @property
    def spend(self) -> Spend: ...

    @property
    def position(self) -> int:
        """How many records the ledger holds: what a checkpoint stores as `consumed`."""
        raise NotImplementedError
