"""The provider `mailbox:DIR`: each prompt becomes a file, and its reply is read from another.

For machines with no network, and for pasting prompts into a chat by hand. A prompt is one
self-contained Markdown file, `0001-designer-3fa0c1d2.prompt.md`; its reply is expected in
`0001-designer-3fa0c1d2.reply.md` beside it. Files stay where they are: a run that was stopped finds
its prompt again when it goes on, and the reply that was written meanwhile.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from sketchc.agents.llm.client import Streamed
from sketchc.agents.llm.ledger import Record
from sketchc.agents.llm.messages import (
    Reply,
    Request,
    ServerError,
    TimeoutFailure,
    Usage,
    estimate_tokens,
)
from sketchc.base.diagnostics import refusing
from sketchc.base.files import replace_file

_PROMPT = re.compile(r"(\d{4,})-(.+-[0-9a-f]{8})\.prompt\.md")


@attrs.frozen
class Pace:
    """How a folder is watched: seconds between two looks, and for how long a reply must have stayed
    the same before it counts as written."""

    poll: float = 0.2
    settle: float = 1.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class MailboxProvider:
    """Prompts and replies as files of one folder; several runs may share it."""

    name = "mailbox"

    def __init__(
        self,
        folder: Path,
        timeout: float | None = None,
        waiting: Callable[[Path], None] | None = None,
        pace: Pace = Pace(),
    ) -> None:
        """`timeout`: seconds to wait for one reply, None for ever; `waiting` is told the file in
        which a reply is expected. Raises `UsageError` where the folder cannot be made."""
        self.folder = folder
        self._timeout = timeout
        self.waiting = waiting
        self._pace = pace
        #: Answered prompts of an earlier process, by file stem without the number.
        self._done: Counter[str] = Counter()
        self._used: set[Path] = set()
        with refusing(f"cannot use the mailbox {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass

    def advance(self, records: Iterable[Record]) -> None:
        """Leave out the replies that an earlier process of the run used: those of its ledger."""
        for record in records:
            if record.reply is not None and record.provider == self.name:
                self._done[_label(record.request)] += 1

    def send(self, request: Request, idempotency_key: str, streamed: Streamed) -> Reply:
        """Write the prompt, or find it, and wait for its reply.

        Raises `TimeoutFailure`, and `ServerError` for a file that holds no UTF-8 text.
        """
        prompt = self._find(request) or self._write(request)
        started = self._pace.now()
        text = self._wait(prompt.with_name(_reply_name(prompt)), started)
        self._used.add(prompt)
        streamed(len(text))
        asked = sum(len(message.content) for message in request.messages)
        return Reply(
            text=text,
            model=self.name,
            usage=Usage(estimate_tokens(asked), estimate_tokens(len(text)), estimated=True),
            seconds=self._pace.now() - started,
        )

    # ------------------------------------------------------------ prompts

    def _find(self, request: Request) -> Path | None:
        """The file of this very prompt, left by an earlier process of the run and not used by any
        call; None where there is none."""
        files = [
            path
            for _, label, path in self._prompts()
            if label == _label(request)
            and path.read_bytes() == prompt_text(request, path.name).encode(errors="replace")
        ]
        unused = [path for path in files[self._done[_label(request)] :] if path not in self._used]
        return unused[0] if unused else None

    def _prompts(self) -> list[tuple[int, str, Path]]:
        """All prompts of the folder as (number, label, file), by number."""
        return sorted(
            (int(match[1]), match[2], path)
            for path in self.folder.iterdir()
            if (match := _PROMPT.fullmatch(path.name))
        )

    def _write(self, request: Request) -> Path:
        """The prompt as a new file under the next free number; it appears at once and whole."""
        earlier = self._prompts()
        number = 1 + (earlier[-1][0] if earlier else 0)
        path = self.folder / f"{number:04}-{_label(request)}.prompt.md"
        text = prompt_text(request, path.name)
        with refusing(f"cannot write {path}"):
            replace_file(path, text.encode(errors="replace"), 0o644, durable=True)
        return path

    # ------------------------------------------------------------ replies

    def _wait(self, path: Path, started: float) -> str:
        """The text of a reply, once it is there and has stayed the same for `settle` seconds.

        One rule for replies that are written in pieces, saved by an editor, and renamed into place.
        """
        if self.waiting is not None:
            self.waiting(path)
        before: object = None
        since = started
        while True:
            now = self._pace.now()
            state = _state(path)
            if state != before:
                before, since = state, now
            elif state is not None and now - since >= self._pace.settle:
                text = _text(path)
                # Unchanged after reading, too.
                if text.strip() and _state(path) == state:
                    return text
            if self._timeout is not None and now - started >= self._timeout:
                msg = f"no reply in {path} within {self._timeout:g} s"
                failure = TimeoutFailure(msg)
                failure.retry = False  # the next try would only wait as long again
                raise failure
            self._pace.sleep(self._pace.poll)


def prompt_text(request: Request, name: str) -> str:
    """The prompt's file: what to do with it, then every message verbatim between two lines that
    hold the request's key, which no message can contain."""
    mark = request.key[:8]
    total = len(request.messages)
    count = "the one message" if total == 1 else f"the {total} messages"
    parts = [
        f"# A prompt of sketchc: {request.purpose}\n\n"
        f"Between the lines marked {mark} are {count} of a conversation with a language "
        "model, verbatim.\nWrite the model's next message, and nothing else, into the file\n\n"
        f"    {_reply_name(Path(name))}\n\n"
        "beside this one, as UTF-8 text. It is read one second after the file was last changed; to "
        "write for longer,\nuse another name and rename it in the end.\n"
    ]
    for number, message in enumerate(request.messages, 1):
        place = f"message {number} of {total}"
        parts.append(
            f"\n<<<<< {mark} {place}: {message.role} >>>>>\n"
            f"{message.content}\n"
            f"<<<<< {mark} end of {place} >>>>>\n"
        )
    return "".join(parts)


def _label(request: Request) -> str:
    """The part of a prompt's file name behind the number: the purpose and the request's key."""
    purpose = re.sub(r"[^A-Za-z0-9_-]+", "-", request.purpose)
    return f"{purpose}-{request.key[:8]}"


def _reply_name(prompt: Path) -> str:
    return f"{prompt.name.removesuffix('.prompt.md')}.reply.md"


def _state(path: Path) -> tuple[int, int, int] | None:
    """Inode, size and time of change of a file; None while it is missing or empty."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found.st_size else None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""  # taken away again: keep waiting
    except OSError as error:
        failure = ServerError(f"cannot read the reply {path}: {error.strerror}")
    except UnicodeDecodeError:
        failure = ServerError(f"the reply {path} is not UTF-8 text: save it as UTF-8 and --resume")
    failure.retry = False  # it stays as it is until somebody mends it
    raise failure
