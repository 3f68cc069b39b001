"""What can go wrong between an agent and a language model, and whether trying again may help."""

from __future__ import annotations


class LlmError(Exception):
    """A call that gave no usable reply. `kind` is stable (it stands in ledgers and traces);
    `retry` says whether the same call may succeed later; `retry_after` is what the server asked for
    in seconds, None where it did not."""

    kind = "llm"
    retry = False

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class AuthenticationError(LlmError):
    """The key is missing, wrong, or not allowed to use the model."""

    kind = "authentication"


class RateLimitError(LlmError):
    """HTTP 429."""

    kind = "rate_limit"
    retry = True


class ServerError(LlmError):
    """HTTP 5xx, or a body that is not what the API promises."""

    kind = "server"
    retry = True


class ConnectionFailure(LlmError):
    """No connection, or one that broke."""

    kind = "connection"
    retry = True


class TimeoutFailure(LlmError):
    """No complete reply in time."""

    kind = "timeout"
    retry = True


class BadRequestError(LlmError):
    """The server refuses the request as such (HTTP 4xx)."""

    kind = "bad_request"


class ContextOverflowError(LlmError):
    """The prompt is longer than the model's context: ask again with less."""

    kind = "context_overflow"


class QuotaError(LlmError):
    """The account has no money or quota left: waiting does not help."""

    kind = "quota"


class ContentFilterError(LlmError):
    """The server withheld the reply, or the model declined to give one."""

    kind = "content_filter"


class TruncatedError(LlmError):
    """The reply was cut off by the limit on output tokens, with a raised limit as well."""

    kind = "truncated"


class ReplayMissError(LlmError):
    """A recording does not hold this prompt."""

    kind = "replay_miss"


class CapReachedError(LlmError):
    """A cap on calls, tokens, money or wall time is reached: the run stops and can be resumed.
    `cap` names it: "calls", "tokens", "money", "seconds"."""

    kind = "cap_reached"

    def __init__(self, cap: str, message: str) -> None:
        self.cap = cap
        super().__init__(message)
