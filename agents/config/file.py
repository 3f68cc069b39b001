"""Reading one `sketchc.toml`: strictly, with errors that name the file, the key and what fits."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

from sketchc.agents.config.schema import KEY_NAMES, SETTINGS, Setting, covering, names_below
from sketchc.base.diagnostics import UsageError

#: Longest part of a value that a message shows.
_SHOWN = 60


def read_file(path: Path, searched: bool = False) -> dict[str, Any]:
    """The dotted keys of a file and their values, checked one by one.

    `searched`: nobody named the file; one that belongs to another user is then refused, because it
    decides where prompts, and the key, are sent. Raises `UsageError`.
    """
    try:
        content = path.read_bytes()
        owner = path.stat().st_uid
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise UsageError(msg) from error
    if searched and hasattr(os, "getuid") and owner not in (os.getuid(), 0):
        msg = (
            f"{path} belongs to another user, and it says where prompts and the key are sent: "
            f"to use it all the same, say --config {path}"
        )
        raise UsageError(msg)
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        msg = f"{path}: not UTF-8 text (byte {error.start})"
        raise UsageError(msg) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        msg = f"{path}: not valid TOML: {error or 'nested too deeply'}"
        raise UsageError(msg) from error
    values: dict[str, Any] = {}
    _read_table(document, (), path, values)
    return values


def _read_table(
    table: dict[str, Any], above: tuple[str, ...], path: Path, values: dict[str, Any]
) -> None:
    for name, value in table.items():
        key = (*above, name)
        _refuse_secrets(name, key, path)
        if name not in names_below(above):
            raise UsageError(_unknown(name, above, path))
        rows = covering(key)
        own = next((row for row in rows if len(row.parts) == len(key)), None)
        below = [row for row in rows if len(row.parts) > len(key)]
        if below and isinstance(value, dict):
            _read_table(value, key, path, values)
        elif own is not None and below:  # `complex = "name"` in place of a table
            values[f"{'.'.join(key)}.name"] = _checked(own, value, key, path, " or a table")
        elif own is not None:
            values[".".join(key)] = _checked(own, value, key, path)
        else:
            msg = f"{path}: {'.'.join(key)} must be a table with {', '.join(names_below(key))}"
            raise UsageError(msg)


def _checked(setting: Setting, value: Any, key: tuple[str, ...], path: Path, also: str = "") -> Any:
    """`value`, if the setting takes it; whole numbers pass where a fraction may stand."""
    if setting.kind.accepts(value):
        return float(value) if setting.kind.from_text is float else value
    shown = ""
    if setting.kind.shown:
        text = _as_toml(value)
        shown = f", not {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
    msg = f"{path}: {'.'.join(key)} must be {setting.kind.expected}{also}{shown}"
    raise UsageError(msg)


def _as_toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case dict():
            return "a table"
        case list():
            return f"[{', '.join(map(_as_toml, value))}]"
        case _:
            return str(value)


def _refuse_secrets(name: str, key: tuple[str, ...], path: Path) -> None:
    letters = "".join(letter for letter in name.lower() if letter.isalpha())
    if letters in KEY_NAMES or letters.endswith("apikey"):
        msg = (
            f"{path}: {'.'.join(key)}: a key does not belong in a file, which is copied, committed "
            "and shown. Remove it there (and have it replaced, if others could see the file), put "
            "it into an environment variable, and name that: "
            'api_key_env = "OPENAI_API_KEY" in [llm]'
        )
        raise UsageError(msg)


def _unknown(name: str, above: tuple[str, ...], path: Path) -> str:
    """What to say about a key that does not exist: the closest one, and the ones there are."""
    dotted = ".".join((*above, name))
    known = names_below(above)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        hint = f"did you mean {'.'.join((*above, close[0]))}?"
    else:
        elsewhere = [setting.key for setting in SETTINGS if setting.parts[-1] == name]
        hint = f"{name} is known as {' and as '.join(elsewhere)};" if elsewhere else ""
        place = f"in [{'.'.join(above)}]" if above else "at the top"
        hint = f"{hint} {place} there can be {', '.join(known)}".strip()
    return f"{path}: unknown key {dotted}: {hint}"
