"""`sketchc docspec`: the documents of a target: list them, print them or what a sketch needs of
them, and check them, down to building and running every example."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sketchc.api import sketches
from sketchc.base.diagnostics import refuse
from sketchc.docspec.loader import folder_of, inspect, load
from sketchc.docspec.markdown import KEYWORDS
from sketchc.docspec.schema import Category, DocSpec, DocSpecError, Example
from sketchc.docspec.selector import Part, Selection, estimate_tokens, example_text, select
from sketchc.lowering.registry import all_targets, load_target
from sketchc.runtime.verify.seed import fresh_seed

if TYPE_CHECKING:
    from sketchc.lowering.plan import Plan
    from sketchc.runtime.verify.running import Cases
    from sketchc.runtime.verify.verdict import Verdict


@click.group()
def docspec() -> None:
    """Show and check the documents that a model reads before it writes a kernel.

    \b
    Examples:
      sketchc docspec list
      sketchc docspec show cpp --for examples/softmax.sketch --budget 8000
      sketchc docspec check cpp --run
      sketchc docspec new mytarget
    """


@docspec.command("list")
def list_documents() -> int:
    """One line per target: estimated tokens of each category, and the examples.

    \b
    Example:
      sketchc docspec list
    """

    for target in (one.name for one in all_targets() if one.documents):
        folder = folder_of(target)
        spec, findings = inspect(folder) if folder.is_dir() else (None, ())
        if spec is None:
            text = "no documents" if not findings else str(findings[0])
        else:
            text = f"{spec.manifest.title}: {_sizes(spec)}"
            if findings:
                text += f"; {len(findings)} findings: sketchc docspec check {target}"
        click.echo(f"{target:<15} {text}")
    return 0


@docspec.command()
@click.argument("target")
@click.option(
    "--category",
    "categories",
    multiple=True,
    type=click.Choice([category.value for category in Category]),
    help="Only this category; may be repeated.",
)
@click.option("--for", "sketch", metavar="FILE", help="Only what this sketch needs.")
@click.option("--sketch", "name", help="Which sketch of FILE.")
@click.option(
    "--topic", "topics", multiple=True, metavar="WORD", help="With --for: a further topic."
)
@click.option(
    "--budget", type=click.IntRange(0), metavar="TOKENS", help="At most so many tokens, estimated."
)
@click.option("--quiet", "-q", is_flag=True, help="No report on standard error.")
def show(
    target: str,
    categories: tuple[str, ...],
    sketch: str | None,
    name: str | None,
    topics: tuple[str, ...],
    budget: int | None,
    quiet: bool,
) -> int:
    """Print the documents of TARGET (or of a folder), whole or cut to what a sketch needs.

    \b
    Examples:
      sketchc docspec show cpp --category pitfalls
      sketchc docspec show cpp --for examples/softmax.sketch --budget 8000
      sketchc docspec show cpp --for examples/softmax.sketch --topic numerical
    """

    if sketch is None and (topics or name or budget is not None):
        refuse("--budget, --topic and --sketch go with --for FILE")
    spec = load(target)
    chosen = [one for one in Category if not categories or one.value in categories]
    if sketch is None:
        _print_all(spec, chosen)
        return 0
    selection = _select(spec, sketch, name, topics, budget, chosen)
    click.echo(selection.text())
    if not quiet:
        _report(selection)
    return 0


@docspec.command()
@click.argument("target")
@click.option("--run", is_flag=True, help="Also build and run every example.")
@click.option("--seed", type=int, help="With --run: of the inputs; default: a new one.")
def check(target: str, run: bool, seed: int | None) -> int:
    """Check the documents of TARGET (or of a folder): manifest, entries, excerpts, examples.

    With --run, every example is built and compared with the interpretation of its sketch.

    \b
    Examples:
      sketchc docspec check cpp
      sketchc docspec check ./my_target
      sketchc docspec check cpp --run
    """

    spec, findings = inspect(folder_of(target))
    for finding in findings:
        click.echo(f"{target.rstrip('/')}/{finding}")
    if spec is None or findings:
        click.echo(str(DocSpecError(target, findings)).partition("\n")[0], err=True)
        return 1
    click.echo(f"{target}: fine: {_sizes(spec)}")
    return _run_examples(spec, seed) if run else 0


@docspec.command()
@click.argument("name")
@click.option(
    "--output", "-o", metavar="FOLDER", help="Put it there, not among the user's own targets."
)
def new(name: str, output: str | None) -> int:
    """Start the folder of a target that needs no code of sketchc: documents, how kernels are built,
    and a runner that calls them. As it is, it takes C functions; its comments say what to change.

    \b
    Examples:
      sketchc docspec new mytarget
      sketchc docspec new mytarget -o ./targets/mytarget
    """
    from sketchc.docspec.starting import start
    from sketchc.lowering.documents.target import user_targets
    from sketchc.lowering.registry import target_names

    if name in target_names():
        refuse(f"there is a target {name} already; choose another name")
    folder = user_targets() / name if output is None else Path(output)
    for path in start(name, folder):
        click.echo(path)
    where = name if output is None else str(folder)
    click.echo(f"next: sketchc docspec check {where}{' --run' if output is None else ''}")
    return 0


# ---------------------------------------------------------------- show


def _print_all(spec: DocSpec, categories: list[Category]) -> None:

    texts = [section.text for category in categories for section in spec.of(category)]
    if Category.EXAMPLES in categories:
        texts += [example_text(spec, example) for example in spec.examples]
    click.echo("\n\n".join(texts))


def _select(
    spec: DocSpec,
    path: str,
    name: str | None,
    topics: tuple[str, ...],
    budget: int | None,
    categories: list[Category],
) -> Selection:
    """What the sketch in `path` needs. Raises `SketchError` for a sketch with errors and
    `UsageError` for an unknown topic."""
    from sketchc.checker.api import elaborate
    from sketchc.docspec.needs import needs_of

    for topic in topics:
        if topic not in KEYWORDS:
            refuse(f"unknown topic {topic!r}; known: {', '.join(sorted(KEYWORDS))}")
    source, tree = sketches.load_sketch(path, name)
    sketch, found = elaborate(tree, {})
    if sketch is None:
        raise sketches.SketchError(source, found)
    needs = needs_of(sketch)
    limit = 1 << 40 if budget is None else budget
    return select(spec, needs.operations, (*needs.topics, *topics), limit, categories)


def _report(selection: Selection) -> None:
    """Print on standard error the parts taken and left out, with their estimated tokens."""
    for part in selection.taken:
        click.echo(f"taken     {_line(part)}", err=True)
    for part in selection.left_out:
        click.echo(f"left out  {_line(part)}  ({part.reason})", err=True)
    if selection.unserved:
        click.echo(f"no API entry serves: {', '.join(selection.unserved)}", err=True)
    left = sum(part.tokens for part in selection.left_out)
    click.echo(f"{selection.tokens} tokens taken, {left} left out (estimated)", err=True)


def _line(part: Part) -> str:
    return f"{part.tokens:>6}  {part.category.value:<10}  {part.file}:{part.line}  {part.title}"


def _sizes(spec: DocSpec) -> str:
    sizes = [
        f"{category.value} {sum(estimate_tokens(section.text) for section in spec.of(category))}"
        for category in Category
        if category is not Category.EXAMPLES
    ]
    tokens = sum(estimate_tokens(x.sketch) + estimate_tokens(x.source) for x in spec.examples)
    return f"{', '.join(sizes)}, {len(spec.examples)} examples {tokens} tokens"


# ---------------------------------------------------------------- check --run


def _run_examples(spec: DocSpec, seed: int | None) -> int:
    """Build and run every example; returns the exit status. Raises `UsageError` where the target
    cannot run."""

    from sketchc.cli.commands.targets import load_toolchain
    from sketchc.cli.verify_files import require_running
    from sketchc.runtime.verify.text import summary

    require_running(load_toolchain(spec.target))
    record = load_target(spec.target)
    if record.tools is not None and Path(record.documents).resolve() != spec.folder.resolve():
        refuse(f"--run takes the target {spec.target} from {record.documents}, not {spec.folder}")
    failed = 0
    for example in spec.examples:
        with tempfile.TemporaryDirectory() as folder:
            chosen = fresh_seed() if seed is None else seed
            verdict = verify_example(spec, example, Path(folder), chosen)
        failed += not verdict.passed
        click.echo(f"{example.name}: {summary(verdict)}")
        for case in verdict.failures[:1]:
            click.echo(f"  {case.shape.text} ({case.kind}): {case.reason}\n{case.log}".rstrip())
    return 1 if failed else 0


def verify_example(
    spec: DocSpec,
    example: Example,
    folder: Path,
    seed: int,
    select: Callable[[Cases], Cases] | None = None,
) -> Verdict:
    """Build an example in `folder` and compare it with its sketch's interpretation, under the rules
    that a model's code is accepted by. `select` may drop cases.

    Of a target that is never built, the text is looked at. Raises `UsageError` where the target has
    no toolchain, or cannot run on this machine, and for a sketch that the target refuses.
    """
    from sketchc.agents.state.candidates import foreign_kernel
    from sketchc.cli.commands.targets import load_toolchain
    from sketchc.cli.verify_files import require_running
    from sketchc.runtime.verify.design import SketchTask
    from sketchc.runtime.verify.verify import Candidate, verify

    toolchain = load_toolchain(spec.target)
    require_running(toolchain, unbuilt=True)
    plan = _plan(spec, example)
    kernel = foreign_kernel(plan, example.entry, spec.manifest.language.name, example.source)
    candidate = Candidate(plan, kernel, toolchain)
    with SketchTask(plan, path=Path(example.sketch_file)) as task:
        return verify(candidate, task, folder, seed, select=select, small=True)


def _plan(spec: DocSpec, example: Example) -> Plan:
    """The plan of an example's sketch. Raises `UsageError` where the target refuses it."""
    from sketchc.base.diagnostics import DiagnosticError, Source
    from sketchc.lowering.passes.pipeline import build_plan
    from sketchc.parsing.parser import parse

    tree, found = parse(Source(example.sketch_file, example.sketch))
    try:
        if tree is None:
            raise DiagnosticError(found)
        return build_plan(tree.entries[0], spec.target).plan
    except DiagnosticError as error:
        refuse(f"{example.sketch_file}: {error}", error)
