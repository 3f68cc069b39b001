"""Replay: what varies matches exactly, constant parts by name, replies come in the recorded order,
and a miss shows where prompts part."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from sketchc.agents.llm.client import Client
from sketchc.agents.llm.ledger import Header, Ledger
from sketchc.agents.llm.messages import Message, Part, ReplayMissError, Reply, Request, Usage
from sketchc.agents.llm.replay import ReplayProvider
from sketchc.base.diagnostics import UsageError

HEADER = Header("softmax.py", "cpp", "cpu", "default", "builtin", 1234, {"constants": {"N": 8}})
SYSTEM = Message("system", "You design kernels.\nRules:\n1. Be right.")


def ask(text: str, purpose: str = "designer", level: str = "complex") -> Request:
    return Request(purpose, level, (SYSTEM, Message("user", text)))


def answer(text: str) -> Reply:
    return Reply(text, "model-x", usage=Usage(100, 20), cost=0.25, seconds=12.5, attempts=2)


def record(path: Path, *calls: tuple[Request, Reply | None]) -> ReplayProvider:
    """A recording with these calls, as a run writes it."""
    ledger = Ledger(path)
    ledger.begin(HEADER)
    for request, reply in calls:
        ledger.append(request, "openai", reply, "" if reply else "server", "" if reply else "no")
    ledger.close()
    return ReplayProvider(path)


def send(provider: ReplayProvider, request: Request) -> Reply:
    return provider.send(request, "key", lambda _: None)


def miss(provider: ReplayProvider, request: Request) -> list[str]:
    """The message's lines, less the advice."""
    with pytest.raises(ReplayMissError) as caught:
        send(provider, request)
    *lines, advice = str(caught.value).split("\n")
    assert "docs/AGENTS.md" in advice
    return lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_a_reply_carries_what_was_recorded_but_no_time(path: Path) -> None:
    provider = record(path, (ask("a"), answer("one")))
    assert send(provider, ask("a")) == attrs.evolve(answer("one"), seconds=0.0)
    assert provider.header == HEADER


def test_identical_prompts_are_answered_in_the_recorded_order(path: Path) -> None:
    provider = record(
        path,
        (ask("a"), answer("one")),
        (ask("b"), answer("other")),
        (ask("a"), None),  # a failed call is not replayed
        (ask("a"), answer("two")),
    )
    assert [send(provider, ask("a")).text for _ in range(2)] == ["one", "two"]
    (line,) = miss(provider, ask("a"))[:1]
    assert "answers this designer prompt 2 times, and it was asked once more" in line
    assert send(provider, ask("b")).text == "other"


def test_purpose_and_level_belong_to_the_match(path: Path) -> None:
    provider = record(path, (ask("a"), answer("one")))
    assert miss(provider, ask("a", level="fast"))[1:] == [
        "The closest one has another level:",
        "  recorded: complex",
        "  asked:    fast",
    ]
    assert miss(provider, ask("a", purpose="coder"))[1:] == [
        "The closest one has another purpose:",
        "  recorded: designer",
        "  asked:    coder",
    ]


def test_a_miss_shows_the_first_line_that_differs_from_the_closest(path: Path) -> None:
    far = ask("\n".join(f"other line {number}" for number in range(9)))
    near = ask("first\nsecond\nthird\nfourth")
    provider = record(path, (far, answer("x")), (near, answer("y")))
    lines = miss(provider, ask("first\nsecond\n3rd\nfourth"))
    assert lines == [
        f"the recording {path} does not hold this designer prompt.",
        "The closest one differs in message 2 (user), line 3:",
        "  recorded: 'third'",
        "  asked:    '3rd'",
    ]
    assert miss(provider, ask("first\nsecond\nthird"))[2:] == [
        "  recorded: 'fourth'",
        "  asked:    (no such line)",
    ]
    # Nothing is used up by a miss.
    assert send(provider, near).text == "y"


def ask_with(rules: str, task: str, name: str = "rules") -> Request:
    system = Message("system", ["You design kernels.\n", Part(name, rules), "Begin."])
    return Request("designer", "complex", (system, Message("user", task)))


def test_a_constant_part_of_another_version_is_noted_once(path: Path) -> None:
    calls = [(ask_with("Be right.\n", task), answer(task)) for task in ("a", "b")]
    provider = record(path, *calls)
    notes: list[str] = []
    provider.noted = notes.append
    assert send(provider, ask_with("Be right.\nBe quick.\n", "a")).text == "a"
    assert send(provider, ask_with("Be right.\nBe quick.\n", "b")).text == "b"
    (note,) = notes
    old, new = (
        ask_with(rules, "a").parts[0] for rules in ("Be right.\n", "Be right.\nBe quick.\n")
    )
    assert "'rules' of the prompts has changed" in note
    assert old.version in note
    assert new.version in note


def test_what_varies_and_the_names_of_parts_match_exactly(path: Path) -> None:
    provider = record(path, (ask_with("Be right.\n", "first\nsecond"), answer("x")))
    noted: list[str] = []
    provider.noted = noted.append
    lines = miss(provider, ask_with("Be quick.\n", "first\n2nd"))
    # The part, which has changed too, is not what is shown.
    assert lines[1:] == [
        "The closest one differs in message 2 (user), line 2:",
        "  recorded: 'second'",
        "  asked:    '2nd'",
    ]
    miss(provider, ask_with("Be right.\n", "first\nsecond", name="other rules"))
    assert not noted
    assert send(provider, ask_with("Be right.\n", "first\nsecond")).text == "x"
    assert not noted


def test_a_recording_without_parts_is_matched_word_for_word(path: Path) -> None:
    """As ledgers of version 1 are."""
    whole = [
        attrs.evolve(
            ask_with("Be right.\n", task),
            messages=tuple(
                Message(m.role, m.content) for m in ask_with("Be right.\n", task).messages
            ),
        )
        for task in ("a", "b")
    ]
    provider = record(path, *((request, answer("x")) for request in whole))
    assert send(provider, ask_with("Be right.\n", "a")).text == "x"
    assert "line 2" in miss(provider, ask_with("Be quick.\n", "b"))[1]


def test_long_lines_are_shown_around_the_difference(path: Path) -> None:
    old, new = "x" * 500 + "A" + "y" * 500, "x" * 500 + "B" + "y" * 500
    lines = miss(record(path, (ask(old), answer("x"))), ask(new))
    assert len(lines) == 4
    assert "A" in lines[2]
    assert "B" in lines[3]
    assert all(len(line) < 130 for line in lines[2:])


def test_another_role_and_more_messages_are_named(path: Path) -> None:
    provider = record(path, (ask("a"), answer("x")))
    longer = attrs.evolve(ask("a"), messages=(*ask("a").messages, Message("assistant", "b\nc")))
    assert miss(provider, longer)[1:] == [
        "The closest one has another number of messages:",
        "  recorded: (no further message)",
        "  asked:    assistant: 'b'",
    ]
    other = attrs.evolve(ask("a"), messages=(SYSTEM, Message("assistant", "a")))
    assert miss(provider, other)[2:] == [
        "  recorded: a message of user",
        "  asked:    a message of assistant",
    ]


def test_a_run_that_goes_on_gets_the_next_reply(path: Path, tmp_path: Path) -> None:
    """Killed after the first of two identical prompts: the second reply is next."""
    calls = [(ask("a"), answer("one")), (ask("b"), answer("other")), (ask("a"), answer("two"))]
    ledger = Ledger(tmp_path / "own.jsonl")
    ledger.begin(HEADER)
    first = Client(record(path, *calls), ledger)
    assert first.complete(ask("a")).text == "one"
    provider = ReplayProvider(path)
    provider.advance(ledger.records)
    second = Client(provider, ledger, consumed=len(ledger.records))
    assert second.complete(ask("a")).text == "two"
    assert second.complete(ask("b")).text == "other"
    assert second.spend.cost == pytest.approx(0.75)  # the cost as it was


def test_a_miss_is_final(path: Path) -> None:
    provider = record(path, (ask("a"), answer("one")))
    ledger = Ledger(None)
    with pytest.raises(ReplayMissError):
        Client(provider, ledger).complete(ask("b"))
    assert [entry.error for entry in ledger.records] == ["replay_miss"]


def test_a_file_that_cannot_be_replayed(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the ledger"):
        ReplayProvider(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="holds no reply"):
        record(path, (ask("a"), None))
    (tmp_path / "text.jsonl").write_text("hello\n")
    with pytest.raises(UsageError, match="not a ledger"):
        ReplayProvider(tmp_path / "text.jsonl")
