"""The tables of docs/CONFIGURATION.md, made from the schema.

`python -m sketchc.agents.config.pages docs/CONFIGURATION.md` puts them in.
"""

from __future__ import annotations

from typing import Any

from sketchc.agents.config.schema import OTHER_VARIABLES, SETTINGS, Setting, variables
from sketchc.agents.config.settings import Configuration
from sketchc.agents.llm.settings import ModelSettings, TargetSettings
from sketchc.reporting.language_pages import main, table

#: Defaults that the code has as "not set", in the reader's words.
_UNSET = {
    "llm.provider": "none: must be set",
    "llm.base_url": "OpenAI's",
    "llm.mailbox_timeout": "no limit",
    "target.TARGET.log_folder": "`sketchc-runs`",
    "target.TARGET.workflow": "`gen.workflow`",
    "target.TARGET.coder": "`gen.coder`",
}


def key_table() -> str:
    """Every key: what it takes, its default, its variable, its meaning."""
    rows = []
    for setting in SETTINGS:
        variable = f"`{setting.variable}`" if setting.variable else ""
        cells = (f"`{setting.key}`", setting.kind.expected, default_of(setting), variable)
        rows.append((*cells, setting.meaning))
    return table(("key", "takes", "default", "variable", "meaning"), rows)


def variable_table() -> str:
    """Every environment variable of the agents, by name."""
    found = {name: (kind, f"As `{key}`.") for name, (key, kind) in variables().items()}
    found |= OTHER_VARIABLES
    rows = ((f"`{name}`", kind.expected, text) for name, (kind, text) in sorted(found.items()))
    return table(("variable", "takes", "meaning"), rows)


def default_of(setting: Setting) -> str:
    """The default as a cell of the table, read from the settings' own classes."""
    if setting.key in _UNSET:
        return _UNSET[setting.key]
    parts, of_level = setting.parts, "LEVEL" in setting.parts
    of_target = parts[0] == "target"
    if of_level and (of_target or parts[-1] in ("LEVEL", "name")):
        return "the base level's" if of_target else "the nearest level's"
    value: Any = ModelSettings() if of_level else TargetSettings() if of_target else Configuration()
    for name in parts if parts[0] == "llm" and not of_level else parts[-1:]:
        value = getattr(value, name)
    return "none" if value is None else f"`{_plain(value)}`"


def _plain(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return str(list(value))
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


if __name__ == "__main__":
    main({"keys": key_table, "variables": variable_table})
