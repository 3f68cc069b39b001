"""Small sketches whose tiles mostly have their element types from what is first put into them.

Loads stand twice, for nothing, or in loops that they do not depend on, of tensors of several types:
what is moved, copied or removed may be what a type was taken from. Each text follows from its
number alone.
"""

from __future__ import annotations

import random

DTYPES = ("f16", "bf16", "f32", "f64")
TILES = ("a", "b", "c", "d")
SOURCES = ("X", "X", "X", "Z", "V")


def untyped(number: int) -> str:
    """A sketch of one loop, in part within a second one."""
    chosen = random.Random(number)
    kinds = {name: chosen.choice(DTYPES) for name in ("X", "Z", "V", "Y0", "Y1", "Y2")}
    lines = [_alloc(chosen, tile) for tile in TILES]
    written: list[str] = []
    for _ in range(chosen.randint(2, 4)):
        lines.append(_load(chosen, written))
    for _ in range(chosen.randint(1, 5)):
        lines.append(_step(chosen, written))
    if chosen.random() < 0.4:
        lines.append("    for j in range(2):")
        lines += ["    " + _step(chosen, written) for _ in range(chosen.randint(1, 4))]
    for out in ("Y0", "Y1", "Y2"):
        lines.append(f"        store({chosen.choice(written)} -> {out}[i:i + T])")
        if chosen.random() < 0.5:
            lines.append(_step(chosen, written))
    tensors = "; ".join(
        f"{name}[N]: {'out' if name.startswith('Y') else 'in'} {dtype}"
        for name, dtype in kinds.items()
    )
    body = "\n".join("    " + line.removeprefix("    ") for line in lines)
    return f"""sketch untyped_{number} {{
    symbols: N;
    tensors: {tensors};
    constexpr: T = 8;
    @llm_hint("parallel")
    for i in range(0, N, T):
{body}
}}
"""


def _alloc(chosen: random.Random, tile: str) -> str:
    arguments = ["[T]"]
    if chosen.random() < 0.25:
        arguments.append(chosen.choice(DTYPES))
    if chosen.random() < 0.2:
        arguments.append(chosen.choice(('llm_hint=["l1_buffer"]', 'llm_hint=["fast", "ub"]')))
    return f"        {tile} = alloc({', '.join(arguments)})"


def _load(chosen: random.Random, written: list[str]) -> str:
    tile = chosen.choice(TILES)
    written.append(tile)
    return f"        load({chosen.choice(SOURCES)}[i:i + T] -> {tile})"


def _step(chosen: random.Random, written: list[str]) -> str:
    """A load or an operation on what was written before."""
    one, other = chosen.choice(written), chosen.choice(written)
    tile = chosen.choice(TILES)
    kind = chosen.random()
    if kind < 0.35:
        return _load(chosen, written)
    written.append(tile)
    if kind < 0.6:
        return f"        {chosen.choice(('add', 'mul', 'sub'))}({one}, {other}, {tile})"
    if kind < 0.8:
        return f"        mul({one}, {chosen.choice(('1.1', '3.3', '0.7'))}, {tile})"
    if kind < 0.9:
        return f"        leaky_relu({one}, slope=0.3, {tile})"
    return f"        copy({one}, {tile})"
