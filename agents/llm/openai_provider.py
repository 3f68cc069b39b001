"""The provider `openai`: any server that speaks the chat completions API, through the `openai`
package.

A call runs in a thread of its own, while the caller's waits with a deadline: the time-out is a
limit on the whole reply, which no time-out of a socket is (a server that sends a byte now and then
never trips it), and Ctrl-C ends the wait at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.llm.errors import ContentFilterError
from sketchc.agents.llm.messages import Reply, Request, Usage
from sketchc.agents.llm.openai_errors import Said, Translator, said, too_long
from sketchc.agents.llm.openai_replies import Gathered, ShapeError
from sketchc.agents.llm.secret import redact
from sketchc.agents.llm.settings import LlmSettings, ModelSettings
from sketchc.base.diagnostics import UsageError

if TYPE_CHECKING:
    import openai

DEFAULT_BASE_URL = "https://api.openai.com/v1"


@attrs.frozen
class Dialect:
    """What a server takes, as far as servers differ."""

    stream_options: bool = True
    limit_name: str = "max_tokens"

    def after(self, status: int, words: Said) -> Dialect | None:
        """What to try next when a server refused a request, None for nothing."""
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
        """Wake the thread that reads: nobody waits for the reply, which is paid by its length."""
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

    def send(
        self, request: Request, idempotency_key: str, streamed: Callable[[int], None]
    ) -> Reply:
        """One try. Raises an `LlmError`, or `UsageError` where no model is configured."""
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
        """In the currency of the prices of the request's model; None without both of them."""
        return _cost(usage, self._model(request.level))

    def _connect(self) -> openai.OpenAI:
        try:
            import openai
        except ImportError as error:
            message = "the provider `openai` needs a package: pip install 'sketchc[llm]'"
            raise UsageError(message) from error
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
            message = (
                f"no model is configured for the level {level!r}: "
                f'set name = "..." in [llm.models.{level}] of sketchc.toml'
            )
            raise UsageError(message)
        return model

    def _work(self, call: _Call, request: Request, model: ModelSettings, key: str) -> None:
        """Runs in the call's thread; what comes of it goes into the queue."""
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
            try:
                # Servers that cannot stream send the whole reply, and proxies pages of their own.
                if arguments.get("stream") and not any(word in kind for word in ("json", "html")):
                    self._read_events(call, response.parse(), gathered)
                else:
                    self._read_body(response.read(), gathered)
            except ShapeError as error:
                raise self._translator.odd_reply(str(error)) from None
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
        gathered.take_whole(body)

    def _read_events(self, call: _Call, events: Iterator[Any], gathered: Gathered) -> None:
        """Raises `ConnectionFailure` for a stream that ends too early; one that breaks after its
        reply is complete (before the usage came) is as good as whole."""
        broken: Exception | None = None
        try:
            for event in events:
                if call.abandoned.is_set():
                    return
                dump = getattr(event, "model_dump", None)
                gathered.take_chunk(event if dump is None else dump(warnings=False))
                call.progress.put(len(gathered.text))
        except ShapeError:
            raise
        except Exception as error:
            broken = error
        if gathered.finish:
            return
        if broken is not None:
            raise broken
        what = "the stream ended before the reply did"
        raise self._translator.broken(what)

    def _reply(
        self, gathered: Gathered, request: Request, model: ModelSettings, seconds: float
    ) -> Reply:
        if gathered.finish == "content_filter" or (gathered.refusal and not gathered.text):
            reason = self._translator.hide(gathered.refusal) or "the content filter of the server"
            message = f"{self._translator.where} withheld the reply: {reason}"
            raise ContentFilterError(message)
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
        """Without the key, should a server echo it, and with nothing that UTF-8 cannot hold."""
        return redact(text, [self._key]).encode(errors="replace").decode()


def _cost(usage: Usage, model: ModelSettings) -> float | None:
    """In the currency of the prices, which are per million tokens; None without both prices."""
    if model.price_input is None or model.price_output is None:
        return None
    paid = usage.input_tokens * model.price_input + usage.output_tokens * model.price_output
    return paid / 1e6


def _checked_key(key: str) -> str:
    """A key that cannot stand in a header would show up in the error about it."""
    if any(not 32 < ord(character) < 127 for character in key):
        message = (
            "the key of the language model holds a blank, a control character or a character "
            "outside ASCII: was something else pasted?"
        )
        raise UsageError(message)
    return key


class _HideKey(logging.Filter):
    """Takes a key out of log records; the packages below log what a server sends back."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        hidden = redact(text, [self._key])
        if hidden != text:
            record.msg, record.args = hidden, ()
        return True


def _keep_out_of_logs(key: str) -> None:
    """Their loggers exist once they are imported. A filter of a logger does not reach the loggers
    below it: each needs its own."""
    for name in tuple(logging.root.manager.loggerDict):
        if key and name.startswith(("openai", "httpx", "httpcore")):
            logging.getLogger(name).addFilter(_HideKey(key))


def _name_of(base_url: str) -> str:
    """The server's name for messages: no user, password or query. Raises `UsageError`."""
    try:
        parts = urllib.parse.urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        message = f"base_url must look like http://localhost:8000/v1, not {base_url!r}"
        raise UsageError(message)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
