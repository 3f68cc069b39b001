"""All benchmarks that this machine can run; raw samples go to docs/data.

python benchmarks/run.py          (or: make bench)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "docs" / "data"


def main() -> int:
    """Run each benchmark in a process of its own; returns 0 if all ended well."""
    DATA.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, data in (
        ("check_speed", "check_speed.json"),
        ("interleaved", "cpu_interleaved.json.gz"),
    ):
        print(f"== {name}", flush=True)
        command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(DATA / data)]
        status |= subprocess.run(command, check=False).returncode
    subprocess.run([sys.executable, str(HERE / "tables.py")], check=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
