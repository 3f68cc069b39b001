"""What a target is: one record, which everybody asks in place of the target's name.

The record is data; what is heavy (the emitter, the toolchain) stands in it by its import path.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

import attrs

from sketchc.lowering.kernel import Kernel
from sketchc.lowering.language import Language
from sketchc.lowering.plan import Capabilities, HintAnswer, Plan


@attrs.frozen
class FailureRule:
    """What tells a class of failures (`runtime.verify.verdict.FAILURES`); empty fields fit
    everything.

    `stages` are those of `ToolchainError`, `kinds` types of exceptions of which one must have been
    raised, `says` a pattern that the first diagnostic (`where` "message") or anything printed
    ("log") must contain.
    """

    failure: str
    stages: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    says: str = ""
    where: str = "message"


def out_of_resource(says: str) -> tuple[FailureRule, FailureRule]:
    """The rules for what is said of a kernel that is too large: by a compiler, or at a launch."""
    launch = FailureRule("resource", ("launch",), says=says, where="log")
    return FailureRule("resource", says=says), launch


@attrs.frozen
class Target:
    """One target.

    `coder` is the module of the built-in Coder, with `emit(plan)`; `hints` the one with
    `answers(plan)`, which says what the hints became that only the target can answer: it is asked
    while a plan is made, and imports nothing of the emitter. `abi` is the module that says how a
    kernel's function is spelled and called (`lowering.abi.Abi`),
    `reserved` what no name of a sketch becomes in it, beside the words of its language. `toolchain`
    is the module with `TOOLCHAIN`; `extras` pairs modules that it imports with the extra of sketchc
    that brings them, and `distributions` are those whose versions stand beside results.
    `interpreted_by` is the variable that, set to 1, has kernels take tensors of the CPU.

    What others write for the target: `imports` are the modules or headers that a kernel may import
    and is told of, `tolerated` more of them, `exits` the attributes of the DSL's own package that
    lead out of the kernel, `extensions` the modules that the DSL builds and imports by itself.
    `precisions_in(source)` are the classes of precision that a kernel's text asks for, and where.
    `failures` are rules for what this target's tools say; those of the class "infrastructure" go
    before the rules for all targets, those of the class "resource" among them, others after.
    """

    capabilities: Capabilities
    description: str
    language: Language
    coder: str
    hints: str
    abi: str
    toolchain: str
    dsl: str  # what its kernels are written with: "Triton"
    device: str = "cpu"  # torch's type of the devices that its tensors live on
    #: by which its driver hides devices from a process, and how their files in /dev begin
    devices_variable: str = ""
    device_files: str = ""
    backend: str = ""  # the paper's word: "ascend", "cuda" or "cpu"
    packages: str = ""  # what pip is told to install for its toolchain
    extras: tuple[tuple[str, str], ...] = ()
    distributions: tuple[str, ...] = ()
    interpreted_by: str = ""
    documents: str = ""  # their folder in docspec/
    #: where the emitter prints the programs of `lowering.loops`, whose fusion decides which tiles
    #: take memory: the names of its own, which none of theirs may be
    loop_names: tuple[str, ...] | None = None
    kernel_mark: str = ""  # the decorator of kernels in a Python file: "triton.jit"
    dsl_names: tuple[str, ...] = ()  # what files call the DSL's package, or parts of it
    reserved: frozenset[str] = frozenset()
    imports: tuple[str, ...] = ()
    tolerated: frozenset[str] = frozenset()
    exits: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()
    precisions_in: Callable[[str], Mapping[str, str]] | None = None
    failures: tuple[FailureRule, ...] = ()

    @property
    def dsl_package(self) -> str:
        """The Python package that kernels are written with; "" for none."""
        return self.kernel_mark.partition(".")[0]

    @property
    def name(self) -> str:
        """The name that users say: `--target NAME`."""
        return self.capabilities.name

    def emit(self, plan: Plan) -> Kernel:
        """The source for a finished plan; deterministic."""
        kernel: Kernel = importlib.import_module(self.coder).emit(plan)
        return kernel

    def answers(self, plan: Plan) -> tuple[HintAnswer, ...]:
        """The target's answers to the hints in `answer_hints.OWN`."""
        found: tuple[HintAnswer, ...] = importlib.import_module(self.hints).answers(plan)
        return found

    @property
    def fuses(self) -> bool:
        """Whether fusion decides which tiles take memory."""
        return self.loop_names is not None
