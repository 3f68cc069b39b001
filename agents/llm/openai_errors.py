"""What a failed call through the `openai` package was: one of our errors, with the key left out.

Servers that speak this API word their errors differently; what is looked for here are the codes
and wordings of OpenAI, vLLM, SGLang, llama.cpp, LM Studio and TGI.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.llm.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailure,
    ContentFilterError,
    ContextOverflowError,
    LlmError,
    QuotaError,
    RateLimitError,
    ServerError,
    TimeoutFailure,
)
from sketchc.agents.llm.secret import REDACTED, redact

if TYPE_CHECKING:
    import openai

#: Longer texts of a server are cut: some send whole pages of HTML.
LONGEST_MESSAGE = 500

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|maximum model length"
    r"|context (length|size|window)\W[^.]{0,40}\bexceed|exceed[^.]{0,60}\bcontext\b"
    r"|context length of only|longer than the model's context|too long to fit"
    r"|(prompt|input) (is|was) too long|tokens \+ .max_new_tokens|exceeded model token limit",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content_filter|content_policy|content management policy", re.IGNORECASE)
_QUOTA = re.compile(r"insufficient_quota|insufficient balance|billing", re.IGNORECASE)

#: A key that a server shows with its middle starred out.
_STARRED = re.compile(r"\S*\*{3,}\S*")


def hide_key(text: str, key: str) -> str:
    """`text` of a server or library without the key, and without any longer piece of it."""
    text = redact(text, [key])
    size = max(8, min(12, len(key) // 2))
    pieces = {key[start : start + size] for start in range(len(key) - size + 1)}
    if any(piece in text for piece in pieces):
        covered = bytearray(len(text))
        for start in range(len(text) - size + 1):
            if text[start : start + size] in pieces:
                covered[start : start + size] = b"\1" * size
        marked = "".join("\0" if hit else c for c, hit in zip(text, covered, strict=True))
        text = re.sub("\0+", REDACTED, marked)
    return _STARRED.sub(REDACTED, text)


@attrs.frozen
class Said:
    """What a server's error body says, as far as it says it in the API's form."""

    message: str = ""
    code: str = ""
    kind: str = ""
    parameter: str = ""

    @property
    def all(self) -> str:
        return " ".join((self.message, self.code, self.kind, self.parameter))


def said(body: object) -> Said:
    """Read an error body, whatever it is: {"error": {...}}, the inner object, text, nothing."""
    if isinstance(body, str):
        try:
            parsed = json.loads(body)
        except ValueError:
            return Said(message=body)
        return said(parsed) if isinstance(parsed, Mapping) else Said(message=body)
    if not isinstance(body, Mapping):
        return Said() if body is None else Said(message=str(body))
    inner = body.get("error")
    if isinstance(inner, Mapping):
        return said(inner)
    message = next(
        (body[name] for name in ("message", "error", "detail", "msg") if body.get(name)), ""
    )
    return Said(
        message=message if isinstance(message, str) else json.dumps(message, default=str),
        code=_text(body.get("code")),
        kind=_text(body.get("type")),
        parameter=_text(body.get("param")),
    )


@attrs.frozen
class Translator:
    """Turns exceptions of the `openai` package into our errors; `where` names the server."""

    where: str
    key: str = attrs.field(repr=False)
    timeout: float
    wall_clock: Callable[[], float] = time.time

    def hide(self, text: str) -> str:
        """One line without the key, of bounded length."""
        line = " ".join(hide_key(text, self.key).split())
        return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 2] + " …"

    def timed_out(self) -> TimeoutFailure:
        message = f"no complete reply from {self.where} within {self.timeout:g} s"
        return TimeoutFailure(message)

    def broken(self, reason: object) -> ConnectionFailure:
        return ConnectionFailure(f"the connection to {self.where} failed: {self.hide(str(reason))}")

    def translate(self, error: Exception, model: str) -> LlmError | None:
        """Our error for `error`, None for one that is no failure of a call."""
        import openai

        match error:
            case LlmError():
                return error
            case openai.APITimeoutError():
                return self.timed_out()
            case openai.APIConnectionError():
                return self.broken(error.__cause__ or error)
            case openai.APIStatusError():
                return self._status(error, model)
            case openai.APIError():
                return self.refusal(said(error.body or error.message), None, model)
            case UnicodeEncodeError():
                return BadRequestError("the prompt holds characters that UTF-8 cannot hold")
            case ValueError() | TypeError() | KeyError() | AttributeError() | IndexError():
                # What the package runs into on JSON of another shape, or on no JSON.
                return self.odd_reply(f"{type(error).__name__}: {error}")
        # Older versions of the package let errors of their HTTP library through mid-stream.
        library = type(error).__module__.split(".")[0]
        if library.startswith("http") or isinstance(error, OSError):
            late = "Timeout" in type(error).__name__
            return self.timed_out() if late else self.broken(error)
        return None

    def odd_reply(self, what: str) -> ServerError:
        message = f"{self.where} sent no chat completion: {self.hide(what)}"
        return ServerError(message)

    def _status(self, error: openai.APIStatusError, model: str) -> LlmError:
        # A body that is not JSON is text; an empty one leaves the status.
        body = error.body if error.body not in (None, "") else None
        pause = retry_after(error.response.headers, self.wall_clock())
        return self.refusal(said(body), error.status_code, model, pause)

    def refusal(
        self, words: Said, status: int | None, model: str, pause: float | None = None
    ) -> LlmError:
        """The error for what a server said, with an HTTP status or (None) in a stream."""
        text = self.hide(words.message) or "no reason given"
        name = f"{self.where} answered" + (f" HTTP {status}" if status else "")
        plain = f"{name}: {text}"
        match status:
            case 401:
                # Servers quote the key here: nothing of what they say is passed on.
                return AuthenticationError(f"{name}: the key is missing or wrong")
            case 402:
                return QuotaError(plain)
            case 403:
                return AuthenticationError(f"{plain} (may this key use the model {model!r}?)")
            case 404:
                hint = f"is there a model {model!r}, and is base_url right?"
                return BadRequestError(f"{plain} ({hint})")
            case 408:
                return TimeoutFailure(plain, pause)
            case 429:
                if _QUOTA.search(words.all):
                    return QuotaError(plain)
                return RateLimitError(plain, pause)
            case 413:
                return ContextOverflowError(plain)
            case _ if too_long(words):
                return ContextOverflowError(plain)
            case _ if _FILTERED.search(words.all):
                return ContentFilterError(plain)
            case None if "rate_limit" in words.all:
                return RateLimitError(plain)
            case 409 | None:
                return ServerError(plain, pause)
            case _ if 400 <= status < 500:
                return BadRequestError(plain)
        return ServerError(plain, pause)


def too_long(words: Said) -> bool:
    """Whether a server says that the prompt (with the reply asked for) exceeds the context."""
    return bool(_OVERFLOW.search(words.all))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The pause in seconds that a server asks for, None where it does not (or not sensibly).

    `retry-after-ms` is OpenAI's; `Retry-After` is in seconds or an HTTP date (RFC 9110, 10.2.3),
    which is compared with `now`, the wall clock's time.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    try:
        date = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, date.timestamp() - now)


def _seconds(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _text(value: Any) -> str:
    return "" if value is None else str(value)
