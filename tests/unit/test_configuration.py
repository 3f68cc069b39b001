"""`sketchc.toml`, the environment, the command line: what wins, what is refused, and how."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from sketchc.agents.config.schema import (
    OTHER_VARIABLES,
    SETTINGS,
    WILDCARDS,
    names_below,
    variables,
)
from sketchc.agents.config.settings import Configuration, find_file, load, override
from sketchc.agents.llm.client import Caps, RetryPolicy
from sketchc.agents.llm.messages import LEVELS
from sketchc.agents.llm.settings import LlmSettings, ModelSettings, TargetSettings
from sketchc.base.diagnostics import UsageError

ROOT = Path(__file__).resolve().parents[2]

FULL = """
[llm]
provider = "openai"
base_url = "http://localhost:8000/v1"
api_key_env = "MY_KEY"
timeout = 10
mailbox_timeout = 20.5
stream = false
[llm.models]
fast = "small"
[llm.models.complex]
name = "large"
max_output_tokens = 100
context_tokens = 1000
price_input = 1
price_output = 2.5
temperature = 0.5
[llm.retry]
attempts = 2
first_delay = 0
longest_delay = 3
longest_retry_after = 4
[llm.caps]
calls = 5
tokens = 6
cost = 0.5
seconds = 8
[gen]
workflow = "coder-only"
coder = "llm"
max_attempts = 9
max_repairs = 0
docs_tokens = 11
[target.triton_ascend]
models = { complex = "other", fast = { name = "large", temperature = 0.0 } }
log_folder = "runs/ascend"
workflow = "default"
coder = "builtin"
runs = 12
warmup_seconds = 0
verify_timeout = 14
devices = [1, 0]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "sketchc.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    """The message for a file, less its path."""
    path = write(folder, text)
    with pytest.raises(UsageError) as caught:
        load(path, {})
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


# ---------------------------------------------------------------- files


def test_every_key_is_read(tmp_path: Path) -> None:
    found = load(write(tmp_path, FULL), {})
    large = ModelSettings("large", 100, 1000, 1.0, 2.5, 0.5)
    assert found.llm == LlmSettings(
        provider="openai",
        base_url="http://localhost:8000/v1",
        api_key_env="MY_KEY",
        timeout=10.0,
        mailbox_timeout=20.5,
        stream=False,
        models={"complex": large, "fast": ModelSettings("small")},
        retry=RetryPolicy(2, 0.0, 3.0, 4.0),
        caps=Caps(5, 6, 0.5, 8.0),
    )
    assert (found.workflow, found.coder) == ("coder-only", "llm")
    assert (found.max_attempts, found.max_repairs, found.docs_tokens) == (9, 0, 11)
    assert found.target("triton_ascend") == TargetSettings(
        models={
            "complex": ModelSettings("other", 100, 1000, None, None, 0.5),
            "fast": ModelSettings("large", 100, 1000, 1.0, 2.5, 0.0),
        },
        log_folder=tmp_path / "runs/ascend",
        workflow="default",
        coder="builtin",
        runs=12,
        warmup_seconds=0.0,
        verify_timeout=14.0,
        devices=(1, 0),
    )
    assert found.target("cpp") == TargetSettings()


def test_the_full_file_above_sets_every_key() -> None:
    def keys(table: dict[str, object], above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
        found = set()
        for name, value in table.items():
            path = (*above, name)
            found |= keys(value, path) if isinstance(value, dict) else {path}
        return found

    def plain(path: tuple[str, ...]) -> str:
        """With the wildcards that the schema writes."""
        words = {name: wild for wild, names in WILDCARDS.items() for name in names}
        return ".".join(words.get(part, part) for part in path)

    written = {plain(path) for path in keys(tomllib.loads(FULL))}
    missing = {setting.key for setting in SETTINGS} - written
    # A target's models have the keys of the others; the test above sets two of them.
    assert {key for key in missing if not key.startswith("target.TARGET.models")} == set()
    assert written <= {setting.key for setting in SETTINGS}


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    found = load(write(tmp_path, ""), {})
    assert found == Configuration()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[llm]\ntimout = 3", "unknown key llm.timout: did you mean llm.timeout?"),
        ("[lm]\n", "unknown key lm: did you mean llm?"),
        (
            "[llm]\nmax_attempts = 3",
            "unknown key llm.max_attempts: max_attempts is known as gen.max_attempts; in [llm] "
            "there can be provider, base_url, api_key_env, timeout, mailbox_timeout, stream, "
            "models, retry, caps",
        ),
        ("zzz = 1", "unknown key zzz: at the top there can be llm, gen, target"),
        ("[target.cp]\n", "unknown key target.cp: did you mean target.cpp?"),
        (
            "[llm.models.huge]\n",
            "unknown key llm.models.huge: in [llm.models] there can be complex, standard, fast",
        ),
        ("llm = 3", "llm must be a table with provider, base_url"),
        ("[llm]\ntimeout = 0", "llm.timeout must be a number of seconds above 0, not 0"),
        ("[llm]\ntimeout = inf", "llm.timeout must be a number of seconds above 0, not inf"),
        ('[llm]\ntimeout = "1"', 'llm.timeout must be a number of seconds above 0, not "1"'),
        ("[llm]\ntimeout = true", "llm.timeout must be a number of seconds above 0, not true"),
        ("[llm]\nstream = 1", "llm.stream must be true or false, not 1"),
        ("[llm.caps]\ncalls = 1.0", "llm.caps.calls must be a whole number, 1 or more, not 1.0"),
        ("[llm.caps]\ncalls = true", "llm.caps.calls must be a whole number, 1 or more, not true"),
        ("[llm.caps]\ncost = -1", "llm.caps.cost must be a number, 0 or more, not -1"),
        (
            "[llm]\nprovider = 'replay'",
            'llm.provider must be "openai", "replay:FILE" or "mailbox:DIR", not "replay"',
        ),
        (
            "[llm]\nprovider = 'openai:x'",
            'llm.provider must be "openai", "replay:FILE" or "mailbox:DIR", not "openai:x"',
        ),
        (
            "[llm.models]\ncomplex = 4",
            "llm.models.complex must be a text that is not empty or a table, not 4",
        ),
        (
            "[llm.models.fast]\ntemperature = 3",
            "llm.models.fast.temperature must be a number from 0 to 2, not 3",
        ),
        (
            "[gen]\nworkflow = 'evolve'",
            "gen.workflow must be one of default, coder-only, kernelgen-only, builtin, "
            "verifier-only, not",
        ),
        (
            "[target.cpp]\ndevices = [0, 0]",
            "target.cpp.devices must be a list of different device numbers, such as [0, 1], "
            "not [0, 0]",
        ),
        ("[target.cpp]\ndevices = []", "target.cpp.devices must be a list"),
        ("[target.cpp]\ndevices = [true]", "target.cpp.devices must be a list"),
        ("[target.cpp]\nlog_folder = ''", "target.cpp.log_folder must be the path of a folder"),
        ("[llm\n", "not valid TOML: "),
        ("a = 1\na = 2", "not valid TOML: "),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text).startswith(message)


@pytest.mark.parametrize(
    "line",
    [
        "[llm]\napi_key = 'sk-verysecret1'",
        "[llm]\napi-key = 'sk-verysecret1'",
        "[llm]\nAPIKEY = 'sk-verysecret1'",
        "[llm]\nopenai_api_key = 'sk-verysecret1'",
        "api_key = 'sk-verysecret1'",
        "[llm.models.fast]\ntoken = 'sk-verysecret1'",
        "[target.cpp]\npassword = 'sk-verysecret1'",
    ],
)
def test_a_key_in_the_file_is_refused_and_not_shown(tmp_path: Path, line: str) -> None:
    message = refusal(tmp_path, line)
    assert "a key does not belong in a file" in message
    assert 'api_key_env = "OPENAI_API_KEY"' in message
    assert "verysecret" not in message


@pytest.mark.parametrize(
    "line",
    [
        "api_key_env = 'sk-verysecret1'",
        "base_url = 'https://user:verysecret1@host/v1'",
        "base_url = 'ftp://verysecret1/'",
        "base_url = 'http://verysecret1 /'",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_shown(tmp_path: Path, line: str) -> None:
    assert "verysecret" not in refusal(tmp_path, f"[llm]\n{line}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none.toml: No such file"):
        load(tmp_path / "none.toml", {})
    (tmp_path / "sketchc.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        load(tmp_path / "sketchc.toml", {})


def test_paths_in_a_file_are_meant_from_its_folder(tmp_path: Path) -> None:
    found = load(write(tmp_path, "[llm]\nprovider = 'replay:ledgers/a.jsonl'"), {})
    assert found.llm.provider == "replay"
    assert found.llm.location == str(tmp_path / "ledgers/a.jsonl")


# ---------------------------------------------------------------- which file


def test_the_nearest_file_above_is_found_then_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "project" / "a" / "b"
    inner.mkdir(parents=True)
    user = tmp_path / "config" / "sketchc" / "sketchc.toml"
    user.parent.mkdir(parents=True)
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert find_file(inner, environment) is None
    user.write_text("[gen]\nmax_attempts = 1\n")
    assert find_file(inner, environment) == user
    assert find_file(inner, {"HOME": str(tmp_path)}) is None
    (tmp_path / "config").rename(tmp_path / ".config")
    home = {"HOME": str(tmp_path)}
    assert find_file(inner, home) == tmp_path / ".config" / "sketchc" / "sketchc.toml"
    above = write(tmp_path / "project", "[gen]\nmax_attempts = 2\n")
    assert find_file(inner, home) == above
    monkeypatch.chdir(inner)
    assert load(None, home).max_attempts == 2
    write(inner, "[gen]\nmax_attempts = 3\n")
    assert load(None, home).max_attempts == 3
    assert load(above, home).max_attempts == 2


def test_a_found_file_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "[gen]\nmax_attempts = 2\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    if path.stat().st_uid != 0:
        with pytest.raises(UsageError, match=r"belongs to another user.*--config"):
            load(None, {})
    else:  # root's files are trusted: the owner has to be somebody else
        os.chown(path, 12345, -1)
        with pytest.raises(UsageError, match=r"belongs to another user.*--config"):
            load(None, {})
    assert load(path, {}).max_attempts == 2


# ---------------------------------------------------------------- what wins


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    environment = {
        "SKETCHC_LLM": "mailbox:letters",
        "SKETCHC_LLM_BASE_URL": "https://example.org/v1",
        "SKETCHC_LLM_API_KEY_ENV": "OTHER_KEY",
        "SKETCHC_LLM_TIMEOUT": "1.5",
        "SKETCHC_LLM_MAILBOX_TIMEOUT": "2",
        "SKETCHC_LLM_STREAM": "true",
        "SKETCHC_LLM_MODEL": "general",
        "SKETCHC_LLM_MODEL_FAST": "quick",
        "SKETCHC_LLM_MAX_CALLS": "50",
        "SKETCHC_LLM_MAX_TOKENS": "60",
        "SKETCHC_LLM_MAX_COST": "0.75",
        "SKETCHC_LLM_MAX_SECONDS": "80",
        "OPENAI_BASE_URL": "http://not.used/",
    }
    found = load(write(tmp_path, FULL), environment)
    assert (found.llm.provider, found.llm.location) == ("mailbox", "letters")
    assert found.llm.base_url == "https://example.org/v1"
    assert found.llm.api_key_env == "OTHER_KEY"
    assert (found.llm.timeout, found.llm.mailbox_timeout, found.llm.stream) == (1.5, 2.0, True)
    assert found.llm.caps == Caps(50, 60, 0.75, 80.0)
    assert {level: model.name for level, model in found.llm.models.items()} == {
        "complex": "general",
        "standard": "general",
        "fast": "quick",
    }
    # Limits stay with the level; prices belong to the model that had them.
    assert found.llm.models["complex"] == ModelSettings("general", 100, 1000, None, None, 0.5)
    # The models of single targets are overruled, too.
    assert found.target("triton_ascend").models == {}
    assert found.llm.retry.attempts == 2  # the rest of the file holds
    for variable in environment.keys() - {"OPENAI_BASE_URL"}:
        assert variable in found.origins.values()
    assert found.origins["gen.coder"] == str(tmp_path / "sketchc.toml")
    assert "OPENAI_BASE_URL" not in found.origins.values()


def test_every_variable_of_the_schema_is_tested_above() -> None:
    here = Path(__file__).read_text()
    for name in (*variables(), *OTHER_VARIABLES):
        if name not in ("SKETCHC_LLM_MODEL_COMPLEX", "SKETCHC_LLM_MODEL_STANDARD"):
            assert f'"{name}"' in here, name


def test_a_model_that_a_level_has_brings_its_settings_along(tmp_path: Path) -> None:
    found = load(write(tmp_path, FULL), {"SKETCHC_LLM_MODEL": "large"})
    assert set(found.llm.models.values()) == {ModelSettings("large", 100, 1000, 1.0, 2.5, 0.5)}


def test_the_general_base_url_fills_a_gap_only(tmp_path: Path) -> None:
    general = {"OPENAI_BASE_URL": "https://gateway.example.org/v1"}
    found = load(write(tmp_path, ""), general)
    assert found.llm.base_url == "https://gateway.example.org/v1"
    assert found.origins["llm.base_url"] == "OPENAI_BASE_URL"
    assert load(write(tmp_path, FULL), general).llm.base_url == "http://localhost:8000/v1"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SKETCHC_LLM_MAX_CALLS", "many", "SKETCHC_LLM_MAX_CALLS must be a whole number, 1 or"),
        ("SKETCHC_LLM_MAX_COST", "nan", "must be a number, 0 or more, not 'nan'"),
        ("SKETCHC_LLM_STREAM", "maybe", "must be true or false, not 'maybe'"),
        ("SKETCHC_LLM", "gpt", 'must be "openai", "replay:FILE" or "mailbox:DIR", not \'gpt\''),
    ],
)
def test_a_variable_that_does_not_fit_is_named(
    tmp_path: Path, variable: str, value: str, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        load(write(tmp_path, ""), {variable: value})


def test_a_key_in_place_of_its_variable_s_name_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(write(tmp_path, ""), {"SKETCHC_LLM_API_KEY_ENV": "sk-verysecret1"})
    assert "verysecret" not in str(caught.value)


def test_the_command_line_wins_over_everything(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, FULL), {"SKETCHC_LLM": "openai", "SKETCHC_LLM_MODEL": "x"})
    found = override(
        loaded,
        llm="replay:a.jsonl",
        model="chosen",
        base_url="https://chosen.example.org",
        max_calls=1,
        max_tokens=2,
        max_cost=0.0,
        max_seconds=4.0,
    )
    assert (found.llm.provider, found.llm.location) == ("replay", "a.jsonl")
    assert {model.name for model in found.llm.models.values()} == {"chosen"}
    assert found.llm.base_url == "https://chosen.example.org"
    assert found.llm.caps == Caps(1, 2, 0.0, 4.0)
    assert found.origins["llm.provider"] == "--llm"
    assert found.origins["llm.models.fast.name"] == "--model"
    assert override(loaded) == loaded
    with pytest.raises(UsageError, match='--llm must be "openai"'):
        override(loaded, llm="replay:")
    with pytest.raises(UsageError, match="--base-url must be an http"):
        override(loaded, base_url="localhost:8000")


# ---------------------------------------------------------------- levels


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ("complex", "complex complex complex"),
        ("standard", "standard standard standard"),
        ("fast", "fast fast fast"),
        ("complex fast", "complex complex fast"),
        ("complex standard", "complex standard standard"),
        ("standard fast", "standard standard fast"),
    ],
)
def test_a_missing_level_uses_the_nearest(configured: str, expected: str) -> None:
    models = {level: ModelSettings(level) for level in configured.split()}
    found = LlmSettings(models=models).for_target(TargetSettings()).models
    assert [found[level].name for level in LEVELS] == expected.split()


def test_a_target_s_models_come_first() -> None:
    llm = LlmSettings(models={"complex": ModelSettings("a"), "fast": ModelSettings("b")})
    found = llm.for_target(TargetSettings(models={"standard": ModelSettings("c")})).models
    assert [found[level].name for level in LEVELS] == ["a", "c", "b"]
    assert LlmSettings().for_target(TargetSettings()).models == {}


# ---------------------------------------------------------------- documents


def test_the_example_file_is_valid() -> None:
    found = load(ROOT / "examples" / "sketchc.toml", {})
    assert found.llm.provider
    assert found.llm.for_target(found.target("triton_ascend")).models
    text = (ROOT / "examples" / "sketchc.toml").read_text()
    # What is commented out there is valid as well.
    uncommented = re.sub(r"(?m)^# ?(?=(\[[a-z_.]+\]|[a-z_]+ = ))", "", text)
    assert uncommented != text
    names = set(tomllib.loads(uncommented))
    assert names <= set(names_below(()))


def test_the_documentation_lists_every_key_and_variable() -> None:
    from sketchc.agents.config.pages import key_table, variable_table

    text = (ROOT / "docs" / "CONFIGURATION.md").read_text()
    assert key_table() in text, "run: python -m sketchc.agents.config.pages"
    assert variable_table() in text, "run: python -m sketchc.agents.config.pages"


def test_the_documentation_lists_every_variable_that_the_code_reads() -> None:
    text = (ROOT / "docs" / "CONFIGURATION.md").read_text()
    pattern = re.compile(
        r"""(?:(?:environ\.get|getenv|user_folder)\(\s*|variable=)"([A-Z][A-Z0-9_]+)\""""
    )
    read = set()
    for part in ("sketchc", "lowering", "runtime", "agents", "docspec"):
        for path in (ROOT / part).rglob("*.py"):
            read |= set(pattern.findall(path.read_text()))
    assert "SKETCHC_ASCEND_ENV" in read
    # What a worker is told by sketchc itself is nobody's to set.
    assert {name for name in read - {"TRITON_INTERPRET"} if f"`{name}`" not in text} == set()
