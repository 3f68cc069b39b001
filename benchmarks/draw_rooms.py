"""Draw the packages as rooms, with the imports between them as arrows: docs/rooms.svg.

    python benchmarks/draw_rooms.py

The rooms and their rows come from the import contract in pyproject.toml, the arrows from the
imports in the sources. Rooms import from those below: an arrow that pointed elsewhere would break
the contract, and ends this script. Arrows that others imply are left out, and so are single files
that share a row with two or more others. A room in brackets stands for all folders that have none.
"""

from __future__ import annotations

import ast
import functools
import sys
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

import networkx as nx

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "rooms.svg"
PARTS = ("sketchc", "grammar", "lowering", "agents", "docspec", "runtime")
#: Containers of the contract, from left to right.
PANELS = ("sketchc", "sketchc.agents", "sketchc.runtime", "sketchc.lowering", "sketchc.checker")
#: The room of all folders of their container that have none: those of the targets.
OTHERS = "targets"
WIDTH, ROW, BOX, GAP, TOP = 252, 58, 26, 26, 64
FONT = "font-family='system-ui, sans-serif'"
Place = tuple[float, float, float]  # x of the middle, y of the middle, width


def layers() -> dict[str, list[list[str]]]:
    """Container -> rows of rooms, from the top."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    found: dict[str, list[list[str]]] = {}
    for contract in contracts:
        if contract["type"] == "layers":
            (container,) = contract["containers"]
            rows = [row.strip("()").replace("|", ":").split(":") for row in contract["layers"]]
            found[container] = [[room.strip() for room in row] for row in rows]
    return found


def modules() -> dict[str, Path]:
    """Import name -> file, as installed."""
    found = {}
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            if "examples" in path.parts:
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts if part == "sketchc" else ("sketchc", *parts))
            found[name.removesuffix(".__init__")] = path
    return found


@functools.cache
def imported(path: Path) -> tuple[tuple[str, str], ...]:
    """The names that a file imports from modules, each with its module, wherever in the file."""
    return tuple(
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    )


def imports(known: dict[str, Path]) -> nx.DiGraph[str]:
    """Which module imports which, wherever in the file it says so."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in known.items():
        for module, part in imported(path):
            if module in known:
                inner = f"{module}.{part}"
                graph.add_edge(name, inner if inner in known else module)
    return graph


def room_of(module: str, container: str) -> str:
    """The room of a container that a module lies in; empty where it lies elsewhere."""
    inside = module.startswith(container + ".")
    return module.removeprefix(container + ".").split(".")[0] if inside else ""


def between(graph: nx.DiGraph[str], container: str, rows: list[list[str]]) -> nx.DiGraph[str]:
    """The imports between the rooms of a container, without those that others imply.

    Raises `SystemExit` for one that points up."""
    height = {room: number for number, row in enumerate(rows) for room in row}

    def room(module: str) -> str:
        found = room_of(module, container)
        folder = module.startswith(f"{container}.{found}.")
        return OTHERS if folder and found not in height and OTHERS in height else found

    rooms: nx.DiGraph[str] = nx.DiGraph()
    rooms.add_nodes_from(height)
    for user, used in graph.edges:
        pair = room(user), room(used)
        if pair[0] != pair[1] and pair[0] in height and pair[1] in height:
            if height[pair[0]] > height[pair[1]]:
                sys.exit(f"{user} imports {used}, which is above it")
            rooms.add_edge(*pair)
    same = [(a, b) for a, b in rooms.edges if height[a] == height[b]]
    rooms.remove_edges_from(same)  # files of one layer that are no packages
    reduced: nx.DiGraph[str] = nx.transitive_reduction(rooms)
    return reduced


def panel(container: str, rows: list[list[str]], graph: nx.DiGraph[str], left: float) -> list[str]:
    """One container: its title, its arrows, its rooms."""
    height = TOP + len(rows) * ROW
    title = container.removeprefix("sketchc.")
    parts = [
        f"<rect x='{left}' y='12' width='{WIDTH}' height='{height}' rx='8' class='panel'/>",
        f"<text x='{left + WIDTH / 2}' y='38' class='title'>{escape(title)}</text>",
    ]
    places: dict[str, Place] = {}
    for number, row in enumerate(rows):
        width = (WIDTH - 20) / len(row) - 6
        for index, room in enumerate(row):
            middle = left + 10 + (index + 0.5) * (WIDTH - 20) / len(row)
            places[room] = (middle, TOP + 14 + number * ROW, width)
    arrows = between(graph, container, rows)
    parts += [arrow(places[user], places[used]) for user, used in sorted(arrows.edges)]
    for room, (x, y, width) in places.items():
        parts.append(
            f"<rect x='{x - width / 2:.1f}' y='{y - BOX / 2}' width='{width:.1f}' height='{BOX}' "
            "rx='4' class='room'/>"
        )
        size = min(13.0, 1.75 * width / max(len(room), 1))
        parts.append(f"<text x='{x:.1f}' y='{y + 4}' font-size='{size:.1f}'>{escape(room)}</text>")
    return parts


def arrow(start: Place, end: Place) -> str:
    """From the lower edge of a room to the upper edge of one below."""
    (x, y, _), (to, down, _) = start, end
    y, down = y + BOX / 2, down - BOX / 2 - 3
    bend = 0.0 if down - y < ROW else 34.0 if to >= x else -34.0
    first, second = f"{x + bend:.1f} {y + 22}", f"{to + bend:.1f} {down - 22}"
    return f"<path d='M {x:.1f} {y} C {first} {second} {to:.1f} {down}'/>"


def shown(container: str, rows: list[list[str]], known: dict[str, Path]) -> list[list[str]]:
    """The rows without single files that stand beside two or more others."""

    def is_room(name: str) -> bool:
        path = known.get(f"{container}.{name}")
        return path is not None and path.name == "__init__.py"

    kept = [row if len(row) < 3 else [name for name in row if is_room(name)] for row in rows]
    return [row for row in kept if row]


def picture() -> str:
    """The whole drawing."""
    known = modules()
    graph = imports(known)
    contract = {name: shown(name, rows, known) for name, rows in layers().items()}
    tallest = max(len(rows) for rows in contract.values()) * ROW + TOP + 24
    parts = []
    for number, container in enumerate(PANELS):
        parts += panel(container, contract[container], graph, 12 + number * (WIDTH + GAP))
    style = (
        ".panel{fill:#f4f6fa;stroke:#c3cad6}.room{fill:#fff;stroke:#51607a}"
        "text{text-anchor:middle;fill:#1c2738}.title{font-size:15px;font-weight:600}"
        "path{fill:none;stroke:#6b7c99;stroke-width:1.2;marker-end:url(#tip)}"
        "marker path{fill:#6b7c99;marker-end:none}"
    )
    tip = "<marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
    tip += "orient='auto'><path d='M0 0 L8 4 L0 8 z'/></marker>"
    across = 24 + len(PANELS) * (WIDTH + GAP) - GAP
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {across} {tallest}' {FONT}>"
    return "\n".join([head, f"<style>{style}</style><defs>{tip}</defs>", *parts, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(), "utf-8")


if __name__ == "__main__":
    main()
