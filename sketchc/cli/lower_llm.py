"""`sketchc lower --coder llm`: a model writes the code, the interpreter says whether it is right.

Nothing is written before a kernel was accepted: equal to the sketch's own interpretation on every
derived shape case, under the rules for code from elsewhere.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchc.agents.coder.code_writer import Coding, KernelWriter, code_until_right, sketch_check
from sketchc.agents.coder.coder import documents_of
from sketchc.agents.coder.messages import for_plan
from sketchc.agents.llm.ledger import Header, Ledger
from sketchc.agents.llm.messages import LlmError
from sketchc.agents.llm.providers import make_client, make_provider
from sketchc.agents.run.summary import counted
from sketchc.cli.options import configuration_of
from sketchc.cli.verify_files import require_running
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.seed import fresh_seed

if TYPE_CHECKING:
    from sketchc.agents.llm.client import Provider, Spend
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.passes.pipeline import PlannedSketch

#: Exit status when a cap or the model's endpoint stopped the work, as in `sketchc gen`.
STOPPED = 3


#: Attempts where the command line does not say how many.
MAX_ATTEMPTS = 4


def code_with_model(
    planned: PlannedSketch, text: str, file: str, given: Mapping[str, Any], quiet: bool
) -> tuple[Kernel | None, int]:
    """The accepted kernel and status 0, or None and the exit status; progress and errors go to
    standard error. `text` is that of the sketch's file, `file` its name; `given` holds the options
    of the command line that concern the model, by name.

    Raises `UsageError` where the target cannot run here or no model is configured.
    """
    plan = planned.plan
    said = "--coder llm runs what the model writes, and {} cannot run here"
    require_running(toolchain(plan.target), said)
    names = ("config", "llm", "model", "base_url")
    configuration = configuration_of(**{name: given[name] for name in names})

    def note(line: str) -> None:
        if not quiet:
            click.echo(f"coder: {line}", err=True)

    def waiting(path: Path) -> None:
        click.echo(f"coder: waiting for {path}", err=True)

    provider = make_provider(configuration.llm, configuration.target(plan.target))
    ledger = Ledger(None if given["ledger"] is None else Path(given["ledger"]))
    header = _header(planned, text, file, given, _seed(given["seed"], ledger, provider))
    ledger.begin(header)
    client = make_client(provider, ledger, configuration.llm, note, waiting)

    try:
        with tempfile.TemporaryDirectory() as folder:
            check = sketch_check(
                plan, Path(folder), header.seed, configuration.target(plan.target).verify_timeout
            )
            writer = KernelWriter(
                for_plan(plan),
                client,
                documents_of(plan.target),
                configuration.docs_tokens,
                starting_point=not given["no_start"],
            )
            coding = code_until_right(writer, check, given["max_attempts"] or MAX_ATTEMPTS, note)
    except LlmError as error:
        again = "; the same --ledger goes on from here" if given["ledger"] else ""
        click.echo(f"error: the model cannot be asked: {error.kind}: {error}{again}", err=True)
        return None, STOPPED
    if not quiet or coding.kernel is None:
        _report(coding, client.spend)
    return coding.kernel, 0 if coding.kernel is not None else 1


def _seed(asked: int | None, ledger: Ledger, provider: Provider) -> int:
    """The seed of every drawn input: as asked for, else that of the ledger or of the recording,
    whose prompts depend on it, else a fresh one."""
    if asked is not None:
        return asked
    recorded: Header | None = ledger.header or getattr(provider, "header", None)
    return recorded.seed if recorded is not None else fresh_seed()


def _header(
    planned: PlannedSketch, text: str, file: str, given: Mapping[str, Any], seed: int
) -> Header:
    plan = planned.plan
    constants = {constant.name: constant.value for constant in plan.sketch.constants}
    defaults = {param.name: param.default for param in plan.sketch.params}
    return Header(
        task=Path(file).name,
        target=plan.target,
        hardware=plan.hardware.name,
        workflow="lower",
        coder="llm",
        seed=seed,
        options={
            "sketch": plan.sketch.name,
            "sketch_digest": hashlib.sha256(text.encode()).hexdigest(),
            "constants": constants,
            "params": defaults,
            "starting_point": not given["no_start"],
        },
    )


def _report(coding: Coding, spend: Spend) -> None:
    """Print attempts, calls and tokens; where no kernel was accepted, the last verdict too."""
    if coding.kernel is None:
        from sketchc.cli.consoles import make_console
        from sketchc.runtime.verify.text import show

        if coding.verdict is not None:
            show(coding.verdict, make_console(stderr=True))
        if coding.problem:
            click.echo(f"error: {coding.problem}", err=True)
    cases = 0 if coding.verdict is None else sum(case.passed for case in coding.verdict.cases)
    outcome = f"accepted: equal to the sketch in {cases} cases" if coding.kernel else "not accepted"
    cost = (
        f", cost {spend.cost:.4g}" if spend.cost else ", cost unknown" * bool(spend.unpriced_calls)
    )
    click.echo(
        f"{outcome}; {counted(coding.attempts, 'attempt')}, {counted(spend.calls, 'call')}, "
        f"{counted(spend.input_tokens, 'token')} in, {spend.output_tokens:,} out{cost}",
        err=True,
    )
