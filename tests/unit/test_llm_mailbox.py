"""The mailbox: prompts as files that say everything, replies from files however they arrive."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sketchc.agents.llm.client import Client
from sketchc.agents.llm.ledger import Header, Ledger
from sketchc.agents.llm.mailbox import MailboxProvider, Pace
from sketchc.agents.llm.messages import Message, Reply, Request, ServerError, TimeoutFailure
from sketchc.base.diagnostics import UsageError

HEADER = Header("softmax.py", "cpp", "cpu", "default", "builtin", 1)


def ask(text: str = "Design it.", purpose: str = "designer") -> Request:
    return Request(purpose, "complex", (Message("system", "Rules."), Message("user", text)))


class Desk:
    """Somebody at the other side, on a clock of its own: `steps` are done one per look."""

    def __init__(self, folder: Path, *steps: Callable[[Path], None]) -> None:
        self.folder = folder
        self.time = 0.0
        self.steps = list(steps)
        self.reply = Path()
        self.looks = 0

    def provider(self, timeout: float | None = 60.0) -> MailboxProvider:
        pace = Pace(0.25, 1.0, lambda: self.time, self.sleep)
        return MailboxProvider(self.folder, timeout, self.expect, pace)

    def expect(self, reply: Path) -> None:
        self.reply = reply

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.looks += 1
        if self.steps:
            self.steps.pop(0)(self.reply)


def writes(text: str) -> Callable[[Path], None]:
    def step(path: Path) -> None:
        path.write_text(text)

    return step


def writes_bytes(content: bytes) -> Callable[[Path], None]:
    def step(path: Path) -> None:
        path.write_bytes(content)

    return step


def nothing(path: Path) -> None:
    """A look at which nothing happens."""


def send(provider: MailboxProvider, request: Request) -> Reply:
    return provider.send(request, "key", lambda _: None)


def prompts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.prompt.md"))


# ---------------------------------------------------------------- prompts


def test_a_prompt_is_one_file_that_says_everything(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    content = "Line one.\n\n## user\n```python\nx\n```\n<<<<< 00000000 end of message 1 of 2 >>>>>"
    request = ask(content)
    desk = Desk(folder, writes("Done."))
    reply = send(desk.provider(), request)
    mark = request.key[:8]
    (name,) = prompts(folder)
    assert name == f"0001-designer-{mark}.prompt.md"
    text = (folder / name).read_text()
    # What to do stands before the first message, with the name of the reply's file.
    preamble = text[: text.index("<<<<< ")]
    assert f"    0001-designer-{mark}.reply.md\n" in preamble
    assert str(tmp_path) not in text
    # Every message can be cut out again, verbatim.
    place = r"message \d of 2"
    pattern = rf"<<<<< {mark} {place}: (\w+) >>>>>\n(.*?)\n<<<<< {mark} end of {place} >>>>>\n"
    assert re.findall(pattern, text, re.DOTALL) == [("system", "Rules."), ("user", content)]
    assert reply.text == "Done."
    assert reply.usage.estimated
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens > 0
    assert reply.cost is None
    assert sorted(path.suffix for path in folder.iterdir()) == [".md", ".md"]  # nothing is left


def test_numbers_go_on_after_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "0041-coder-00000000.prompt.md").write_text("an older one")
    (tmp_path / "0099-notes.md").write_text("not a prompt")
    desk = Desk(tmp_path, writes("a"))
    send(desk.provider(), ask())
    desk.steps = [writes("b")]
    provider = desk.provider()
    send(provider, ask("Something else.", purpose="coder repair"))
    assert prompts(tmp_path)[1].startswith("0042-designer-")
    assert prompts(tmp_path)[2].startswith("0043-coder-repair-")


# ---------------------------------------------------------------- replies


def test_a_reply_counts_when_it_has_stayed_the_same_for_a_second(tmp_path: Path) -> None:
    desk = Desk(
        tmp_path, nothing, writes(""), nothing, writes("Half"), nothing, nothing, writes("Half of")
    )
    reply = send(desk.provider(), ask())
    assert reply.text == "Half of"
    assert desk.time == pytest.approx(7 * 0.25 + 1.0, abs=0.26)


def test_blank_files_do_not_count(tmp_path: Path) -> None:
    desk = Desk(tmp_path, writes(" \n"), *[nothing] * 8, writes("Text"))
    assert send(desk.provider(), ask()).text == "Text"


def test_a_reply_renamed_into_place_counts(tmp_path: Path) -> None:
    other = tmp_path / "draft.txt"

    def rename(path: Path) -> None:
        other.write_text("Drafted elsewhere.\n")
        other.rename(path)

    desk = Desk(tmp_path, nothing, rename)
    assert send(desk.provider(), ask()).text == "Drafted elsewhere.\n"


def test_a_file_that_goes_away_again_is_waited_for(tmp_path: Path) -> None:
    desk = Desk(tmp_path, writes("first"), nothing, lambda path: path.unlink(), writes("second"))
    assert send(desk.provider(), ask()).text == "second"


def test_the_reply_is_the_file_s_text_less_its_byte_order_mark(tmp_path: Path) -> None:
    desk = Desk(tmp_path, writes_bytes(b"\xef\xbb\xbf```a\r\nx\r\n``` "))
    assert send(desk.provider(), ask()).text == "```a\r\nx\r\n``` "


def test_another_encoding_is_named_and_not_tried_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, writes_bytes(b"caf\xe9"))
    with pytest.raises(ServerError, match="not UTF-8") as caught:
        send(desk.provider(), ask())
    assert not caught.value.retry


def test_a_time_out_is_final_and_leaves_the_prompt(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(TimeoutFailure, match=r"no reply in .*\.reply\.md within 5 s") as caught:
        send(desk.provider(timeout=5.0), ask())
    assert not caught.value.retry
    assert len(prompts(tmp_path)) == 1


def test_without_a_time_out_it_waits(tmp_path: Path) -> None:
    desk = Desk(tmp_path, *[nothing] * 500, writes("late"))
    assert send(desk.provider(timeout=None), ask()).text == "late"


def test_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    desk = Desk(tmp_path, nothing, interrupt)
    with pytest.raises(KeyboardInterrupt):
        send(desk.provider(), ask())
    # The next process finds the prompt again, and the reply that was written meanwhile.
    desk.reply.write_text("Meanwhile.")
    assert send(desk.provider(), ask()).text == "Meanwhile."
    assert len(prompts(tmp_path)) == 1


# ---------------------------------------------------------------- going on


def test_the_same_prompt_twice_is_two_questions(tmp_path: Path) -> None:
    desk = Desk(tmp_path, writes("one"))
    provider = desk.provider()
    assert send(provider, ask()).text == "one"
    desk.steps = [writes("two")]
    assert send(provider, ask()).text == "two"
    assert len(prompts(tmp_path)) == 2


def test_a_run_that_goes_on_uses_no_reply_twice(tmp_path: Path) -> None:
    folder, ledger = tmp_path / "box", Ledger(tmp_path / "ledger.jsonl")
    ledger.begin(HEADER)
    desk = Desk(folder, writes("one"))
    assert Client(desk.provider(), ledger).complete(ask()).text == "one"
    provider = desk.provider()
    provider.advance(ledger.records)
    desk.steps = [writes("two")]
    client = Client(provider, ledger, consumed=len(ledger.records))
    assert client.complete(ask()).text == "two"
    assert len(prompts(folder)) == 2
    assert client.spend.calls == 2


def test_a_prompt_of_the_same_name_and_another_text_is_not_taken(tmp_path: Path) -> None:
    desk = Desk(tmp_path, writes("one"))
    request = ask()
    (tmp_path / f"0007-designer-{request.key[:8]}.prompt.md").write_text("forged")
    send(desk.provider(), request)
    assert [name[:4] for name in prompts(tmp_path)] == ["0007", "0008"]


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    """Real clocks and threads: each gets its own reply."""
    quick = Pace(poll=0.01, settle=0.05)
    found: dict[str, str] = {}

    def answer(reply: Path) -> None:
        prompt = reply.with_name(reply.name.replace(".reply.", ".prompt."))
        number = re.search(r"task (\d)", prompt.read_text())
        assert number is not None
        reply.write_text(f"reply {number[1]}")

    def work(number: int) -> None:
        provider = MailboxProvider(tmp_path, 10.0, answer, quick)
        found[f"{number}"] = send(provider, ask(f"task {number}")).text

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {f"{number}": f"reply {number}" for number in range(4)}


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot use the mailbox"):
        MailboxProvider(tmp_path / "file")
