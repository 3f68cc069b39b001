"""What a target is: one record, which other code asks instead of comparing the target's name.

The record is data; what is heavy (the emitter, the toolchain) is named in it by its import path.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.language import Language
from sketchc.lowering.plan import Capabilities, HintAnswer, Plan


@attrs.frozen
class FailureRule:
    """A rule that recognises the class `failure` of `runtime.verify.verdict.FAILURES`; an empty
    field matches everything.

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
    """The rules by which `says` tells a kernel that is too large: in a message or a launch log."""
    launch = FailureRule("resource", ("launch",), says=says, where="log")
    return FailureRule("resource", says=says), launch


@attrs.frozen
class Packages:
    """Python packages ("name==version", the one by which the rest is known first) in an
    environment of their own, and the versions of Python that they are made for (none: any)."""

    requirements: tuple[str, ...]
    pythons: tuple[str, ...] = ()


@attrs.frozen
class Tools:
    """How the kernels of a target of documents are built and run (docs/RUNNERS.md): command lines,
    `build` empty where nothing is built ahead; the `programs` that they need, the folder's `files`
    that belong to them; seconds for a build. `at_own_speed`: runs are as fast as the hardware that
    is planned for, so that large sizes are tried. `never_built` says why nobody can build its
    kernels, "" where somebody can."""

    build: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    timeout: float = 300.0
    how_it_runs: str = ""
    at_own_speed: bool = False
    advice: str = ""
    never_built: str = ""
    packages: Packages | None = None

    @property
    def own_files(self) -> tuple[str, ...]:
        """The files of the folder that building and running need: `files`, and those that a command
        names as {target}/FILE."""
        start = "{target}/"
        parts = (part for part in (*self.build, *self.run) if part.startswith(start))
        named = (part.removeprefix(start) for part in parts)
        return tuple(dict.fromkeys([*self.files, *filter(None, named)]))


@attrs.frozen
class Target:
    """One target.

    `coder` is the module of the built-in Coder, with `emit(plan)`; `hints` the one with
    `answers(plan)`, which says what the hints became that only the target can answer: it is asked
    while a plan is made, and imports nothing of the emitter. `abi` is the module that says how a
    kernel's function is spelled and called (`lowering.abi.Abi`), `reserved` the identifiers, beside
    the words of its language, that no name of a sketch may become in it. `toolchain` is the module
    with `TOOLCHAIN`; `extras` pairs modules that it imports with the extra of sketchc that brings
    them, and `distributions` are those whose versions stand beside results. `interpreted_by` is the
    environment variable that, set to 1, has kernels take tensors of the CPU.

    For kernels by others: `imports` are the modules or headers that they may import and authors are
    told of, `tolerated` further ones that are accepted, `exits` the attributes of the DSL's own
    package that lead out of the kernel, `extensions` the modules that the DSL builds and imports by
    itself, `assembly` the instructions of the device with which inline assembly may begin, which no
    assembler of a host takes: "mma.sync". `precisions_in(source)` maps the precisions that a
    kernel's text asks for to the places.
    `failures` are rules for what this target's tools say; those of the class "infrastructure" go
    before the rules for all targets, those of the class "resource" among them, others after.

    A target that exists only as documents has no built-in Coder (`coder` is ""); `tools` say how
    its kernels are built and run, and `documents` is the path of its folder.
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
    untried: str = ""  # what drop-ins and summaries say where no drop-in has been run on a device
    #: the variable by which the driver hides devices from a process; prefix of their files in /dev
    devices_variable: str = ""
    device_files: str = ""
    backend: str = ""  # the paper's word: "ascend", "cuda" or "cpu"
    packages: str = ""  # what pip is told to install for its toolchain
    extras: tuple[tuple[str, str], ...] = ()
    distributions: tuple[str, ...] = ()
    interpreted_by: str = ""
    documents: str = ""  # their folder, in docspec/ where it is no path of its own
    tools: Tools | None = None
    kernel_mark: str = ""  # the decorator of kernels in a Python file: "triton.jit"
    dsl_names: tuple[str, ...] = ()  # what files call the DSL's package, or parts of it
    reserved: frozenset[str] = frozenset()
    imports: tuple[str, ...] = ()
    tolerated: frozenset[str] = frozenset()
    exits: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()
    assembly: tuple[str, ...] = ()
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
        """The source for a finished plan; deterministic. Raises `UsageError` where there is no
        built-in Coder."""
        if not self.coder:
            refuse(f"{self.name} has no built-in Coder, only documents: --coder llm")
        kernel: Kernel = importlib.import_module(self.coder).emit(plan)
        return kernel

    def answers(self, plan: Plan) -> tuple[HintAnswer, ...]:
        """The target's answers to the hints in `answer_hints.OWN`."""
        found: tuple[HintAnswer, ...] = importlib.import_module(self.hints).answers(plan)
        return found

    @property
    def fuses(self) -> bool:
        """Whether fusion decides which tiles take memory."""
        return self.capabilities.loops is not None
