"""What `sketchc migrate` finds out before it runs: the kernel's sketch, its task, and whether the
kernel still does what its sketch says."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sketchc.api import sketches
from sketchc.base.diagnostics import Source, UsageError, refuse, refusing
from sketchc.base.types import Scalar
from sketchc.cli.verify_files import entry_of, read_kernel
from sketchc.lowering.registry import language_of_file, load_target, targets_in
from sketchc.runtime.store.origins import Known, Origin, find_kernel, find_task, named, read_origin

if TYPE_CHECKING:
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.plan import Plan
    from sketchc.parsing import syntax
    from sketchc.runtime.store.writing import TaskText
    from sketchc.runtime.verify.verdict import Verdict
    from sketchc.runtime.verify.verify import Candidate

COMMENT, STORE, MODEL = "the comment at the kernel's end", "the store", "a model reads the kernel"


@attrs.frozen
class Original:
    """The kernel that is migrated: its `file` as the user named it, its target, the `code` without
    the comment that holds a sketch, and what it was made of, None for a kernel by others. `where`
    says where the sketch is found, one of the words above. `known` is the task that the store
    names for it."""

    file: str
    target: str
    code: str
    origin: Origin | None
    where: str
    known: TaskText | None = None
    entry: str | None = None

    @property
    def changed(self) -> bool:
        """Whether the code or its sketch was changed since sketchc wrote them."""
        return self.origin is not None and not self.origin.fits(self.code)


def read_original(file: str, target: str, entry: str | None, store: Path | None) -> Original:
    """The kernel in `file`, with what the file or the store says of it. Raises `UsageError` for a
    file that is no kernel for `target`, or that was made for another one."""
    language, written = load_target(target).language, language_of_file(file)
    text, garbled = read_kernel(Path(file))
    if garbled:
        refuse(f"{file} is no text: {garbled}")
    if not text.strip():
        refuse(f"{file} is empty")
    if written != language or not file.lower().endswith(written.suffixes):
        others = " or ".join(one.name for one in targets_in(written.name))
        hint = f"; say --from {others}" if file.lower().endswith(written.suffixes) else ""
        endings = ", ".join(language.suffixes)
        refuse(f"{file} is no kernel for {target}, which takes {language.title} ({endings}){hint}")
    code, origin = read_origin(text, language)
    known = Known() if store is None else find_kernel(store, code, target)
    where = COMMENT if origin is not None else STORE if known.origin is not None else MODEL
    origin = origin or known.origin
    if origin is not None and origin.target != target:
        refuse(f"{file} was made for {origin.target}; say --from {origin.target}")
    return Original(file, target, code, origin, where, known.task, entry)


# ---------------------------------------------------------------- the sketch


def own_sketch(original: Original) -> tuple[Source, syntax.Sketch]:
    """The sketch that the kernel was made of, with its text. Raises `SketchError` where the text
    has errors, `UsageError` where it holds no sketch of that name."""
    assert original.origin is not None
    source = Source(f"{original.file} (its sketch)", original.origin.text)
    found = named(sketches.the_sketches(source, None), original.origin.name)
    return source, found[0] if found else sketches.the_sketch(source, original.origin.name)


def carried_settings(tree: syntax.Sketch, origin: Origin) -> dict[str, Scalar]:
    """What `--set` said when the kernel was made and still holds on another chip: all but tile
    sizes that the sketch leaves open, which are chosen anew, and what the sketch does not name."""
    from sketchc.checker.api import bindable
    from sketchc.parsing.syntax import declared

    known = bindable(tree)
    open_ = {constant.name for constant in declared(tree, "constexpr") if constant.choices}
    return {name: value for name, value in origin.settings.items() if name in known - open_}


def candidate_of(original: Original) -> Candidate:
    """The kernel of a sketch of ours, to be run. Raises `SketchError` and `UsageError`."""
    from sketchc.runtime.toolchains.base import toolchain
    from sketchc.runtime.verify.verify import Candidate

    origin = original.origin
    assert origin is not None
    source, tree = own_sketch(original)
    planned = sketches.plan_sketch(
        source, tree, original.target, origin.hardware, dict(origin.settings)
    )
    with sketches.pointing_into(source):
        kernel = _kernel_of(original, planned.plan)
    kernel = attrs.evolve(kernel, foreign=original.changed)
    return Candidate(planned.plan, kernel, toolchain(original.target), original.file)


def _kernel_of(original: Original, plan: Plan) -> Kernel:
    """The original's code as a kernel of its sketch's `plan`: what the built-in Coder makes of it,
    where that is the very code; a target of documents has no such Coder. Raises `UsageError`."""
    from sketchc.agents.state.candidates import foreign_kernel

    record, name = load_target(original.target), plan.sketch.name
    if record.coder and (made := record.emit(plan)).source == original.code:
        return made
    language = record.language.name
    entry = entry_of(original.code, language, name, original.file, original.entry)
    return foreign_kernel(plan, entry, language, original.code)


def compared_with_sketch(candidate: Candidate, seed: int, timeout: float) -> Verdict:
    """Whether the kernel still does what its sketch says. Raises `UsageError` where it cannot be
    run."""
    from sketchc.cli.verify_files import require_running
    from sketchc.runtime.verify.design import verify_against_sketch

    said = f"{candidate.path} was changed since it was made of its sketch, and {{}} cannot run here"
    require_running(candidate.toolchain, said)
    with tempfile.TemporaryDirectory() as folder:
        return verify_against_sketch(candidate, Path(folder), seed, timeout)


def signed_candidate(
    original: Original, signature: str, constants: Mapping[str, Scalar]
) -> tuple[Candidate, dict[str, Scalar]]:
    """A kernel by others, to be run as the sketch in the file `signature` says that it is called,
    with those of the `constants` that this sketch has. Raises `SketchError` and `UsageError`."""
    from sketchc.agents.state.candidates import foreign_kernel
    from sketchc.checker.api import bindable
    from sketchc.runtime.tasks.signature import signature_plan
    from sketchc.runtime.toolchains.base import toolchain
    from sketchc.runtime.verify.entry_fit import require_fit
    from sketchc.runtime.verify.verify import Candidate

    source, tree = sketches.load_sketch(signature)
    own = {name: value for name, value in constants.items() if name in bindable(tree)}
    planned = sketches.plan_sketch(source, tree, original.target, None, own)
    meant = attrs.evolve(planned.plan.sketch, phases=(), tiles=())
    plan = signature_plan(meant, original.target)
    spoken = load_target(original.target).language
    entry = entry_of(original.code, spoken.name, meant.name, original.file, original.entry)
    kernel = attrs.evolve(foreign_kernel(plan, entry, spoken.name, original.code), foreign=False)
    require_fit(kernel, original.file, signature)
    run = toolchain(original.target)
    return Candidate(plan, kernel, run, original.file, signature=source), own


# ---------------------------------------------------------------- the task


@attrs.frozen
class FoundTask:
    """A task as `load_task` takes it, and where it was found, in words."""

    specification: str
    found: str


def find_own_task(
    original: Original, asked: str | None, store: Path | None, place: Path
) -> FoundTask | None:
    """The task of a kernel: the one `asked` for, else the one that its comment or the store names,
    whose text, where only the store has it, is written to the folder `place`. None where nobody
    names one. Raises `UsageError`."""
    from sketchc.runtime.tasks.task import task_path

    if asked is not None:
        return FoundTask(asked, "--task")
    origin = original.origin
    if origin is not None and origin.task_digest:
        beside = _file_of(origin, Path(original.file).parent)
        if beside is not None:
            return FoundTask(beside, "the comment at the kernel's end names it")
        subject = task_path(origin.task)[1] or ""
        known = None if store is None else find_task(store, origin.task_digest, subject)
        if known is not None:
            words = "the comment at the kernel's end names it, the store has it"
            return FoundTask(_written(known, place), words)
    if original.known is not None:
        return FoundTask(_written(original.known, place), "the store names it for this kernel")
    return None


def _file_of(origin: Origin, folder: Path) -> str | None:
    """The file that the comment names, of the very text that it names: beside the kernel, where a
    run puts a copy of the task, too, or in the working folder."""
    from sketchc.agents.run.run import digest
    from sketchc.runtime.tasks.task import task_path

    path, name = task_path(origin.task)
    for file in (folder / path.name, folder / f"{origin.name}_task.py", Path(path.name)):
        try:
            same = digest(file.read_text("utf-8")) == origin.task_digest
        except (OSError, ValueError):
            continue
        if same:
            return f"{file}:{name}" if name else str(file)
    return None


def _written(task: TaskText, place: Path) -> str:
    """Write a task of the store, with the modules that it imports, into a folder."""
    with refusing(f"cannot write the task to {place}"):
        for name, text in {**task.modules, task.name: task.text}.items():
            if Path(name).name != name:
                raise UsageError(f"the store names a task {name!r}, which is no file's name")
            (place / name).write_text(text, "utf-8")
    return f"{place / task.name}:{task.subject}"


def own_specification(original: Original) -> str:
    """A kernel by others in Python as its own task, as `load_task` takes it. Raises `UsageError`
    where nothing in the file says what it is called with."""
    from sketchc.runtime.tasks.inputs import check_declared
    from sketchc.runtime.tasks.outline import read_outline
    from sketchc.runtime.verify.kernel_file import MODULE_CLASS, is_module_file

    path, language = Path(original.file), load_target(original.target).language
    lacking = (
        f"there is no task for {original.file}, and nothing says what the kernel is called with: "
        "add --task TASK.py, or --signature X.sketch"
    )
    if not language.hosted:
        refuse(lacking)
    name = original.entry or MODULE_CLASS
    if original.entry is None and not is_module_file(path):
        name = entry_of(original.code, language.name, path.stem, str(path), None)
    try:
        outline = read_outline(path, name)
        if not outline.makes_inputs:
            check_declared(outline)
    except UsageError as error:
        refuse(f"{lacking}; or have the file say it: {error}", error)
    return f"{original.file}:{name}"


def interpreting(target: str) -> Mapping[str, str]:
    """The environment variable by which kernels of a target take tensors of the CPU, as a task's
    are; nothing where there is none."""
    variable = load_target(target).interpreted_by
    return {variable: "1"} if variable else {}
