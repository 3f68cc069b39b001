"""Every diagnostic of names, types and style: `check` says what its page shows, the page mends it,
and its fix-its remove it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sketchc
from sketchc.base.diagnostics import Diagnostic, Severity, Source, apply_edits
from sketchc.checker.api import check

PAGES = sorted(
    page
    for page in (Path(sketchc.__file__).parent / "explain").glob("SK*.md")
    if re.match(r"SK0(2|3|40|6[0-4])", page.stem)
)
#: Codes that a fix-it always accompanies in its page's example.
FIXED = {
    "SK0207",
    "SK0301",
    "SK0309",
    "SK0307",
    "SK0402",
    "SK0403",
    "SK0601",
    "SK0602",
    "SK0603",
    "SK0605",
    "SK0606",
    "SK0607",
    "SK0608",
    "SK0609",
    "SK0613",
}


def found_in(text: str) -> tuple[Diagnostic, ...]:
    return check(Source("test.sketch", text)).diagnostics


def blocks(page: Path) -> list[str]:
    return re.findall(r"```sketch\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_shows_the_diagnostic_and_mends_it(page):
    example, mended = blocks(page)
    assert {diagnostic.code for diagnostic in found_in(example)} == {page.stem}
    result = check(Source("test.sketch", mended))
    assert result.diagnostics == ()
    assert len(result.sketches) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_fixes_remove_the_diagnostic(page):
    example = blocks(page)[0]
    before = found_in(example)
    fixes = [fix for diagnostic in before for fix in diagnostic.fixes]
    assert fixes or page.stem not in FIXED
    for fix in fixes:
        after = [diagnostic.code for diagnostic in found_in(apply_edits(example, fix.edits))]
        assert after.count(page.stem) < len(before), fix.title
        # A warning may come to light, never another error; a guess may be one that is not proved.
        allowed = "SK06" if fix.safe else ("SK06", "SK05")
        assert all(code == page.stem or code.startswith(allowed) for code in after)


def severity(code: str) -> Severity:
    example = blocks(next(page for page in PAGES if page.stem == code))[0]
    return found_in(example)[0].severity


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_only_style_is_a_warning(page):
    warning = page.stem.startswith("SK06")
    assert severity(page.stem) is (Severity.WARNING if warning else Severity.ERROR)


def test_every_code_that_can_be_reported_has_a_page():
    folder = Path(sketchc.__file__).parent / "checker"
    used = {
        code
        for path in folder.rglob("*.py")
        for code in re.findall(r'"(SK0(?:2|3|40|6[0-4])\d+)"', path.read_text("utf-8"))
    }
    assert used == {page.stem for page in PAGES}


def test_one_mistake_gives_one_message():
    text = """sketch s {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    constexpr: T = 64;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([missing])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, 2.0, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
    assert [diagnostic.code for diagnostic in found_in(text)] == ["SK0201"]


def test_mistakes_in_different_statements_are_all_reported():
    text = """sketch s {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    constexpr: T = 64;
    @llm_hint("parallel")
    for i in range(M / T):
        x = alloc([T])
        load(X[i*T:(i+1)*T, 0] -> x)
        mull(x, 2.0, x)
        store(x -> Z[i*T:(i+1)*T])
}
"""
    codes = [diagnostic.code for diagnostic in found_in(text)]
    assert codes == ["SK0301", "SK0303", "SK0210", "SK0201"]


@pytest.mark.parametrize(
    ("divisor", "says"),
    [
        ("i - i", "the divisor is 0"),
        ("N - N", "the divisor is 0"),
        ("m - i - 2", "the divisor is -1"),
        ("i - N - i", "the divisor is at most 0"),
        ("N - 4 + i - i", None),
        ("m - i", None),
    ],
)
def test_a_divisor_that_cancels_is_known(divisor: str, says: str | None) -> None:
    found = found_in(f"""sketch dividing {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32 = 0;
    for i in range(8):
        x = alloc([4])
        m = i + 1
        load(X[5 % ({divisor}):4] -> x)
        store(x -> Y[0:4])
}}
""")
    divisors = [one.message for one in found if one.code == "SK0314"]
    assert divisors == ([] if says is None else [says])


def test_sketches_of_one_file_have_names_of_their_own() -> None:
    one = "sketch one {\n    tensors: X[4]: inout f32;\n    x = alloc([4])\n    load(X[0:4] -> x)\n"
    one += "    store(x -> X[0:4])\n}\n"
    two = one.replace("sketch one", "sketch two")
    assert check(Source("test", one + two)).ok
    (found,) = check(Source("test", one + two + one)).diagnostics
    assert (found.code, found.span.line) == ("SK0202", 13)
    assert found.labels[0].span.line == 1
