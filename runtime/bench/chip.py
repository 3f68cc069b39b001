"""The file of this machine's CPU: what the system says of it, and its measured bandwidth."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from sketchc.lowering.hardware import load_hardware, vector_bytes
from sketchc.runtime.bench.machine import data_caches, last_level_cache, measure_bandwidth
from sketchc.runtime.process.venvs import processor_says

_READ = "read from the system: "
_GENERIC = "the system does not say: the generic CPU's"


def probed_cpu(name: str) -> str:
    """The text of the hardware file `name` of this machine's CPU (some seconds: its bandwidth is
    measured with torch where that is installed)."""
    generic = load_hardware("cpu").facts
    caches, cores = data_caches(), len(os.sched_getaffinity(0))
    bandwidth, source = generic["memory_bandwidth"], "not measured, for torch is missing: generic"
    try:
        bandwidth = measure_bandwidth("cpu", last_level_cache())
        source = "measured: the best of reading, copying and adding arrays larger than the caches"
    except ImportError:
        pass
    facts = {
        "name": name,
        "description": f"{processor_says('model name') or 'a CPU'}, {cores} cores",
        "family": "cpu",
        "aliases": [],
        "chip": "native",
        "cores": cores,
        "matrix_cores": cores,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memory_bandwidth": float(f"{bandwidth:.3g}"),
        **{f"l{level}_bytes": caches.get(level, generic[f"l{level}_bytes"]) for level in (1, 2)},
        "vector_bytes": vector_bytes(),
        "clock": _clock() or generic["clock"],
    }
    sources = {
        "cores": _READ + "those that this process may use",
        "memory": _READ + "sysconf",
        "memory_bandwidth": source,
        **{
            f"l{level}": _READ + "/sys/devices/system/cpu" if level in caches else _GENERIC
            for level in (1, 2)
        },
        "vector": _READ + "/proc/cpuinfo",
        "clock": _READ + "/proc/cpuinfo" if _clock() else _GENERIC,
        "arena": generic["sources"]["arena"],
    }
    tables = {"sources": sources, "memory.arena": generic["memory"]["arena"]}
    tables["placement"] = generic["placement"]
    head = f"# This machine's CPU, as `sketchc targets --probe` found it on {time.strftime('%F')}."
    parts = [f"{head}\n# Sizes in bytes, rates in bytes/s.\n{_lines(facts)}"]
    parts += [f"[{title}]\n{_lines(table)}" for title, table in tables.items()]
    return "\n".join(parts)


def _clock() -> float | None:
    """The cycles per second of a core, as the system says; None where it does not."""
    said = processor_says("cpu MHz")
    return float(said) * 1e6 if said else None


def _lines(table: dict[str, Any]) -> str:
    """The entries of a table of TOML, which has texts, numbers and lists of texts as JSON has."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
