"""`sketchc llm`: try the configured language models, and read ledgers."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from sketchc.agents.config.schema import SETTINGS
from sketchc.agents.llm.ledger import Contents, Record, read_ledger
from sketchc.agents.llm.mailbox import MailboxProvider
from sketchc.agents.llm.messages import LEVELS, LlmError, Message, Request
from sketchc.agents.llm.providers import make_provider
from sketchc.agents.llm.replay import ReplayProvider
from sketchc.agents.llm.settings import LlmSettings, TargetSettings, is_local
from sketchc.agents.run.summary import counted
from sketchc.base.diagnostics import refuse
from sketchc.cli import options
from sketchc.lowering.registry import load_target

if TYPE_CHECKING:
    from sketchc.agents.config.settings import Configuration
    from sketchc.agents.llm.client import Provider

#: What a check asks, and how long the answer may be (a model that reasons first needs room).
QUESTION = "This is a test of the connection. Reply with the one word: ready"
ANSWER_TOKENS = 256

#: What to do about an error, where its message does not say it.
ADVICE = {
    "authentication": "put the right key into the variable that llm.api_key_env names",
    "connection": "is the server running, and is llm.base_url right?",
    "timeout": "raise llm.timeout, or see what the server is doing",
    "quota": "the account has no money left",
    "rate_limit": "try again later",
}


@click.group()
def llm() -> None:
    """Try the configured language models, and read ledgers of runs.

    \b
    Examples:
      sketchc llm check
      sketchc llm ledger sketchc-runs/softmax-cpp-1/run/ledger.jsonl
    """


# ---------------------------------------------------------------- check


@llm.command()
@options.model_options()
@click.option("--target", "-t", help="With the settings of this target.")
@options.json_option
def check(target: str | None, as_json: bool, **said: str | None) -> int:
    """Show every setting and where it came from; then ask each model one tiny question.

    A recording is read and a mailbox's folder is made, but nothing is asked of them. Exit status: 0
    every model answered, 1 one did not, 2 something is not set.

    \b
    Examples:
      sketchc llm check
      sketchc llm check --llm openai --base-url http://localhost:8000/v1 --model NAME
    """

    configuration = options.configuration_of(**said)
    own = TargetSettings()
    if target is not None:
        own = configuration.target(load_target(target).name)
    rows = settings_rows(configuration, target, own)
    if not as_json:
        click.echo(_aligned(("setting", "value", "from"), rows))
        click.echo()
    settings = configuration.llm.for_target(own)
    made = make_provider(configuration.llm, own)
    results = _ask_all(made, settings) if made.name == "openai" else []
    note = _about(made)
    if as_json:
        names = ("setting", "value", "from")
        listed = [dict(zip(names, row, strict=True)) for row in rows]
        click.echo(json.dumps({"settings": listed, "note": note, "models": results}, indent=2))
    elif results:
        click.echo(_aligned(("level", "model", "seconds", "tokens", "streaming"), _cells(results)))
    else:
        click.echo(note)
    for result in results:
        if result["error"]:
            click.echo(f"error: {result['model']}: {result['message']}", err=True)
    return int(any(result["error"] for result in results))


def settings_rows(
    configuration: Configuration, target: str | None, own: TargetSettings
) -> list[tuple[str, str, str]]:
    """(dotted key, value, where it came from) of every setting that a run would use; of the API
    key, only whether it is set."""

    settings = configuration.llm.for_target(own)
    origins = configuration.origins
    provider = ":".join(filter(None, (settings.provider, settings.location)))
    rows = [("llm.provider", provider, origins.get("llm.provider"))]
    for setting in SETTINGS:
        parts = setting.parts
        if "LEVEL" in parts or setting.key == "llm.provider":
            continue
        holder: Any = configuration
        if parts[0] == "target":
            if target is None:
                continue
            key, holder = setting.key.replace("TARGET", target), own
            parts = parts[2:]
        else:
            key = setting.key
            parts = parts[1:] if parts[0] == "gen" else parts
        for part in parts:
            holder = getattr(holder, part)
        rows.append((key, _shown(holder), origins.get(key)))
        if key == "llm.api_key_env":
            rows.append(("(the key)", _about_key(settings), f"${settings.api_key_env}"))
    rows += _model_rows(configuration, target, own, settings)
    return [(key, value or "not set", origin or "default") for key, value, origin in rows]


def _model_rows(
    configuration: Configuration, target: str | None, own: TargetSettings, settings: LlmSettings
) -> list[tuple[str, str, str | None]]:
    """One row per level: the model with its limits and prices."""

    rows: list[tuple[str, str, str | None]] = []
    for level in LEVELS:
        model = settings.models.get(level)
        of_target = target is not None and level in own.models
        key = f"target.{target}.models.{level}" if of_target else f"llm.models.{level}"
        if model is None:
            rows.append((key, "", None))
            continue
        prices = (model.price_input, model.price_output)
        price = "price unknown"
        if None not in prices:
            price = f"{prices[0]:g} and {prices[1]:g} per million tokens in and out"
        text = (
            f"{model.name} (context {model.context_tokens}, output {model.max_output_tokens}, "
            f"{price})"
        )
        origin = configuration.origins.get(f"{key}.name")
        if origin is None:
            own_name = of_target or configuration.llm.models.get(level) == model
            origin = "the base level" if own_name else "the nearest level"
        rows.append((key, text, origin))
    return rows


def _shown(value: object) -> str:
    match value:
        case None | "":
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return str(list(value))
        case _:
            return str(value)


def _about_key(settings: LlmSettings) -> str:

    if os.environ.get(settings.api_key_env, "").strip():
        return "set"
    return "not set, and not needed on this machine" if is_local(settings.base_url) else "not set"


def _about(provider: Provider) -> str:
    """Why the provider is not asked, in one line; "" for one that is."""

    match provider:
        case ReplayProvider(header=header):
            return (
                f"A recording of {header.task} for {header.target}; nothing is asked. "
                f"`sketchc llm ledger {provider.path}` shows it."
            )
        case MailboxProvider():
            return f"Prompts will be written to {provider.folder}; nothing is asked now."
        case _:
            return ""


def _ask_all(provider: Provider, settings: LlmSettings) -> list[dict[str, Any]]:
    """Ask each distinct model one question, at the first of its levels; returns the results."""
    levels: dict[str, list[str]] = {}
    for level, model in settings.models.items():
        levels.setdefault(model.name, []).append(level)
    return [_ask(provider, name, found) for name, found in levels.items()]


def _ask(provider: Provider, model: str, levels: list[str]) -> dict[str, Any]:
    """The reply or error to one question, as JSON-able data. No second try: this is a check."""

    request = Request("check", levels[0], (Message("user", QUESTION),), ANSWER_TOKENS)
    pieces: list[int] = []
    result: dict[str, Any] = {"levels": levels, "model": model, "error": "", "message": ""}
    try:
        reply = provider.send(request, uuid.uuid4().hex, pieces.append)
    except LlmError as error:
        advice = ADVICE.get(error.kind)
        message = f"{error}; {advice}" if advice else str(error)
        return {**result, "error": error.kind, "message": message}
    return {
        **result,
        "answered_by": reply.model,
        "seconds": round(reply.seconds, 3),
        "input_tokens": reply.usage.input_tokens,
        "output_tokens": reply.usage.output_tokens,
        "estimated": reply.usage.estimated,
        "cost": reply.cost,
        "streaming": bool(pieces),
    }


def _cells(results: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for result in results:
        levels = ", ".join(result["levels"])
        if result["error"]:
            rows.append((levels, result["model"], "", "", f"failed: {result['error']}"))
            continue
        counted = "estimated" if result["estimated"] else "counted"
        tokens = f"{result['input_tokens']} in, {result['output_tokens']} out ({counted})"
        streaming = "yes" if result["streaming"] else "no"
        rows.append((levels, result["model"], f"{result['seconds']:.2f}", tokens, streaming))
    return rows


def _aligned(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A plain table that also reads well in a file."""
    table = [names, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


# ---------------------------------------------------------------- ledger


@llm.command()
@click.argument("file")
@click.option("--call", "number", type=click.IntRange(min=1), help="The whole text of one call.")
@options.json_option
def ledger(file: str, number: int | None, as_json: bool) -> int:
    """Show the calls of a ledger (or of the run in a folder), or one of them in full.

    \b
    Examples:
      sketchc llm ledger examples/ledgers/softmax.jsonl
      sketchc llm ledger out --call 3
    """

    path = Path(file)
    if path.is_dir():
        from sketchc.agents.run.run import RunFolder

        path = RunFolder(path).ledger_path
    contents = read_ledger(path)
    if number is None:
        text = json.dumps(_summary(contents), indent=2) if as_json else _table(contents)
        click.echo(text)
        return 0
    if number > len(contents.records):
        held = counted(len(contents.records), "call")
        refuse(f"{path} holds {held}; there is no call {number}")
    record = contents.records[number - 1]
    click.echo(json.dumps(attrs.asdict(record), indent=2) if as_json else _in_full(record))
    return 0


def _row(record: Record) -> dict[str, Any]:
    """One call without its texts."""
    reply = record.reply
    return {
        "call": record.number,
        "purpose": record.request.purpose,
        "level": record.request.level,
        "provider": record.provider,
        "model": "" if reply is None else reply.model,
        "input_tokens": 0 if reply is None else reply.usage.input_tokens,
        "output_tokens": 0 if reply is None else reply.usage.output_tokens,
        "estimated": reply is not None and reply.usage.estimated,
        "cost": None if reply is None else reply.cost,
        "seconds": 0.0 if reply is None else reply.seconds,
        "outcome": record.error if reply is None else reply.finish,
        "message": record.message,
        "started": record.started,
    }


def _summary(contents: Contents) -> dict[str, Any]:
    assert contents.header is not None
    rows = [_row(record) for record in contents.records]
    costs = [
        row["cost"] for row, record in zip(rows, contents.records, strict=True) if record.reply
    ]
    known = [cost for cost in costs if cost is not None]
    return {
        "header": attrs.asdict(contents.header),
        "calls": rows,
        "total": {
            "calls": len(rows),
            "failed": sum(record.reply is None for record in contents.records),
            "input_tokens": sum(row["input_tokens"] for row in rows),
            "output_tokens": sum(row["output_tokens"] for row in rows),
            # None where no price is known; else without the calls whose price is not.
            "cost": sum(known) if known or not costs else None,
            "unpriced": len(costs) - len(known),
            "seconds": sum(row["seconds"] for row in rows),
        },
    }


def _table(contents: Contents) -> str:

    data = _summary(contents)
    head, total = data["header"], data["total"]
    cost = "cost unknown" if total["cost"] is None else f"cost {total['cost']:.4g}"
    if total["cost"] is not None and total["unpriced"]:
        cost += f" (unknown for {counted(total['unpriced'], 'call')})"
    names = ("call", "purpose", "level", "model", "in", "out", "cost", "seconds", "outcome")
    lines = [
        f"{head['task']} for {head['target']} ({head['hardware']}): workflow {head['workflow']}, "
        f"coder {head['coder']}, seed {head['seed']}",
        _aligned(names, [_ledger_cells(row) for row in data["calls"]]),
        f"{counted(total['calls'], 'call')} ({total['failed']} failed), "
        f"{counted(total['input_tokens'], 'token')} in, {total['output_tokens']:,} out, {cost}, "
        f"{total['seconds']:.1f} s",
    ]
    return "\n".join(lines)


def _ledger_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    mark = "~" if row["estimated"] else ""
    return (
        str(row["call"]),
        row["purpose"],
        row["level"],
        row["model"] or "-",
        f"{mark}{row['input_tokens']}",
        f"{mark}{row['output_tokens']}",
        "-" if row["cost"] is None else f"{row['cost']:.4g}",
        f"{row['seconds']:.1f}",
        row["outcome"],
    )


def _in_full(record: Record) -> str:
    """The full text of one call: every message, then the reply or the error."""
    row = _row(record)
    facts = ", ".join(f"{name} {row[name]}" for name in ("level", "provider", "outcome", "started"))
    parts = [f"call {record.number}: {record.request.purpose} ({facts})"]
    parts += [f"--- {message.role} ---\n{message.content}" for message in record.request.messages]
    if record.reply is None:
        parts.append(f"--- failed: {record.error} ---\n{record.message}")
    else:
        parts.append(f"--- reply of {record.reply.model} ---\n{record.reply.text}")
    return "\n".join(parts)
