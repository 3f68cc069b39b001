"""`sketchc toolchain`: list toolchains and set them up."""

from __future__ import annotations

import click

from sketchc.base.diagnostics import UsageError


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
    from sketchc.cli.commands.targets import toolchain_status
    from sketchc.lowering.registry import TARGETS

    for name in TARGETS:
        status = toolchain_status(name)
        versions = ", ".join(f"{key} {value}" for key, value in status.versions.items())
        if status.missing:
            text = f"missing: {', '.join(status.missing)} ({status.advice})"
        else:
            text = f"ready: {versions}"
        click.echo(f"{name:<15} {text}")
    from sketchc.runtime.tasks import mindspore_environment as mindspore

    found = f"ready: mindspore {mindspore.VERSION}" if mindspore.mindspore_python() else ""
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
      sketchc toolchain install mindspore
    """
    from sketchc.cli.commands.targets import load_toolchain
    from sketchc.runtime.process.venvs import InstallError

    chosen = None if target == "mindspore" else load_toolchain(target)
    install_tools = getattr(chosen, "install_tools", None)
    if system and install_tools is None:
        msg = f"{target} needs no system packages that --system could install"
        raise UsageError(msg)
    if chosen is None:
        return _install_mindspore()
    try:
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


def _install_mindspore() -> int:
    from sketchc.runtime.process.venvs import InstallError
    from sketchc.runtime.tasks.mindspore_environment import install

    try:
        click.echo(install())
    except InstallError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    return 0
