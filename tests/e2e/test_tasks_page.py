"""Every example of docs/TASKS.md does what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from toolchains import require_mindspore

from sketchc.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "TASKS.md").read_text("utf-8")
_BLOCK = re.compile(r"<!-- ([\w-]+): (.*?) -->\n```\w*\n(.*?)```", re.DOTALL)


@attrs.frozen
class Example:
    """One example: a task, the sketch that it is verified with, and the words of a refusal."""

    what: str
    sketch: str
    task: str
    words: str
    text: str


def examples() -> Iterator[Example]:
    for what, said, text in _BLOCK.findall(TEXT):
        if what != "file":
            place, _, words = said.partition("|")
            sketch, task = place.split()
            yield Example(what, sketch, task, words.strip(), text)


EXAMPLES = list(examples())


def test_every_task_of_the_page_is_tried() -> None:
    assert len(EXAMPLES) == TEXT.count("```python") > 12


@pytest.mark.sweep
@pytest.mark.parametrize("example", EXAMPLES, ids=[example.task for example in EXAMPLES])
def test_an_example(example: Example, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if example.what == "verify-mindspore":
        require_mindspore()
    for what, said, text in _BLOCK.findall(TEXT):
        if what == "file":
            (tmp_path / said).write_text(text)
    (tmp_path / example.task.partition(":")[0]).write_text(example.text)
    folder = ROOT if "/" in example.sketch else tmp_path
    task = ["--task", str(tmp_path / example.task), "--target", "cpp"]
    status = run(["verify", str(folder / example.sketch), *task, "--json", "--no-store"])
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    if example.what == "refused":
        assert status == 2
        assert example.words in found["error"]["reason"]
        return
    assert status == 0, shown.err + shown.out
    assert found["passed"]
    assert len(found["cases"]) >= 2
    assert not [case for case in found["cases"] if case["failure"] == "skipped"]
