"""Settings of the agents: `sketchc.toml`, the environment, the command line, in rising order.

    [llm]
    provider = "openai"                   # openai | replay:FILE | mailbox:DIR
    base_url = "http://localhost:8000/v1" # any OpenAI-compatible endpoint
    api_key_env = "OPENAI_API_KEY"        # the name of the variable, never the key itself
    [llm.models.complex]
    name = "..."
    [target.triton_ascend]
    models = { complex = "other-model" }
    log_folder = "runs/ascend"

`schema` has a row for every key; docs/CONFIGURATION.md lists them. A level without a
model uses that of the nearest level that has one, the more capable of two that are equally near.
Relative paths in a file start at the file's folder.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from sketchc.agents.llm.messages import LEVELS
from sketchc.agents.llm.settings import (
    FILE_NAME,
    LlmSettings,
    ModelSettings,
    TargetSettings,
    nearest_model,
)
from sketchc.base.diagnostics import refuse


@attrs.frozen
class Configuration:
    """All settings of one run. `origins` says for a dotted key where its value came from; one that
    is not in it has its default."""

    llm: LlmSettings = LlmSettings()
    workflow: str = "default"
    coder: str = "builtin"
    max_attempts: int = 5
    max_repairs: int = 4
    #: Budget of the DocSpec excerpts in one Coder prompt, in tokens (estimated).
    docs_tokens: int = 12_000
    targets: Mapping[str, TargetSettings] = attrs.field(factory=dict)
    origins: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    def target(self, name: str) -> TargetSettings:
        """The settings of a target, defaults where the file says nothing."""
        return self.targets.get(name, TargetSettings())


# ---------------------------------------------------------------- reading


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Configuration:
    """Read `path`, or the file that `find_file` finds, and apply the environment (`os.environ`).

    Raises `UsageError` naming file, key and what is expected there for anything unknown or of the
    wrong type, and for a key that is written into the file.
    """
    environment = os.environ if environment is None else environment
    found = path
    if path is None:
        with contextlib.suppress(FileNotFoundError):  # the working folder was removed
            found = find_file(Path.cwd(), environment)
    values: dict[str, Any] = {}
    if found is not None:
        from sketchc.agents.config.schema import read_file

        values = read_file(found, searched=path is None)
    origins = dict.fromkeys(values, "" if found is None else str(found))
    configuration = _build(values, found, origins)
    return _apply_environment(configuration, environment)


def find_file(start: Path, environment: Mapping[str, str]) -> Path | None:
    """`sketchc.toml` in `start` or the nearest folder above it, else in the user's configuration
    folder ($XDG_CONFIG_HOME, else ~/.config); None where there is none."""
    here = start.absolute()
    for folder in (here, *here.parents):
        if os.path.isfile(folder / FILE_NAME):
            return folder / FILE_NAME
    home = environment.get("XDG_CONFIG_HOME")
    base = Path(home) if home else Path(environment.get("HOME") or Path.home()) / ".config"
    user = base / "sketchc" / FILE_NAME
    return user if os.path.isfile(user) else None


def _build(
    values: Mapping[str, Any], path: Path | None, origins: Mapping[str, str]
) -> Configuration:
    """The configuration of a file's dotted keys; `values` are checked already."""
    folder = Path() if path is None else path.parent
    models = {
        level: ModelSettings(**found)
        for level in LEVELS
        if (found := _group(values, f"llm.models.{level}"))
    }
    llm = _changed(LlmSettings(), values, models, folder)
    names = {key.split(".")[1] for key in values if key.startswith("target.")}
    targets = {name: _target(values, name, models, folder) for name in sorted(names)}
    return Configuration(llm, **_group(values, "gen"), targets=targets, origins=dict(origins))


def _group(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The values directly below a dotted key, by their own names."""
    start = f"{prefix}."
    below = {
        key.removeprefix(start): value for key, value in values.items() if key.startswith(start)
    }
    return {key: value for key, value in below.items() if "." not in key}


def _changed(
    llm: LlmSettings, values: Mapping[str, Any], models: Mapping[str, ModelSettings], folder: Path
) -> LlmSettings:
    """`llm` with these models and what the dotted keys say; relative paths start at `folder`."""
    plain = _group(values, "llm")
    if "provider" in plain:
        plain["provider"], plain["location"] = split_provider(plain["provider"], folder)
    return attrs.evolve(
        llm,
        **plain,
        models=models,
        retry=attrs.evolve(llm.retry, **_group(values, "llm.retry")),
        caps=attrs.evolve(llm.caps, **_group(values, "llm.caps")),
    )


def _target(
    values: Mapping[str, Any], name: str, models: Mapping[str, ModelSettings], folder: Path
) -> TargetSettings:
    plain = _group(values, f"target.{name}")
    if "log_folder" in plain:
        plain["log_folder"] = folder / Path(plain["log_folder"]).expanduser()
    if "devices" in plain:
        plain["devices"] = tuple(plain["devices"])
    own = {}
    for level in LEVELS:
        found = _group(values, f"target.{name}.models.{level}")
        if found:
            base = nearest_model(models, level) or ModelSettings()
            renamed = with_name(models, base, found.get("name", base.name))
            own[level] = attrs.evolve(renamed, **found)
    return TargetSettings(**plain, models=own)


def split_provider(text: str, folder: Path = Path()) -> tuple[str, str]:
    """`replay:FILE` as ("replay", path from `folder`)."""
    provider, _, location = text.partition(":")
    return provider, str(folder / Path(location.strip()).expanduser()) if location else ""


def with_name(models: Mapping[str, ModelSettings], base: ModelSettings, name: str) -> ModelSettings:
    """The settings of the model `name`: a level's own, where one has it, else those of `base`
    without its prices, which belong to another model."""
    if name == base.name:
        return base
    known = next((model for model in models.values() if model.name == name), None)
    return known or attrs.evolve(base, name=name, price_input=None, price_output=None)


# ---------------------------------------------------------------- what wins over the file


#: What an option of the command line sets.
_OPTIONS = {
    "llm": "llm.provider",
    "base_url": "llm.base_url",
    "max_calls": "llm.caps.calls",
    "max_tokens": "llm.caps.tokens",
    "max_cost": "llm.caps.cost",
    "max_seconds": "llm.caps.seconds",
}


def override(
    configuration: Configuration, *, model: str | None = None, **said: Any
) -> Configuration:
    """The configuration with what the command line says, by the names of its options (`_OPTIONS`);
    None: the option is not given. `model` names the model of every level, on every target. Raises
    `UsageError` for a value that a file could not have either."""
    from sketchc.agents.config.schema import SETTINGS, TEXT

    kinds = {setting.key: setting.kind for setting in SETTINGS}
    changes = {}
    for name, value in said.items():
        if value is not None:
            key, option = _OPTIONS[name], f"--{name.replace('_', '-')}"
            changes[key] = (option, _required(kinds[key], value, option))
    if model is not None:
        named = ("--model", _required(TEXT, model, "--model"))
        changes |= {f"llm.models.{level}.name": named for level in LEVELS}
    return _change(configuration, changes)


def _required(kind: Any, value: Any, where: str, given: object = None) -> Any:
    """`value`, where it fits; an error shows it as it was `given`."""
    if value is None or not kind.accepts(value):
        shown = f", not {value if given is None else given!r}" if kind.shown else ""
        refuse(f"{where} must be {kind.expected}{shown}")
    return value


def _apply_environment(
    configuration: Configuration, environment: Mapping[str, str]
) -> Configuration:
    from sketchc.agents.config.schema import OTHER_VARIABLES, variables

    changes: dict[str, tuple[str, Any]] = {}
    for variable, (key, kind) in variables().items():
        if text := environment.get(variable, "").strip():
            changes[key] = (variable, _from_text(kind, text, variable))
    if general := environment.get("SKETCHC_LLM_MODEL", "").strip():
        for level in LEVELS:
            changes.setdefault(f"llm.models.{level}.name", ("SKETCHC_LLM_MODEL", general))
    variable = "OPENAI_BASE_URL"
    known = configuration.llm.base_url or "llm.base_url" in changes
    if (text := environment.get(variable, "").strip()) and not known:
        kind, _ = OTHER_VARIABLES[variable]
        changes["llm.base_url"] = (variable, _from_text(kind, text, variable))
    return _change(configuration, changes)


def _from_text(kind: Any, text: str, variable: str) -> Any:
    try:
        value = kind.from_text(text)
    except ValueError:
        value = None
    return _required(kind, value, f"the environment variable {variable}", text)


def _change(configuration: Configuration, changes: Mapping[str, tuple[str, Any]]) -> Configuration:
    """The configuration with `changes` (key -> origin, value) made.

    The name of a level's model that is given here wins over the ones of single targets, too.
    """
    values = {key: value for key, (_, value) in changes.items()}
    old = configuration.llm
    names = {level: f"llm.models.{level}.name" for level in LEVELS}
    named = {level: values[key] for level, key in names.items() if key in values}
    models = dict(old.models)
    for level, name in named.items():
        base = nearest_model(old.models, level) or ModelSettings()
        models[level] = with_name(old.models, base, name)
    llm = _changed(old, values, models, Path())
    targets = {
        target: attrs.evolve(
            own, models={level: model for level, model in own.models.items() if level not in named}
        )
        for target, own in configuration.targets.items()
    }
    origins = {key: origin for key, (origin, _) in changes.items()}
    return attrs.evolve(
        configuration, llm=llm, targets=targets, origins={**configuration.origins, **origins}
    )
