"""How fast `sketchc check` is: its start, each example (best of 7), and 1,000 distinct sketches.

    python benchmarks/check_speed.py [--json FILE] [--start]

`--start` measures only `check --static examples/rms.sketch` and `check examples/rms.sketch`, and
ends with status 1 where one is over its limit.

Wall time of whole processes, as a user sees it. The thousand sketches are the examples, with names
of sketches, symbols and tensors that no two files share. The parser's tables and the byte code are
cached by a first run that is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = REPOSITORY / "examples"
COMMAND = [str(Path(sys.executable).with_name("sketchc")), "check"]
#: Seconds that checking one small sketch may take, from the start of the process to its end.
LIMITS = {"check --static": 0.15, "check": 0.4}
#: Byte code may be cached, as on any machine where nobody forbids it.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def wall(arguments: list[str]) -> float:
    """Seconds of one process. Raises `SystemExit` when it reports an error."""
    started = time.perf_counter()
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"sketchc check failed with status {done.returncode}:\n{done.stderr[-2000:]}")
    return seconds


def distinct_sketches(folder: Path, count: int) -> list[str]:
    """`count` files; sketch, symbols and tensors of each have names that no other file has."""
    examples = sorted(EXAMPLES.glob("*.sketch"))
    paths = []
    for number in range(count):
        text = examples[number % len(examples)].read_text()
        symbols = re.search(r"symbols: ([^;]*);", text)
        declared = re.findall(r"[A-Za-z]\w*", symbols[1]) if symbols else []
        declared += re.findall(r"(\w+)\[[^\]]*\]:", text)
        for name in declared:
            text = re.sub(rf"\b{name}\b", f"{name}_{number}", text)
        text = re.sub(r"sketch (\w+) \{", rf"sketch \1_{number} {{", text)
        path = folder / f"sketch_{number}.sketch"
        path.write_text(text)
        paths.append(str(path))
    return paths


def start_seconds() -> dict[str, list[float]]:
    """Seven times of each call that `LIMITS` bounds."""
    rms = str(EXAMPLES / "rms.sketch")
    found = {}
    for name in LIMITS:
        options = name.split()[1:]
        found[name] = [wall([*options, rms]) for _ in range(7)]
        print(f"{name:15} best of 7: {min(found[name]):.3f} s, limit {LIMITS[name]} s")
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the raw samples here")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--start", action="store_true")
    options = parser.parse_args()
    results: dict[str, object] = {"python": platform.python_version(), "machine": machine()}
    wall([str(EXAMPLES / "rms.sketch")])
    results["start_seconds"] = started = start_seconds()
    if options.start:
        sys.exit(any(min(times) > LIMITS[name] for name, times in started.items()))
    singles: dict[str, list[float]] = {}
    for path in sorted(EXAMPLES.glob("*.sketch")):
        singles[path.stem] = [wall([str(path)]) for _ in range(7)]
        print(f"{path.stem:20} best of 7: {min(singles[path.stem]):.3f} s")
    with tempfile.TemporaryDirectory() as folder:
        many = wall(distinct_sketches(Path(folder), options.count))
    print(f"{options.count} distinct sketches in one call: {many:.2f} s")
    results |= {"one_example_seconds": singles, "count": options.count, "many_seconds": many}
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def machine() -> str:
    """The processor's model."""
    for line in Path("/proc/cpuinfo").read_text().split("\n"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
