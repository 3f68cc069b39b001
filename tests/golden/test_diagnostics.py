"""Every diagnostic code has a failing input, its rendered text beside it, and a page that holds.

`tests/golden/diagnostics/SKxxxx_slug.sketch` is checked and the text compared with `.err`. A first
line such as `# sketchc check --target cpp --set T=4` gives options. SK08xx inputs are executed
rather than checked: test_execution_diagnostics.py does that.
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from explained import block
from test_execution_diagnostics import diagnose

from sketchc.base import diagnostics
from sketchc.cli.commands.check import FileReport, Request, check_file
from sketchc.cli.options import parse_assignments
from sketchc.base.diagnostics import Severity
from sketchc.base.explain import codes, page
from sketchc.reporting.text import render_text
from sketchc.base.diagnostics import Source

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "diagnostics"
INPUTS = [path for path in sorted(FOLDER.glob("*.sketch")) if not path.stem.startswith("SK08")]
PREFIX = "# sketchc check"
#: What no text block can show: bytes that are not text, and a megabyte.
WITHOUT_EXAMPLE = {"SK0131", "SK0132"}
#: Too large to keep here; tests/unit/test_cli_check.py makes one.
WITHOUT_GOLDEN = {"SK0132"}


def request_of(text: str) -> Request:
    """The options that the first line of an input asks for."""
    head = text.partition("\n")[0]
    words = shlex.split(head.removeprefix(PREFIX)) if head.startswith(PREFIX) else []
    settings = [words[index + 1] for index, word in enumerate(words) if word == "--set"]
    target = words[words.index("--target") + 1] if "--target" in words else None
    constants = tuple(parse_assignments(settings, "--set").items())
    return Request(target, "--execute" in words, constants)


def check_text(text: str, folder: Path) -> FileReport:
    path = folder / "page.sketch"
    path.write_text(text, "utf-8")
    return check_file(str(path), request_of(text))


def found_codes(report: FileReport) -> set[str]:
    return {found.code for found in report.diagnostics}


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_golden(path, monkeypatch, update_golden):
    monkeypatch.chdir(FOLDER)
    report = check_file(path.name, request_of(path.read_text("utf-8", errors="replace")))
    assert path.stem[:6] in found_codes(report), report.diagnostics
    text = render_text(report.diagnostics, [report.source])
    golden = path.with_suffix(".err")
    if update_golden:
        golden.write_text(text, "utf-8")
    assert golden.exists(), "run pytest --update-golden"
    assert text == golden.read_text("utf-8")


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_fixes_mend_what_they_are_offered_for(path, monkeypatch, tmp_path):
    monkeypatch.chdir(FOLDER)
    content = path.read_text("utf-8", errors="replace")
    report = check_file(path.name, request_of(content))
    for found in report.diagnostics:
        for fix in found.fixes:
            mended = check_text(diagnostics.apply_edits(report.source.text, fix.edits), tmp_path)
            before = sum(other.code == found.code for other in report.diagnostics)
            after = sum(other.code == found.code for other in mended.diagnostics)
            assert after < before, (found.code, fix.title)


def test_no_golden_is_left_over():
    inputs = {path.stem for path in FOLDER.glob("*.sketch")}
    assert {path.stem for path in FOLDER.glob("*.err")} == inputs


# ---------------------------------------------------------------- every code


def codes_in_the_code() -> set[str]:
    """Every string constant SKxxxx of the package: what diagnostics can carry."""
    found: set[str] = set()
    for folder in ("sketchc", "lowering", "runtime", "grammar", "agents", "docspec"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                value = node.value if isinstance(node, ast.Constant) else None
                if isinstance(value, str) and re.fullmatch(r"SK\d{4}", value):
                    found.add(value)
    return found


def test_every_code_has_a_page_and_every_page_a_code():
    assert set(codes()) == codes_in_the_code()


def test_every_code_has_a_golden():
    inputs = {path.stem[:6] for path in FOLDER.glob("*.sketch")}
    assert inputs | WITHOUT_GOLDEN == codes_in_the_code()


@pytest.mark.parametrize("code", codes())
def test_page_has_its_sections(code):
    text = page(code)
    assert re.match(rf"# {code}: \S", text)
    headings = re.findall(r"^## (.*)$", text, re.M)
    assert headings == ["What", "Why", "Example", "Fix"]


@pytest.mark.parametrize("code", [c for c in codes() if c not in WITHOUT_EXAMPLE])
def test_page_example_triggers_and_fix_does_not(code, tmp_path):
    text = page(code)
    example, fix = block(text, "Example"), block(text, "Fix")
    assert example is not None
    assert fix is not None
    if code.startswith("SK08"):
        head = next(FOLDER.glob(f"{code}_*.sketch")).read_text("utf-8").partition("\n")[0]
        assert code in {d.code for d in diagnose(Source("page", f"{head}\n{example}"))}
        assert not diagnose(Source("page", f"{head}\n{fix}"))
        return
    assert code in found_codes(check_text(example, tmp_path))
    fixed = check_text(fix, tmp_path)
    assert code not in found_codes(fixed)
    assert not [d for d in fixed.diagnostics if d.severity is Severity.ERROR]
