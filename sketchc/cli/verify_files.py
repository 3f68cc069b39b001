"""What `sketchc verify` makes of one file: a sketch, a C++ kernel, a Triton wrapper, a `ModelNew`.

`verify_one` takes a request and a loaded task and returns an outcome. It keeps nothing between
calls, so that several files may be verified in turn or by several processes, each of which loads
the task once.
"""

from __future__ import annotations

import ast
import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.api import sketches
from sketchc.base.diagnostics import UsageError, refuse, refusing
from sketchc.base.types import Scalar
from sketchc.cli import options
from sketchc.runtime.verify.seed import fresh_seed

if TYPE_CHECKING:
    from sketchc.agents.coder.messages import Contract
    from sketchc.base.diagnostics import Source
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.plan import Plan
    from sketchc.runtime.store.recording import Recorder
    from sketchc.runtime.tasks.client import TaskClient
    from sketchc.runtime.tasks.description import TaskDescription
    from sketchc.runtime.toolchains.base import Toolchain
    from sketchc.runtime.verify.verdict import CaseResult, Verdict
    from sketchc.runtime.verify.verify import Candidate


def read_kernel(path: Path) -> tuple[str, str]:
    """The text of a file, and why it is not UTF-8 ("" where it is). Raises `UsageError` for a file
    that cannot be read at all."""
    with refusing(f"cannot read the kernel {path}"):
        content = path.read_bytes()
    try:
        return content.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return content.decode("utf-8", "replace"), f"line {line}: the file is not UTF-8 text"


def is_wrapper(text: str) -> bool:
    """Whether Python code has public functions and no class, as a wrapper around Triton kernels has
    and an attempt at a `ModelNew` has not. False for text that does not parse."""
    from sketchc.lowering.language import parsed

    if (tree := parsed(text)) is None:
        return False
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    public = any(not name.startswith("_") for name in functions)
    return public and not any(isinstance(node, ast.ClassDef) for node in tree.body)


def entry_of(text: str, language: str, name: str, where: str, wanted: str | None) -> str:
    """The kernel's entry point, as `entry_point` finds it; where there is none, the name that the
    file lacks, which verification then reports. Raises `UsageError` where several would do."""
    from sketchc.runtime.verify.kernel_file import entry_point

    try:
        return entry_point(text, language, name, where, wanted)
    except UsageError as error:
        if wanted is None and not str(error).endswith("it defines none"):
            raise
    return wanted or name


def kernel_endings() -> tuple[str, ...]:
    """Endings of files that hold a kernel; every other file is a sketch."""
    from sketchc.lowering.registry import all_languages

    return tuple(suffix for language in all_languages() for suffix in language.suffixes)


@attrs.frozen
class VerifyRequest:
    """One file to verify, with what the command line says about it.

    `entry` is the kernel's function, and `signature` the file of the sketch that says what a kernel
    is called with; both are for kernels. `seed` None is a fresh secret. `timeout` is in seconds.
    """

    file: str
    target: str
    hardware: str | None = None
    constants: Mapping[str, Scalar] = attrs.field(factory=dict)
    sketch: str | None = None
    entry: str | None = None
    signature: str | None = None
    seed: int | None = None
    timeout: float = 300.0
    #: Seconds for further cases, which reach what the planned cases do not.
    budget: float = 120.0
    #: Whether what a sketch leaves open is chosen for the own sizes of the task.
    sized: bool = True
    #: The sketch lowered without a task: whatever the sizes.
    lowered: Candidate | None = attrs.field(default=None, repr=False)

    @property
    def is_kernel(self) -> bool:
        """Whether the file holds a kernel rather than a sketch."""
        return Path(self.file).suffix.lower() in kernel_endings()


@attrs.frozen
class Outcome:
    """The answer to one request: a verdict, or why there is none.

    `error` is a sentence for the user; `diagnostics` holds those of a sketch that does not lower.
    """

    request: VerifyRequest
    verdict: Verdict | None = None
    error: str = ""
    diagnostics: sketches.SketchError | None = None

    @property
    def status(self) -> int:
        """The exit status: 0 passed, 1 failed (a sketch with diagnostics, too), 2 incomplete, or
        not verified."""
        if self.verdict is not None:
            return {"passed": 0, "failed": 1}.get(self.verdict.word, 2)
        return 1 if self.diagnostics is not None else 2

    @property
    def reason(self) -> str:
        """Why the candidate did not pass, in one line; "" where it did."""
        if self.diagnostics is not None:
            return str(self.diagnostics)
        if self.verdict is not None and self.verdict.failures:
            return self.verdict.failures[0].reason
        if self.verdict is not None:
            return "; ".join(self.verdict.gaps)
        return self.error

    @property
    def word(self) -> str:
        """The outcome in a word or two, for a table."""
        if self.verdict is None:
            return "does not lower" if self.diagnostics is not None else "not verified"
        return self.verdict.failure or self.verdict.word


def verify_one(
    request: VerifyRequest,
    task: TaskClient,
    progress: Callable[[CaseResult], None] | None = None,
    recorder: Recorder | None = None,
) -> Outcome:
    """Build one candidate, run it on all cases and compare; `recorder` keeps the verdict. Raises
    `TaskFailure` for a broken task, and no other mistake of the user: the outcome holds it."""
    from sketchc.runtime.tasks.description import TaskFailure
    from sketchc.runtime.verify.verify import verify

    try:
        candidate = candidate_of(request, task)
        require_running(candidate.toolchain, unbuilt=True)
        with tempfile.TemporaryDirectory() as folder:
            verdict = verify(
                candidate,
                task,
                Path(folder),
                fresh_seed() if request.seed is None else request.seed,
                dict(request.constants),
                progress,
                timeout=request.timeout,
                budget=request.budget,
            )
    except TaskFailure:
        raise
    except sketches.SketchError as error:
        return Outcome(request, diagnostics=error)
    except UsageError as error:
        return Outcome(request, error=str(error))
    if recorder is not None:
        recorder.verdict(candidate, verdict)
    return Outcome(request, verdict)


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The verdict as plain data; without one, the file and why there is none, with all
    "diagnostics" of a sketch that has errors."""
    from sketchc.runtime.verify import verdict

    if outcome.verdict is not None:
        return verdict.to_json(outcome.verdict)
    error = outcome.error
    if outcome.diagnostics is not None:
        error = str(outcome.diagnostics)
    kernel = {
        "path": outcome.request.file,
        "entry": outcome.request.entry,
        "foreign": outcome.request.is_kernel,
    }
    word = "" if outcome.diagnostics is None else "failed"
    plain = {"kernel": kernel, "verdict": word, "passed": False, "failure": "", "error": error}
    return plain | options.diagnostics_json(outcome.diagnostics)


def require_running(
    toolchain: Toolchain, said: str = "{} cannot run on this machine", unbuilt: bool = False
) -> None:
    """Raises `UsageError` with what is missing if the target ({} in the text `said`) cannot run;
    `unbuilt`: a target that nobody can build kernels for will do, too."""
    status = toolchain.status()
    if status.never_built:
        if not unbuilt:
            refuse(f"{said.format(toolchain.target)}: {status.never_built}")
    elif not status.can_run:
        lacks = f" (missing: {', '.join(status.missing)})" if status.missing else ""
        advice = status.advice or "see `sketchc targets`"
        refuse(f"{said.format(toolchain.target)}{lacks}; {advice}")


# ---------------------------------------------------------------- candidates


def candidate_of(request: VerifyRequest, task: TaskClient) -> Candidate:
    """The kernel or lowered sketch to verify. Raises `UsageError` and `SketchError`."""
    if request.is_kernel:
        return _kernel(request, task)
    if request.lowered is not None and not _goes_by_sizes(request):
        return request.lowered
    return lower(request, task.describe())


def _goes_by_sizes(request: VerifyRequest) -> bool:
    """Whether sizes decide on what a sketch leaves open."""
    from sketchc.lowering.registry import load_target

    target, _ = options.resolve_target(request.target, request.hardware)
    compared = load_target(target).capabilities.trusted_below is not None
    return compared and request.sized


def lowered_early(request: VerifyRequest) -> VerifyRequest:
    """`request` with its sketch lowered whatever the sizes, so that what is wrong with it is told
    before a task is loaded; as it is where the task's types decide which instance of a sketch is
    meant. Raises `UsageError` and `SketchError`."""
    try:
        return attrs.evolve(request, lowered=lower(request))
    except sketches.OpenTypesError:
        return request


def types_of(described: TaskDescription) -> sketches.TaskTypes:
    """The element types of a task's tensors: its inputs' and its state's, and its results'."""
    from sketchc.runtime.tasks.description import TensorSpec

    inputs = [value for value in described.inputs if isinstance(value, TensorSpec)]
    given = tuple(tensor.dtype for tensor in (*inputs, *described.state))
    return sketches.TaskTypes(given, tuple(tensor.dtype for tensor in described.outputs))


def lower(request: VerifyRequest, task: TaskDescription | None = None) -> Candidate:
    """The candidate of a sketch: lowered, with the toolchain that runs it; needs no `task`, but for
    a sketch with `types:` the types of one. Where there is one, what the sketch leaves open is
    chosen for its own sizes, unless the request is not `sized`.

    Raises `SketchError` for a sketch that does not lower and `UsageError` for unknown names.
    """
    from sketchc.lowering.registry import load_target
    from sketchc.runtime.cases.planned import plan_for
    from sketchc.runtime.toolchains.base import toolchain
    from sketchc.runtime.verify.verify import Candidate

    for value, option in ((request.entry, "--entry"), (request.signature, "--signature")):
        if value is not None:
            endings = ", ".join(kernel_endings())
            refuse(f"{option} goes with a kernel ({endings}), and {request.file} is a sketch")
    constants = dict(request.constants)
    target, chip = options.resolve_target(request.target, request.hardware)
    dtypes = None if task is None else types_of(task)
    source, tree = sketches.load_sketch(request.file, request.sketch, dtypes)
    sized = task if request.sized else None

    def lowered(tiles: Mapping[str, Scalar]) -> tuple[Plan, Kernel]:
        values = {**constants, **tiles}
        plan = plan_for(tree, target, chip, values, sized).plan
        return plan, load_target(target).emit(plan)

    with sketches.pointing_into(source):
        sketches.check_plannable(tree, target, chip, constants)
        made = lowered({})
    picked = request.sketch or ""
    return Candidate(*made, toolchain(target), request.file, source, picked=picked, relower=lowered)


def _kernel(request: VerifyRequest, task: TaskClient) -> Candidate:
    """The candidate of a file with a kernel by others. Raises `UsageError` and `SketchError`."""
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.registry import language_of_file, load_target, targets_in
    from sketchc.runtime.toolchains.base import toolchain
    from sketchc.runtime.verify.entry_fit import require_fit
    from sketchc.runtime.verify.kernel_file import is_module_file
    from sketchc.runtime.verify.verify import Candidate

    target, chip = options.resolve_target(request.target, request.hardware)
    record = load_target(target)
    language, written = record.language, language_of_file(request.file)
    path = Path(request.file)
    source, garbled = read_kernel(path)
    if is_module_file(path):
        return _module(request, task, target, chip)
    if not written.hosted and language != written:
        runs = f"{language.title} with {record.dsl}" if language.hosted else language.title
        others = " or ".join(other.name for other in targets_in(written.name))
        refuse(
            f"{request.file} is {written.title}, and {target} runs {runs}; say --target {others}"
        )
    if written.hosted and not language.hosted and not garbled:
        if not is_wrapper(source):
            return _module(request, task, target, chip)  # verification then reports that it is none
        found = targets_in(written.name)
        dsl = found[0].dsl
        wanted = " or ".join(other.name for other in found if other.dsl == dsl)
        refuse(
            f"{request.file} is {written.title} without a class ModelNew, and {target} takes "
            f"{language.title} ({', '.join(language.suffixes)}); a {dsl} kernel wants "
            f"--target {wanted}"
        )
    plan, called = signature_plan(request, task)
    name, chip = plan.sketch.name, chip or plan.hardware.name
    entry = entry_of(source, language.name, name, request.file, request.entry)
    kernel = Kernel(target, chip, name, entry, language.name, source, plan.sketch, foreign=True)
    if request.signature is not None and not garbled:
        require_fit(kernel, request.file, request.signature)
    picked = request.sketch or ""
    return Candidate(
        plan, kernel, toolchain(target), request.file, None, called, picked, garbled=garbled
    )


def _module(request: VerifyRequest, task: TaskClient, target: str, chip: str | None) -> Candidate:
    """The candidate of a file with a `ModelNew`. Raises `UsageError` and `SketchError`."""
    from sketchc.lowering.kernel import Kernel
    from sketchc.runtime.toolchains.torch_module.toolchain import TorchModules
    from sketchc.runtime.verify.kernel_file import MODULE_CLASS, is_module_file
    from sketchc.runtime.verify.verify import Candidate

    if request.entry not in (None, MODULE_CLASS) and is_module_file(Path(request.file)):
        refuse(f"{request.file} has a class {MODULE_CLASS}: --entry is for functions")
    plan, called = signature_plan(request, task)
    source, chip = Path(request.file).read_text("utf-8"), chip or plan.hardware.name
    named = (target, chip, plan.sketch.name, MODULE_CLASS, "python")
    kernel = Kernel(*named, source, plan.sketch, foreign=True)
    modules = TorchModules(target, (str(task.path.resolve()),))
    picked = request.sketch or ""
    return Candidate(plan, kernel, modules, request.file, signature=called, picked=picked)


def signature_plan(request: VerifyRequest, task: TaskClient) -> tuple[Plan, Source | None]:
    """The plan that says what a kernel is called with: that of `--signature`, with its source, else
    one without phases, derived from the task, and None. Raises `UsageError` and `SketchError`."""
    from sketchc.runtime.tasks import signature

    target, chip = options.resolve_target(request.target, request.hardware)
    if request.signature is None:
        if request.sketch is not None:
            refuse("--sketch picks a sketch of a file; with a kernel, say --signature FILE, too")
        described = signature.signature_of(task, _identifier(task.path.stem))
        return signature.signature_plan(described, target, chip), None
    dtypes = types_of(task.describe())
    source, tree = sketches.load_sketch(request.signature, request.sketch, dtypes)
    planned = sketches.plan_sketch(source, tree, target, chip, dict(request.constants))
    return planned.plan, source


def _identifier(stem: str) -> str:
    """A task's file name as the name of a function."""
    plain = "".join(letter if letter.isalnum() else "_" for letter in stem)
    return plain if plain and not plain[0].isdigit() else f"task_{plain}"


# ---------------------------------------------------------------- --print-signature


def signature_text(request: VerifyRequest, task: TaskClient) -> str:
    """What the entry point of a kernel for this task must look like, with what its arguments are.

    Raises `UsageError` and `SketchError`.
    """
    from sketchc.agents.coder.messages import contract_of
    from sketchc.runtime.cases.lists import bind_task, not_served

    plan, _ = signature_plan(request, task)
    others: list[tuple[str, str]] = []
    with contextlib.suppress(UsageError):  # another's signature may not fit the task
        others = list(not_served(bind_task(plan.sketch, task, 0)))
    contract = contract_of(plan.sketch, plan.target, request.entry or "")
    mark = contract.language.comment
    lines = [contract.declaration, ""]
    lines += [f"{mark} {a.name}: {a.role}, {a.text}" for a in contract.arguments]
    lines += [f"{mark} {scalar}" for scalar in contract.scalars]
    lines += [f"{mark} {number}: refuse unless {text}" for number, text in contract.checks]
    lines += [f"{mark} {text}" for text in _rules(contract, plan.target)]
    lines += [f"{mark} Not for {name}: {reason}." for name, reason in others]
    return "\n".join(lines)


def _rules(contract: Contract, target: str) -> list[str]:
    """How tensors are passed and what is returned, in words."""
    if contract.language.by_runner:
        shown = f"sketchc docspec show {target} --category basic"
        return [f"Tensors are C-contiguous. The form of the file: `{shown}`."]
    if not contract.language.hosted:
        rules = ["Tensors are C-contiguous, and outputs are allocated by the caller."]
        refused = ", its number where a size is refused" if contract.checks else ""
        return [*rules, f"Return 0 when done{refused}, -1 when memory could not be had."]
    return [
        "Tensors are contiguous, and `out`, where it is given, takes the results.",
        "Or: `class ModelNew(torch.nn.Module)` with the interface of the task's Model.",
    ]
