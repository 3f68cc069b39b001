"""Evidence is the same bytes wherever the candidate was judged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from foreign_kernels import base, edited, judge
from toolchains import require

from sketchc.runtime.verify.evidence import clean_log, evidence, rounded
from sketchc.runtime.verify.verdict import Verdict

BROKEN = {
    "cpp": [("X[i] + X[i]", "wrong(X[i])"), ("X[i] + X[i]", "X[i]"), ("Y[i] =", "Y[i - 1] ="),
            ("return 0;", "std::abort();")],
    "triton_cuda": [("x + x, mask", "tl.wrong(x), mask"), ("x + x, mask", "x, mask"),
                    ("return Y", "return None"), ("N = X.numel()", "N = X.sum()"),
                    ("N = X.numel()", "raise ValueError(repr(object()) + __file__)")],
    "triton_ascend": [("x + x, mask", "tl.wrong(x), mask"), ("x + x, mask", "x, mask"),
                      ("tl.store(Y + lanes", "tl.store(Y + lanes + 4096"),
                      ("N = X.numel()", "raise ValueError(repr(object()) + __file__)")],
}  # fmt: skip
CASES = [(target, edit) for target, edits in BROKEN.items() for edit in edits]


@pytest.mark.sweep
@pytest.mark.parametrize(("target", "edit"), CASES, ids=[f"{t}-{e[1]}" for t, e in CASES])
def test_two_folders_give_the_same_bytes(
    target: str, edit: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(target)
    source = edited(target, edit)
    texts = []
    for name in ("one", "another/place with spaces"):
        temporary = tmp_path / name / "tmp"
        temporary.mkdir(parents=True)
        monkeypatch.setenv("TMPDIR", str(temporary))
        monkeypatch.setattr("tempfile.tempdir", None)
        found = evidence(judge(target, source, tmp_path / name / "build", cases=3))
        texts.append(json.dumps(found, allow_nan=False))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert texts[0] == texts[1]
    assert found["failure"]
    assert str(tmp_path) not in texts[0]
    assert "/tmp" not in texts[0]
    assert "site-packages" not in texts[0]


def test_a_wrong_element_is_shown_with_the_blame(tmp_path: Path) -> None:
    require("cpp")
    source = edited("cpp", ("X[i] + X[i]", "X[i] * (i == 5 ? 3.0f : 2.0f)"))
    found = evidence(judge("cpp", source, tmp_path))
    assert found["failure"] == "numerical"
    assert found["output"] == "Y"
    assert found["wrong"] == 1
    assert found["first_wrong"]["index"] == [5]
    assert found["first_wrong"]["error"] > found["first_wrong"]["allowed"] > 0
    expected, actual = (found["first_wrong"][key] for key in ("expected", "actual"))
    assert actual == pytest.approx(1.5 * expected, rel=2e-3)
    assert len(f"{abs(expected):.10g}".replace(".", "").lstrip("0")) <= 4
    assert found["code_as_sketch"] is False
    assert found["sketch_right"] is True
    assert found["case"]["sizes"].keys() == {"N"}


def test_a_passed_verdict_is_no_evidence(tmp_path: Path) -> None:
    require("cpp")
    verdict: Verdict = judge("cpp", base("cpp"), tmp_path)
    assert verdict.passed
    assert evidence(verdict) == {}


def test_numbers_have_four_digits() -> None:
    assert rounded(1.234567) == 1.235
    assert rounded(123456.0) == 123500.0
    assert rounded(123456) == 123456
    assert rounded(math.nan) == "nan"
    assert rounded(-math.inf) == "-inf"


LOG = """Traceback (most recent call last):
  File "/home/me/project/runtime/worker_child.py", line 99, in main
    answer = handler()
             ^^^^^^^^^
  File "/tmp/x1/build/twice.triton_cuda.py", line 17, in twice
    return torch.wrong(X)
           ^^^^^^^^^^^
AttributeError: <object at 0x7f00aa11bb22> of /tmp/x1/build/twice.py, in 0.25 s, pid 4711
"""


def test_what_differs_between_machines_is_left_out() -> None:
    assert clean_log(LOG, "twice") == [
        "line 17 in twice:",
        "    return torch.wrong(X)",
        "           ^^^^^^^^^^^",
        "AttributeError: <object at 0x...> of twice.py, in ... s, pid ...",
    ]


def test_long_logs_keep_both_ends() -> None:
    lines = clean_log("\n".join(f"this is line {number} of many" for number in range(500)), "twice")
    assert len(lines) == 40
    assert lines[0] == "this is line 0 of many"
    assert lines[-1] == "this is line 499 of many"
    assert "..." in lines


def test_warnings_give_way_to_errors() -> None:
    warning = "a.cpp:1:1: warning: unused\n    1 | x\n"
    log = f"{warning}a.cpp:2:1: error: no\n    2 | y\na.cpp:3:1: note: z\n"
    assert clean_log(log, "a") == ["a.cpp:2:1: error: no", "    2 | y", "a.cpp:3:1: note: z"]
