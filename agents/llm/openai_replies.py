"""Reading chat completions, whole and streamed, from servers that keep to the API more or less.

Only text, finish reason, model and usage are read; reasoning that some servers send beside the
text is left out (it counts in an estimate of the tokens, since it is paid for).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.agents.llm.messages import Message, Usage

#: English text and code, roughly.
CHARACTERS_PER_TOKEN = 4


class ShapeError(ValueError):
    """JSON that is not a chat completion; the message says what is wrong."""


@attrs.define
class Gathered:
    """A reply as it comes in. `finish` is the server's own word, "" before it came."""

    text: str = ""
    refusal: str = ""
    finish: str = ""
    model: str = ""
    counts: tuple[int, int] | None = None
    reasoning: int = 0  # characters

    def take_whole(self, body: object) -> None:
        """A completion in one piece. Raises `ShapeError`."""
        data = _mapping(body, "the body")
        choices = _choices(data)
        if not choices:
            message = "it has no choices"
            raise ShapeError(message)
        self._take_envelope(data)
        self._take_choice(choices[0], "message")
        if not self.finish:
            self.finish = "stop"

    def take_chunk(self, body: object) -> None:
        """One event of a stream; some have no choices (usage, filters). Raises `ShapeError`."""
        data = _mapping(body, "an event")
        self._take_envelope(data)
        for choice in _choices(data):
            if _mapping(choice, "a choice").get("index") in (0, None):
                self._take_choice(choice, "delta")

    def _take_envelope(self, data: Mapping[str, Any]) -> None:
        model = data.get("model")
        if isinstance(model, str) and model:
            self.model = model
        usage = data.get("usage")
        if isinstance(usage, Mapping):
            counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
            if all(isinstance(count, int) and count >= 0 for count in counts):
                self.counts = (int(counts[0] or 0), int(counts[1] or 0))

    def _take_choice(self, choice: object, part: str) -> None:
        data = _mapping(choice, "a choice")
        inner = data.get(part)
        if inner is None and part == "message":
            message = f"a choice has no {part}"
            raise ShapeError(message)
        words = _mapping(inner or {}, part)
        self.text += _content(words.get("content"))
        self.refusal += _content(words.get("refusal"))
        for name in ("reasoning_content", "reasoning"):
            if isinstance(words.get(name), str):
                self.reasoning += len(words[name])
                break
        finish = data.get("finish_reason")
        if isinstance(finish, str) and finish:
            self.finish = finish

    def usage(self, messages: tuple[Message, ...]) -> Usage:
        """What the server counted, else an estimate from the lengths."""
        if self.counts is not None:
            return Usage(*self.counts)
        asked = sum(len(message.content) for message in messages)
        return Usage(estimate_tokens(asked), estimate_tokens(len(self.text) + self.reasoning), True)


def estimate_tokens(characters: int) -> int:
    """Tokens in so many characters, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        message = f"{what} is {value!r:.80}, not a JSON object"
        raise ShapeError(message)
    return value


def _choices(data: Mapping[str, Any]) -> list[Any]:
    choices = data.get("choices")
    if choices is None:
        return []
    if not isinstance(choices, list):
        message = f"its choices are {choices!r:.80}"
        raise ShapeError(message)
    return choices


def _content(value: object) -> str:
    """Text, or a list of parts with text; null is no text. Raises `ShapeError`."""
    match value:
        case None:
            text = ""
        case str():
            text = value
        case list():
            text = "".join(
                part["text"]
                for part in value
                if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            )
        case _:
            message = f"its content is {value!r:.80}"
            raise ShapeError(message)
    return text
