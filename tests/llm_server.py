"""A real HTTP server that speaks the chat completions API and fails on request.

    with LlmServer([rate_limited(1), reply("hello")]) as server:
        ... server.base_url ...
        assert server.requests[0].body["model"] == "m"

What it answers is a script: a list of actions, one per POST in order of arrival, or a function of
the request. A scripted reply tests plumbing; what models wrote is replayed from a recorded ledger:

    python tests/llm_server.py --ledger examples/ledgers/softmax.jsonl --port 0 --delay 0.2

prints its port and serves until it is ended. `GET /answered` gives the number of whole replies per
prompt, `GET /v1/models` the models.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import select
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs

Messages = Sequence[Mapping[str, str]]


def prompt_key(messages: Messages) -> str:
    """What the server counts by: a digest of roles and contents."""
    plain = [[message["role"], message["content"]] for message in messages]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


@attrs.frozen
class Received:
    """One POST as it came in. `number` counts from 1."""

    number: int
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: Mapping[str, Any]

    @property
    def key(self) -> str:
        return prompt_key(self.body.get("messages", ()))


@attrs.frozen
class Answer:
    """A reply, streamed where the request asks for it.

    `usage` is (input, output) tokens, None to leave it out. A streamed reply goes out in `pieces`;
    `pause` seconds pass before each, `delay` before the first byte. `after` ends it early, after so
    many pieces: "close" (a clean end of the connection), "reset", "hang" (silence), "error" (an
    error event of the API).
    """

    text: str
    usage: tuple[int, int] | None = (11, 7)
    finish: str | None = "stop"
    model: str | None = None
    delay: float = 0.0
    pieces: int = 3
    pause: float = 0.0
    after: tuple[int, str] | None = None
    reasoning: str = ""
    refusal: str | None = None


@attrs.frozen
class Raw:
    """Any status and body. `chunked_bytes` sends the body byte by byte, `pause` seconds apart."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = attrs.field(factory=dict)
    pause: float = 0.0


@attrs.frozen
class Silence:
    """Take the request and say nothing ("hang"), or end the connection ("close", "reset")."""

    how: str = "hang"


Action = Answer | Raw | Silence
Script = Sequence[Action] | Callable[[Received], Action]


def reply(text: str, usage: tuple[int, int] | None = (11, 7), **fields: Any) -> Answer:
    """A whole reply."""
    return Answer(text, usage, **fields)


def truncated(text: str, usage: tuple[int, int] | None = (11, 7)) -> Answer:
    """A reply that the limit on output tokens cut off."""
    return Answer(text, usage, finish="length")


def failure(
    status: int, message: str, headers: Mapping[str, str] | None = None, **fields: Any
) -> Raw:
    """An error of the API, as OpenAI words it."""
    error = {"message": message, "type": "error", "param": None, "code": None, **fields}
    return Raw(status, json.dumps({"error": error}).encode(), headers=headers or {})


def rate_limited(retry_after: str | float | None = None, **headers: str) -> Raw:
    """HTTP 429; `headers` with underscores for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if retry_after is not None:
        named["Retry-After"] = str(retry_after)
    return failure(429, "Rate limit reached", named, code="rate_limit_exceeded")


def server_error(status: int = 500, headers: Mapping[str, str] | None = None) -> Raw:
    """HTTP 5xx with a page of HTML, as proxies send it."""
    page = b"<html><body>upstream failed</body></html>"
    return Raw(status, page, "text/html", headers or {})


def overflow() -> Raw:
    """The prompt does not fit, as OpenAI says it."""
    text = "This model's maximum context length is 8192 tokens. However, your messages resulted in"
    return failure(400, f"{text} 9000 tokens.", code="context_length_exceeded", param="messages")


def unauthorized(message: str = "Incorrect API key provided.") -> Raw:
    """HTTP 401."""
    return failure(401, message, code="invalid_api_key")


def _recorded(path: Path, delay: float) -> Iterator[tuple[str, Answer]]:
    """The key of each prompt that was answered in a ledger, and its answer."""
    from sketchc.agents.llm.ledger import read_ledger

    for record in read_ledger(path).records:
        if record.reply is None:
            continue
        messages = [{"role": m.role, "content": m.content} for m in record.request.messages]
        usage = (record.reply.usage.input_tokens, record.reply.usage.output_tokens)
        yield (
            prompt_key(messages),
            Answer(
                record.reply.text,
                None if record.reply.usage.estimated else usage,
                finish=record.reply.finish,
                model=record.reply.model,
                delay=delay,
            ),
        )


def recorded_answers(path: Path, delay: float = 0.0) -> list[Answer]:
    """A script: the answers of a recorded ledger in their order, to whatever is asked."""
    return [answer for _, answer in _recorded(path, delay)]


class LedgerReplay:
    """A script: answers from a recorded ledger by exact messages; a prompt that is not in it gets
    HTTP 400. A prompt that was answered several times gets its replies in order, the last one from
    then on (so that a client that was killed before it could keep a reply can ask once more)."""

    def __init__(self, path: Path, delay: float = 0.0) -> None:
        self.given: Counter[str] = Counter()
        self.recorded: dict[str, list[Answer]] = {}
        for key, answer in _recorded(path, delay):
            self.recorded.setdefault(key, []).append(answer)

    def __call__(self, received: Received) -> Action:
        answers = self.recorded.get(received.key)
        if answers is None:
            return failure(400, "this prompt is not in the ledger", code="not_recorded")
        self.given[received.key] += 1
        return answers[min(self.given[received.key], len(answers)) - 1]


class LlmServer:
    """The server, in threads of its own; a context manager.

    `requests` holds every POST; `answered` counts, per `prompt_key`, the replies that went out
    whole (a client that has gone meanwhile is not counted), `broken` the clients that went away
    while they were answered. Scripts that run out answer HTTP 500
    and leave a line in `surprises`.
    """

    def __init__(self, script: Script, port: int = 0, models: Sequence[str] = ("m",)) -> None:
        self.script = script
        self.models = tuple(models)
        self.requests: list[Received] = []
        self.answered: Counter[str] = Counter()
        self.broken = 0
        self.surprises: list[str] = []
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        # The default poll of half a second would be waited for at the end of each test.
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> LlmServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def next_action(self, path: str, headers: Mapping[str, str], body: Any) -> tuple[str, Action]:
        """Record a request; the prompt's key and what to do."""
        with self._lock:
            received = Received(len(self.requests) + 1, path, headers, body)
            self.requests.append(received)
            if callable(self.script):
                return received.key, self.script(received)
            if received.number <= len(self.script):
                return received.key, self.script[received.number - 1]
            self.surprises.append(f"request {received.number}: the script has ended")
            return received.key, failure(500, "the script has ended")

    def count(self, key: str) -> None:
        with self._lock:
            self.answered[key] += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: LlmServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is what several tests are about."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            self.owner.surprises.append(repr(error))
        elif not self.owner.stopping.is_set():
            self.owner.broken += 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on standard error."""

    def do_GET(self) -> None:
        owner = self.server.owner
        if self.path == "/v1/models":
            entries = [{"id": name, "object": "model", "owned_by": "test"} for name in owner.models]
            self._send(Raw(200, json.dumps({"object": "list", "data": entries}).encode()))
        elif self.path == "/answered":
            self._send(Raw(200, json.dumps(owner.answered).encode()))
        else:
            self._send(failure(404, f"no {self.path}"))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(content)
        if self.path != "/v1/chat/completions":
            self._send(failure(404, f"no {self.path}"))
            return
        key, action = self.server.owner.next_action(self.path, headers, body)
        match action:
            case Answer():
                self._wait(action.delay)
                if self._client_is_gone():
                    self.close_connection = True
                elif (
                    self._stream(action, body) if body.get("stream") else self._whole(action, body)
                ):
                    self.server.owner.count(key)
            case Raw():
                self._send(action)
            case Silence(how):
                self._end(how)

    def _whole(self, answer: Answer, body: Mapping[str, Any]) -> bool:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.refusal is not None:
            message |= {"refusal": answer.refusal, "content": None}
        choice = {"index": 0, "message": message, "finish_reason": answer.finish}
        plain = _envelope("chat.completion", answer, body) | {"choices": [choice]}
        if answer.usage is not None:
            plain["usage"] = _usage(answer.usage)
        content = json.dumps(plain).encode()
        if answer.after is None:
            self._send(Raw(200, content, pause=answer.pause))
            return True
        self._head(200, "application/json", {"Content-Length": str(len(content))})
        self.wfile.write(content[: answer.after[0]])
        self._end(answer.after[1])
        return False

    def _stream(self, answer: Answer, body: Mapping[str, Any]) -> bool:
        self._head(200, "text/event-stream", {"Transfer-Encoding": "chunked"})
        base = _envelope("chat.completion.chunk", answer, body)
        for number, delta in enumerate(_deltas(answer)):
            if answer.after is not None and number == answer.after[0]:
                if answer.after[1] == "error":
                    self._event({"error": {"message": "the engine died", "type": "server_error"}})
                self._end(answer.after[1])
                return False
            self._wait(answer.pause)
            self._event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if answer.finish is not None:
            self._event(
                {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}]}
            )
        if answer.usage is not None and (body.get("stream_options") or {}).get("include_usage"):
            self._event({**base, "choices": [], "usage": _usage(answer.usage)})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")
        return True

    def _send(self, raw: Raw) -> None:
        headers = {**raw.headers, "Content-Length": str(len(raw.body))}
        self._head(raw.status, raw.content_type, headers)
        if raw.pause == 0:
            self.wfile.write(raw.body)
            return
        for byte in raw.body:
            self._wait(raw.pause)
            self.wfile.write(bytes([byte]))

    def _head(self, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _event(self, data: Mapping[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(data)}\n\n".encode())

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def _wait(self, seconds: float) -> None:
        """Sleep, but not past the end of the test."""
        if seconds and self.server.owner.stopping.wait(seconds):
            message = "the server is stopping"
            raise ConnectionError(message)

    def _client_is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def _end(self, how: str) -> None:
        if how == "hang":
            self._wait(600)
        if how == "reset":
            # No lingering: closing sends RST.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        self.close_connection = True


def _deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    if answer.reasoning:
        yield {"role": "assistant", "content": None, "reasoning_content": answer.reasoning}
    if answer.refusal is not None:
        yield {"role": "assistant", "refusal": answer.refusal}
        return
    size = max(1, math.ceil(len(answer.text) / answer.pieces))
    yield {"role": "assistant", "content": ""}
    for start in range(0, len(answer.text), size):
        yield {"content": answer.text[start : start + size]}


def _envelope(kind: str, answer: Answer, body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": kind,
        "created": 1_700_000_000,
        "model": answer.model or body.get("model", ""),
    }


def _usage(usage: tuple[int, int]) -> dict[str, int]:
    return {
        "prompt_tokens": usage[0],
        "completion_tokens": usage[1],
        "total_tokens": sum(usage),
    }


def main() -> None:
    """Serve a recorded ledger until the process is ended; the first line printed is the port."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--ledger", type=Path, required=True, help="the recording to answer from")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each reply")
    options = parser.parse_args()
    with LlmServer(LedgerReplay(options.ledger, options.delay), options.port) as server:
        print(server.port, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.stopping.wait()


if __name__ == "__main__":
    main()
