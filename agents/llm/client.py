"""The client: caps, retries with back-off, the ledger, and replies already paid for, around a
provider. Agents see only `complete`."""

from __future__ import annotations

import functools
import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import attrs

from sketchc.agents.llm.ledger import Ledger, Record, timestamp
from sketchc.agents.llm.messages import (
    CapReachedError,
    LanguageModel,
    LlmError,
    Reply,
    Request,
    TruncatedError,
    Usage,
    estimate_tokens,
)

#: Called with the number of output characters so far while a reply streams in.
Streamed = Callable[[int], None]

#: The output tokens that `complete_whole` asks for at most.
LARGEST_OUTPUT = 65_536

#: Providers whose replies cost nothing, whatever their model would.
UNPAID = ("replay", "mailbox")


class Provider(Protocol):
    """Where replies come from. One try per call: the client retries."""

    name: str  # "openai", "replay", "mailbox"

    def send(self, request: Request, idempotency_key: str, streamed: Streamed) -> Reply:
        """Send the request once. Raises an `LlmError`."""


@runtime_checkable
class Paid(Protocol):
    """A provider that is paid by the token; the cap on cost holds for no other."""

    def price(self, request: Request, usage: Usage) -> float | None:
        """What so many tokens of the request's model cost; None where its prices are unknown."""


@attrs.frozen
class Spend:
    """What a run has used so far, calls of earlier processes of the same run included.

    `calls` counts tries, failed ones too; `unpriced_calls` of them have a reply whose price is not
    known, so that `cost` is without theirs. `seconds` are wall time of this process, or, in the
    record of a run, those of all its steps.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0
    seconds: float = 0.0


def spent_on(records: Sequence[Record]) -> Spend:
    """The calls, tokens and costs of `records`, without their time."""
    replies = [record.reply for record in records if record.reply is not None]
    return Spend(
        calls=len(records),
        input_tokens=sum(reply.usage.input_tokens for reply in replies),
        output_tokens=sum(reply.usage.output_tokens for reply in replies),
        cost=sum((reply.cost or 0.0 for reply in replies), 0.0),
        unpriced_calls=sum(reply.cost is None for reply in replies),
    )


@attrs.frozen
class Caps:
    """Limits of one run; None is no limit. `cost` is in the currency of the prices.

    Caps are checked before each try, with the prompt's tokens, estimated by its length, and their
    price. How long the reply gets is not known beforehand: by one reply, tokens and cost may end up
    above their caps. The cap on cost does not hold for a recording or a mailbox: neither is paid.
    """

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

    def delay(self, attempt: int, asked: float | None, fraction: float) -> float | None:
        """Seconds to wait after the failed `attempt` (from 1), None for giving up.

        Exponential back-off with full jitter: `fraction` is drawn from [0, 1). What the server
        asked for is waited for at least.
        """
        if attempt >= self.attempts or (asked or 0.0) > self.longest_retry_after:
            return None
        # A power of a float that gets too large raises: no delay needs more than 2 ** 60.
        ceiling = min(self.longest_delay, self.first_delay * 2.0 ** min(attempt - 1, 60))
        return max(asked or 0.0, ceiling * fraction)


@attrs.frozen
class Timing:
    """The clock, the pause and the random numbers of a client, which tests replace."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    fraction: Callable[[], float] = random.random


class Client:
    """`complete` = reuse a paid reply, or check the caps, ask, retry, record."""

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        caps: Caps = Caps(),
        retry: RetryPolicy = RetryPolicy(),
        consumed: int = 0,
        streamed: Callable[[Request, int], None] = lambda request, characters: None,
        timing: Timing = Timing(),
    ) -> None:
        """`consumed`: how many records of the ledger belong to work that is done already. Later
        ones are replies that were paid for and not used (the run was killed): a request with the
        same key gets them, in order, without a call."""
        self._provider = provider
        self._ledger = ledger
        self._caps = caps
        self._retry = retry
        self._streamed = streamed
        self._timing = timing
        self._start = timing.now()
        self._unused = [
            record
            for record in ledger.records
            if record.number > consumed and record.reply is not None
        ]

    def complete(self, request: Request) -> Reply:
        """The reply to a request. Raises `LlmError`, `CapReachedError` before a call over a cap."""
        paid = self._take_paid(request)
        if paid is not None:
            return paid
        # The same for all tries: a server that knows it does not charge twice.
        idempotency_key = uuid.uuid4().hex
        listener = functools.partial(self._streamed, request)
        attempt = 0
        while True:
            self._check_caps(request)
            attempt += 1
            started = timestamp()
            name = self._provider.name
            try:
                reply = self._provider.send(request, idempotency_key, listener)
            except LlmError as error:
                self._ledger.append(request, name, None, error.kind, str(error), started)
                self._wait(error, attempt)
                continue
            reply = attrs.evolve(reply, attempts=attempt)
            self._ledger.append(request, name, reply, started=started)
            return reply

    @property
    def spend(self) -> Spend:
        """The calls, tokens, costs and seconds of the run up to now."""
        spent = spent_on(self._ledger.records)
        return attrs.evolve(spent, seconds=self._timing.now() - self._start)

    @property
    def position(self) -> int:
        """How many records of the ledger are done with: what a checkpoint stores as `consumed`.

        All of them, unless replies of an earlier process still wait to be used: then those before
        the first such one.
        """
        if self._unused:
            return self._unused[0].number - 1
        return len(self._ledger.records)

    def _take_paid(self, request: Request) -> Reply | None:
        for index, record in enumerate(self._unused):
            if record.request.key in (request.key, request.whole_key):
                del self._unused[index]
                return record.reply
        return None

    def _wait(self, error: LlmError, attempt: int) -> None:
        """Sleep before the next try; raises `error` where no further try is to follow, and
        `CapReachedError` where the cap on time would be reached meanwhile."""
        delay = None
        if error.retry:
            delay = self._retry.delay(attempt, error.retry_after, self._timing.fraction())
        if delay is None:
            if attempt > 1:
                error.args = (f"{error} (given up after {attempt} tries)",)
            elif error.retry and error.retry_after:
                error.args = (f"{error} (try again in {error.retry_after:.0f} s)",)
            raise error
        limit = self._caps.seconds
        if limit is not None and self.spend.seconds + delay >= limit:
            cap = "seconds"
            raise _reached(cap, self.spend.seconds, limit) from error
        self._timing.sleep(delay)

    def _check_caps(self, request: Request) -> None:
        """Raises `CapReachedError` where a cap is reached, or would be passed by the prompt."""
        caps, spend = self._caps, self.spend
        paid = self._provider if isinstance(self._provider, Paid) else None
        unpriced = any(
            record.reply is not None and record.reply.cost is None
            for record in self._ledger.records
            if record.provider not in UNPAID
        )
        if caps.cost is not None and paid is not None and unpriced:
            cap = "money"
            message = (
                f"the cap on cost ({caps.cost:g}) cannot be kept: calls of this run were made "
                "without price_input and price_output of their model in [llm.models.<level>] of "
                "sketchc.toml, so nobody knows what they cost; cap tokens instead (--max-tokens)"
            )
            raise CapReachedError(cap, message)
        prompt = estimate_tokens(sum(len(message.content) for message in request.messages))
        price = 0.0 if paid is None else paid.price(request, Usage(prompt)) or 0.0
        for cap, used, more, limit in (
            ("calls", spend.calls, 0, caps.calls),
            ("tokens", spend.input_tokens + spend.output_tokens, prompt, caps.tokens),
            ("cost", spend.cost, price, caps.cost if paid else None),
            ("seconds", spend.seconds, 0, caps.seconds),
        ):
            if limit is not None and (used >= limit or used + more > limit):
                raise _reached(cap, used, limit, 0 if used >= limit else more)


def complete_whole(model: LanguageModel, request: Request, largest: int = LARGEST_OUTPUT) -> Reply:
    """A reply that is not cut off: where the first one is, the request is sent once more with twice
    the limit on output tokens (`largest` at most).

    Both are paid for. Raises `TruncatedError` where the second is cut off as well, or the first was
    at `largest` already; otherwise what `complete` raises.
    """
    reply = model.complete(request)
    if reply.finish != "length":
        return reply
    # Without a limit in the request it was the level's own: what came is as long as that.
    limit = request.max_output_tokens or reply.usage.output_tokens
    if limit < largest:
        larger = min(largest, 2 * max(limit, 1))
        reply = model.complete(attrs.evolve(request, max_output_tokens=larger))
        if reply.finish != "length":
            return reply
        limit = larger
    message = (
        f"the reply to {request.purpose!r} was cut off at {limit} output tokens: "
        f"raise max_output_tokens in [llm.models.{request.level}] of sketchc.toml"
    )
    raise TruncatedError(message)


def _reached(cap: str, used: float, limit: float, prompt: float = 0) -> CapReachedError:
    """The error; `prompt`: what the next prompt needs, where the cap is not reached without it."""

    def shown(value: float) -> str:
        return {"cost": f"{value:.4g}", "seconds": f"{value:.1f}"}.get(cap, f"{value}")

    unit = {"cost": "", "seconds": " s"}.get(cap, f" {cap}")
    what = f"the cap on {cap} is reached"
    if prompt:
        needs = f"{shown(prompt)}{unit}"
        what = f"the next prompt, about {needs} by its length, would pass the cap on {cap}"
    message = (
        f"{what}: {shown(used)} of {limit}{unit} used; raise it with --max-{cap} "
        f"of `sketchc gen` or with {cap} in [llm.caps] of sketchc.toml, and go on with --resume"
    )
    return CapReachedError("money" if cap == "cost" else cap, message)
