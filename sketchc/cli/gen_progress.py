"""The live display of `sketchc gen`: which agent, which attempt, what it has cost so far.

On a terminal the last line is live; elsewhere every change is one plain line. All of it goes to
standard error.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from sketchc.agents.run.summary import counted
from sketchc.cli.consoles import make_console

if TYPE_CHECKING:
    from rich.status import Status

    from sketchc.agents.llm.client import Client
    from sketchc.agents.llm.messages import Request

#: Seconds between two updates of the live line while a reply streams in.
_REFRESH = 0.2


class Display:
    """Hears what agents do (`session.Progress`) and how replies stream in."""

    def __init__(self, *, quiet: bool, console: Console | None = None) -> None:
        self.console = console or make_console(stderr=True, quiet=quiet, highlight=False)
        self.client: Client | None = None
        self._status: Status | None = None
        self._doing = "starting"
        self._updated = 0.0

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._status = self.console.status(self._doing)
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def note(self, agent: str, text: str) -> None:
        """One line that stays, and the live line's text from now on."""
        self._doing = f"{agent}: {text}"
        spent = self._spent()
        self.console.print(f"[bold]{agent:<9}[/bold] {escape(text)}{spent}", soft_wrap=True)
        self._update(self._doing)

    def streamed(self, request: Request, characters: int) -> None:
        """The reply to `request` has so many characters by now."""
        now = time.monotonic()
        if self._status is None or now - self._updated < _REFRESH:
            return
        self._updated = now
        self._update(f"{self._doing}; {request.purpose} writes, {characters:,} characters")

    def _update(self, text: str) -> None:
        if self._status is not None:
            self._status.update(escape(text) + self._spent())

    def _spent(self) -> str:
        """Calls, tokens and money so far; nothing before the first call."""
        if self.client is None or not self.client.spend.calls:
            return ""
        spend = self.client.spend
        tokens = spend.input_tokens + spend.output_tokens
        money = f", {spend.cost:.4f}" if spend.cost else ""
        return f"  [dim]({counted(spend.calls, 'call')}, {tokens:,} tokens{money})[/dim]"
