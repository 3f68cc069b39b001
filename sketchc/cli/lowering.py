"""What commands that lower share: targets by any of their spellings, and names to bind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import Scalar

if TYPE_CHECKING:
    from sketchc.parsing import syntax


def resolve_target(
    target: str | None, hardware: str | None, dsl: str | None, backend: str | None, arch: str | None
) -> tuple[str, str | None]:
    """One target and chip from our spelling and the paper's. Raises `UsageError`."""
    from sketchc.lowering.registry import TARGETS, all_targets, load_target

    if target and dsl and target != dsl:
        msg = f"--target {target} and --dsl {dsl} disagree"
        raise UsageError(msg)
    if hardware and arch and hardware != arch:
        msg = f"--hardware {hardware} and --arch {arch} disagree"
        raise UsageError(msg)
    chosen = target or dsl
    if backend is not None:
        backends: dict[str, list[str]] = {}
        for one in all_targets():
            backends.setdefault(one.backend, []).append(one.name)
        if backend not in backends:
            msg = f"unknown backend {backend!r}; known: {', '.join(sorted(backends))}"
            raise UsageError(msg)
        chosen = chosen or backends[backend][0]
        if chosen not in backends[backend]:
            msg = f"target {chosen} does not run on backend {backend}"
            raise UsageError(msg)
    if chosen is None:
        msg = f"say --target T, one of: {', '.join(TARGETS)}"
        raise UsageError(msg)
    return load_target(chosen).name, hardware or arch


def check_bindable(tree: syntax.Sketch, constants: dict[str, Scalar]) -> None:
    """Raises `UsageError` for a `--set` name that is neither a constexpr nor a param."""
    from sketchc.checker.elaboration.elaborate import bindable

    known = bindable(tree)
    for name in constants:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            msg = f"--set {name}: `{tree.name}` has no such constexpr or param; it has: {names}"
            raise UsageError(msg)
