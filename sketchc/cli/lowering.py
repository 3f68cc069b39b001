"""What commands that lower share: targets by any of their spellings, and names to bind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import Scalar

if TYPE_CHECKING:
    from sketchc.parsing import syntax

if TYPE_CHECKING:
    from sketchc.parsing import syntax


def resolve_target(
    target: str | None, hardware: str | None, dsl: str | None, backend: str | None, arch: str | None
) -> tuple[str, str | None]:
    """One target and chip from our spelling and the paper's. Raises `UsageError`."""
    from sketchc.lowering.registry import TARGETS

    if target and dsl and target != dsl:
        msg = f"--target {target} and --dsl {dsl} disagree"
        raise UsageError(msg)
    if hardware and arch and hardware != arch:
        msg = f"--hardware {hardware} and --arch {arch} disagree"
        raise UsageError(msg)
    chosen = target or dsl
    if backend is not None:
        if backend not in BACKENDS:
            msg = f"unknown backend {backend!r}; known: {', '.join(BACKENDS)}"
            raise UsageError(msg)
        chosen = chosen or BACKENDS[backend][0]
        if chosen not in BACKENDS[backend]:
            msg = f"target {chosen} does not run on backend {backend}"
            raise UsageError(msg)
    if chosen is None:
        msg = f"say --target T, one of: {', '.join(TARGETS)}"
        raise UsageError(msg)
    if chosen not in TARGETS:
        msg = f"unknown target {chosen!r}; known: {', '.join(TARGETS)}"
        raise UsageError(msg)
    return chosen, hardware or arch


def check_bindable(tree: syntax.Sketch, constants: dict[str, Scalar]) -> None:
    """Raises `UsageError` for a `--set` name that is neither a constexpr nor a param."""
    from sketchc.checker.elaboration.elaborate import bindable

    known = bindable(tree)
    for name in constants:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            msg = f"--set {name}: `{tree.name}` has no such constexpr or param; it has: {names}"
            raise UsageError(msg)


#: The paper's spelling of backends, and the targets they allow.
BACKENDS = {"ascend": ("triton_ascend",), "cuda": ("triton_cuda",), "cpu": ("cpp",)}
