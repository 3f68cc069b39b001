"""What the Coder says to the model: an assignment (plan or task, contract, documents) as messages.
The contract is spelled out for one signature by `contract_of`: the exact head of the function, its
arguments with types and extents, and the conditions that it must refuse.

Everything here is a pure function of its arguments: the same on every machine, so that recorded
replies are found again. Facts of this machine (the CPU's cores) are replaced by the chip's file.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.llm.messages import Message
from sketchc.agents.llm.replies import EDIT_FORMAT
from sketchc.agents.prompts.rendering import as_json, message
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.launch.conditions import Kind, launch_conditions
from sketchc.lowering.abi import Abi, out_required, passed
from sketchc.lowering.language import Language
from sketchc.lowering.plan import Plan
from sketchc.lowering.plan_text import print_plan
from sketchc.lowering.registry import load_target
from sketchc.ops.table import OPS, Attribute, Category, Op
from sketchc.reporting.language_pages import call_of
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.verdict import FAILURES

if TYPE_CHECKING:
    from sketchc.agents.state.state import Feedback
    from sketchc.lowering.kernel import Kernel
    from sketchc.lowering.target import Target


@attrs.frozen
class Argument:
    """One tensor: `name` as the code spells it, `text` what it is, `role` as in the sketch."""

    name: str
    role: str
    text: str


#: Conditions that are not asked of a coder: callers take sizes from arrays, and such large numbers
#: are looked at by the built-in coder alone.
_OWN = (Kind.SIZE, Kind.REPEAT, Kind.ELEMENTS, Kind.WIDTH, Kind.FETCHED)


@attrs.frozen
class Contract:
    """What the code must offer. `checks` are refused with a message (Python) or by their number
    (C++, 1-based); `scalars` are the other arguments in words; `results` name what is returned."""

    language: Language
    entry: str
    declaration: str
    arguments: tuple[Argument, ...]
    scalars: tuple[str, ...]
    checks: tuple[tuple[int, str], ...]  # (what the C function returns, the condition)
    results: tuple[str, ...]
    out_required: bool
    initial: tuple[str, ...]


def contract_of(sketch: ir.Sketch, target: str, entry: str = "") -> Contract:
    """The contract of kernels for `sketch` and a target. `entry` is the function's name; "" is the
    sketch's own, as the language allows it."""
    record = load_target(target)
    abi: Abi = importlib.import_module(record.abi)
    entry = entry or abi.entry(sketch, record.reserved)
    names = abi.spelled(sketch, record.reserved)
    tensors = passed(sketch)
    return Contract(
        language=record.language,
        entry=entry,
        declaration=abi.declaration(sketch, entry, record.reserved),
        arguments=tuple(Argument(names[t.name], t.role.value, _described(t, abi)) for t in tensors),
        scalars=_scalars(sketch, abi),
        checks=tuple(
            (condition.number, condition.text)
            for condition in launch_conditions(sketch)
            # Whoever calls a runner looks at the sizes.
            if condition.kind not in _OWN and not record.language.by_runner
        ),
        results=tuple(names[t.name] for t in tensors if t.role in (ir.Role.OUT, ir.Role.INOUT)),
        out_required=out_required(sketch),
        initial=tuple(f"{names[t.name]} = {t.initial}" for t in tensors if t.initial is not None),
    )


def _described(tensor: ir.Tensor, abi: Abi) -> str:
    """Type and extents of a tensor in words, and whether it may be absent."""
    extents = ", ".join(
        f"{show(extent)} or 1" if any(tensor.broadcast[axis : axis + 1]) else show(extent)
        for axis, extent in enumerate(tensor.extents)
    )
    absent = f", or {abi.ABSENT} where it is absent" if tensor.optional else ""
    return f"{abi.element(tensor)} [{extents}]{absent}"


def _scalars(sketch: ir.Sketch, abi: Abi) -> tuple[str, ...]:
    """Symbols, params, and the actual extents of axes that may broadcast, in words."""
    lines = [f"{symbol.name}: size, 0 or more" for symbol in sketch.symbols]
    for param in sketch.params:
        default = "" if param.default is None else f", default {param.default}"
        lines.append(f"{param.name}: {param.dtype.value}{default}")
    for name, tensor, axis in abi.actual_extents(sketch):
        lines.append(
            f"{name}: the extent that {tensor.name} really has on axis {axis}: "
            f"{show(tensor.extents[axis])}, or 1, and then its one element repeats"
        )
    return tuple(lines)


_ROLES = {
    "in": "read only",
    "out": "written, every element",
    "inout": "read, then updated in place and returned",
}

_IDENTITIES = {
    "zero": "0",
    "one": "1",
    "lowest": "-infinity (the least integer)",
    "highest": "infinity (the greatest integer)",
    "false": "false",
    "true": "true",
}


@attrs.frozen
class Assignment:
    """What is to be written: a kernel for `sketch` on `target`.

    `plan` and the built-in Coder's kernel for it are None where there is only a task; `sketch` is
    then a signature without phases. `task_source` is the task's text, None where there is none or
    it is not to be shown, and `parts` the constants of the parts of its model. `entry` is the name
    that the function must have, "" for the usual one, `reach` what is said of the sizes that the
    code will be verified at.
    `for_plan` makes an assignment from a plan.
    """

    target: str
    hardware: str
    sketch: ir.Sketch
    plan: Plan | None = None
    builtin: Kernel | None = None
    task_source: str | None = None
    entry: str = ""
    parts: Sequence[tuple[str, str]] = ()
    reach: str = ""

    @property
    def language(self) -> str:
        """The language of the code."""
        return load_target(self.target).language.name

    @property
    def contract(self) -> Contract:
        """What the code must offer."""
        # The built-in Coder may have found the name taken by a function that it needs itself.
        usual = "" if self.builtin is None else self.builtin.entry
        return contract_of(self.sketch, self.target, self.entry or usual)


def for_plan(plan: Plan) -> Assignment:
    """A kernel for a plan. Raises `DiagnosticError` where the built-in Coder refuses it; where no
    such Coder is, there is no kernel to start from."""
    target = load_target(plan.target)
    kernel = target.emit(plan) if target.coder else None
    return Assignment(plan.target, plan.hardware.name, plan.sketch, plan, kernel)


def write_messages(
    assignment: Assignment, documents: str, starting_point: str | None, budget: int = 0
) -> tuple[Message, ...]:
    """Ask for the whole code; `documents` is Markdown ("" for none) within `budget` tokens."""
    asked = message(
        "user",
        "coder_write.jinja",
        **_common(assignment, documents, budget),
        starting_point=starting_point,
    )
    return (_system(assignment), asked)


def repair_messages(
    assignment: Assignment,
    source: str,
    feedback: Feedback,
    documents: str,
    earlier: Sequence[str] = (),
    whole: bool = False,
    dispute: bool = False,
    budget: int = 0,
) -> tuple[Message, ...]:
    """Ask for edits of `source`, or (`whole`) for the mended file. `earlier`: one line on each
    failed attempt before this one. `dispute`: the reply may be that nothing is wrong. `documents`
    are Markdown ("" for none), chosen within a `budget` of tokens."""
    # The class of failure and its meaning stand above the evidence.
    found = {k: v for k, v in feedback.evidence.items() if k not in ("failure", "meaning")}
    asked = message(
        "user",
        "coder_repair.jinja",
        **_common(assignment, documents, budget),
        numbered=numbered(source),
        failure=feedback.failure,
        meaning=FAILURES.get(feedback.failure, "it was not accepted"),
        evidence=as_json({"reason": feedback.reason, **found}),
        earlier=list(earlier),
        suggestion=feedback.suggestion,
        edit_format=EDIT_FORMAT,
        whole=whole,
        dispute=dispute,
    )
    return (_system(assignment), asked)


def numbered(source: str) -> str:
    """The lines of a text with their numbers from 1: `  7| code`."""
    lines = source.splitlines()
    width = len(str(len(lines)))
    return "\n".join(f"{number:>{width}}| {line}" for number, line in enumerate(lines, 1))


def plan_text(plan: Plan) -> str:
    """The printed plan, the same on any machine: cores that were counted here are those of the
    chip's file. Hints are answered as for code that fuses its own way."""
    hardware = plan.hardware
    if hardware.facts.get("detect"):
        hardware = attrs.evolve(
            hardware, cores=hardware.facts["cores"], matrix_cores=hardware.facts["matrix_cores"]
        )
    answers = tuple(answer.unfused or answer for answer in plan.answers)
    return print_plan(attrs.evolve(plan, hardware=hardware, answers=answers))


def _system(assignment: Assignment) -> Message:
    target = load_target(assignment.target)
    return message(
        "system",
        "coder_system.jinja",
        target=assignment.target,
        description=target.description,
        planned=assignment.plan is not None,
        never_built=_never_built(target),
    )


def _common(assignment: Assignment, documents: str, budget: int) -> dict[str, Any]:
    """The values of the templates that the prompts for writing and for repairing share."""
    target = load_target(assignment.target)
    plan = assignment.plan
    types = dict.fromkeys(tensor.dtype.value for tensor in assignment.sketch.tensors)
    return {
        "contract": assignment.contract,
        "roles": _ROLES,
        "several_out": sum(t.role is ir.Role.OUT for t in assignment.sketch.tensors) > 1,
        "bits": [name for name in types if name in ("f16", "bf16")],
        "imports": target.imports if target.language.hosted else sorted(target.imports),
        "assembly": target.assembly,
        "mark": target.kernel_mark,
        "flags": "" if target.tools or target.language.hosted else _flags(assignment.target),
        "never_built": _never_built(target),
        "on_device": target.device != "cpu",
        "plan": None if plan is None else plan_text(plan),
        "operations": [] if plan is None else _operations(plan),
        "task_source": assignment.task_source,
        "parts": assignment.parts,
        "reach": assignment.reach,
        "documents": documents,
        "documents_name": f"documents of {assignment.target} within {budget} tokens",
    }


def _never_built(target: Target) -> bool:
    """Whether nobody can build what is written for the target."""
    return target.tools is not None and bool(target.tools.never_built)


def _flags(target: str) -> str:
    """The flags of a target's compiler, those of warnings left out."""
    flags: tuple[str, ...] = getattr(toolchain(target), "flags", ())
    return " ".join(flag for flag in flags if not flag.startswith("-W"))


def _operations(plan: Plan) -> list[str]:
    """One line on each operation that occurs, in the order of the op table."""
    used = {
        statement.operation
        for statement in walk.in_phases(plan.phases)
        if isinstance(statement, ir.Compute)
    }
    return [_operation(row) for name, row in OPS.items() if name in used]


def _operation(row: Op) -> str:
    call = call_of(row, ("dst1", "dst2"), _shown)
    text = f"`{call}`: {row.doc}"
    if row.category is not Category.ELEMENTWISE:
        text += f"; result {row.result.value}"
    if row.identity is not None:
        text += f"; identity {_IDENTITIES[row.identity]}"
    return text


def _shown(attribute: Attribute) -> str:
    default = attribute.default
    return f'"{default}"' if isinstance(default, str) else str(default)
