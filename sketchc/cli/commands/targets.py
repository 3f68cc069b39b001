"""`sketchc targets` and `sketchc toolchain`: what is installed, what can be compiled and run here,
and how to get the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchc.base.diagnostics import refuse, refusing
from sketchc.base.files import replace_file
from sketchc.cli import options
from sketchc.cli.consoles import make_console
from sketchc.lowering.hardware import HARDWARE, chips_like, user_chips
from sketchc.lowering.registry import all_targets, load_target, target_names
from sketchc.runtime.process.venvs import InstallError
from sketchc.runtime.toolchains import base

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@options.json_option
@click.option(
    "--probe",
    metavar="NAME",
    is_flag=False,
    flag_value="host_cpu",
    help="Write the facts of this machine's CPU to a file for `--hardware NAME`; without NAME, "
    "host_cpu.",
)
def targets(as_json: bool, probe: str | None) -> int:
    """Show every target: can it be compiled and run here, how, and how to get the rest.

    \b
    Examples:
      sketchc targets
      sketchc targets --json
      sketchc targets --probe
    """

    if probe is not None:
        click.echo(write_probed(probe))
        return 0
    found = [describe(target.name) for target in all_targets()]
    if as_json:
        click.echo(json.dumps({"targets": found, "workers": sandbox()}, indent=2))
        return 0

    console = make_console(highlight=False)
    for target in found:
        _show(console, target)
    console.print(f"kernels run in workers with: {sandbox()['text']}", soft_wrap=True)
    console.print("`sketchc toolchain list` shows toolchains alone; `install T` sets one up.")
    return 0


def write_probed(name: str) -> Path:
    """Write the file of this machine's CPU into the user's folder of chips; returns its path.
    Raises `UsageError` for a name that is none, and for that of a chip that ships."""
    from sketchc.runtime.bench.chip import probed_cpu

    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        refuse(f"{name!r} is no name of a chip: lower-case letters, digits and _")
    if name in HARDWARE:
        refuse(f"{name} ships with sketchc; choose another name")
    path = user_chips() / f"{name}.toml"
    text = probed_cpu(name)
    with refusing(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    return path


def sandbox() -> dict[str, str]:
    """How the workers that run kernels are isolated on this machine, found by trying it."""
    from sketchc.runtime.sandbox.worker import isolation

    found = isolation()
    return {"mode": found.mode, "reason": found.reason, "text": found.text}


#: The fields of a toolchain's status that are shown unchanged.
_TOLD = ("can_compile", "can_run", "how_it_runs", "versions", "missing", "advice", "never_built")


def describe(name: str) -> dict[str, Any]:
    """The facts of one target as JSON-able data. Never raises for what is not installed."""

    target = load_target(name)
    default = target.capabilities.default_hardware
    status = toolchain_status(name)
    return {
        "target": name,
        "description": target.description,
        "languages": [target.language.name],
        "dtypes": sorted(target.capabilities.dtypes),
        "default_hardware": default,
        # The chips that it can be planned for.
        "hardware": [
            {"name": chip.name, "description": str(chip.facts["description"])}
            for chip in chips_like(default)
        ],
        "installed": not (status.missing or status.never_built),
        **{fact: getattr(status, fact) for fact in _TOLD},
    }


def toolchain_status(name: str) -> base.ToolchainStatus:
    """The status of a target's toolchain, also where its own imports are not installed."""

    try:
        return base.toolchain(name).status()
    except ImportError as error:
        return base.ToolchainStatus(
            target=name,
            can_compile=False,
            can_run=False,
            how_it_runs="",
            missing=(error.name or str(error),),
            advice=f"pip install {load_target(name).packages}",
        )


def _show(console: Console, target: dict[str, Any]) -> None:
    """One target as a short paragraph."""
    from rich.markup import escape

    console.print(f"[bold]{target['target']}[/bold]  {escape(target['description'])}")
    chips = ", ".join(
        f"{chip['name']} (default)" if chip["name"] == target["default_hardware"] else chip["name"]
        for chip in target["hardware"]
    )
    rows = [
        ("plans for", chips),
        ("compiles here", "yes" if target["can_compile"] else "no"),
        ("runs here", target["how_it_runs"] if target["can_run"] else "no"),
        ("never built", target["never_built"]),
        ("versions", ", ".join(f"{k} {v}" for k, v in target["versions"].items())),
        ("missing", ", ".join(target["missing"])),
        ("to get it", target["advice"]),
    ]
    for label, text in rows:
        if text:
            console.print(f"  {label + ':':<15}{escape(text)}", soft_wrap=True)
    console.print()


def load_toolchain(name: str) -> base.Toolchain:
    """The toolchain of a target. Raises `UsageError` for an unknown name, or one whose own
    imports are not installed."""

    if name not in target_names():
        refuse(f"unknown toolchain {name!r}; known: {', '.join(target_names())}")
    try:
        return base.toolchain(name)
    except ImportError as error:
        refuse(f"{name} needs {error.name}: pip install {load_target(name).packages}", error)


@click.group()
def toolchain() -> None:
    """List and install the compilers that targets need.

    \b
    Examples:
      sketchc toolchain list
      sketchc toolchain install triton_ascend
    """


@toolchain.command("list")
def list_toolchains() -> int:
    """One line per toolchain: ready, or what is missing.

    \b
    Example:
      sketchc toolchain list
    """

    for name in (target.name for target in all_targets()):
        status = toolchain_status(name)
        versions = ", ".join(f"{key} {value}" for key, value in status.versions.items())
        if status.never_built:
            text = f"never built: {status.never_built}"
        elif status.missing:
            text = f"missing: {', '.join(status.missing)} ({status.advice})"
        else:
            text = f"ready: {versions}"
        click.echo(f"{name:<15} {text}")
    from sketchc.runtime.tasks import mindspore_environment as mindspore

    found = f"ready: mindspore {mindspore.VERSION}" if mindspore.MINDSPORE.python() else ""
    text = found or f"missing: mindspore, for MindSpore tasks alone ({mindspore.INSTALL_LINE})"
    click.echo(f"{'mindspore':<15} {text}")
    return 0


@toolchain.command()
@click.argument("target")
@click.option(
    "--system",
    is_flag=True,
    help="Install the system packages too, with apt-get; needs root.",
)
def install(target: str, system: bool) -> int:
    """Set up the toolchain of TARGET, in the user's own folders.

    \b
    triton_ascend gets a Python environment of its own, for triton-ascend and triton cannot share
    one: $SKETCHC_ASCEND_ENV, or the user's data folder. So does mindspore, which runs MindSpore
    tasks and is no target: $SKETCHC_MINDSPORE_ENV; it downloads 0.8 GB and keeps 0.9 GB.
    \b
    Examples:
      sketchc toolchain install triton_ascend
      sketchc toolchain install triton_ascend --system
      sketchc toolchain install opencl
      sketchc toolchain install mindspore
    """
    from sketchc.runtime.tasks import mindspore_environment as mindspore

    chosen = None if target == "mindspore" else load_toolchain(target)
    install_tools = getattr(chosen, "install_tools", None)
    if system and install_tools is None:
        refuse(f"{target} needs no system packages that --system could install")
    try:
        if chosen is None:
            click.echo(mindspore.install())
            return 0
        if system and install_tools is not None:
            click.echo(install_tools())
        click.echo(chosen.install())
    except InstallError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    status = chosen.status()
    if status.missing:
        click.echo(f"missing: {', '.join(status.missing)}; {status.advice}", err=True)
        return 1
    return 0
