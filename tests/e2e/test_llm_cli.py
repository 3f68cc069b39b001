"""`sketchc llm`, as a user calls it, against a real HTTP server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from llm_server import LlmServer, failure, reply, unauthorized

from sketchc.agents.llm.ledger import Header, Ledger
from sketchc.agents.llm.messages import Message, Reply, Request, Usage

KEY = "sk-test-0123456789abcdef"
TWO_MODELS = """
[llm]
provider = "openai"
api_key_env = "TEST_LLM_KEY"
[llm.models.complex]
name = "large"
price_input = 1.0
price_output = 2.0
[llm.models]
fast = "small"
[target.cpp]
models = { fast = "large" }
runs = 12
"""


def sketchc(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in `folder`, with none of the caller's own settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SKETCHC_LLM", "OPENAI_", "XDG_CONFIG"))
    }
    return subprocess.run(
        [sys.executable, "-P", "-m", "sketchc.cli.main", *arguments],
        cwd=folder,
        env={**kept, "XDG_CONFIG_HOME": str(folder / "none"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def line_of(output: str, start: str) -> str:
    lines = [" ".join(line.split()) for line in output.split("\n")]
    (found,) = [line for line in lines if line.startswith(start)]
    return found


# ---------------------------------------------------------------- check


def test_check_shows_the_settings_and_asks_each_model_once(tmp_path: Path) -> None:
    (tmp_path / "sketchc.toml").write_text(TWO_MODELS)
    with LlmServer([reply("ready", (21, 3)), reply("ready", None)]) as server:
        done = sketchc(
            tmp_path,
            *("llm", "check"),
            SKETCHC_LLM_BASE_URL=server.base_url,
            SKETCHC_LLM_MAX_CALLS="7",
            TEST_LLM_KEY=KEY,
        )
        assert done.returncode == 0, done.stderr
        assert {received.body["model"] for received in server.requests} == {"large", "small"}
        assert all(
            received.headers["authorization"] == f"Bearer {KEY}" for received in server.requests
        )
    file = tmp_path / "sketchc.toml"
    assert line_of(done.stdout, "llm.provider") == f"llm.provider openai {file}"
    assert line_of(done.stdout, "llm.base_url").endswith("/v1 SKETCHC_LLM_BASE_URL")
    assert line_of(done.stdout, "llm.caps.calls") == "llm.caps.calls 7 SKETCHC_LLM_MAX_CALLS"
    assert line_of(done.stdout, "llm.timeout") == "llm.timeout 300 default"
    assert line_of(done.stdout, "llm.caps.cost") == "llm.caps.cost not set default"
    assert line_of(done.stdout, "(the key)") == "(the key) set $TEST_LLM_KEY"
    assert line_of(done.stdout, "llm.models.standard").endswith("the nearest level")
    assert line_of(done.stdout, "complex, standard large").endswith("21 in, 3 out (counted) yes")
    assert line_of(done.stdout, "fast small").endswith("out (estimated) yes")
    assert "target." not in done.stdout
    assert KEY not in done.stdout + done.stderr


def test_check_with_a_target_uses_its_models(tmp_path: Path) -> None:
    (tmp_path / "sketchc.toml").write_text(TWO_MODELS)
    with LlmServer([reply("ready")]) as server:
        done = sketchc(
            tmp_path,
            *("llm", "check", "--base-url", server.base_url, "--target", "cpp", "--json"),
            TEST_LLM_KEY=KEY,
            SKETCHC_LLM_STREAM="false",
        )
        assert len(server.requests) == 1
    found = json.loads(done.stdout)
    (model,) = found["models"]
    assert model["levels"] == ["complex", "standard", "fast"]
    assert model["model"] == "large"
    assert model["cost"] == pytest.approx(11e-6 + 2 * 7e-6)
    assert not model["streaming"]
    settings = {row["setting"]: row for row in found["settings"]}
    assert settings["target.cpp.runs"]["value"] == "12"
    assert settings["llm.base_url"]["from"] == "--base-url"
    assert KEY not in done.stdout


def test_check_fails_in_one_line_with_advice(tmp_path: Path) -> None:
    with LlmServer([unauthorized(f"Incorrect API key provided: {KEY}.")]) as server:
        done = sketchc(
            tmp_path,
            *("llm", "check", "--llm", "openai", "--model", "m", "--base-url", server.base_url),
            OPENAI_API_KEY=KEY,
        )
    assert done.returncode == 1
    (line,) = done.stderr.strip().split("\n")
    assert line.startswith("error: m: ")
    assert "llm.api_key_env" in line
    assert KEY not in done.stdout + done.stderr
    with LlmServer([failure(404, "no such model", code="model_not_found")]) as server:
        options = ("--llm", "openai", "--model", "mm", "--base-url", server.base_url)
        done = sketchc(tmp_path, "llm", "check", *options)
    assert done.returncode == 1
    assert "is there a model 'mm'" in done.stderr


def test_check_says_that_no_server_runs(tmp_path: Path) -> None:
    with LlmServer([]) as server:
        url = server.base_url
    done = sketchc(tmp_path, "llm", "check", "--llm", "openai", "--model", "m", "--base-url", url)
    assert done.returncode == 1
    assert "is the server running" in done.stderr
    assert line_of(done.stdout, "(the key)").startswith("(the key) not set, and not needed")


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        ((), {}, "no language model is configured"),
        (("--llm", "openai"), {}, "no model is named: say --model NAME"),
        (("--llm", "openai", "--model", "m"), {}, "export OPENAI_API_KEY="),
        (("--llm", "replay:none.jsonl"), {}, "there is no recording none.jsonl"),
        (("--llm", "gpt"), {}, '--llm must be "openai", "replay:FILE" or "mailbox:DIR"'),
        (("--target", "abacus"), {}, "unknown target 'abacus'"),
        (("--config", "none.toml"), {}, "cannot read none.toml"),
        ((), {"SKETCHC_LLM_MAX_COST": "much"}, "SKETCHC_LLM_MAX_COST must be a number"),
        (
            ("--llm", "openai", "--model", "m"),
            {"SKETCHC_LLM_MAX_COST": "2"},
            "m (levels complex, standard, fast) has no price_input and price_output",
        ),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, options: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    done = sketchc(tmp_path, "llm", "check", *options, **environment)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_advice_for_nothing_configured_works_as_it_is_printed(tmp_path: Path) -> None:
    from sketchc.agents.llm.settings import NOTHING_CONFIGURED

    lines = NOTHING_CONFIGURED.split("\n")
    example = "\n".join(line for line in lines if line.startswith("    ") and "export" not in line)
    with LlmServer([reply("ready")]) as server:
        text = example.replace("http://localhost:8000/v1", server.base_url)
        (tmp_path / "sketchc.toml").write_text(text)
        done = sketchc(tmp_path, "llm", "check")
        assert done.returncode == 0, done.stderr
        assert [received.body["model"] for received in server.requests] == ["NAME"]


def test_check_asks_nothing_of_files(tmp_path: Path) -> None:
    done = sketchc(tmp_path, "llm", "check", "--llm", "mailbox:letters")
    assert done.returncode == 0
    assert "Prompts will be written to letters" in done.stdout
    assert list((tmp_path / "letters").iterdir()) == []
    recording(tmp_path / "run.jsonl")
    done = sketchc(tmp_path, "llm", "check", "--llm", "replay:run.jsonl")
    assert done.returncode == 0
    assert "A recording of softmax.py for cpp" in done.stdout


# ---------------------------------------------------------------- ledger


def recording(path: Path) -> None:
    """A ledger with an answered, a failed and an estimated call."""
    ledger = Ledger(path)
    ledger.begin(Header("softmax.py", "cpp", "cpu", "default", "builtin", 42))
    first = Request("designer", "complex", (Message("system", "Rules."), Message("user", "Do.")))
    second = Request("coder", "standard", (Message("user", "Code."),))
    ledger.append(first, "openai", Reply("The sketch.", "large", "stop", Usage(100, 20), 0.25, 1.5))
    ledger.append(second, "openai", None, "server", "HTTP 500")
    ledger.append(second, "mailbox", Reply("The code.", "mailbox", usage=Usage(7, 3, True)))
    ledger.close()


def test_a_ledger_as_a_table(tmp_path: Path) -> None:
    recording(tmp_path / "run.jsonl")
    done = sketchc(tmp_path, "llm", "ledger", "run.jsonl")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.strip().split("\n")]
    assert lines == [
        "softmax.py for cpp (cpu): workflow default, coder builtin, seed 42",
        "call purpose level model in out cost seconds outcome",
        "1 designer complex large 100 20 0.25 1.5 stop",
        "2 coder standard - 0 0 - 0.0 server",
        "3 coder standard mailbox ~7 ~3 - 0.0 stop",
        "3 calls (1 failed), 107 tokens in, 23 out, cost 0.25 (unknown for 1 call), 1.5 s",
    ]


@pytest.mark.parametrize(
    ("cost", "says", "number"), [(None, "cost unknown", None), (0.5, "cost 0.5", 0.5)]
)
def test_one_call_and_a_cost_that_may_be_unknown(
    tmp_path: Path, cost: float | None, says: str, number: float | None
) -> None:
    with Ledger(tmp_path / "run.jsonl") as ledger:
        ledger.begin(Header("softmax.py", "cpp", "cpu", "default", "builtin", 42))
        request = Request("designer", "complex", (Message("user", "Do."),))
        usage = Usage(1200, 1)
        ledger.append(request, "openai", Reply("x", "m", "stop", usage, cost, 1.5))
    shown = sketchc(tmp_path, "llm", "ledger", "run.jsonl").stdout.strip().split("\n")
    assert shown[-1] == f"1 call (0 failed), 1,200 tokens in, 1 out, {says}, 1.5 s"
    total = json.loads(sketchc(tmp_path, "llm", "ledger", "run.jsonl", "--json").stdout)["total"]
    assert (total["cost"], total["unpriced"]) == (number, int(cost is None))
    done = sketchc(tmp_path, "llm", "ledger", "run.jsonl", "--call", "2")
    assert "holds 1 call; there is no call 2" in done.stderr


def test_a_ledger_as_json_and_one_call_in_full(tmp_path: Path) -> None:
    inner = tmp_path / "out" / "run"
    inner.mkdir(parents=True)
    recording(inner / "ledger.jsonl")
    data = json.loads(sketchc(tmp_path, "llm", "ledger", "out", "--json").stdout)
    assert data["header"]["seed"] == 42
    assert data["total"]["failed"] == 1
    assert [call["outcome"] for call in data["calls"]] == ["stop", "server", "stop"]
    text = sketchc(tmp_path, "llm", "ledger", "out", "--call", "1").stdout
    assert "--- system ---\nRules.\n--- user ---\nDo.\n--- reply of large ---\nThe sketch." in text
    assert "HTTP 500" in sketchc(tmp_path, "llm", "ledger", "out", "--call", "2").stdout
    call = json.loads(sketchc(tmp_path, "llm", "ledger", "out", "--call", "3", "--json").stdout)
    assert call["reply"]["text"] == "The code."
    done = sketchc(tmp_path, "llm", "ledger", "out", "--call", "4")
    assert done.returncode == 2
    assert "holds 3 calls; there is no call 4" in done.stderr
    assert sketchc(tmp_path, "llm", "ledger", "none.jsonl").returncode == 2
