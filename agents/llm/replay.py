"""The provider `replay:FILE`: replies from a recorded ledger.

What varies in a prompt (the task, a plan, diagnostics, earlier replies) matches exactly, and its
constant parts (the language, a target's documents) by their names; a part whose text has changed
since is noted, once. A prompt that was recorded several times gets its replies in the order in
which they came. One that was not recorded is an error that shows the first line that differs from
the closest recorded one: nothing is ever made up. Failed calls are not replayed.
"""

from __future__ import annotations

import difflib
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from sketchc.agents.llm.client import Streamed
from sketchc.agents.llm.ledger import Header, Record, read_ledger
from sketchc.agents.llm.messages import Message, ReplayMissError, Reply, Request
from sketchc.base.diagnostics import refuse

#: How much of a differing line is shown, and how much of it stands before the difference.
_SHOWN, _BEFORE = 100, 30

_ADVICE = (
    "A recording replays only with the same task, options and forms of prompts; to go on, record "
    "it anew (docs/AGENTS.md)"
)


class ReplayProvider:
    """Replies of one recording. `header` says what the recorded run was started with; `noted` is
    told of each part of a prompt that is not as it was recorded."""

    name = "replay"

    def __init__(self, path: Path) -> None:
        """Raises `UsageError` for a file that is no ledger or holds no reply."""
        contents = read_ledger(path)
        assert contents.header is not None  # read_ledger refuses a file without one
        self.path = path
        self.header: Header = contents.header
        self._records = [record for record in contents.records if record.reply is not None]
        if not self._records:
            refuse(f"the recording {path} holds no reply")
        self.noted: Callable[[str], None] = lambda text: None
        self._changed: set[str] = set()
        self._waiting: dict[str, deque[Record]] = defaultdict(deque)
        for record in self._records:
            self._waiting[record.request.key].append(record)

    def advance(self, records: Iterable[Record]) -> None:
        """Leave out what an earlier process of the run was given: its ledger's answered calls."""
        for record in records:
            waiting = self._recorded(record.request)
            if record.reply is not None and waiting:
                waiting.popleft()

    def send(self, request: Request, idempotency_key: str, streamed: Streamed) -> Reply:
        """The recorded reply, with its tokens and cost, in no time. Raises `ReplayMissError`."""
        waiting = self._recorded(request)
        if not waiting:
            raise ReplayMissError(self._describe_miss(request))
        record = waiting.popleft()
        assert record.reply is not None
        self._note_changes(record.request, request)
        streamed(len(record.reply.text))
        return attrs.evolve(record.reply, seconds=0.0)

    def _recorded(self, request: Request) -> deque[Record] | None:
        """The recorded calls with this prompt that wait to be used; those of a ledger that knows no
        parts have it word for word."""
        return self._waiting.get(request.key) or self._waiting.get(request.whole_key)

    def _note_changes(self, recorded: Request, asked: Request) -> None:
        """Tell of the parts that have another version than in the recording, each once."""
        if not recorded.parts:
            return  # asked word for word
        for old, new in zip(recorded.parts, asked.parts, strict=True):
            if old != new and old.name not in self._changed:
                self._changed.add(old.name)
                self.noted(
                    f"{old.name!r} of the prompts has changed since this was recorded (version "
                    f"{old.version} then, {new.version} now); the recorded replies stand"
                )

    def _describe_miss(self, request: Request) -> str:
        keys = (request.key, request.whole_key)
        same = [record for record in self._records if record.request.key in keys]
        if same:
            return (
                f"the recording {self.path} answers this {request.purpose} prompt "
                f"{_times(len(same))}, and it was asked once more.\n{_ADVICE}"
            )
        closest = _closest(request, [_renewed(r.request, request) for r in self._records])
        return (
            f"the recording {self.path} does not hold this {request.purpose} prompt.\n"
            f"{_difference(request, closest)}\n{_ADVICE}"
        )


def _renewed(recorded: Request, asked: Request) -> Request:
    """The recorded request with the parts that `asked` has: a part whose text has changed is no
    reason for a miss."""
    now = {part.name: part for part in asked.parts}
    messages = (
        Message(m.role, [p if isinstance(p, str) else now.get(p.name, p) for p in m.pieces])
        for m in recorded.messages
    )
    return attrs.evolve(recorded, messages=tuple(messages))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _closest(request: Request, recorded: list[Request]) -> Request:
    """The recorded prompt that is most like this one, of the same purpose where there is one."""
    lines = _lines(request)
    candidates = [other for other in recorded if other.purpose == request.purpose] or recorded

    def likeness(other: Request) -> float:
        return difflib.SequenceMatcher(a=_lines(other), b=lines, autojunk=False).ratio()

    return max(candidates, key=likeness)


def _lines(request: Request) -> list[str]:
    return [line for message in request.messages for line in message.content.split("\n")]


def _difference(request: Request, recorded: Request) -> str:
    """The first difference between two prompts, in three lines."""
    for name in ("purpose", "level"):
        old, new = getattr(recorded, name), getattr(request, name)
        if old != new:
            return f"The closest one has another {name}:\n  recorded: {old}\n  asked:    {new}"
    pairs = list(zip(recorded.messages, request.messages, strict=False))
    for number, (old_message, new_message) in enumerate(pairs, 1):
        where = f"The closest one differs in message {number}"
        if old_message.role != new_message.role:
            old, new = old_message.role, new_message.role
            return f"{where}:\n  recorded: a message of {old}\n  asked:    a message of {new}"
        lines = itertools.zip_longest(
            old_message.content.split("\n"), new_message.content.split("\n")
        )
        for line, (old, new) in enumerate(lines, 1):
            if old != new:
                shown_old, shown_new = _excerpts(old, new)
                return (
                    f"{where} ({new_message.role}), line {line}:\n"
                    f"  recorded: {shown_old}\n  asked:    {shown_new}"
                )
    return (
        "The closest one has another number of messages:\n"
        f"  recorded: {_opening(recorded, len(pairs))}\n  asked:    {_opening(request, len(pairs))}"
    )


def _opening(request: Request, index: int) -> str:
    if index >= len(request.messages):
        return "(no further message)"
    message = request.messages[index]
    return f"{message.role}: {_excerpts(message.content.split(chr(10))[0], None)[0]}"


def _excerpts(old: str | None, new: str | None) -> tuple[str, str]:
    """Both lines around the first character that differs; None is a line that does not exist."""
    start = 0
    if old is not None and new is not None:
        pairs = enumerate(itertools.zip_longest(old, new))
        same = next((place for place, (a, b) in pairs if a != b), len(old))
        start = max(0, same - _BEFORE) if max(len(old), len(new)) > _SHOWN else 0

    def excerpt(line: str | None) -> str:
        if line is None:
            return "(no such line)"
        part = line[start : start + _SHOWN]
        before = "..." if start else ""
        after = "..." if start + _SHOWN < len(line) else ""
        return f"{before}{part!r}{after}"

    return excerpt(old), excerpt(new)
