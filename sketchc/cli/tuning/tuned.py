"""`sketchc lower --tuned`: the point that `sketchc tune` found, from the store."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sketchc.base.diagnostics import refuse
from sketchc.base.types import Scalar
from sketchc.base.version import __version__
from sketchc.parsing import syntax

if TYPE_CHECKING:
    from sketchc.runtime.store.tunings import Tuned
    from sketchc.runtime.toolchains.base import Toolchain


def compilers(toolchain: Toolchain) -> dict[str, str]:
    """The versions that decide which code a point becomes."""
    return {"sketchc": __version__, **toolchain.status().versions}


def tuned_point(
    file: str,
    tree: syntax.Sketch,
    target: str,
    hardware: str | None,
    store: Path,
    symbols: Mapping[str, int],
    constants: Mapping[str, Scalar],
) -> tuple[dict[str, Scalar], str]:
    """The stored point that fits best, and a line that says which one it is: of this device where
    there is one here, by these compilers if any was, at the nearest sizes. Raises `UsageError` with
    the command to run where there is none."""
    from sketchc.launch.sizes import require_sizes
    from sketchc.lowering.hardware import load_hardware
    from sketchc.lowering.registry import load_target
    from sketchc.runtime.store.canonical import canonical_hash
    from sketchc.runtime.store.tunings import nearest, tuned_points
    from sketchc.runtime.toolchains.base import toolchain

    require_sizes(
        {symbol.name: _bound(symbol) for symbol in syntax.declared(tree, "symbols")}, symbols
    )
    chip = load_hardware(hardware or load_target(target).capabilities.default_hardware).name
    found = tuned_points(store, canonical_hash(tree), target, chip, constants)
    device = _device(load_target(target).device)
    if device is not None:
        found = [one for one in found if one.device == device]
    if not found:
        words = ["sketchc", "tune", file, "--task", "TASK.py", "--target", target]
        sizes = ",".join(f"{name}={size}" for name, size in symbols.items())
        words += ["--symbols", sizes] if sizes else []
        where = f"on {device}" if device else f"for {chip}"
        refuse(
            f"no tuned point of `{tree.name}` for {target} {where} is in the store {store}: "
            f"run `{shlex.join(words)}`"
        )
    now = compilers(toolchain(target))
    alike = [one for one in found if one.compilers == now]
    chosen = nearest(alike or found, symbols)
    note = "" if alike else "; measured with other compilers than those here"
    return dict(chosen.best.point), f"{_text(chosen)}{note}"


def _bound(symbol: syntax.SymbolDeclaration) -> int | None:
    """The bound of a symbol of a sketch that was not elaborated; None for one by constants, too."""
    bound = symbol.upper_bound
    return int(bound.value) if isinstance(bound, syntax.Number) else None


def _text(chosen: Tuned) -> str:
    from sketchc.runtime.bench.text import seconds_text
    from sketchc.runtime.tune.tuner import settings_text
    from sketchc.runtime.verify.words import sizes_text

    best = chosen.best
    gain = ""
    if best.default_seconds is not None:
        gain = f", {best.default_seconds / best.seconds:.2f}x of the plan's choice"
    return (
        f"tuned: {settings_text(best.point) or 'nothing varies'}; {seconds_text(best.seconds)}"
        f"{gain} at {sizes_text(chosen.symbols) or 'fixed sizes'}, {chosen.threads} threads, on "
        f"{chosen.device}"
    )


def _device(kind: str) -> str | None:
    """The device of torch's type `kind` on this machine; None where there is none."""
    from sketchc.runtime.bench.machine import device_name

    if kind != "cpu":
        if find_spec("torch") is None:
            return None
        import torch

        if not torch.cuda.is_available():
            return None
    return device_name(kind)
