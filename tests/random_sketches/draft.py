"""A sketch in the making: declarations, lines of the body, tiles at hand, features used."""

from __future__ import annotations

import random
from collections import Counter

import attrs

from sketchc.base.types import DType

INDENT = "    "


@attrs.frozen
class Tile:
    """A tile at hand. `exact`: all targets agree on every bit; `depth`: how many inexact float
    operations led to it; `partial`: a mask leaves lanes void; `padded`: lanes hold `pad=`."""

    name: str
    extents: tuple[str, ...]
    dtype: DType
    exact: bool = True
    depth: int = 0
    partial: bool = False
    padded: bool = False


@attrs.frozen
class Generated:
    """One random sketch. `holds` says what inputs hold: "index:V" (0 <= value < V), "permutation",
    "shift" (0 to 3), "divisor" (not 0), "float", "wide" (mixed scale), "any". `rough` names the
    outputs that are compared with a tolerance, the others are equal bit by bit."""

    seed: int
    text: str
    sizes: tuple[dict[str, int], ...]
    holds: dict[str, str]
    tunable: tuple[str, ...]
    rough: frozenset[str]
    features: Counter[str]


@attrs.define
class Draft:
    """Collects the parts; `balance` steers choices to what was used least so far."""

    seed: int
    rng: random.Random
    balance: Counter[str]
    symbols: dict[str, str] = attrs.field(factory=dict)  # name -> "" or " <= 32"
    params: list[str] = attrs.field(factory=list)
    lets: list[str] = attrs.field(factory=list)
    requires: list[str] = attrs.field(factory=list)
    tensors: list[str] = attrs.field(factory=list)
    workspaces: list[str] = attrs.field(factory=list)
    views: list[str] = attrs.field(factory=list)
    constants: dict[str, str] = attrs.field(factory=dict)
    tunable: list[str] = attrs.field(factory=list)
    holds: dict[str, str] = attrs.field(factory=dict)
    rough: set[str] = attrs.field(factory=set)
    features: Counter[str] = attrs.field(factory=Counter)
    lines: list[str] = attrs.field(factory=list)
    depth: int = 1
    counts: Counter[str] = attrs.field(factory=Counter)

    # ------------------------------------------------------------ names and lines

    def name(self, stem: str) -> str:
        """A name that the sketch does not have yet."""
        self.counts[stem] += 1
        return f"{stem}{self.counts[stem]}"

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)

    def use(self, *features: str) -> None:
        self.features.update(features)

    def least(self, choices: list[str]) -> str:
        """The feature that was used least, ties broken at random."""
        return min(choices, key=lambda f: (self.balance[f] + self.features[f], self.rng.random()))

    def loop(self, header: str, *hints: str) -> None:
        """Open a loop; its body follows."""
        if hints:
            self.line("@llm_hint(" + ", ".join(f'"{hint}"' for hint in hints) + ")")
        self.line(header)
        self.depth += 1

    def close(self, levels: int = 1) -> None:
        self.depth -= levels

    # ------------------------------------------------------------ declarations

    def constant(self, name: str, value: int, tunable: bool = True) -> str:
        self.constants[name] = str(value)
        if tunable:
            self.tunable.append(name)
        return name

    def input(self, extents: str, dtype: DType, hold: str = "any") -> str:
        name = self.name("X")
        self.tensors.append(f"{name}[{extents}]: in {dtype.value}")
        self.holds[name] = hold
        return name

    def output(self, extents: str, tile: Tile, initial: str = "", role: str = "out") -> str:
        name = self.name("Y")
        self.tensors.append(f"{name}[{extents}]: {role} {tile.dtype.value}{initial}")
        if not tile.exact:
            self.rough.add(name)
        return name

    def alloc(self, extents: tuple[str, ...], dtype: DType | None = None, init: str = "") -> str:
        name = self.name("t")
        parts = [f"[{', '.join(extents)}]", *([dtype.value] if dtype else [])]
        if init:
            parts.append(f"init={init}")
        self.line(f"{name} = alloc({', '.join(parts)})")
        return name

    # ------------------------------------------------------------ the text

    def text(self) -> str:
        sections = [
            ("symbols", ", ".join(f"{name}{bound}" for name, bound in self.symbols.items())),
            ("params", "; ".join(self.params)),
            ("constexpr", ", ".join(f"{name} = {v}" for name, v in self.constants.items())),
            ("let", "; ".join(self.lets)),
            ("tensors", "; ".join(self.tensors)),
            ("workspace", "; ".join(self.workspaces)),
            ("views", "; ".join(self.views)),
            ("require", "; ".join(self.requires)),
        ]
        head = [f"{INDENT}{keyword}: {text};" for keyword, text in sections if text]
        return "\n".join([f"sketch random_{self.seed} {{", *head, "", *self.lines, "}", ""])

    def finished(self, sizes: tuple[dict[str, int], ...]) -> Generated:
        return Generated(
            self.seed,
            self.text(),
            sizes,
            dict(self.holds),
            tuple(self.tunable),
            frozenset(self.rough),
            self.features,
        )
