"""The provider `openai` through the real package, against a real HTTP server that misbehaves."""

from __future__ import annotations

import email.utils
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import openai  # noqa: F401 - takes seconds, and not those that a test measures
import pytest
from llm_cases import HEADER, KEY, QUESTION, ask, both_ways, outcome, provider_of
from llm_server import (
    Action,
    Answer,
    LlmServer,
    Raw,
    Received,
    Silence,
    failure,
    overflow,
    rate_limited,
    reply,
    server_error,
    truncated,
    unauthorized,
)

from sketchc.agents.llm.client import Client, RetryPolicy, Timing
from sketchc.agents.llm.ledger import Ledger
from sketchc.agents.llm.messages import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailure,
    ContentFilterError,
    ContextOverflowError,
    LlmError,
    QuotaError,
    RateLimitError,
    Request,
    ServerError,
    TimeoutFailure,
    Usage,
)
from sketchc.agents.llm.openai_provider import OpenAIProvider, retry_after
from sketchc.agents.llm.settings import LlmSettings, ModelSettings
from sketchc.base.diagnostics import UsageError


@both_ways
def test_a_reply_comes_back_with_what_it_used(stream: bool) -> None:
    text = "µ → \u2028 ```sketch\nx\n```" * 3
    model = ModelSettings(
        name="m", max_output_tokens=99, temperature=0.5, price_input=2.0, price_output=10.0
    )
    seen: list[int] = []
    with LlmServer([reply(text, (1000, 200), model="m-2026", reasoning="hm")]) as server:
        got = provider_of(server, stream, model=model).send(QUESTION, "key-1", seen.append)
    assert (got.text, got.model, got.finish) == (text, "m-2026", "stop")
    assert got.usage == Usage(1000, 200)
    assert got.cost == pytest.approx(0.004)
    assert got.seconds > 0
    sent = server.requests[0]
    assert sent.headers["idempotency-key"] == "key-1"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.body["model"] == "m"
    assert sent.body["max_tokens"] == 99
    assert sent.body["temperature"] == 0.5
    assert sent.body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi?"},
    ]
    assert sent.body.get("stream_options") == ({"include_usage": True} if stream else None)
    assert seen == sorted(seen)
    assert (seen[-1] if seen else None) == (len(text) if stream else None)
    assert server.answered == {sent.key: 1}


@both_ways
def test_the_request_can_set_its_own_limit_and_a_cut_reply_says_so(stream: bool) -> None:
    with LlmServer([truncated("half")]) as server:
        got = ask(provider_of(server, stream), Request("coder", "complex", (), 17))
    assert (got.text, got.finish) == ("half", "length")
    assert server.requests[0].body["max_tokens"] == 17
    assert "temperature" not in server.requests[0].body


@both_ways
def test_usage_that_is_not_counted_is_estimated(stream: bool) -> None:
    with LlmServer([reply("x" * 41, usage=None)]) as server:
        got = ask(provider_of(server, stream, model=ModelSettings("m", price_input=1.0)))
    assert got.usage == Usage(len("Be brief.Hi?") // 4, 11, estimated=True)
    assert got.cost is None  # one price of two is no price


@both_ways
@pytest.mark.parametrize(
    ("action", "error", "retry", "pause", "says"),
    [
        (rate_limited(), RateLimitError, True, None, "HTTP 429: Rate limit reached"),
        (rate_limited(2.5), RateLimitError, True, 2.5, "429"),
        (rate_limited(9, retry_after_ms="1500"), RateLimitError, True, 1.5, "429"),
        (rate_limited("soon"), RateLimitError, True, None, "429"),
        (
            failure(429, "You exceeded your quota", code="insufficient_quota"),
            QuotaError,
            False,
            None,
            "quota",
        ),
        (failure(402, "Insufficient Balance"), QuotaError, False, None, "Balance"),
        (server_error(500), ServerError, True, None, "HTTP 500: <html>"),
        (server_error(503, {"Retry-After": "4"}), ServerError, True, 4.0, "HTTP 503"),
        (Raw(502, b""), ServerError, True, None, "HTTP 502"),
        (Raw(500, b'{"error": "no dict"}'), ServerError, True, None, "no dict"),
        (unauthorized(), AuthenticationError, False, None, "key is missing or wrong"),
        (failure(403, "Not yours"), AuthenticationError, False, None, "Not yours .*'m'"),
        (failure(404, "No such model"), BadRequestError, False, None, "is there a model 'm'"),
        (failure(400, "Bad temperature"), BadRequestError, False, None, "Bad temperature"),
        (failure(408, "slow"), TimeoutFailure, True, None, "HTTP 408"),
        (failure(413, "too large"), ContextOverflowError, False, None, "HTTP 413"),
        (overflow(), ContextOverflowError, False, None, "8192 tokens"),
        (
            failure(400, "Blocked", code="content_filter"),
            ContentFilterError,
            False,
            None,
            "Blocked",
        ),
        (reply("", refusal="I will not"), ContentFilterError, False, None, "I will not"),
        (reply("x", finish="content_filter"), ContentFilterError, False, None, "withheld"),
        (Silence("close"), ConnectionFailure, True, None, "failed"),
        (Silence("reset"), ConnectionFailure, True, None, "reset"),
        (reply("x" * 90, after=(2, "close")), ConnectionFailure, True, None, "failed"),
        (reply("x" * 90, after=(2, "reset")), ConnectionFailure, True, None, "reset"),
        (Raw(200, b"hello"), ServerError, True, None, "not JSON: 'hello'"),
        (Raw(200, b""), ServerError, True, None, "the body is empty"),
        (Raw(200, b"<html>", "text/html"), ServerError, True, None, "<html>"),
        (Raw(200, b"[1, 2]"), ServerError, True, None, "not a JSON object"),
        (Raw(200, b"{}"), ServerError, True, None, "no choices"),
        (Raw(200, b'{"choices": []}'), ServerError, True, None, "no choices"),
        (Raw(200, b'{"choices": 3}'), ServerError, True, None, "choices are 3"),
        (Raw(200, b'{"choices": [{}]}'), ServerError, True, None, "no message"),
        (
            Raw(200, b'{"choices": [{"message": {"content": 7}}]}'),
            ServerError,
            True,
            None,
            "content is 7",
        ),
        (Raw(200, b'{"error": {"message": "busy"}}'), ServerError, True, None, "busy"),
    ],
    ids=lambda value: None if isinstance(value, str) else getattr(value, "__name__", None),
)
def test_every_failure_has_its_error(
    stream: bool,
    action: Action,
    error: type[LlmError],
    retry: bool,
    pause: float | None,
    says: str,
) -> None:
    got = outcome(action, stream)
    assert type(got) is error
    assert (got.retry, got.retry_after) == (retry, pause)
    assert re.search(says, str(got))
    assert "\n" not in str(got)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"data: {oops\n\n", "JSON"),
        (b"data: 3\n\n", "an event is 3"),
        (b'data: {"choices": "x"}\n\n', "choices are 'x'"),
        (b'data: {"choices": [{"delta": {"content": 7}}]}\n\n', "content is 7"),
    ],
)
def test_events_of_another_shape_are_the_servers_fault(body: bytes, says: str) -> None:
    got = outcome(Raw(200, body, "text/event-stream"), stream=True)
    assert isinstance(got, ServerError)
    assert says in str(got)


def test_a_stream_without_an_end_is_a_broken_connection() -> None:
    body = b'data: {"choices": [{"index": 0, "delta": {"content": "half"}}]}\n\n'
    for content in (body, body + b"data: [DONE]\n\n", b"data: [DONE]\n\n"):
        got = outcome(Raw(200, content, "text/event-stream"), stream=True)
        assert isinstance(got, ConnectionFailure)
        assert "the stream ended before the reply did" in str(got)


def test_an_error_in_a_stream_is_the_servers() -> None:
    got = outcome(reply("x" * 90, after=(2, "error")), stream=True)
    assert isinstance(got, ServerError)
    assert "the engine died" in str(got)


def test_a_reply_that_is_complete_survives_a_broken_end() -> None:
    """The finish reason came, the usage did not: nothing would be gained by paying again."""
    event = (
        b'data: {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}'
    )
    cut = Raw(200, event + b"\n\ndata: {oops\n\n", "text/event-stream")
    with LlmServer([cut]) as server:
        got = ask(provider_of(server))
    assert (got.text, got.finish, got.usage.estimated) == ("ok", "stop", True)


def test_a_server_that_does_not_stream_is_understood() -> None:
    body = {"choices": [{"message": {"content": [{"type": "text", "text": "parts"}]}}]}
    with LlmServer([Raw(200, json.dumps(body).encode())]) as server:
        got = ask(provider_of(server, stream=True))
    assert (got.text, got.finish, got.model) == ("parts", "stop", "m")


@both_ways
@pytest.mark.parametrize(
    "action",
    [
        Silence("hang"),
        # Each byte comes well within any time-out of a socket.
        Raw(200, b" " * 10_000, pause=0.02),
        reply("x" * 400, pieces=400, pause=0.02),
        reply("x" * 90, after=(2, "hang")),
    ],
    ids=["hang", "dribbled bytes", "dribbled events", "hang inside"],
)
def test_the_time_out_is_a_limit_on_the_whole_reply(stream: bool, action: Action) -> None:
    start = time.monotonic()
    if isinstance(action, Raw) and stream:
        action = Raw(200, action.body, "text/event-stream", pause=action.pause)
    if isinstance(action, Answer) and not stream and action.after is None:
        action = reply("x" * 400, pause=0.02)
    got = outcome(action, stream, timeout=0.3)
    assert isinstance(got, TimeoutFailure)
    assert "within 0.3 s" in str(got)
    assert time.monotonic() - start < 5


def test_an_abandoned_call_is_hung_up() -> None:
    """Nobody waits for it: the server must not go on generating."""
    with LlmServer([reply("x" * 4000, pieces=4000, pause=0.01)]) as server:
        with pytest.raises(TimeoutFailure):
            ask(provider_of(server, timeout=2.0))
        deadline = time.monotonic() + 30
        while not server.broken and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.broken == 1
    assert server.answered == {}


def test_no_server_is_a_connection_failure() -> None:
    with LlmServer([]) as server:
        provider = provider_of(server)
    with pytest.raises(ConnectionFailure, match=r"http://127\.0\.0\.1:\d+/v1 failed: .*refused"):
        ask(provider)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        # vLLM
        (
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 4096 tokens. However, you "
                "requested 5000 tokens (4000 in the messages, 1000 in the completion).",
                "type": "BadRequestError",
                "code": 400,
            },
        ),
        (
            400,
            {"message": "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's "
             "maximum context length is 8192 tokens and your request has 5000 input tokens"},
        ),
        (500, {"message": "The prompt (total length 9) is too long to fit into the model"}),
        # llama.cpp, newer and older
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                }
            },
        ),
        (500, {"error": {"code": 500, "message": "Context size has been exceeded."}}),
        # SGLang, TGI, LM Studio
        (400, {"message": "The input (9000 tokens) is longer than the model's context length"}),
        (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096"}),
        (400, {"error": "the model is loaded with context length of only 4096 tokens"}),
        (400, {"detail": "Requested tokens (2285) exceed context window of 2048"}),
    ],
)  # fmt: skip
def test_the_wordings_of_an_overflow(status: int, body: dict[str, object]) -> None:
    got = outcome(Raw(status, json.dumps(body).encode()), stream=False)
    assert isinstance(got, ContextOverflowError)


def old_server(received: Received) -> Action:
    """Refuses both of what servers disagree about, one at a time."""
    if "max_tokens" in received.body:
        text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        return failure(400, text, param="max_tokens", code="unsupported_parameter")
    if "stream_options" in received.body:
        where = [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]
        return Raw(422, json.dumps({"detail": where}).encode())
    return reply("fine")


@both_ways
def test_a_server_with_other_parameters_is_asked_again_and_remembered(stream: bool) -> None:
    with LlmServer(old_server) as server:
        provider = provider_of(server, stream)
        assert ask(provider, key="first").text == "fine"
        refused = len(server.requests) - 1
        assert ask(provider, key="second").text == "fine"
    assert refused == (2 if stream else 1)
    assert len(server.requests) == refused + 2
    last = server.requests[-1].body
    assert last["max_completion_tokens"] == ModelSettings().max_output_tokens
    assert "max_tokens" not in last
    keys = [received.headers["idempotency-key"] for received in server.requests]
    assert len(set(keys)) == len(keys)  # another body under the same key contradicts it
    assert keys[-1] == "second"


def test_a_server_that_refuses_both_ways_is_asked_no_third_time() -> None:
    def stubborn(received: Received) -> Action:
        return failure(400, "max_completion_tokens and stream_options: no")

    with LlmServer(stubborn) as server, pytest.raises(BadRequestError):
        ask(provider_of(server))
    assert len(server.requests) == 3


def test_without_a_key_servers_that_want_none_are_asked() -> None:
    with LlmServer([reply("hello")]) as server:
        assert ask(provider_of(server, key="")).text == "hello"


@pytest.mark.parametrize(
    "base_url", ["localhost:8000", "ftp://host/v1", "http://", "http://h:x/v1"]
)
def test_an_address_that_is_none_is_refused(base_url: str) -> None:
    with pytest.raises(UsageError, match="base_url must look like"):
        OpenAIProvider(LlmSettings(base_url=base_url), KEY)


def test_a_level_without_a_model_says_what_to_set() -> None:
    with LlmServer([]) as server:
        provider = provider_of(server)
        with pytest.raises(UsageError, match=r"\[llm\.models\.fast\] of sketchc\.toml"):
            ask(provider, Request("check", "fast", ()))
    assert server.requests == []


def test_without_the_package_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['openai'] = None\n"
        "from sketchc.agents.config.settings import LlmSettings\n"
        "from sketchc.agents.llm.openai_provider import OpenAIProvider\n"
        "from sketchc.base.diagnostics import UsageError\n"
        "try: OpenAIProvider(LlmSettings(), 'sk-12345678')\n"
        "except UsageError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install 'sketchc[llm]'" in done.stdout


def test_importing_the_provider_does_not_import_the_package() -> None:
    program = (
        "import sys, sketchc.agents.llm.openai_provider, sketchc.agents.llm.client\n"
        "print([name for name in sys.modules if name.startswith(('openai', 'httpx'))])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_date_in_retry_after_is_a_pause_from_now() -> None:
    now = 1_700_000_000.0
    assert retry_after({"retry-after": email.utils.formatdate(now + 30, usegmt=True)}, now) == 30.0
    assert retry_after({"retry-after": email.utils.formatdate(now - 30, usegmt=True)}, now) == 0.0
    for nonsense in ("-1", "nan", "inf", "tomorrow", "", "Mon, 99 Foo"):
        assert retry_after({"retry-after": nonsense}, now) is None
    date = email.utils.formatdate(time.time() + 1000, usegmt=True)
    pause = outcome(rate_limited(date), stream=True).retry_after
    assert pause is not None
    assert 900 < pause <= 1000


def test_the_client_gets_through_a_bad_day(tmp_path: Path) -> None:
    """Everything at once: every failure that may pass is tried again, with one idempotency key."""
    script = [
        rate_limited(0.5),
        server_error(503),
        reply("x" * 50, after=(2, "reset")),
        Raw(200, b"[]"),
        Silence("close"),
        reply("done", (3, 4)),
    ]
    pauses: list[float] = []
    timing = Timing(sleep=pauses.append, fraction=lambda: 0.5)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.begin(HEADER)
    with LlmServer(script) as server:
        retry = RetryPolicy(attempts=6, first_delay=2.0, longest_delay=7.0)
        got = Client(provider_of(server), ledger, retry=retry, timing=timing).complete(QUESTION)
    assert (got.text, got.attempts) == ("done", 6)
    assert pauses == [1.0, 2.0, 3.5, 3.5, 3.5]
    assert [record.error for record in ledger.records] == [
        "rate_limit",
        "server",
        "connection",
        "server",
        "connection",
        "",
    ]
    assert len({sent.headers["idempotency-key"] for sent in server.requests}) == 1
    ledger.close()
