"""What the prompts say of a target and its chip: the capabilities, and the facts of its file."""

from __future__ import annotations

from sketchc.agents.prompts.rendering import render
from sketchc.lowering.aims import aims_of
from sketchc.lowering.hardware import load_hardware
from sketchc.lowering.registry import load_target

_FLOAT_BYTES = 4
#: How many tiles of a whole row are alive together, and what is left for those of one element.
_LIVE_TILES = (1, 2, 4)
_SMALL_BYTES = 256


def hardware(target: str, chip: str = "") -> str:
    """The chapter on `target` and on `chip` (its default where none is named).

    Every number is the hardware file's own, also where the file says that the machine at hand is
    asked: prompts do not depend on the machine. Raises `UsageError` for an unknown chip.
    """
    found = load_target(target)
    capabilities = found.capabilities
    facts = load_hardware(chip or capabilities.default_hardware).facts
    aims = aims_of(facts)
    memories = capabilities.memories(facts)
    style = capabilities.loops
    arena = style is not None and style.arena_bytes is not None
    places = capabilities.places(facts)
    default = memories[places["default"]]["bytes"]
    rows = []
    for live in _LIVE_TILES:
        row = min((default - _SMALL_BYTES) // (_FLOAT_BYTES * live), capabilities.maximum_elements)
        rows.append((live, 1 << (row.bit_length() - 1)))
    return render(
        "hardware.jinja",
        target=target,
        description=found.description,
        chip=facts["description"],
        detect=bool(facts.get("detect")),
        cores=facts["cores"],
        matrix_cores=facts["matrix_cores"],
        bandwidth=f"{facts['memory_bandwidth'] / 1e9:.4g}",
        cache=f"{facts['l2_bytes'] / 2**20:.4g}",
        dtypes=sorted(capabilities.dtypes),
        precisions=sorted(capabilities.precisions),
        memories=[
            {"name": _words(name), "bytes": memory["bytes"], "note": memory.get("note", "")}
            for name, memory in memories.items()
        ],
        places={role: _words(name) for role, name in places.items()},
        near="" if style is None or not arena else style.near,
        fuses=found.fuses,
        rows=rows,
        maximum_elements=capabilities.maximum_elements,
        power_of_two=capabilities.power_of_two_extents,
        matrix_minimum=max(capabilities.matrix_minimum.values(), default=1),
        aims=aims,
        persistent=capabilities.persistent_grid,
        pipelines=aims.pipeline_bytes is not None,
    )


def _words(name: str) -> str:
    return name.replace("_", " ")
