"""The page of `sketchc report` without a browser: what it reads, what it refuses, what hostile data
does to it (nothing)."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.base.json_form import number
from sketchc.cli.main import run
from sketchc.runtime.report.listings import lines_of
from sketchc.runtime.report.plots import linear_scale, log_scale, times_plot
from sketchc.runtime.report.results import measured_of
from sketchc.runtime.report.text import sanitised, sanitised_line

ROOT = Path(__file__).parents[2]

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=alert(3) {{ 7*7 }}"
)
#: Colours of a terminal, control characters, an override of the direction, half a pair, C1.
ODD = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00\x08\x7f\x85 \u202eabc\u2066 \ud800 a\rb"


def comparison(**fields: Any) -> dict[str, Any]:
    return {
        "name": "Y",
        "failure": "",
        "reason": "within tolerance",
        "elements": 93,
        "wrong": 0,
        "first": None,
        "rtol": 1e-6,
        "atol": 1e-7,
        "max_error": 2.5e-9,
        "max_relative_error": 1e-7,
        "worst": 0.0371,
        "paper": {"tau": 0.001, "fraction": 0.25},
    } | fields


def case(failure: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "shape": {"name": "x", "symbols": {"M": 3, "N": 31}, "own": False, "absent": []},
        "kind": "mixed_scale",
        "seed": 77,
        "failure": failure,
        "reason": "Y: 3 of 93 elements are wrong" if failure else "",
        "comparisons": [comparison()],
        "runs": 1,
        "seconds": 0.25,
        "log": "",
        "sketch_right": None,
        "code_as_sketch": None,
    } | fields


def verdict(*cases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    failure = next((c["failure"] for c in cases if c["failure"] not in ("", "skipped")), "")
    return {
        "sketch": "softmax",
        "target": "cpp",
        "hardware": "cpu",
        "task": "tasks/softmax.py",
        "how_it_runs": "natively",
        "seed": 123,
        "notes": [],
        "versions": {"g++": "12.2"},
        "constants": {"TM": 2},
        "params": {},
        "cases": list(cases),
        "passed": not failure,
        "failure": failure,
    } | fields


def measurement(**fields: Any) -> dict[str, Any]:
    summary = {"samples": 3, "median": 2e-3, "low": 1e-3, "high": 3e-3, "mean": 2e-3}
    gain = {"of_medians": 2.0, "low": 1.5, "high": 2.5, "of_means": 2.1}
    return {
        "sketch": "softmax",
        "target": "cpp",
        "hardware": "cpu",
        "task": "tasks/softmax.py",
        "machine": {"name": "a CPU", "bandwidth": 1e10, "peaks": {"ieee f32": 1e11}},
        "symbols": {"M": 8, "N": 16},
        "constants": {"TM": 2},
        "params": {},
        "seed": 5,
        "precision": {"name": "ieee f32", "reason": "f32 tensors"},
        "eager": {**summary, "median": 4e-3, "minimum": 3e-3},
        "kernel": {**summary, "minimum": 1e-3},
        "speedup": gain,
        "bytes": 1_000_000,
        "flops": 4_000_000,
        "roofline": 0.05,
        "comparisons": [comparison()],
        "samples": {"eager": [3e-3, 4e-3, 5e-3], "kernel": [1e-3, 2e-3, 3e-3]},
        "notes": [],
        "passed": True,
    } | fields


class Elements(HTMLParser):
    """What a page is made of: the elements, their attributes, and the text outside of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def values(self, name: str = "data-value") -> list[float]:
        return [float(str(found[name])) for _, found in self.tags if name in found]


def page_of(tmp_path: Path, *data: object, sketch: str = "") -> Elements:
    """The page of several JSON files, as the command writes it."""
    paths = [tmp_path / f"{place}.json" for place in range(len(data))]
    for path, one in zip(paths, data, strict=True):
        path.write_text(json.dumps(one))
    place = tmp_path / "page.html"
    words = ["report", *map(str, paths), "-o", str(place)]
    assert run([*words, "--sketch", sketch] if sketch else words) == 0
    return Elements(place.read_text("utf-8"))


# ---------------------------------------------------------------- content


def test_numbers_are_those_of_the_files(tmp_path: Path) -> None:
    page = page_of(tmp_path, verdict(case(), case("skipped")), measurement())
    values = page.values()
    gain = measurement()["speedup"]
    for value in (0.0371, 2.5e-9, 4e-3, 2e-3, gain["of_medians"], gain["of_means"], 0.05):
        assert value in values
    assert 1_000_000 / 2e-3 in values
    assert 4_000_000 / 4e-3 in values
    for words in ("1 of 1 cases passed, 1 that the task itself refuses", "M=3, N=31", "2.00×"):
        assert words in page.text
    assert "rejects: 25 % over 0.001" in page.text
    assert "sketchc verify FILE --task tasks/softmax.py --target cpp" in page.text
    assert "--seed 123 --set TM=2" in page.text


BLAMES = [
    ("numerical", True, False, "The code is wrong", "does not do what the sketch says"),
    ("numerical", False, True, "The sketch is wrong", "interpreted, it differs from the task"),
    ("numerical", None, None, "Nobody is blamed", "nobody asked"),
    ("design", None, None, "The sketch is wrong", "the sketch itself"),
    ("compile", None, None, "The code is wrong", "was not accepted"),
    ("infrastructure", None, None, "Nobody is blamed", "the machinery failed"),
    ("of_tomorrow", None, None, "Nobody is blamed", "does not know"),
]


@pytest.mark.parametrize(("failure", "sketch_right", "as_sketch", "blame", "why"), BLAMES)
def test_evidence_and_blame(
    failure: str,
    sketch_right: bool | None,
    as_sketch: bool | None,
    blame: str,
    why: str,
    tmp_path: Path,
) -> None:
    first = {"index": [0, 3], "expected": 0.25, "actual": "nan"}
    wrong = comparison(failure=failure, reason="3 of 93 differ", first=first, worst="inf")
    blamed = {"sketch_right": sketch_right, "code_as_sketch": as_sketch}
    page = page_of(tmp_path, verdict(case(failure, comparisons=[wrong], log="x.cpp:1", **blamed)))
    text = page.text
    for words in (blame, why, "Y[0, 3]", "0.25", "nan", "x.cpp:1", failure.replace("_", " ")):
        assert words in text, words
    assert [f["class"] for _, f in page.tags if f.get("id") == "outcome"] == ["badge failed"]


def test_the_speedup_over_another_precision_is_not_made_up(tmp_path: Path) -> None:
    compiled = {"name": "compile", "precision": "tf32", "times": {"median": 1e-3}, "speedup": None}
    data = measurement(baselines={"compile": compiled}, compile_speedup=None)
    data["samples"]["compile"] = [1e-3, 1.1e-3]
    found = measured_of(data)
    assert [name for name, _ in found.gains] == ["PyTorch eager"]
    withheld = [one.withheld for one in found.contenders if one.withheld]
    assert withheld == ["No speedup over torch.compile is quoted: it computes in tf32"]
    assert found.peak == 1e11
    assert [one.name for one in found.contenders][-1] == "sketchc kernel"
    compiled["speedup"] = data["compile_speedup"] = {"of_medians": 0.5, "low": 0.4, "high": 0.6}
    assert [gain.of_medians for _, gain in measured_of(data).gains] == [2.0, 0.5]
    text = page_of(
        tmp_path, measurement(problems=[{"failure": "policy", "reason": "too fast"}])
    ).text
    assert "These times do not count: too fast." in text


def test_older_measurements_can_still_be_read(tmp_path: Path) -> None:
    """All that was measured for docs/BENCHMARKS.md, by earlier versions, on one page."""
    data = json.loads((ROOT / "tests" / "e2e" / "recorded" / "measurements.json").read_text())
    page = page_of(tmp_path, data)
    for one in data.values():
        assert one["speedup"]["of_medians"] in page.values()
    assert f"{len(data)} measurements" in page.text


def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    page_of(tmp_path, {"cases": [], "passed": False})
    page_of(tmp_path, {"cases": [{}, None, 3, {"shape": None, "comparisons": [{}]}], "passed": 1})
    few = {"kernel": {"median": None}, "samples": {"kernel": [1e-3]}, "flops": -1, "bytes": "x"}
    page_of(tmp_path, few)
    page_of(tmp_path, measurement(machine=None, flops=0, bytes=0, samples={"kernel": [0.0, 0.0]}))


def test_the_sketch_is_shown_beside_its_code(tmp_path: Path) -> None:
    sketch = ROOT / "examples" / "rms.sketch"
    page = page_of(tmp_path, verdict(case(), constants={"TILE_SIZE": 8}), sketch=str(sketch))
    linked = {str(f["id"]): str(f["data-links"]).split() for _, f in page.tags if "data-links" in f}
    store = next(n for n, line in enumerate(sketch.read_text().split("\n"), 1) if "store(" in line)
    assert f"s{store}" in linked
    for line, others in linked.items():
        back = "s" if line[0] == "c" else "c"
        for other in others:
            assert line[1:] in linked[f"{back}{other}"]
    assert run(["report", str(tmp_path / "0.json"), "--sketch", "none.sketch"]) == 2


# ---------------------------------------------------------------- hostile data


def test_hostile_texts_are_harmless(tmp_path: Path) -> None:
    bad = f"{HOSTILE} {ODD}"
    first = {"index": [0, HOSTILE], "expected": HOSTILE, "actual": "-inf"}
    wrong = comparison(name=bad, failure="numerical", reason=bad, first=first, worst="nan")
    failing = case("numerical", kind=bad, reason=bad, comparisons=[wrong], log=f"{bad}\n" * 40)
    failing["shape"] = {"symbols": {bad: bad}, "absent": [bad]}
    names = {"sketch": bad, "target": bad, "task": bad, "notes": [bad], "versions": {bad: bad}}
    timed = measurement(**names, constants={bad: bad}, samples={bad: [1.0, 2.0], "kernel": [1.0]})
    page = page_of(tmp_path, verdict(failing, case(kind=bad), **names, how_it_runs=bad), timed)
    raw = (tmp_path / "page.html").read_text("utf-8")
    assert [tag for tag, _ in page.tags].count("script") == 1
    allowed = {"img", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.tags}
    assert allowed <= {"form"}
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    assert "<script>alert" not in raw.replace("<script>\n", "")
    assert "{{ 7*7 }}" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", raw)
    assert "\\u202eabc" in page.text
    assert "red" in page.text
    policy = next(str(found["content"]) for _, found in page.tags if "http-equiv" in found)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_long_log_is_cut_and_says_so(tmp_path: Path) -> None:
    log = "begin\n" + "</pre>" * 200_000 + "\nend of it"
    page = page_of(tmp_path, verdict(*[case("compile", log=log)] * 20))
    raw = (tmp_path / "page.html").read_text("utf-8")
    assert len(raw) < 2_500_000
    assert "characters left out" in page.text
    assert "end of it" in page.text
    assert "8 more cases failed" in page.text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf", 10**400, -1.0, "7"])
def test_numbers_that_are_none(value: object, tmp_path: Path) -> None:
    odd = comparison(worst=value, max_error=value, rtol=value, elements=value)
    page_of(tmp_path, verdict(case(comparisons=[odd], seconds=value)))
    page_of(tmp_path, measurement(bytes=value, flops=value, speedup={"of_medians": value}))


@settings(max_examples=150, deadline=None)
@given(st.text() | st.just(ODD))
def test_clean_text_is_clean(text: str) -> None:
    shown = sanitised(text)
    shown.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]", shown)
    assert "\n" not in sanitised_line(text)
    assert sanitised(shown) == shown


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.sampled_from("\"'#/*\\@ a1_\n(.x"), max_size=80),
    st.sampled_from(["sketch", "python", "c++", "other"]),
)
def test_highlighting_loses_nothing(text: str, language: str) -> None:
    lines = lines_of(text, language)
    assert "\n".join("".join(part for _, part in line) for line in lines) == text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=5))
def test_ticks_are_few_and_inside(values: list[float]) -> None:
    for scale in (linear_scale(values, 0, 100), log_scale(values, 0, 100)):
        ticks = scale.ticks()
        assert 1 <= len(ticks) <= 8
        assert all(scale.low * 0.999 <= tick <= scale.high * 1.001 for tick in ticks)
        places = [scale(value) for value in sorted(values)]
        assert places == sorted(places)
        assert all(0 <= place <= 100 for place in places)


def test_a_plot_says_what_it_shows() -> None:
    drawn = times_plot(measured_of(measurement(sketch="<b>")), "t")
    assert drawn.count("<circle") == 6
    assert "&lt;b&gt;" in drawn
    assert "PyTorch eager: median 4.00 ms of 3" in drawn


def test_numbers_as_text() -> None:
    assert math.isnan(number("nan") or 0.0)
    assert number("inf") == math.inf
    assert number("3") is None
    assert number(True) is None
    assert number(10**400) == math.inf


# ---------------------------------------------------------------- misuse


def test_misuse_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, folder = tmp_path / "good.json", tmp_path / "empty"
    good.write_text(json.dumps(verdict(case())))
    folder.mkdir()
    started = tmp_path / "started"
    (started / "run").mkdir(parents=True)
    (started / "run" / "run.json").write_text("{}")
    texts = {
        "torn.json": "{",
        "other.json": '{"a": [1, {"b": 2}]}',
        "deep.json": "[" * 100_000,
        "binary.json": "\udcff",
        "number.json": "1" * 5000,
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    misuse = [
        ([str(tmp_path / "none.json")], "No such file"),
        ([str(tmp_path / "torn.json")], "holds no JSON"),
        ([str(tmp_path / "other.json")], "no verdict and no measurement"),
        ([str(tmp_path / "deep.json")], "holds no JSON"),
        ([str(tmp_path / "binary.json")], "holds no JSON"),
        ([str(tmp_path / "number.json")], "holds no"),
        ([str(folder)], "holds no run"),
        ([str(started)], "has not come to an end"),
        ([str(folder), str(good)], "give it alone"),
        ([str(folder), "--sketch", "x.sketch"], "--sketch goes with JSON files"),
        ([str(good), "-o", str(good)], "choose another file"),
        ([str(good), "-o", str(folder)], "is a folder"),
        ([str(good), "-o", str(tmp_path / "no" / "x.html")], "make its folder first"),
        (["abcd", "--store", str(tmp_path / "none.sqlite")], "none.sqlite"),
    ]
    for words, said in misuse:
        assert run(["report", *words]) == 2, words
        error = capsys.readouterr().err
        assert said in error, words
        assert "Traceback" not in error
        assert error.count("\n") == 1
    assert json.loads(good.read_text())["passed"]
