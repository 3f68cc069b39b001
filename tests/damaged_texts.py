"""Texts with one token changed, and a way to judge many of them that itself always ends.

What changes is what a model or a person gets wrong: a token is missing, twice there, in another's
place, or is another of its kind. Which change is made depends on the number of the text alone.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Generic, TypeVar

import attrs

EXAMPLES = {
    path.stem: path.read_text("utf-8")
    for path in sorted((Path(__file__).parents[1] / "examples").glob("*.sketch"))
}
TOKEN = re.compile(r"#[^\n]*|\"[^\"\n]*\"|\d[\w.]*|\w+|//|->|<=|>=|==|!=|[^\s\w]")
OPERATORS = ("+", "-", "*", "//", "%")
RELATIONS = ("<", "<=", ">", ">=", "==", "!=")
NUMBERS = ("0", "1", "2", "3", "7", "16", "27", "64", "1000", "-1", "100000", "9223372036854775807")


@attrs.frozen
class Damaged:
    """One text, and what was done to which example."""

    number: int
    example: str
    change: str
    text: str


def damaged(number: int) -> Damaged:
    """An example with one token changed."""
    chosen = random.Random(number)
    name = chosen.choice(sorted(EXAMPLES))
    text = EXAMPLES[name]
    tokens = [token for token in TOKEN.finditer(text) if not token.group().startswith("#")]
    place = chosen.randrange(len(tokens))
    token = tokens[place]
    old, new = token.group(), _other(token.group(), tokens, chosen)
    end = token.end()
    if chosen.random() < 0.15 and place + 1 < len(tokens):  # two tokens change places
        after = tokens[place + 1]
        old, end = text[token.start() : after.end()], after.end()
        new = after.group() + text[token.end() : after.start()] + token.group()
    line = text.count("\n", 0, token.start()) + 1
    change = f"line {line}: {old!r} becomes {new!r}"
    return Damaged(number, name, change, text[: token.start()] + new + text[end:])


def _other(old: str, tokens: list[re.Match[str]], chosen: random.Random) -> str:
    """What stands in a token's place."""
    kind = chosen.random()
    if kind < 0.1:
        return ""
    if kind < 0.15:
        return f"{old} {old}"
    if kind < 0.7:  # another of its kind
        if old in OPERATORS:
            return chosen.choice([other for other in OPERATORS if other != old])
        if old in RELATIONS:
            return chosen.choice([other for other in RELATIONS if other != old])
        if old.isdigit():
            around = (str(int(old) + 1), str(int(old) * 2), str(int(old) - 1))
            return chosen.choice((*NUMBERS, *around))
        if old.isidentifier():
            words = {token.group() for token in tokens if token.group().isidentifier()}
            return chosen.choice(sorted(words - {old}) or [old])
    return chosen.choice(tokens).group()


# ---------------------------------------------------------------- judging many

Item = TypeVar("Item")
Verdict = TypeVar("Verdict")


@attrs.frozen
class Judged(Generic[Item, Verdict]):
    """The result for one item: `verdict` is None where the process had to be ended, or died."""

    item: Item
    verdict: Verdict | None
    seconds: float  # of processor time


def judged(
    judge: Callable[[Item], Verdict], items: Iterable[Item], seconds: float, workers: int = 2
) -> Iterator[Judged[Item, Verdict]]:
    """`judge` of every item in processes of their own. One that takes more than `seconds` of
    processor time is ended by the system, whatever it is in the middle of."""
    left = iter(items)
    running: dict[Connection, tuple[multiprocessing.process.BaseProcess, Item]] = {}
    spare: list[tuple[Connection, multiprocessing.process.BaseProcess]] = []
    try:
        while True:
            while len(running) < workers and (item := next(left, None)) is not None:
                ours, process = spare.pop() if spare else _started(judge, seconds)
                running[ours] = (process, item)
                ours.send(item)
            if not running:
                return
            for ours in wait(list(running)):
                assert isinstance(ours, Connection)
                process, item = running.pop(ours)
                try:
                    verdict, taken = ours.recv()
                except EOFError:
                    process.join()
                    yield Judged(item, None, seconds)
                    continue
                spare.append((ours, process))
                yield Judged(item, verdict, taken)
    finally:
        for process in (*(p for _, p in spare), *(p for p, _ in running.values())):
            process.kill()
            process.join()


def _started(
    judge: Callable[[Item], Verdict], seconds: float
) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(judge, seconds, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _work(judge: Callable[[Item], Verdict], seconds: float, theirs: Connection) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while True:
        item = theirs.recv()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        start = time.process_time()
        verdict = judge(item)
        taken = time.process_time() - start
        signal.setitimer(signal.ITIMER_PROF, 0)
        theirs.send((verdict, taken))
