"""`sketchc demo`: the first minute. Lower one sketch to every target, prove, run, compare, and let
the built-in Designer write one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sketchc.api.sketches import load_sketch
from sketchc.base.diagnostics import refuse
from sketchc.cli.consoles import make_console
from sketchc.cli.verify_files import VerifyRequest, lower
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.runtime.verify.seed import fresh_seed

if TYPE_CHECKING:
    from rich.console import Console

    from sketchc.runtime.bench.measurement import Measurement
    from sketchc.runtime.verify.verify import Candidate


@click.command()
@click.option("--examples", default="examples", show_default=True, metavar="DIR",
              help="The folder with rms.sketch and tasks/rms.py.")  # fmt: skip
def demo(examples: str) -> int:
    """Lower RMSNorm to every target, say what was proved, run what can be run here, compare with
    PyTorch; then design a sketch for the task by rules.

    \b
    Example:
      sketchc demo
    """

    sketch, task = Path(examples, "rms.sketch"), Path(examples, "tasks", "rms.py")
    for needed in (sketch, task):
        if not needed.is_file():
            refuse(f"{needed} is not here; run the demo in a checkout, or say --examples DIR")
    console = make_console(highlight=False)
    if not console.is_terminal:
        console = make_console(highlight=False, width=110)
    failed = _language(console, str(sketch), "triton_ascend", task)
    _proofs(console, str(sketch))
    for target in TARGETS:
        if target != "triton_ascend" and load_target(target).coder:
            failed |= _language(console, str(sketch), target, task)
    failed |= _timed(console, str(sketch), task)
    failed |= _gen(console, task)
    console.rule("next")
    console.print("`sketchc --help` lists the commands; README.md has a sketch in five minutes.")
    return 1 if failed else 0


def _language(console: Console, sketch: str, target: str, task: Path) -> bool:
    """Show the kernel for a target, and verify it if the toolchain can run it here. True if that
    failed."""
    from rich.syntax import Syntax

    console.rule(f"{target}: sketchc lower {sketch} --target {target}")
    candidate = lower(VerifyRequest(sketch, target))
    language = load_target(target).language
    lexer = "python" if language.syntax == "python" else "cpp"
    shown = _kernels(candidate.kernel.source, language.syntax)
    console.print(Syntax(shown, lexer, background_color="default", word_wrap=True))
    console.print("The rest of the file is its host's side; the command above prints all of it.")
    status = candidate.toolchain.status()
    if not status.can_run:
        console.print(f"not executed: run {status.advice}")
        return False
    return not _right(console, candidate, task, f"run here: {status.how_it_runs}")


def _kernels(source: str, syntax: str) -> str:
    """What runs on the device: the decorated functions of a Python file, or the first exported
    function of a file in C, without the library before it and the host's code."""
    import ast

    lines = source.splitlines()
    if syntax != "python":
        first = next(n for n, line in enumerate(lines) if line.startswith('extern "C"'))
        return "\n".join(lines[first : lines.index("}", first) + 1])
    parts = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            first = node.decorator_list[0].lineno - 1
            parts.append("\n".join(lines[first : node.end_lineno]))
    return "\n\n\n".join(parts)


def _proofs(console: Console, sketch: str) -> None:
    """What was proved, one line per claim, with the tier of each."""
    from rich.markup import escape

    from sketchc.lowering.passes.pipeline import build_plan

    console.rule("what was proved")
    planned = build_plan(load_sketch(sketch)[1], "triton_ascend")
    for note in planned.plan.notes:
        console.print(escape(note))
    for proof in planned.proofs:
        detail = f" ({escape(proof.detail)})" if proof.detail else ""
        claim = f"{proof.claim}: {escape(proof.subject)}{detail}"
        console.print(f"[green]{proof.tier.value}[/green]  {claim}")
    for phase in planned.plan.phases:
        for use in phase.memory_use:
            console.print(
                f"[green]fits[/green]  {use.memory.replace('_', ' ')}: {use.bytes:,} of "
                f"{use.capacity:,} bytes"
            )


def _right(console: Console, candidate: Candidate, task: Path, *told: str) -> bool:
    """Verify the kernel, and print the lines `told` and a summary. True if the kernel passed."""
    from sketchc.runtime.tasks.task import TorchTask
    from sketchc.runtime.verify import text
    from sketchc.runtime.verify.verify import verify

    with TorchTask(task) as loaded, tempfile.TemporaryDirectory() as folder:
        verdict = verify(candidate, loaded, Path(folder), fresh_seed(), {})
    for line in (*told, text.summary(verdict)):
        console.print(line, soft_wrap=True)
    return verdict.passed


def _timed(console: Console, sketch: str, task: Path) -> bool:
    """Time the C++ kernel beside PyTorch eager. True if that failed."""
    from sketchc.runtime.bench import text as bench_report
    from sketchc.runtime.bench.bench import bench
    from sketchc.runtime.bench.machine import this_machine
    from sketchc.runtime.bench.schedule import Settings
    from sketchc.runtime.tasks.task import TorchTask

    candidate = lower(VerifyRequest(sketch, "cpp"))
    if not candidate.toolchain.status().can_run:
        return False
    console.rule(f"sketchc bench {sketch} --task {task} --target cpp")
    with TorchTask(task) as loaded, tempfile.TemporaryDirectory() as folder:
        settings = Settings(fresh_seed(), len(os.sched_getaffinity(0)))
        measured = bench(candidate, loaded, Path(folder), settings, this_machine("cpu"))
    _table(console, measured)
    console.print(bench_report.summary(measured), soft_wrap=True)
    return not measured.passed


def _gen(console: Console, task: Path) -> bool:
    """`sketchc gen` on the task itself, and the sketch that it wrote. True if it failed."""
    from rich.syntax import Syntax

    from sketchc.cli.main import run
    from sketchc.runtime.toolchains.base import toolchain

    if not toolchain("cpp").status().can_run:
        return False
    console.rule(f"no sketch at all: sketchc gen {task} --target cpp")
    with tempfile.TemporaryDirectory() as folder:
        status = run(
            ["gen", str(task), "--target", "cpp", "--no-store", "--no-bench", "-o", folder]
        )
        path = Path(folder, f"{task.stem}.sketch")
        if path.exists():
            # The language reads like Python, near enough for colours.
            shown = Syntax(path.read_text("utf-8"), "python", background_color="default")
            console.print(shown)
    return status != 0


def _table(console: Console, measured: Measurement) -> None:
    """Error, time and bandwidth of the kernel beside PyTorch's own."""
    from rich.table import Table

    from sketchc.runtime.bench.text import seconds_text

    sizes = ", ".join(f"{name}={value}" for name, value in measured.symbols.items())
    table = Table(title=f"{sizes}, f32, {measured.machine.threads} threads", title_justify="left")
    table.add_column("")
    for name in ("max error", "median time", "against eager", "of the roofline"):
        table.add_column(name, justify="right")
    error = max((comparison.max_error for comparison in measured.comparisons), default=0.0)
    gain = measured.speedup
    table.add_row(
        "PyTorch eager", "reference", seconds_text(measured.eager.median), "1.00x",
        f"{measured.baselines['eager'].roofline:.0%}",
    )  # fmt: skip
    table.add_row(
        "sketchc cpp", f"{error:.1e}", seconds_text(measured.kernel.median),
        f"{gain.of_medians:.2f}x" if gain else "", f"{measured.roofline:.0%}",
    )  # fmt: skip
    console.print(table)
