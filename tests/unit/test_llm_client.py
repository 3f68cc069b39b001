"""The client: nothing is paid for twice, caps stop a run cleanly, back-off keeps to its policy."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_cases import HEADER, MODEL, QUESTION, provider_of
from llm_server import (
    Action,
    LlmServer,
    Received,
    Silence,
    overflow,
    rate_limited,
    reply,
    server_error,
    truncated,
)
from processes import started

from sketchc.agents.llm.client import Caps, Client, RetryPolicy, Spend, Timing, complete_whole
from sketchc.agents.llm.ledger import Ledger, read_ledger
from sketchc.agents.llm.messages import (
    CapReachedError,
    ContextOverflowError,
    LlmError,
    Message,
    RateLimitError,
    Reply,
    Request,
    ServerError,
    TruncatedError,
    Usage,
)
from sketchc.agents.llm.replay import ReplayProvider
from sketchc.base.diagnostics import UsageError

PRICED = attrs.evolve(MODEL, price_input=1e6, price_output=1e6)  # one per token


def question(text: str) -> Request:
    return Request("designer", "complex", (Message("user", text),))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as made:
        made.begin(HEADER)
        yield made


@attrs.define
class FakeTime:
    """A clock that only sleeping moves."""

    time: float = 0.0
    pauses: list[float] = attrs.field(factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    def timing(self, fraction: float = 0.999) -> Timing:
        return Timing(now=lambda: self.time, sleep=self.sleep, fraction=lambda: fraction)


def test_each_try_is_in_the_ledger_as_it_went(ledger: Ledger) -> None:
    clock = FakeTime()
    with LlmServer([server_error(), rate_limited(2), reply("yes", (10, 5))]) as server:
        client = Client(provider_of(server, model=PRICED), ledger, timing=clock.timing())
        got = client.complete(QUESTION)
    assert (got.text, got.attempts, got.cost) == ("yes", 3, 15.0)
    assert client.spend == Spend(3, 10, 5, 15.0, seconds=sum(clock.pauses))
    assert client.position == 3
    ledger.close()
    records = read_ledger(ledger.path or Path()).records
    assert [record.error for record in records] == ["server", "rate_limit", ""]
    assert [record.request for record in records] == [QUESTION] * 3
    assert [record.provider for record in records] == ["openai"] * 3
    assert records[2].reply == got
    assert "HTTP 500" in records[0].message
    assert all(record.started.endswith("Z") for record in records)


def test_streamed_progress_names_the_request(ledger: Ledger) -> None:
    seen: list[tuple[Request, int]] = []
    with LlmServer([reply("x" * 30)]) as server:
        client = Client(
            provider_of(server), ledger, streamed=lambda request, n: seen.append((request, n))
        )
        client.complete(QUESTION)
    assert seen[-1] == (QUESTION, 30)


def numbered(received: Received) -> Action:
    return reply(f"answer {received.number}", (received.number, 1))


@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5),
    finished=st.integers(0, 5),
    share=st.floats(0, 1),
)
def test_killed_at_any_byte_no_paid_reply_is_asked_for_again(
    texts: list[str], finished: int, share: float
) -> None:
    """The first `finished` calls belong to steps that a checkpoint says are done; the run was
    killed at some byte of the ledger behind them."""
    finished = min(finished, len(texts))
    with tempfile.TemporaryDirectory() as folder, LlmServer(numbered) as server:
        provider = provider_of(server)
        path = Path(folder) / "ledger.jsonl"
        ledger = Ledger(path)
        ledger.begin(HEADER)
        client = Client(provider, ledger)
        first = [client.complete(question(text)) for text in texts[:finished]]
        whole = path.stat().st_size
        first += [client.complete(question(text)) for text in texts[finished:]]
        ledger.close()
        content = path.read_bytes()
        path.write_bytes(content[: whole + round(share * (len(content) - whole))])

        ledger = Ledger(path)
        kept = len(ledger.records)
        client = Client(provider, ledger, consumed=finished)
        again = [client.complete(question(text)) for text in texts[finished:]]
        ledger.close()
        assert [answer.text for answer in again[: kept - finished]] == [
            answer.text for answer in first[finished:kept]
        ]
        assert len(server.requests) == len(texts) + len(texts) - kept
        asked = Counter(received.key for received in server.requests[len(texts) :])
        assert asked == Counter(received.key for received in server.requests[kept : len(texts)])
        assert client.position == len(texts)
        assert client.spend.calls == len(texts)


def test_only_answered_calls_with_the_same_key_are_reused(ledger: Ledger) -> None:
    clock = FakeTime()
    script = [reply("a1"), server_error(), reply("b1"), reply("a2"), reply("c1")]
    with LlmServer(script) as server:
        first = Client(provider_of(server), ledger, timing=clock.timing())
        for text in ("a", "b", "a"):
            first.complete(question(text))
        client = Client(provider_of(server), ledger, consumed=1)
        assert client.position == 2  # the failed try is done with, the reply to b is not
        # A request that is not among them is asked; the others stay there to be used.
        assert client.complete(question("c")).text == "c1"
        assert client.complete(question("a")).text == "a2"
        assert client.position == 2
        assert client.complete(question("b")).text == "b1"
        assert client.position == 5
        other = attrs.evolve(question("a"), purpose="coder")
        with pytest.raises(LlmError, match="script has ended"):
            Client(provider_of(server), ledger, retry=RetryPolicy(1)).complete(other)
    assert len(server.requests) == 6


def test_a_paid_reply_is_given_although_a_cap_is_reached(ledger: Ledger) -> None:
    with LlmServer([reply("one", (50, 50))]) as server:
        Client(provider_of(server), ledger).complete(QUESTION)
        client = Client(provider_of(server), ledger, Caps(calls=1, tokens=100), consumed=0)
        assert client.complete(QUESTION).text == "one"
        with pytest.raises(CapReachedError):
            client.complete(QUESTION)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("caps", "name", "says"),
    [
        (Caps(calls=2), "calls", r"2 of 2 calls used; raise it with --max-calls of `sketchc gen`"),
        (
            Caps(tokens=30),
            "tokens",
            r"30 of 30 tokens used.*--max-tokens.*\btokens in \[llm\.caps\]",
        ),
        (Caps(cost=29.5), "money", r"30 of 29\.5 used.*--max-cost.*sketchc\.toml.*--resume"),
    ],
)
def test_a_cap_stops_the_run_before_the_call(
    ledger: Ledger, caps: Caps, name: str, says: str
) -> None:
    with LlmServer([reply("x", (10, 5))] * 3) as server:
        client = Client(provider_of(server, model=PRICED), ledger, caps)
        client.complete(question("one"))
        client.complete(question("two"))
        with pytest.raises(CapReachedError, match=says) as caught:
            client.complete(question("three"))
        assert caught.value.cap == name
        # What earlier processes of the run spent counts.
        resumed = Client(provider_of(server, model=PRICED), ledger, caps, consumed=2)
        with pytest.raises(CapReachedError):
            resumed.complete(question("three"))
    assert len(server.requests) == 2
    assert len(ledger.records) == 2  # being stopped is no call


@pytest.mark.parametrize(
    ("caps", "says"),
    [
        (
            Caps(tokens=30),
            r"next prompt, about 25 tokens by its length, would pass the cap on tokens: "
            r"6 of 30 tokens used; raise it with --max-tokens",
        ),
        (Caps(cost=30.5), r"about 25 by its length, would pass the cap on cost: 6 of 30\.5 used"),
    ],
    ids=["tokens", "cost"],
)
def test_a_prompt_that_alone_would_pass_a_cap_is_not_sent(
    ledger: Ledger, caps: Caps, says: str
) -> None:
    """Input and output cost one each per token; a reply's own length is known afterwards only."""
    with LlmServer([reply("x", (1, 5)), reply("y", (24, 50))]) as server:
        client = Client(provider_of(server, model=PRICED), ledger, caps)
        client.complete(question("one"))
        with pytest.raises(CapReachedError, match=says):
            client.complete(question("a" * 99))
        assert client.complete(question("a" * 96)).text == "y"
        assert client.spend.cost == 80.0  # above the cap, by one reply
    assert len(server.requests) == 2


def test_failed_tries_count_as_calls_but_not_as_tokens(ledger: Ledger) -> None:
    clock = FakeTime()
    with LlmServer([server_error()] * 5) as server:
        client = Client(provider_of(server), ledger, Caps(calls=3), timing=clock.timing())
        with pytest.raises(CapReachedError, match="3 of 3 calls"):
            client.complete(QUESTION)
        assert client.spend == Spend(3, 0, 0, 0.0, seconds=sum(clock.pauses))
    assert len(server.requests) == 3


def test_the_cap_on_time_ends_a_back_off_before_it_starts(ledger: Ledger) -> None:
    clock = FakeTime()
    with LlmServer([rate_limited(20), reply("x"), rate_limited(20), rate_limited(20)]) as server:
        client = Client(provider_of(server), ledger, Caps(seconds=50), timing=clock.timing())
        assert client.complete(QUESTION).text == "x"
        with pytest.raises(CapReachedError, match=r"40\.0 of 50 s used.*--max-seconds") as caught:
            client.complete(QUESTION)
        assert caught.value.cap == "seconds"
        assert clock.pauses == [20.0, 20.0]
        clock.time += 50
        with pytest.raises(CapReachedError):
            client.complete(QUESTION)
    assert len(server.requests) == 4


def test_a_cap_on_cost_without_prices_stops_after_one_call(ledger: Ledger) -> None:
    with LlmServer([reply("x")] * 2) as server:
        client = Client(provider_of(server), ledger, Caps(cost=1.0))
        client.complete(QUESTION)
        with pytest.raises(CapReachedError, match="price_input and price_output") as caught:
            client.complete(QUESTION)
    assert caught.value.cap == "money"
    assert len(server.requests) == 1
    assert client.spend.unpriced_calls == 1


def test_the_cap_on_cost_is_not_for_replies_that_nobody_pays(
    ledger: Ledger, tmp_path: Path
) -> None:
    recording = tmp_path / "recording.jsonl"
    with Ledger(recording) as recorded:
        recorded.begin(HEADER)
        recorded.append(QUESTION, "openai", Reply("dear", "m", usage=Usage(2, 2), cost=4.0))
        recorded.append(QUESTION, "openai", Reply("unknown", "m", usage=Usage(2, 2)))
    client = Client(ReplayProvider(recording), ledger, Caps(cost=0.5))
    assert [client.complete(QUESTION).text for _ in range(2)] == ["dear", "unknown"]
    # A model that goes on from there is asked: that nobody paid so far is no missing price.
    with LlmServer([reply("new", (1, 1))]) as server:
        provider = provider_of(server, model=PRICED)
        client = Client(provider, ledger, Caps(cost=20), consumed=2)
        assert client.complete(QUESTION).text == "new"


@given(
    attempt=st.integers(1, 5000),
    asked=st.none() | st.floats(0, 1000),
    fraction=st.floats(0, 1, exclude_max=True),
    policy=st.builds(
        RetryPolicy,
        attempts=st.integers(1, 5000),
        first_delay=st.floats(0, 10),
        longest_delay=st.floats(0, 100),
        longest_retry_after=st.floats(0, 500),
    ),
)
def test_back_off_keeps_to_its_policy(
    attempt: int, asked: float | None, fraction: float, policy: RetryPolicy
) -> None:
    delay = policy.delay(attempt, asked, fraction)
    over = attempt >= policy.attempts or (asked or 0.0) > policy.longest_retry_after
    assert (delay is None) == over
    if delay is not None:
        assert delay >= (asked or 0.0)
        assert delay <= max(asked or 0.0, policy.longest_delay)
        if attempt < 1000:  # 2 ** 1024 is no float
            assert delay <= max(asked or 0.0, policy.first_delay * 2.0 ** (attempt - 1))


def test_back_off_doubles_up_to_its_limit_with_full_jitter(ledger: Ledger) -> None:
    for fraction in (0.0, 0.25):
        clock = FakeTime()
        with LlmServer([server_error()] * 5) as server:
            retry = RetryPolicy(attempts=5, first_delay=2.0, longest_delay=10.0)
            client = Client(provider_of(server), ledger, retry=retry, timing=clock.timing(fraction))
            with pytest.raises(ServerError, match=r"HTTP 500.*\(given up after 5 tries\)"):
                client.complete(QUESTION)
        assert clock.pauses == [fraction * ceiling for ceiling in (2, 4, 8, 10)]
        assert len(server.requests) == 5


def test_a_pause_that_is_too_long_ends_the_call(ledger: Ledger) -> None:
    clock = FakeTime()
    with LlmServer([rate_limited(301)]) as server:
        client = Client(provider_of(server), ledger, timing=clock.timing())
        with pytest.raises(RateLimitError, match="try again in 301 s"):
            client.complete(QUESTION)
    assert clock.pauses == []
    assert [record.error for record in ledger.records] == ["rate_limit"]


def test_what_cannot_get_better_is_not_tried_again(ledger: Ledger) -> None:
    with LlmServer([overflow(), reply("x")]) as server:
        client = Client(provider_of(server), ledger)
        with pytest.raises(ContextOverflowError):
            client.complete(QUESTION)
    assert len(server.requests) == 1
    assert [record.error for record in ledger.records] == ["context_overflow"]


def test_a_setting_that_is_missing_is_no_failed_call(ledger: Ledger) -> None:
    with LlmServer([]) as server, pytest.raises(UsageError):
        Client(provider_of(server), ledger).complete(attrs.evolve(QUESTION, level="fast"))
    assert ledger.records == ()


def test_a_cut_reply_is_returned_as_such(ledger: Ledger) -> None:
    with LlmServer([truncated("half")]) as server:
        assert Client(provider_of(server), ledger).complete(QUESTION).finish == "length"


@pytest.mark.parametrize(
    ("asked", "second"), [(None, 14), (20, 40), (40, 50)], ids=["own limit", "doubled", "largest"]
)
def test_a_cut_reply_is_asked_for_once_more_with_a_larger_limit(
    ledger: Ledger, asked: int | None, second: int
) -> None:
    request = attrs.evolve(QUESTION, max_output_tokens=asked)
    with LlmServer([truncated("half"), reply("whole")]) as server:
        got = complete_whole(Client(provider_of(server), ledger), request, largest=50)
        assert got.text == "whole"
        limits = [received.body["max_tokens"] for received in server.requests]
        assert limits == [asked or MODEL.max_output_tokens, second]
        # After a kill, both are there: the same two come back in order.
        again = complete_whole(Client(provider_of(server), ledger, consumed=0), request, 50)
        assert again == got
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("asked", "calls", "limit"), [(20, 2, 40), (50, 1, 50)], ids=["cut twice", "at the largest"]
)
def test_a_reply_that_stays_cut_is_an_error(
    ledger: Ledger, asked: int, calls: int, limit: int
) -> None:
    request = attrs.evolve(QUESTION, max_output_tokens=asked)
    says = rf"cut off at {limit} output tokens"
    with (
        LlmServer([truncated("half")] * 3) as server,
        pytest.raises(TruncatedError, match=says) as caught,
    ):
        complete_whole(Client(provider_of(server), ledger), request, largest=50)
    assert "[llm.models.complex]" in str(caught.value)
    assert len(server.requests) == calls


INTERRUPTED = """
import sys
from pathlib import Path
from sketchc.agents.llm.settings import LlmSettings, ModelSettings
from sketchc.agents.llm.client import Client, RetryPolicy
from sketchc.agents.llm.ledger import Header, Ledger
from sketchc.agents.llm.messages import Message, Request
from sketchc.agents.llm.openai_provider import OpenAIProvider

settings = LlmSettings(base_url=sys.argv[1], models={"complex": ModelSettings(name="m")})
ledger = Ledger(Path(sys.argv[2]))
ledger.begin(Header("t.py", "cpp", "host", "default", "builtin", 1))
provider = OpenAIProvider(settings, "sk-12345678")
client = Client(provider, ledger, retry=RetryPolicy(first_delay=600, longest_delay=600))
try:
    client.complete(Request("designer", "complex", (Message("user", "?"),)))
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize(
    ("action", "records"),
    [(Silence("hang"), 0), (reply("x" * 90, after=(2, "hang")), 0), (rate_limited(200), 1)],
    ids=["in a call", "in a stream", "in a back-off"],
)
def test_an_interrupt_ends_at_once_with_nothing_half_written(
    tmp_path: Path, action: Action, records: int
) -> None:
    path = tmp_path / "ledger.jsonl"
    with LlmServer([action]) as server:
        command = [sys.executable, "-c", INTERRUPTED, server.base_url, str(path)]
        with started(command, stdout=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                written = path.exists() and path.read_bytes().count(b"\n") == 1 + records
                if server.requests and written:
                    break
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
    assert output == "stopped\n"
    assert process.returncode == 0
    content = path.read_bytes()
    contents = read_ledger(path)
    assert contents.size == len(content)
    assert [record.error for record in contents.records] == ["rate_limit"] * records
    assert contents.header is not None


def test_spend_adds_up_over_processes(ledger: Ledger) -> None:
    with LlmServer([reply("x", (10, 5)), reply("y", None)]) as server:
        Client(provider_of(server, model=PRICED), ledger).complete(question("a"))
        client = Client(provider_of(server), ledger, consumed=1)
        got = client.complete(question("bbbbbbbb"))
    assert got.usage == Usage(2, 1, estimated=True)
    assert attrs.evolve(client.spend, seconds=0.0) == Spend(2, 12, 6, 15.0, unpriced_calls=1)
