"""`sketchc explain-plan`: what a plan costs, launch by launch, before anything is compiled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from sketchc.api import sketches
from sketchc.base.types import Scalar
from sketchc.cli import options
from sketchc.cli.consoles import make_console

if TYPE_CHECKING:
    from sketchc.lowering.cost.predict import LaunchCost, Prediction
    from sketchc.lowering.plan import Plan


@click.command("explain-plan")
@click.argument("file")
@options.target_option()
@options.hardware_option
@options.set_option("Bind a constexpr, or a param.")
@options.symbols_option("The sizes; default: each symbol's bound, or 1024.")
@options.sketch_option
@options.threads_option("Of a CPU. Default: all cores.")
@options.allow_unproved_option
@options.json_option
@options.plot_option("Also draw the roofline there.")
def explain_plan(
    file: str,
    target: str,
    hardware: str | None,
    settings: tuple[str, ...],
    symbols: tuple[str, ...],
    name: str | None,
    threads: int | None,
    allow_unproved: bool,
    as_json: bool,
    plot: str | None,
) -> int:
    """Predict what a plan costs: bytes, FLOPs, scratch, time, and what bounds it.

    Nothing is compiled or run; the figures are the cost model's, for the chip and the sizes.

    Exit status: 0 done, 1 for a sketch that does not lower, 2 misuse.

    \b
    Examples:
      sketchc explain-plan examples/matmul.sketch -t cpp --symbols M=1024,N=1024,K=1024
      sketchc explain-plan examples/rms.sketch -t triton_cuda --plot roofline.png
    """
    from sketchc.lowering.cost.predict import predict, sized_values

    options.known_target(target)
    constants = options.parse_assignments(settings, "--set")
    sizes = options.parse_sizes(symbols)
    source, tree = sketches.load_sketch(file, name)
    planned = sketches.plan_sketch(
        source, tree, target, hardware, constants, allow_unproved, sizes or None
    )
    options.show_diagnostics(source, planned.diagnostics)
    plan = planned.plan
    values = sized_values(plan.sketch, sizes)
    found = predict(plan, values, threads)
    if plot is not None:
        from sketchc.runtime.report.drawings import draw_roofline

        draw_roofline(plan, found, plot)
    if as_json:
        click.echo(json.dumps(_as_json(plan, values, found), indent=1))
    else:
        _show(plan, values, found)
    return 0


# ---------------------------------------------------------------- text and JSON


def _show(plan: Plan, values: Mapping[str, Scalar], found: Prediction) -> None:
    from rich.table import Table

    from sketchc.runtime.report.text import rate, seconds

    sizes = ", ".join(f"{s.name}={values[s.name]}" for s in plan.sketch.symbols)
    chosen = ", ".join(f"{c.name} = {c.value}" for c in plan.sketch.constants)
    console = make_console()
    console.print(
        f"{plan.sketch.name} for {plan.target} on {plan.hardware.name}"
        f"{f', {sizes}' if sizes else ''}{f'; {chosen}' if chosen else ''}",
        highlight=False,
        markup=False,
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("launch")
    for column in ("programs", "memory", "predicted"):
        table.add_column(column, justify="right")
    table.add_column("bound by")
    for launch in found.launches:
        times = f"{launch.times:.4g} x " if launch.times != 1 else ""
        programs, moved = f"{times}{launch.programs:,.0f}", rate(launch.moved, "B")
        table.add_row(launch.name, programs, moved, seconds(launch.seconds), launch.bound)
    if len(found.launches) > 1:
        table.add_row("all", "", "", seconds(found.seconds), "")
    console.print(table)
    for launch in found.launches:
        console.print(f"\n{launch.name}", highlight=False, markup=False)
        for line in _details(launch):
            console.print(f"  {line}", highlight=False, markup=False)


def _details(launch: LaunchCost) -> list[str]:
    """What the table does not say of a launch, a line for each kind."""
    from sketchc.runtime.report.text import rate, seconds

    work = [
        f"{rate(number, 'FLOP')} {kind}" for kind, number in launch.operations.items() if number
    ]
    scratch = [f"{size:,} bytes of {memory}" for memory, size in launch.scratch.items() if size]
    parts = sorted(launch.parts.items(), key=lambda part: -part[1])
    taken = [f"{part} {seconds(each)}" for part, each in parts if each >= 0.01 * launch.seconds]
    lines = [f"operations: {', '.join(work) or 'none'}", f"scratch: {', '.join(scratch) or 'none'}"]
    if launch.occupancy is not None:
        resident, waves = launch.occupancy.resident, launch.occupancy.waves
        lines.append(f"occupancy: {resident} programs a core at a time, {waves:.2f} waves")
    return [*lines, f"time: {', '.join(taken)}"]


def _as_json(plan: Plan, values: Mapping[str, Scalar], found: Prediction) -> dict[str, Any]:
    launches = []
    for launch in found.launches:
        filled = launch.occupancy
        launches.append(
            {
                "name": launch.name,
                "programs": launch.programs,
                "times": launch.times,
                "bytes": launch.moved,
                "operations": dict(launch.operations),
                "scratch": dict(launch.scratch),
                "resident": None if filled is None else filled.resident,
                "waves": None if filled is None else filled.waves,
                "seconds": launch.seconds,
                "parts": dict(launch.parts),
                "bound": launch.bound,
            }
        )
    return {
        "sketch": plan.sketch.name,
        "target": plan.target,
        "hardware": plan.hardware.name,
        "symbols": {symbol.name: values[symbol.name] for symbol in plan.sketch.symbols},
        "constants": {constant.name: constant.value for constant in plan.sketch.constants},
        "seconds": found.seconds,
        "launches": launches,
    }
