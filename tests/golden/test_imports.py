"""What `sketchc check` imports: its start-up time is mostly imports, so each new one is looked at.

The golden lists name sketchc's own modules; what is imported where a check takes its course (a lint,
a proof that is open) belongs to them. Limits in seconds are measured, not tested:
`python benchmarks/check_speed.py --start`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sketchc.lowering.registry import TARGETS, load_target

FOLDER = Path(__file__).parent / "imports"
RMS = str(Path(__file__).parents[2] / "examples" / "rms.sketch")
#: The command, and the packages that are too heavy for it.
COMMANDS = {
    "check_static": (
        ("--static",),
        ("torch", "triton", "numpy", "lark", "islpy", "attr", "rich", "multiprocessing"),
    ),
    "check": ((), ("torch", "triton", "lark", "attr", "rich", "multiprocessing", "jinja2")),
}


def imported(cache: Path, *arguments: str) -> set[str]:
    """The modules that a command has imported when it is done."""
    program = (
        "import sys; from sketchc.cli.main import run; status = run(sys.argv[1:]);"
        "print('\\n'.join(['MODULES', *sys.modules])); sys.exit(status)"
    )
    command = [sys.executable, "-c", program, *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("SKETCHC_VERIFY_IR", None)
    out = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout
    return set(out.partition("MODULES\n")[2].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_check_imports_what_it_needs(name, tmp_path, update_golden):
    options, heavy = COMMANDS[name]
    command = ("check", "-q", *options, RMS)
    assert "lark" in imported(tmp_path, *command)  # to compute the parse tables, once
    modules = imported(tmp_path, *command)
    assert [package for package in heavy if package in modules] == []
    found = "".join(f"{module}\n" for module in sorted(modules) if module.startswith("sketchc"))
    golden = FOLDER / f"{name}.txt"
    if update_golden:
        FOLDER.mkdir(exist_ok=True)
        golden.write_text(found, "utf-8")
    assert golden.exists(), "run pytest --update-golden"
    assert found == golden.read_text("utf-8")


@pytest.mark.parametrize("target", TARGETS)
def test_planning_imports_nothing_of_the_emitter(target, tmp_path):
    modules = imported(tmp_path, "lower", RMS, "--target", target, "--emit", "plan")
    record = load_target(target)
    assert TARGETS[target] in modules
    assert record.coder not in modules
    assert record.hints in modules  # it is asked for answers to hints
