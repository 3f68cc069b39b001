"""The provider `openai`: any server that speaks the chat completions API, through the `openai`
package.

A call runs in a thread of its own, while the caller's waits with a deadline: the time-out is a
limit on the whole reply, which no time-out of a socket is (a server that sends a byte now and then
never trips it), and Ctrl-C ends the wait at once.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import logging
import math
import queue
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.llm.client import Streamed
from sketchc.agents.llm.messages import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailure,
    ContentFilterError,
    ContextOverflowError,
    LlmError,
    Message,
    QuotaError,
    RateLimitError,
    Reply,
    Request,
    ServerError,
    TimeoutFailure,
    Usage,
    estimate_tokens,
)
from sketchc.agents.llm.secret import REDACTED, redact
from sketchc.agents.llm.settings import LlmSettings, ModelSettings
from sketchc.base.diagnostics import refuse

if TYPE_CHECKING:
    import openai


class ShapeError(ValueError):
    """JSON that is not a chat completion; the message says what is wrong."""


@attrs.define
class Gathered:
    """A reply as it comes in. `finish` is the server's own word, "" before it came."""

    text: str = ""
    refusal: str = ""
    finish: str = ""
    model: str = ""
    counts: tuple[int, int] | None = None
    reasoning: int = 0  # characters

    def take(self, body: object, part: str) -> None:
        """Add a completion in one piece (`part` is "message"), or one event of a stream ("delta"),
        some of which have no choices (usage, filters). Raises `ShapeError`."""
        whole = part == "message"
        data = _mapping(body, "the body" if whole else "an event")
        choices = [] if data.get("choices") is None else data["choices"]
        if not isinstance(choices, list):
            raise ShapeError(f"its choices are {choices!r:.80}")
        if whole and not choices:
            raise ShapeError("it has no choices")
        model = data.get("model")
        if isinstance(model, str) and model:
            self.model = model
        usage = data.get("usage")
        if isinstance(usage, Mapping):
            counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
            if all(isinstance(count, int) and count >= 0 for count in counts):
                self.counts = (int(counts[0] or 0), int(counts[1] or 0))
        for choice in choices[:1] if whole else choices:
            if whole or _mapping(choice, "a choice").get("index") in (0, None):
                self._take_choice(choice, part)
        if whole and not self.finish:
            self.finish = "stop"

    def _take_choice(self, choice: object, part: str) -> None:
        data = _mapping(choice, "a choice")
        inner = data.get(part)
        if inner is None and part == "message":
            raise ShapeError(f"a choice has no {part}")
        words = _mapping(inner or {}, part)
        self.text += _content(words.get("content"))
        self.refusal += _content(words.get("refusal"))
        for name in ("reasoning_content", "reasoning"):
            if isinstance(words.get(name), str):
                self.reasoning += len(words[name])
                break
        finish = data.get("finish_reason")
        if isinstance(finish, str) and finish:
            self.finish = finish

    def usage(self, messages: tuple[Message, ...]) -> Usage:
        """What the server counted, else an estimate from the lengths."""
        if self.counts is not None:
            return Usage(*self.counts)
        asked = sum(len(message.content) for message in messages)
        return Usage(estimate_tokens(asked), estimate_tokens(len(self.text) + self.reasoning), True)


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ShapeError(f"{what} is {value!r:.80}, not a JSON object")
    return value


def _content(value: object) -> str:
    """Text, or a list of parts with text; null is no text. Raises `ShapeError`."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise ShapeError(f"its content is {value!r:.80}")
    return "".join(
        part["text"]
        for part in value
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    )


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
    text = redact(text, key)
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
    """What a server's error body says, as far as it says it in the API's form: its message, and
    `all` with code, type and parameter."""

    message: str = ""
    all: str = ""


def said(body: object) -> Said:
    """Read an error body, whatever it is: {"error": {...}}, the inner object, text, nothing."""
    if isinstance(body, str):
        try:
            parsed = json.loads(body)
        except ValueError:
            parsed = None
        return said(parsed) if isinstance(parsed, Mapping) else Said(body, body)
    if not isinstance(body, Mapping):
        return Said() if body is None else Said(str(body), str(body))
    inner = body.get("error")
    if isinstance(inner, Mapping):
        return said(inner)
    message = next(
        (body[name] for name in ("message", "error", "detail", "msg") if body.get(name)), ""
    )
    text = message if isinstance(message, str) else json.dumps(message, default=str)
    others = (body[name] for name in ("code", "type", "param") if body.get(name) is not None)
    return Said(text, " ".join((text, *map(str, others))))


@attrs.frozen
class Translator:
    """Turns exceptions of the `openai` package into our errors; `where` names the server."""

    where: str
    key: str = attrs.field(repr=False)
    timeout: float

    def hide(self, text: str) -> str:
        """One line without the key, of bounded length."""
        line = " ".join(hide_key(text, self.key).split())
        return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 2] + " …"

    def timed_out(self) -> TimeoutFailure:
        """The error that no complete reply came in time."""
        return TimeoutFailure(f"no complete reply from {self.where} within {self.timeout:g} s")

    def broken(self, reason: object) -> ConnectionFailure:
        """The error that there is no connection, or that it broke."""
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
            case ShapeError():
                return self.odd_reply(str(error))
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
        """The error that the server sent something else than the API promises."""
        return ServerError(f"{self.where} sent no chat completion: {self.hide(what)}")

    def _status(self, error: openai.APIStatusError, model: str) -> LlmError:
        # A body that is not JSON is text; an empty one leaves the status.
        body = error.body if error.body not in (None, "") else None
        pause = retry_after(error.response.headers, time.time())
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


DEFAULT_BASE_URL = "https://api.openai.com/v1"


@attrs.frozen
class Dialect:
    """The parameters of a request that only some servers accept."""

    stream_options: bool = True
    limit_name: str = "max_tokens"

    def after(self, status: int, words: Said) -> Dialect | None:
        """The dialect to try next when a server refused a request; None where there is none."""
        if status not in (400, 422) or too_long(words):
            return None
        if self.stream_options and "stream_options" in words.all:
            return attrs.evolve(self, stream_options=False)
        if self.limit_name == "max_tokens" and "max_completion_tokens" in words.all:
            return attrs.evolve(self, limit_name="max_completion_tokens")
        return None


@attrs.define
class _Call:
    """One call under way, shared by the two threads. `response` is there once headers came."""

    progress: queue.SimpleQueue[int | Gathered | Exception] = attrs.field(factory=queue.SimpleQueue)
    abandoned: threading.Event = attrs.field(factory=threading.Event)
    response: Any = None

    def hang_up(self) -> None:
        """Close the connection, since nobody waits for the reply, which is paid by its length."""
        self.abandoned.set()
        if self.response is None:
            return
        with contextlib.suppress(Exception):
            stream = self.response.extensions["network_stream"]
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class OpenAIProvider:
    """Replies from `settings.base_url`, one try per call; see the module's docstring."""

    name = "openai"

    def __init__(self, settings: LlmSettings, api_key: str) -> None:
        """`api_key` "" is for servers that want none. Raises `UsageError` for settings that cannot
        work and where the `openai` package is missing."""
        self._settings = settings
        self._key = _checked_key(api_key.strip())
        self._base_url = settings.base_url or DEFAULT_BASE_URL
        self._translator = Translator(_name_of(self._base_url), self._key, settings.timeout)
        self._dialect = Dialect()
        self._client = self._connect()
        _keep_out_of_logs(self._key)

    def send(self, request: Request, idempotency_key: str, streamed: Streamed) -> Reply:
        """Send the request once. Raises `LlmError`; `UsageError` where no model is configured."""
        model = self._model(request.level)
        start = time.monotonic()
        call = _Call()
        work = (call, request, model, idempotency_key)
        threading.Thread(target=self._work, args=work, daemon=True).start()
        over = False  # whether the thread has nothing more to say
        try:
            while True:
                left = start + self._settings.timeout - time.monotonic()
                try:
                    news = call.progress.get(timeout=max(0.0, left))
                except queue.Empty:
                    raise self._translator.timed_out() from None
                match news:
                    case int():
                        streamed(news)
                    case Gathered():
                        over = True
                        return self._reply(news, request, model, time.monotonic() - start)
                    case _:
                        over = True
                        raise news
        finally:
            if not over:
                call.hang_up()

    def price(self, request: Request, usage: Usage) -> float | None:
        """The cost of `usage` in the currency of the model's prices; None without both prices."""
        return _cost(usage, self._model(request.level))

    def _connect(self) -> openai.OpenAI:
        try:
            import openai
        except ImportError as error:
            refuse("the provider `openai` needs a package: pip install 'sketchc[llm]'", error)
        return openai.OpenAI(
            # The package wants a key; servers without keys do not look at it.
            api_key=self._key or "none",
            base_url=self._base_url,
            timeout=self._settings.timeout,
            max_retries=0,
        )

    def _model(self, level: str) -> ModelSettings:
        model = self._settings.models.get(level)
        if model is None or not model.name:
            refuse(
                f"no model is configured for the level {level!r}: "
                f'set name = "..." in [llm.models.{level}] of sketchc.toml'
            )
        return model

    def _work(self, call: _Call, request: Request, model: ModelSettings, key: str) -> None:
        """The body of the call's thread: puts the reply, or the error, into the queue."""
        failure: Exception | None = None
        try:
            gathered = self._exchange(call, request, model, key)
            call.progress.put(gathered)
        except Exception as error:
            failure = self._translator.translate(error, model.name) or error
        # Outside of the handler: the error that is raised later has no context that shows headers.
        if failure is not None:
            call.progress.put(failure)

    def _exchange(self, call: _Call, request: Request, model: ModelSettings, key: str) -> Gathered:
        """Ask, in another dialect where the server wants one."""
        import openai

        dialect = self._dialect
        tries = 1
        while True:
            arguments = self._arguments(request, model, dialect)
            # Another body under the same key would be a contradiction.
            arguments["extra_headers"] = {
                "Idempotency-Key": key if tries == 1 else f"{key}-{tries}"
            }
            try:
                gathered = self._ask(call, arguments)
            except openai.APIStatusError as error:
                other = dialect.after(error.status_code, said(error.body))
                if other is None or call.abandoned.is_set():
                    raise
                dialect, tries = other, tries + 1
            else:
                self._dialect = dialect
                return gathered

    def _arguments(
        self, request: Request, model: ModelSettings, dialect: Dialect
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": model.name,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            dialect.limit_name: request.max_output_tokens or model.max_output_tokens,
        }
        if model.temperature is not None:
            arguments["temperature"] = model.temperature
        if self._settings.stream:
            arguments["stream"] = True
            if dialect.stream_options:
                arguments["stream_options"] = {"include_usage": True}
        return arguments

    def _ask(self, call: _Call, arguments: dict[str, Any]) -> Gathered:
        """One HTTP request. Raises errors of the `openai` package and `LlmError`."""
        gathered = Gathered()
        completions = self._client.chat.completions.with_streaming_response
        with completions.create(**arguments) as response:
            call.response = response.http_response
            if call.abandoned.is_set():
                return gathered
            kind = response.headers.get("content-type", "")
            # Servers that cannot stream send the whole reply, and proxies pages of their own.
            if arguments.get("stream") and not any(word in kind for word in ("json", "html")):
                self._read_events(call, response.parse(), gathered)
            else:
                self._read_body(response.read(), gathered)
        return gathered

    def _read_body(self, content: bytes, gathered: Gathered) -> None:
        try:
            body = json.loads(content)
        except ValueError:
            start = content[:80].decode(errors="replace")
            what = f"the body is not JSON: {start!r}" if content else "the body is empty"
            raise self._translator.odd_reply(what) from None
        if isinstance(body, dict) and body.get("error"):
            # Some servers answer HTTP 200 and an error.
            raise self._translator.refusal(said(body), None, "")
        gathered.take(body, "message")

    def _read_events(self, call: _Call, events: Iterator[Any], gathered: Gathered) -> None:
        """Add the events of a stream. Raises `ConnectionFailure` for one that ends too early; one
        that breaks after its reply is complete (before the usage came) is as good as whole."""
        broken: Exception | None = None
        try:
            for event in events:
                if call.abandoned.is_set():
                    return
                dump = getattr(event, "model_dump", None)
                gathered.take(event if dump is None else dump(warnings=False), "delta")
                call.progress.put(len(gathered.text))
        except ShapeError:
            raise
        except Exception as error:
            broken = error
        if gathered.finish:
            return
        if broken is not None:
            raise broken
        raise self._translator.broken("the stream ended before the reply did")

    def _reply(
        self, gathered: Gathered, request: Request, model: ModelSettings, seconds: float
    ) -> Reply:
        if gathered.finish == "content_filter" or (gathered.refusal and not gathered.text):
            reason = self._translator.hide(gathered.refusal) or "the content filter of the server"
            raise ContentFilterError(f"{self._translator.where} withheld the reply: {reason}")
        usage = gathered.usage(request.messages)
        return Reply(
            text=self._clean(gathered.text),
            model=self._clean(gathered.model or model.name),
            finish="length" if gathered.finish == "length" else "stop",
            usage=usage,
            cost=_cost(usage, model),
            seconds=round(seconds, 3),
        )

    def _clean(self, text: str) -> str:
        """`text` without the key, should a server echo it, or anything that UTF-8 cannot hold."""
        return redact(text, self._key).encode(errors="replace").decode()


def _cost(usage: Usage, model: ModelSettings) -> float | None:
    """The cost in the currency of the prices (per million tokens); None without both prices."""
    if model.price_input is None or model.price_output is None:
        return None
    paid = usage.input_tokens * model.price_input + usage.output_tokens * model.price_output
    return paid / 1e6


def _checked_key(key: str) -> str:
    """The key. Raises `UsageError` for one that no header can hold: an error would show it."""
    if any(not 32 < ord(character) < 127 for character in key):
        refuse(
            "the key of the language model holds a blank, a control character or a character "
            "outside ASCII: was something else pasted?"
        )
    return key


def _keep_out_of_logs(key: str) -> None:
    """Take a key out of log records: the packages below log what a server sends back. Their loggers
    exist once they are imported. A filter of a logger does not reach the loggers below it: each
    needs its own."""

    def hide(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        hidden = redact(text, key)
        if hidden != text:
            record.msg, record.args = hidden, ()
        return True

    for name in tuple(logging.root.manager.loggerDict):
        if key and name.startswith(("openai", "httpx", "httpcore")):
            logging.getLogger(name).addFilter(hide)


def _name_of(base_url: str) -> str:
    """The server's name for messages: no user, password or query. Raises `UsageError`."""
    try:
        parts = urllib.parse.urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        refuse(f"base_url must look like http://localhost:8000/v1, not {base_url!r}")
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
