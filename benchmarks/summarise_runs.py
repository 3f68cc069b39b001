"""A table of runs of `sketchc gen`, from the trace.json that each leaves behind.

    python benchmarks/summarise_runs.py out1 out2 ... [--json FILE]

One row per run: task, target, who coded, how it ended, attempts, the stages at which sketches were
refused, failed verifications, calls, tokens in and out. With --json the same as data.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def row(folder: Path) -> dict[str, Any]:
    """What one run came to."""
    trace = json.loads((folder / "trace.json").read_text("utf-8"))
    steps = trace["steps"]
    refused = [
        attempt["stage"]
        for step in steps
        if step["agent"] == "designer"
        for attempt in step["details"].get("attempts", ())
        if attempt["stage"] != "accepted"
    ]
    return {
        "task": trace["task"],
        "target": trace["target"],
        "coder": trace["coder"],
        "outcome": trace["outcome"],
        "attempts": trace["attempts"],
        "refused_sketches": refused,
        "failed_verifications": [s["failure"] for s in steps if s["outcome"] == "failed"],
        "calls": trace["totals"]["calls"],
        "input_tokens": trace["totals"]["input_tokens"],
        "output_tokens": trace["totals"]["output_tokens"],
        "cases": (trace["verdict"] or {}).get("passed_cases", 0),
    }


def main() -> None:
    """Print the table; write the data where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [row(folder) for folder in given.folders]
    print("| task | target | Coder | ended | attempts | refused, failed | calls | tokens in, out |")
    print("|---|---|---|---|---:|---|---:|---:|")
    for one in rows:
        wrong = ", ".join(one["refused_sketches"] + one["failed_verifications"]) or "–"
        print(
            f"| {Path(one['task']).stem} | {one['target']} | {one['coder']} | {one['outcome']} "
            f"| {one['attempts']} | {wrong} | {one['calls']} "
            f"| {one['input_tokens']:,}, {one['output_tokens']:,} |"
        )
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
