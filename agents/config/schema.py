"""The keys of `sketchc.toml` and the environment variables: one row each, with what is accepted.

`docs/CONFIGURATION.md` is made from these rows, and reading a file consults nothing else. In a
key, LEVEL stands for the name of a level of models and TARGET for that of a target.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from sketchc.agents.llm.messages import LEVELS
from sketchc.agents.workflows import WORKFLOWS
from sketchc.base.diagnostics import UsageError, refuse, refusing
from sketchc.lowering.registry import target_names

#: provider -> what stands after its colon, "" for nothing.
PROVIDERS = {"openai": "", "replay": "FILE", "mailbox": "DIR"}

#: What the wildcards of a key stand for.
WILDCARDS: dict[str, tuple[str, ...]] = {"LEVEL": LEVELS, "TARGET": target_names()}

#: Names, by their letters alone, that are refused: they would put a secret into a file.
KEY_NAMES = frozenset({"apikey", "key", "secret", "password", "token", "apitoken", "accesstoken"})

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


@attrs.frozen
class Kind:
    """What a value must be. `expected` completes "must be ..."; `from_text` reads the text of an
    environment variable (raising `ValueError`); `shown` is False where a value that does not fit
    may be a secret put in the wrong place."""

    expected: str
    accepts: Callable[[Any], bool]
    from_text: Callable[[str], Any] = str
    shown: bool = True


@attrs.frozen
class Setting:
    """One key. `variable` is the environment variable with the same meaning, "" for none."""

    key: str
    kind: Kind
    meaning: str
    variable: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names between the dots."""
        return tuple(self.key.split("."))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _flag_from_text(text: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        raise ValueError
    return known[text.lower()]


def _number(expected: str, fits: Callable[[float], bool]) -> Kind:
    def accepts(value: Any) -> bool:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return plain and math.isfinite(value) and fits(value)

    return Kind(expected, accepts, float)


def _whole(least: int) -> Kind:
    return Kind(
        f"a whole number, {least} or more",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
        int,
    )


def _choice(names: tuple[str, ...]) -> Kind:
    return Kind(f"one of {', '.join(names)}", lambda value: value in names)


def _is_provider(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    name, colon, location = value.partition(":")
    return name in PROVIDERS and bool(colon and location.strip()) == bool(PROVIDERS[name])


def _is_address(value: Any) -> bool:
    if not isinstance(value, str) or re.search(r"\s", value):
        return False
    found = re.fullmatch(r"https?://([^/?#]+)([/?#].*)?", value)
    return found is not None and "@" not in found.group(1)


def _is_devices(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(_whole(0).accepts(number) for number in value)
        and len(set(value)) == len(value)
    )


TEXT = Kind("a text that is not empty", _is_text)
FOLDER = Kind("the path of a folder", _is_text)
FLAG = Kind("true or false", lambda value: isinstance(value, bool), _flag_from_text)
SECONDS = _number("a number of seconds above 0", lambda value: value > 0)
DELAY = _number("a number of seconds, 0 or more", lambda value: value >= 0)
MONEY = _number("a number, 0 or more", lambda value: value >= 0)
TEMPERATURE = _number("a number from 0 to 2", lambda value: 0 <= value <= 2)
PROVIDER = Kind('"openai", "replay:FILE" or "mailbox:DIR"', _is_provider)
ADDRESS = Kind(
    "an http:// or https:// address with no user name or password in it", _is_address, shown=False
)
VARIABLE = Kind(
    "the name of an environment variable in capitals, such as OPENAI_API_KEY, never the key itself",
    lambda value: isinstance(value, str) and _VARIABLE.fullmatch(value) is not None,
    shown=False,
)
DEVICES = Kind("a list of different device numbers, such as [0, 1]", _is_devices)
WORKFLOW = _choice(tuple(WORKFLOWS))
CODER = _choice(("builtin", "llm"))


def _model(prefix: str, variable: str = "") -> tuple[Setting, ...]:
    """The keys of one level's model; a text in place of the table is its name."""
    return (
        Setting(prefix, TEXT, "Short for `name` alone."),
        Setting(f"{prefix}.name", TEXT, "The model, as the endpoint calls it.", variable),
        Setting(f"{prefix}.max_output_tokens", _whole(1), "Longest reply, in tokens."),
        Setting(f"{prefix}.context_tokens", _whole(1), "Longest prompt and reply together."),
        Setting(f"{prefix}.price_input", MONEY, "Price of a million input tokens."),
        Setting(f"{prefix}.price_output", MONEY, "Price of a million output tokens."),
        Setting(f"{prefix}.temperature", TEMPERATURE, "Sent only where it is set."),
    )


SETTINGS: tuple[Setting, ...] = (
    Setting("llm.provider", PROVIDER, "Where replies come from.", "SKETCHC_LLM"),
    Setting(
        "llm.base_url",
        ADDRESS,
        "An OpenAI-compatible endpoint; OpenAI's own where it is not set.",
        "SKETCHC_LLM_BASE_URL",
    ),
    Setting(
        "llm.api_key_env",
        VARIABLE,
        "The variable that holds the key. It is taken out of the environment when it is read.",
        "SKETCHC_LLM_API_KEY_ENV",
    ),
    Setting("llm.timeout", SECONDS, "Seconds that one call may take.", "SKETCHC_LLM_TIMEOUT"),
    Setting(
        "llm.mailbox_timeout",
        SECONDS,
        "Seconds to wait for a reply file.",
        "SKETCHC_LLM_MAILBOX_TIMEOUT",
    ),
    Setting("llm.stream", FLAG, "Ask for replies as a stream.", "SKETCHC_LLM_STREAM"),
    *_model("llm.models.LEVEL", "SKETCHC_LLM_MODEL_LEVEL"),
    Setting("llm.retry.attempts", _whole(1), "How often a call is tried, the first included."),
    Setting("llm.retry.first_delay", DELAY, "Seconds before the second try; doubles each time."),
    Setting("llm.retry.longest_delay", DELAY, "The longest such pause."),
    Setting(
        "llm.retry.longest_retry_after",
        DELAY,
        "A server that asks for a longer pause than this ends the call.",
    ),
    Setting("llm.caps.calls", _whole(1), "Most calls of one run.", "SKETCHC_LLM_MAX_CALLS"),
    Setting(
        "llm.caps.tokens",
        _whole(1),
        "Most tokens of one run, in and out.",
        "SKETCHC_LLM_MAX_TOKENS",
    ),
    Setting(
        "llm.caps.cost",
        MONEY,
        "Most money of one run, in the currency of the prices.",
        "SKETCHC_LLM_MAX_COST",
    ),
    Setting(
        "llm.caps.seconds", SECONDS, "Longest wall time of one run.", "SKETCHC_LLM_MAX_SECONDS"
    ),
    Setting("gen.workflow", WORKFLOW, "Which agents work, in what order."),
    Setting("gen.coder", CODER, "Who writes the kernel."),
    Setting("gen.max_attempts", _whole(1), "Candidates before a run gives up."),
    Setting("gen.max_repairs", _whole(0), "Repairs of a sketch within one attempt."),
    Setting("gen.docs_tokens", _whole(0), "Budget of the documents in one prompt of the Coder."),
    *_model("target.TARGET.models.LEVEL"),
    Setting("target.TARGET.log_folder", FOLDER, "Where runs without `-o` are kept."),
    Setting("target.TARGET.workflow", WORKFLOW, "Instead of `gen.workflow`."),
    Setting("target.TARGET.coder", CODER, "Instead of `gen.coder`."),
    Setting("target.TARGET.runs", _whole(5), "Samples of a measurement."),
    Setting("target.TARGET.warmup_seconds", DELAY, "Warm-up of each contender before samples."),
    Setting("target.TARGET.verify_timeout", SECONDS, "Seconds that one run of a kernel may take."),
    Setting("target.TARGET.devices", DEVICES, "Devices that the workers see; none named: all."),
)

#: Variables with no key of their own: name -> (what must stand there, meaning).
OTHER_VARIABLES: dict[str, tuple[Kind, str]] = {
    "SKETCHC_LLM_MODEL": (TEXT, "The model of every level; the variable of one level wins."),
    "OPENAI_BASE_URL": (
        ADDRESS,
        "Used where neither SKETCHC_LLM_BASE_URL nor `llm.base_url` is set.",
    ),
}


def covering(path: tuple[str, ...]) -> list[Setting]:
    """The settings at `path` and below it."""
    return [
        setting
        for setting in SETTINGS
        if len(setting.parts) >= len(path)
        and all(
            name in WILDCARDS.get(part, (part,))
            for part, name in zip(setting.parts, path, strict=False)
        )
    ]


def names_below(path: tuple[str, ...]) -> list[str]:
    """What may stand directly below `path`, in the order of the rows."""
    found: dict[str, None] = {}
    for setting in covering(path):
        if len(setting.parts) > len(path):
            part = setting.parts[len(path)]
            found.update(dict.fromkeys(WILDCARDS.get(part, (part,))))
    return list(found)


def variables() -> dict[str, tuple[str, Kind]]:
    """variable -> (dotted key, kind), one entry per level where the row has a wildcard."""
    found = {}
    for setting in SETTINGS:
        if "LEVEL" in setting.variable:
            for level in LEVELS:
                name = setting.variable.replace("LEVEL", level.upper())
                found[name] = (setting.key.replace("LEVEL", level), setting.kind)
        elif setting.variable:
            found[setting.variable] = (setting.key, setting.kind)
    return found


#: Longest part of a value that a message shows.
_SHOWN = 60


def read_file(path: Path, searched: bool = False) -> dict[str, Any]:
    """The dotted keys of a file and their values, checked one by one.

    `searched`: nobody named the file; one that belongs to another user is then refused, because it
    decides where prompts, and the key, are sent. Raises `UsageError`.
    """
    with refusing(f"cannot read {path}"):
        content = path.read_bytes()
        owner = path.stat().st_uid
    if searched and hasattr(os, "getuid") and owner not in (os.getuid(), 0):
        refuse(
            f"{path} belongs to another user, and it says where prompts and the key are sent: "
            f"to use it all the same, say --config {path}"
        )
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        refuse(f"{path}: not UTF-8 text (byte {error.start})", error)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        refuse(f"{path}: not valid TOML: {error or 'nested too deeply'}", error)
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
            refuse(f"{path}: {'.'.join(key)} must be a table with {', '.join(names_below(key))}")


def _checked(setting: Setting, value: Any, key: tuple[str, ...], path: Path, also: str = "") -> Any:
    """`value`, if the setting takes it; whole numbers pass where a fraction may stand."""
    if setting.kind.accepts(value):
        return float(value) if setting.kind.from_text is float else value
    shown = ""
    if setting.kind.shown:
        text = _as_toml(value)
        shown = f", not {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
    raise UsageError(f"{path}: {'.'.join(key)} must be {setting.kind.expected}{also}{shown}")


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
        refuse(
            f"{path}: {'.'.join(key)}: a key does not belong in a file, which is copied, committed "
            "and shown. Remove it there (and have it replaced, if others could see the file), put "
            "it into an environment variable, and name that: "
            'api_key_env = "OPENAI_API_KEY" in [llm]'
        )


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
