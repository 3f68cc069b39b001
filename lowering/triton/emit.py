"""From a finished plan to one Python file: device functions, kernels, wrapper."""

from __future__ import annotations

import re

from sketchc.lowering.kernel import Kernel, LibraryPart
from sketchc.lowering.plan import Plan
from sketchc.lowering.python_host import wrapping
from sketchc.lowering.python_host.names import Names, literal
from sketchc.lowering.source_map import SourceMap, source_map
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.kernel import KernelText, emit_phase
from sketchc.lowering.triton.library.texts import function_names, function_sources, with_callees
from sketchc.lowering.triton.wrapper import (
    ABSENT_HELPER,
    ALLOCATE_HELPER,
    BOOL_HELPER,
    ELEMENT_HELPER,
    HOST_HELPERS,
    INTEGER_HELPER,
    NUMBER_HELPER,
    OVERLAP_HELPER,
    PLAIN_HELPER,
    ROUNDED_HELPER,
    ROW_MAJOR_HELPER,
    WrapperEmitter,
)

#: Pattern of the calls that need a definition beside `HOST_HELPERS` -> the definition.
HELPERS_BY_CALL = {
    "check_(?:bool|integer|number)": PLAIN_HELPER,
    "check_number": NUMBER_HELPER,
    "check_integer": INTEGER_HELPER,
    "check_bool": BOOL_HELPER,
    "rounded": ROUNDED_HELPER,
    "allocate": ALLOCATE_HELPER,
    "row_major": ROW_MAJOR_HELPER,
    "with_an_element": ELEMENT_HELPER,
    "absent": ABSENT_HELPER,
    "check_overlap": OVERLAP_HELPER,
}


def emit_kernel(plan: Plan, dialect: Dialect) -> Kernel:
    """The source for `plan`; deterministic.

    The wrapper takes `in` and `inout` tensors in call order, params by keyword, and `out=` (one
    tensor, or a tuple in call order); it returns all `out` and `inout` tensors in call order.
    Raises `InternalError` for a plan that its passes should have refused.
    """
    sketch = plan.sketch
    names, kernels = _kernels(plan, dialect, frozenset())
    entry = names[sketch.name]
    wrapper = WrapperEmitter(plan, dialect, names, kernels).emit()
    functions = function_sources(
        (f for kernel in kernels for f in kernel.functions), names.functions
    )
    helpers = host_helpers(wrapper)
    sections = [
        _head(plan, wrapper) + _constants(plan, names),
        *functions,
        *("\n".join(kernel.lines) for kernel in kernels),
        *helpers,
        "\n".join(wrapper),
    ]
    return Kernel(
        target=plan.target,
        hardware=plan.hardware.name,
        name=sketch.name,
        entry=entry,
        language="python",
        source=_apart(sections) + "\n",
        sketch=sketch,
        source_map=_source_map(kernels, sections, 1 + len(functions)),
        library=tuple(_library(part) for part in (functions, helpers) if part),
    )


def _apart(sections: list[str]) -> str:
    """Sections with two lines between them."""
    return "\n\n\n".join(sections)


def _library(sections: list[str]) -> LibraryPart:
    """Sections of definitions that come from the library."""
    text = _apart(sections)
    return LibraryPart(tuple(re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE)), text)


def host_helpers(wrapper: list[str]) -> list[str]:
    """The definitions that a wrapper needs, callees first."""
    used = [
        helper.rstrip()
        for name, helper in HELPERS_BY_CALL.items()
        if any(re.search(rf"\b{name}\(", line) for line in wrapper)
    ]
    return [HOST_HELPERS.rstrip(), *used]


def _source_map(kernels: tuple[KernelText, ...], sections: list[str], first: int) -> SourceMap:
    """The lines of the kernels, which are the sections from number `first` on."""
    found: dict[int, tuple[int, ...]] = {}
    above = sum(section.count("\n") + 3 for section in sections[:first])
    for kernel, section in zip(kernels, sections[first:], strict=False):
        found |= {above + line: origins for line, origins in kernel.origins.items()}
        above += section.count("\n") + 3
    return source_map(found)


def _kernels(
    plan: Plan, dialect: Dialect, reserved: frozenset[str]
) -> tuple[Names, tuple[KernelText, ...]]:
    """The phases' kernels, in which no name of the sketch hides a device function that is called:
    which are called is known once the kernels are written. Params keep their names, by which the
    wrapper is called: there it is the function that gets another."""
    names = Names(plan.sketch, reserved)
    params = {names[param.name] for param in plan.sketch.params}
    # Tensors keep theirs as well: kernels know them by pointers of other names.
    declared = set(names.mapping.values()) - params - {names[t.name] for t in plan.sketch.tensors}
    names.taken.update(function_names())
    names.functions = {name: names.fresh(name) for name in function_names() if name in params}
    _ = names[plan.sketch.name]  # before the names that kernels make up
    kernels = tuple(emit_phase(plan, phase, dialect, names) for phase in plan.phases)
    hidden = declared & with_callees(name for kernel in kernels for name in kernel.functions)
    return _kernels(plan, dialect, reserved | hidden) if hidden else (names, kernels)


def _head(plan: Plan, wrapper: list[str]) -> str:
    text = f"The sketch `{plan.sketch.name}` for {plan.target} on {plan.hardware.name}."
    math = (
        ["import math", ""]
        if any(re.search(r"\bmath\.|\brounded\(", line) for line in wrapper)
        else []
    )
    imports = ["from __future__ import annotations", "", *math]
    imports += ["import torch", "import triton", "import triton.language as tl"]
    return "\n".join([f'"""{text} Generated by sketchc."""', "", *imports])


def _constants(plan: Plan, names: Names) -> str:
    """The compile-time constants, with where each value comes from."""
    origins = {"user": "set by the user", "plan": f"chosen for {plan.hardware.name}"}
    lines = []
    for constant in plan.sketch.constants:
        text = f"{names[constant.name]} = {literal(constant.value)}"
        notes = []
        if constant.chosen_by in origins:
            notes.append(origins[constant.chosen_by])
        if constant.choices:
            notes.append(f"one of {', '.join(str(choice) for choice in constant.choices)}")
        if notes and len(text) + len(", ".join(notes)) + 4 <= wrapping.WIDTH:
            text += f"  # {', '.join(notes)}"
        lines.append(text)
    return "\n".join(["", "", *lines]) if lines else ""
