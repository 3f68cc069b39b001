"""`sketchc lower`: from a sketch to a target's source code, with the plan and the proofs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from sketchc.api import sketches
from sketchc.base.diagnostics import Source, refuse
from sketchc.base.types import Scalar
from sketchc.cli import options
from sketchc.lowering.plan_text import print_plan, print_sketch
from sketchc.lowering.registry import load_language, load_target
from sketchc.runtime.store.origins import Origin, with_origin

if TYPE_CHECKING:
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.passes.pipeline import PlannedSketch
    from sketchc.parsing import syntax


@attrs.frozen
class _Command:
    """The options of the command line: `target` with the chip; of `model`, those that concern a
    language model, by name."""

    file: str
    name: str | None
    target: tuple[str, str | None]
    constants: dict[str, Scalar]
    sizes: dict[str, int]
    allow_unproved: bool
    emit: str
    output: str | None
    map_file: str | None
    module_folder: str | None
    coder: str
    tuned: bool
    store: Path
    quiet: bool
    model: Mapping[str, Any]

    def planned(self, source: Source, tree: syntax.Sketch) -> PlannedSketch:
        """The plan of a sketch. Raises `SketchError` and `UsageError`."""
        sizes = self.sizes or None
        return sketches.plan_sketch(
            source, tree, *self.target, self.constants, self.allow_unproved, sizes
        )

    def signed(
        self, kernel: Kernel, source: Source, tree: syntax.Sketch, planned: PlannedSketch
    ) -> Kernel:
        """The kernel with a comment at its end that holds the sketch it was made of, and the
        constants: also those that were chosen for sizes, which the kernel alone does not say."""
        plan, settled = planned.plan, dict(self.constants)
        if self.sizes:
            settled |= {c.name: c.value for c in plan.sketch.constants if c.chosen_by == "plan"}
            settled |= plan.options
        origin = Origin(source.text, tree.name, self.target[0], plan.hardware.name, settled)
        language = load_language(kernel.language)
        return attrs.evolve(kernel, source=with_origin(kernel.source, language, origin))

    def tell(self, source: Source, planned: PlannedSketch) -> None:
        """Print the remarks and the summary of a plan on standard error, unless `quiet`."""
        if not self.quiet:
            options.show_diagnostics(source, planned.diagnostics)
            click.echo(summary(planned), err=True)


@click.command()
@click.argument("file")
@options.target_option(required=False)
@click.option("--hardware", help="The chip; default: the one in brackets above.")
@options.set_option("Bind a constexpr, or the default of a param.")
@click.option(
    "--emit",
    type=click.Choice(["tree", "ir", "plan", "code"]),
    default="code",
    show_default=True,
    help="What to print.",
)
@click.option("--output", "-o", metavar="FILE", help="Write there instead of standard output.")
@options.sketch_option
@click.option(
    "--source-map",
    "map_file",
    metavar="FILE",
    help="Also say there, as JSON, which lines of the code come from which of the sketch.",
)
@click.option("--dsl", help="The paper's spelling of --target.")
@click.option("--backend", help="The paper's spelling: ascend, cuda or cpu.")
@click.option("--arch", help="The paper's spelling of --hardware.")
@click.option(
    "--module",
    "module_folder",
    metavar="DIR",
    help="Also put an importable Python module there (C++: built with nanobind).",
)
@click.option("--tuned", is_flag=True, help="Take the point that `sketchc tune` found here.")
@options.symbols_option("Choose tile sizes for these; with --tuned, the point of the nearest.")
@options.existing_store_option
@options.allow_unproved_option
@click.option("--quiet", "-q", is_flag=True, help="No summary and no warnings on standard error.")
@click.option(
    "--coder",
    type=click.Choice(["builtin", "llm"]),
    default="builtin",
    show_default=True,
    help="Who writes the code. A model's is accepted only if it equals the interpreter.",
)
@options.model_options()
@click.option("--max-attempts", type=click.IntRange(min=1), help="Of the model. Default: 4.")
@click.option("--ledger", metavar="FILE", help="Keep every call there; what is there is reused.")
@options.seed_option("Of the inputs. Default: a fresh one.")
@click.option("--no-start", is_flag=True, help="Show the model no built-in code to start from.")
@options.verify_ir_option
def lower(
    file: str,
    target: str | None,
    hardware: str | None,
    settings: tuple[str, ...],
    emit: str,
    output: str | None,
    name: str | None,
    map_file: str | None,
    dsl: str | None,
    backend: str | None,
    arch: str | None,
    module_folder: str | None,
    allow_unproved: bool,
    quiet: bool,
    coder: str,
    tuned: bool,
    symbols: tuple[str, ...],
    store: Path,
    **given: Any,
) -> int:
    """Lower a sketch to source code for a target.

    The code ends in a comment that holds the sketch: `sketchc migrate` reads it.

    Exit status: 0 done, 1 for a sketch that does not lower or (--coder llm) when no code was
    accepted, 2 misuse, 3 when the model could not be asked or a cap was reached.

    \b
    Examples:
      sketchc lower examples/rms.sketch --target triton_ascend
      sketchc lower examples/rms.sketch --target cpp --set TILE_SIZE=8 --emit plan
      sketchc lower examples/matmul.sketch --target cpp --symbols M=1024,N=64,K=4096
      sketchc lower examples/softmax.sketch --target cpp -o softmax.cpp --module .
      sketchc lower examples/matmul.sketch --target cpp --tuned --symbols M=512,N=512,K=512
      sketchc lower x.sketch --dsl triton_ascend --backend ascend --arch ascend910b4
      sketchc lower examples/softmax.sketch --target cpp --coder llm --llm mailbox:letters
    """
    _check_coder(coder, emit, given, map_file)
    command = _Command(
        *(file, name, options.resolve_target(target, hardware, dsl, backend, arch)),
        options.parse_assignments(settings, "--set"),
        options.parse_sizes(symbols),
        allow_unproved,
        emit,
        output,
        map_file,
        module_folder,
        coder,
        tuned,
        store,
        quiet,
        given,
    )
    try:
        source, tree = sketches.load_sketch(file, name)
    except sketches.OpenTypesError as error:
        return _lower_all(command, error)
    return _lower_one(command, source, tree)


def _lower_one(command: _Command, source: Source, tree: syntax.Sketch) -> int:
    """Write the code, or what `--emit` asks for, and what goes with it; returns the exit status.
    Raises `SketchError` and `UsageError`."""
    if command.emit == "tree":
        options.write_output(show_tree(tree), command.output)
        return 0
    if command.tuned:
        command = _at_tuned_point(command, tree)
    planned = command.planned(source, tree)
    text, made, kernel = "", None, None
    if command.coder == "builtin" or load_target(planned.plan.target).coder:
        with sketches.pointing_into(source):
            text, made = emitted(planned, command.emit)
    if made is not None:
        made = command.signed(made, source, tree, planned)
        text = made.source
    if command.coder == "llm":
        from sketchc.cli.lower_llm import code_with_model

        asked = (command.file, command.model, command.quiet)
        kernel, status = code_with_model(planned, source.text, *asked)
        if kernel is None:
            return status
        kernel = command.signed(kernel, source, tree, planned)
        text = kernel.source
    options.write_output(text, command.output)
    if command.map_file is not None and made is not None:
        write_map(made, source.text, command.map_file, command.output)
    command.tell(source, planned)
    if command.module_folder is None:
        return 0
    return write_module(planned, made, Path(command.module_folder), kernel)


def _at_tuned_point(command: _Command, tree: syntax.Sketch) -> _Command:
    """The command with the constants of the stored point that fits best. Raises `UsageError` as
    `tuned_point` does."""
    from sketchc.cli.tuning.tuned import tuned_point

    point, said = tuned_point(
        *(command.file, tree, *command.target, command.store, command.sizes, command.constants)
    )
    if not command.quiet:
        click.echo(said, err=True)
    return attrs.evolve(command, constants={**point, **command.constants}, sizes={})


def _lower_all(command: _Command, error: sketches.OpenTypesError) -> int:
    """Put one module for all instances of a sketch with `types:` into a folder; returns the exit
    status. Raises `SketchError`, and `UsageError`, for the `error`, where anything else is asked
    for, or if the folder cannot be written."""
    from sketchc.runtime.dropin.generic_dropin import write_generic_module

    other = command.output or command.coder == "llm" or command.map_file or command.tuned
    if command.module_folder is None or other or command.emit != "code":
        refuse(f"{error}, or --module DIR alone for a module that serves all", error)
    source, folder = sketches.read_source(command.file), Path(command.module_folder)
    trees = sketches.the_sketches(source, command.name)
    kernels = []
    for tree in trees:
        planned = command.planned(source, tree)
        with sketches.pointing_into(source):
            made = load_target(planned.plan.target).emit(planned.plan)
        kernels.append(command.signed(made, source, tree, planned))
        command.tell(source, planned)
    return _written(folder, lambda: write_generic_module(folder, trees[0].written_name, kernels))


def _check_coder(coder: str, emit: str, given: Mapping[str, Any], map_file: str | None) -> None:
    """Raises `UsageError` for options that do not go with the Coder."""
    if map_file is not None and (coder == "llm" or emit != "code"):
        refuse(
            "--source-map goes with the code of the built-in Coder: leave --emit and --coder out"
        )
    if coder == "llm" and emit != "code":
        refuse(f"--emit {emit} is the same for every Coder; leave --coder llm out")
    if coder == "builtin":
        said = [name for name, value in given.items() if value not in (None, False)]
        if said:
            refuse(f"--{said[0].replace('_', '-')} goes with --coder llm")


def write_map(kernel: Kernel, text: str, file: str, output: str | None) -> None:
    """Write the map from the code (in `output`) to the sketch's `text`. Raises `UsageError` if
    the file cannot be written."""

    from sketchc.lowering.kernel import source_map_json

    found = source_map_json(kernel, text, Path(output).name if output else "")
    options.write_output(json.dumps(found, indent=1) + "\n", file)


def write_module(
    planned: PlannedSketch, made: Kernel | None, folder: Path, written: Kernel | None = None
) -> int:
    """Put the importable drop-in into `folder`; returns the exit status. `made` is the built-in
    Coder's kernel if it was emitted already, `written` the model's kernel, whose source then takes
    the place of the built-in one: both have the same interface.

    Raises `UsageError` if the folder cannot be written.
    """

    from sketchc.runtime.dropin.kernel_module import write_module as write_files

    kernel = made or written or load_target(planned.plan.target).emit(planned.plan)
    if written is not None:
        kernel = attrs.evolve(kernel, source=written.source)
    return _written(folder, lambda: write_files(folder, kernel))


def _written(folder: Path, write: Callable[[], Path]) -> int:
    """Call `write`, which puts a module into `folder`, and say where it is; returns the exit
    status. Raises `UsageError` if the folder cannot be written."""
    from sketchc.runtime.toolchains.base import ToolchainError

    try:
        path = write()
    except OSError as error:
        refuse(f"cannot write to {folder}: {error.strerror}", error)
    except ToolchainError as error:
        click.echo(f"error: {error}\n{error.log}".rstrip(), err=True)
        return 1
    click.echo(f"module: {path} (import {path.stem})", err=True)
    return 0


def emitted(planned: PlannedSketch, emit: str) -> tuple[str, Kernel | None]:
    """The text that `--emit` asks for, and the kernel whose code it is (None for "ir" and "plan").
    Raises `DiagnosticError` for what the target refuses."""

    match emit:
        case "ir":
            return print_sketch(planned.plan.sketch), None
        case "plan":
            return print_plan(planned.plan), None
        case _:
            kernel = load_target(planned.plan.target).emit(planned.plan)
            return kernel.source, kernel


def show_tree(node: Any, depth: int = 0) -> str:
    """A syntax tree as indented text: one node per line, spans left out."""

    pad = "  " * depth
    if not attrs.has(type(node)):
        return f"{pad}{node!r}"
    lines = [f"{pad}{type(node).__name__}"]
    for field in attrs.fields(type(node)):
        value = getattr(node, field.name)
        if field.name.endswith("span") or field.name == "comments":
            continue
        if isinstance(value, tuple) and value:
            lines.append(f"{pad}  {field.name}:")
            lines += [show_tree(item, depth + 2) for item in value]
        elif attrs.has(type(value)):
            lines.append(f"{pad}  {field.name}:")
            lines.append(show_tree(value, depth + 2))
        elif value not in (None, ()):
            lines.append(f"{pad}  {field.name}: {value!r}")
    return "\n".join(lines)


def summary(planned: PlannedSketch) -> str:
    """The claims by tier, the plan's notes, and the memory that each phase uses, as text."""
    plan = planned.plan
    counted = options.by_tier(planned.proofs) or "nothing to prove"
    lines = [f"{plan.sketch.name} for {plan.target} on {plan.hardware.name}: claims {counted}"]
    lines += [f"  {note}" for note in plan.notes]
    for phase in plan.phases:
        for use in phase.memory_use:
            lines.append(
                f"  {phase.name}: {use.bytes:,} of {use.capacity:,} bytes of"
                f" {use.memory.replace('_', ' ')}"
            )
    return "\n".join(lines)
