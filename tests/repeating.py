"""The command that a page of `sketchc report` prints, and what comes out when it is run."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sketchc.cli.main import run


def command_of(page: Path) -> list[str]:
    """The words of the only command on a page; it may stand there for several failures."""
    found = set(re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', page.read_text(), re.DOTALL))
    assert len(found) == 1, found
    words = shlex.split(html.unescape(found.pop()))
    assert words[0] == "sketchc"
    return words[1:]


def repeated(page: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The verdict that the command on a page gives; it fails, as what the page shows did."""
    capsys.readouterr()
    status = run([*command_of(page), "--json", "--no-store"])
    captured = capsys.readouterr()
    assert status == 1, captured
    verdict: dict[str, Any] = json.loads(captured.out)
    return verdict


def outcome(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The class, the first failing case with its evidence, and how each case ended."""
    cases = [{**case, "seconds": 0, "log": ""} for case in verdict["cases"]]
    first = next(case for case in cases if case["failure"] not in ("", "skipped"))
    ended = [(case["shape"]["symbols"], case["kind"], case["failure"]) for case in cases]
    return {"failure": verdict["failure"], "first": first, "cases": ended}
