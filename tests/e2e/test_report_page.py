"""The pages of `sketchc report` in a real browser: what they show, how they look, what they do.

One headless Chromium, driven through the DevTools, looks at all pages: of a run whose kernel was
lowered by the built-in Coder, of one whose model wrote wrong kernels, and of JSON files.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from llm_server import LlmServer, reply
from repeating import command_of, outcome, repeated
from small_tasks import small_task
from toolchains import require

from sketchc.cli.main import run

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

ROOT = Path(__file__).resolve().parents[2]
SKETCH = ROOT / "examples" / "softmax.sketch"
RECORDED = ROOT / "tests" / "e2e" / "recorded" / "measurements.json"
WIDTHS = (360, 390, 768, 1400)
SCHEMES = ("light", "dark")
#: What a model might say, and must not do.
EVIL = "</script><img src=x onerror=\"document.title='hacked'\"><script>window.hacked = 1</script>"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --hide-scrollbars"
)

#: Texts that are hard to read: their colour and what is behind it are too alike (WCAG 2, 1.4.3).
CONTRAST = """
const channels = (text) => {
  const found = text.match(/[0-9.]+/g).map(Number);
  return found.length === 3 ? [...found, 1] : found;
};
const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
const light = (colour) => {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92
    : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    layers.push(channels(getComputedStyle(at).backgroundColor));
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
};
const poor = [];
let looked = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
  if (element.closest("title, desc, script, style")) continue;
  const style = getComputedStyle(element);
  const colour = channels(element.closest("svg") ? style.fill : style.color);
  const back = behind(element.closest("svg") || element);
  const [a, b] = [light(over(colour, back)), light(back)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  looked += 1;
  if (ratio < 4.5) poor.push([ratio.toFixed(2), walker.currentNode.data.trim().slice(0, 40)]);
}
return [looked, poor];
"""


@attrs.frozen
class Pages:
    """The pages under test, and what they were made of."""

    built: Path  # the folder of a run of the built-in Coder
    wrong: Path  # the folder of a run whose kernels were wrong
    store: Path  # holds both runs
    pages: Mapping[str, Path]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Two real runs and one page of recorded measurements."""
    require("cpp")
    folder = tmp_path_factory.mktemp("report")
    patch = pytest.MonkeyPatch()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        patch.setenv(name, str(folder / name))
    patch.setenv("OPENAI_API_KEY", "a-key-for-tests")
    for name in ("SKETCHC_LLM", "SKETCHC_LLM_MODEL", "OPENAI_BASE_URL"):
        patch.delenv(name, raising=False)
    task = str(small_task("softmax", folder))
    built, wrong = folder / "built", folder / "wrong"
    common = ["gen", task, "-t", "cpp", "--no-bench", "-q", "--store", str(folder / "store")]
    try:
        with_sketch = ["--workflow", "coder-only", "--sketch", str(SKETCH)]
        assert run([*common, *with_sketch, "-o", str(built)]) == 0
        _fail(common, built / "softmax.cpp", wrong)
    finally:
        patch.undo()
    found = {"built": built / "report.html", "wrong": wrong / "report.html"}
    found["measured"] = folder / "measured.html"
    assert run(["report", str(built)]) == 0
    assert run(["report", str(wrong)]) == 0
    found["hostile"] = _hostile(folder, built / "verdict.json")
    words = ["report", str(RECORDED), str(built / "verdict.json"), "-o", str(found["measured"])]
    assert run(words) == 0
    return Pages(built, wrong, folder / "store", found)


def _hostile(folder: Path, verdict: Path) -> Path:
    """The page of a verdict in which everything that can be named has an evil, endless name."""
    data = json.loads(verdict.read_text())["verdict"]
    evil = f"\u202e{EVIL}{'x' * 500}\x00"
    for name in ("sketch", "target", "hardware", "task", "how_it_runs"):
        data[name] = evil
    data |= {"notes": [evil] * 3, "versions": {evil: evil}, "constants": {evil: evil}}
    for case in data["cases"]:
        case["kind"] = evil
        case["shape"]["symbols"] = {evil: evil}
    first = {"index": [1], "expected": "nan", "actual": "-inf"}
    wrong = {"name": evil, "failure": "numerical", "reason": evil, "first": first, "worst": "inf"}
    broken = {"failure": "compile", "reason": evil, "log": f"\x1b[31m{evil}\n" * 2000}
    data["cases"][0] |= broken | {"comparisons": [wrong]}
    data |= {"passed": False, "failure": "compile"}
    source, page = folder / "hostile.json", folder / "hostile.html"
    source.write_text(json.dumps(data))
    assert run(["report", str(source), "-o", str(page)]) == 0
    return page


def _fail(common: list[str], right: Path, out: Path) -> None:
    """A run whose model writes a wrong kernel twice, and says evil things about it."""
    text = right.read_text()
    (line,) = [found for found in text.splitlines() if "= sketch::exp(" in found]
    broken = line.replace("sketch::exp(", "0.5f + sketch::exp(")
    advice = reply(json.dumps({"diagnosis": f"the sum {EVIL}", "suggestion": "\x1b[31mMend it."}))
    edit = f"<<<<<<< SEARCH\n{broken}\n=======\n{broken} // {EVIL}\n>>>>>>> REPLACE"
    script = [
        reply(f"```sketch\n{SKETCH.read_text()}```\n"),
        reply(f"```cpp\n{text.replace(line, broken)}```\n"),
        advice,
        reply(f"```edit\n{edit}\n```\n"),
        advice,
    ]
    with LlmServer(script) as server:
        where = ["--llm", "openai", "--base-url", server.base_url, "--model", "m"]
        more = ["--coder", "llm", "--max-attempts", "2", "-o", str(out)]
        assert run([*common, *where, *more]) == 1


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One Chromium for all tests; skipped where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        reason = "chromium and chromium-driver are not installed"
        if os.environ.get("SKETCHC_REQUIRE_TOOLCHAINS") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(120.0)  # selenium's connections wait for ever otherwise
    try:
        started = webdriver.Chrome(options=options, service=Service(driver))
    finally:
        socket.setdefaulttimeout(before)
    yield started
    started.quit()


def show(browser: Chrome, page: Path, width: int = 1400, scheme: str = "light") -> None:
    """Load a page at a width, in a colour scheme."""
    from selenium.webdriver.support.ui import WebDriverWait

    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    # Without motion: what is clicked must not move meanwhile.
    wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(page.as_uri())
    # `get` may return while a part of the page is still to come, on a busy machine.
    whole = "return [document.readyState, document.URL]"
    until = WebDriverWait(browser, 60.0).until
    until(lambda driver: driver.execute_script(whole) == ["complete", page.as_uri()])


def all_of(browser: Chrome, selector: str) -> list[WebElement]:
    found: list[WebElement] = browser.find_elements("css selector", selector)
    return found


def marked(browser: Chrome, side: str) -> set[int]:
    """The lines of a side that are marked: "s" of the sketch, "c" of the code."""
    script = "return [...document.querySelectorAll('li.on')].map((item) => item.id)"
    return {int(found[1:]) for found in browser.execute_script(script) if found[0] == side}


PAGES = ("built", "wrong", "measured", "hostile")


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_loaded_and_nothing_complains(name: str, browser: Chrome, pages: Pages) -> None:
    browser.get_log("performance")
    show(browser, pages.pages[name])
    assert browser.get_log("browser") == []
    asked = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    assert [url for url in asked if not url.startswith("data:")] == [pages.pages[name].as_uri()]
    assert browser.execute_script("return window.hacked") is None
    assert browser.title != "hacked"
    assert len(all_of(browser, "script")) == 1
    assert all_of(browser, "img, iframe, [style], [onerror], [onload]") == []


@pytest.mark.parametrize("name", PAGES)
def test_every_text_can_be_read(name: str, browser: Chrome, pages: Pages) -> None:
    """In both schemes, with all details open and a line marked; and nothing is as wide as to make
    the page scroll sideways, whatever its width."""
    opened = "for (const part of document.querySelectorAll('details')) part.open = true;"
    opened += "document.querySelector('[data-links] a')?.click();"
    for scheme in SCHEMES:
        show(browser, pages.pages[name], scheme=scheme)
        dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, dark[4:-1].split(","))) < 200) == (scheme == "dark")
        browser.execute_script(opened)
        looked, poor = browser.execute_script(CONTRAST)
        assert looked > 100
        assert poor == []
    for width in WIDTHS:
        show(browser, pages.pages[name], width)
        for script in ("", opened):
            browser.execute_script(script)
            ask = "return [document.documentElement.scrollWidth, innerWidth]"
            shown, room = browser.execute_script(ask)
            assert shown <= room == width


@pytest.mark.parametrize("name", [name for name in PAGES if name != "hostile"])
def test_no_table_is_cut_on_a_usual_screen(name: str, browser: Chrome, pages: Pages) -> None:
    for width in (1100, 1200, 1400):
        show(browser, pages.pages[name], width)
        script = (
            "return [...document.querySelectorAll('.scroll')]"
            ".map((one) => [one.getAttribute('aria-label'), one.scrollWidth - one.clientWidth])"
        )
        regions = browser.execute_script(script)
        assert regions
        assert [label for label, beyond in regions if beyond > 0] == []


def test_lines_that_belong_together_are_marked(browser: Chrome, pages: Pages) -> None:
    from selenium.webdriver import ActionChains, Keys

    show(browser, pages.pages["built"])
    data = json.loads(next(pages.built.glob("*.map.json")).read_text())
    becomes: dict[int, set[int]] = {}
    for line, origins in data["lines"]:
        for origin in origins:
            becomes.setdefault(origin, set()).add(line)
    store = next(n for n, t in enumerate(SKETCH.read_text().split("\n"), 1) if "store(" in t)
    assert becomes[store]
    # Pointing at a statement marks its code, and at code its statement.
    for line in (store, store - 1):
        (item,) = all_of(browser, f"#s{line}")
        ActionChains(browser).move_to_element(item).perform()
        assert marked(browser, "s") == {line}
        assert marked(browser, "c") == becomes[line]
    code_line = min(line for line, origins in data["lines"] if origins == [store])
    (item,) = all_of(browser, f"#c{code_line} .n")
    ActionChains(browser).scroll_to_element(item).move_to_element(item).perform()
    assert (marked(browser, "c"), marked(browser, "s")) == ({code_line}, {store})
    # A click keeps the mark, and brings the other side into view.
    item.click()
    ActionChains(browser).move_to_element(all_of(browser, f"#s{store - 1}")[0]).perform()
    assert (marked(browser, "c"), marked(browser, "s")) == ({code_line}, {store})
    assert str(store) in all_of(browser, "#link-status")[0].text
    # The keyboard alone does the same.
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    browser.execute_script("document.querySelector('#code .window a.n').focus()")
    first, second = sorted(becomes)[:2]
    assert marked(browser, "s") == {first}
    ActionChains(browser).send_keys(Keys.ARROW_DOWN).perform()
    assert (marked(browser, "s"), marked(browser, "c")) == ({second}, becomes[second])
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    all_of(browser, "h1")[0].click()
    assert marked(browser, "s") == {second}
    assert len(all_of(browser, "#code a.n[tabindex='0']")) == 2


def test_of_code_by_a_model_only_quotations_are_linked(browser: Chrome, pages: Pages) -> None:
    show(browser, pages.pages["wrong"])
    linked = all_of(browser, "#code .pane:last-child li[data-links] code")
    assert len(linked) > 3
    sketch = SKETCH.read_text()
    for item in linked:
        comment = str(browser.execute_script("return arguments[0].textContent", item))
        assert comment.strip().removeprefix("// ") in sketch
    assert "not written by the built-in Coder" in all_of(browser, "#code")[0].text
    assert "0.5f + sketch::exp" in browser.execute_script(
        "return document.querySelector('#code').textContent"
    )


def test_failures_show_their_evidence(browser: Chrome, pages: Pages) -> None:
    show(browser, pages.pages["wrong"])
    verdict = json.loads((pages.wrong / "verdict.json").read_text())["verdict"]
    failed = [case for case in verdict["cases"] if case["failure"] not in ("", "skipped")]
    assert len(failed) == len(all_of(browser, "#failures > details")) > 0
    first = failed[0]["comparisons"][0]["first"]
    card = all_of(browser, "#failures > details")[0]
    text = card.text
    place = ", ".join(map(str, first["index"]))
    assert f"First wrong element: Y[{place}]" in text
    assert float(card.find_element("css selector", ".actual").text) == pytest.approx(
        first["actual"], rel=1e-8
    )
    assert float(card.find_element("css selector", ".expected").text) == pytest.approx(
        first["expected"], rel=1e-8
    )
    assert "The code is wrong" in text
    command = card.find_element("css selector", ".command").text
    assert f"--seed {verdict['seed']}" in command
    assert "softmax.cpp" in command
    assert all_of(browser, "#outcome")[0].text == "exhausted"


def test_the_command_shows_the_failure_again(
    pages: Pages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a kernel by a model, for a sketch: from the folder of the run, and from the store."""
    verdict = json.loads((pages.wrong / "verdict.json").read_text())["verdict"]
    words = command_of(pages.pages["wrong"])
    files = [str(pages.wrong / name) for name in ("softmax.cpp", "softmax.sketch")]
    assert [words[1], words[words.index("--signature") + 1]] == files
    assert outcome(repeated(pages.pages["wrong"], capsys)) == outcome(verdict)
    store, place = ["--store", str(pages.store)], tmp_path / "stored.html"
    assert run(["store", "list", "runs", "--json", *store]) == 0
    (wrong,) = [one for one in json.loads(capsys.readouterr().out) if one["outcome"] == "exhausted"]
    assert run(["report", wrong["id"], *store, "-o", str(place)]) == 0
    assert command_of(place) == words


def test_the_trace_shows_every_step_and_what_was_said(browser: Chrome, pages: Pages) -> None:
    show(browser, pages.pages["wrong"])
    trace = json.loads((pages.wrong / "trace.json").read_text())
    steps = all_of(browser, ".timeline > li")
    assert len(steps) == len(trace["steps"])
    for item, step in zip(steps, trace["steps"], strict=True):
        assert item.text.split("\n")[1].lower().startswith(step["agent"])
        if step["calls"]:
            assert len(item.find_elements("css selector", ".call")) == step["calls"]
    assert len(all_of(browser, ".route")) == len(trace["routes"]) > 0
    assert EVIL in all_of(browser, ".route")[0].text
    assert trace["routes"][0]["reason"] in all_of(browser, ".route")[0].text
    every = browser.execute_script("return document.querySelector('#trace').textContent")
    assert "You design kernels" in every
    assert "<<<<<<< SEARCH" in every


def test_cases_can_be_filtered(browser: Chrome, pages: Pages) -> None:
    from selenium.webdriver.support.ui import Select

    show(browser, pages.pages["wrong"])
    verdict = json.loads((pages.wrong / "verdict.json").read_text())["verdict"]

    def shown() -> list[str]:
        rows = all_of(browser, "#v1-cases tbody tr")
        return [row.get_attribute("data-state") or "" for row in rows if row.is_displayed()]

    states = ["failed" if case["failure"] else "passed" for case in verdict["cases"]]
    assert shown() == states
    (state, kind), (words,) = all_of(browser, "form select"), all_of(browser, "form input")
    Select(state).select_by_value("failed")
    assert shown() == ["failed"] * states.count("failed")
    assert f"{states.count('failed')} of {len(states)}" in all_of(browser, "output")[0].text
    Select(state).select_by_value("")
    wanted = verdict["cases"][-1]["kind"]
    Select(kind).select_by_value(wanted)
    assert len(shown()) == sum(case["kind"] == wanted for case in verdict["cases"])
    words.send_keys("no such words")
    assert shown() == []


def test_numbers_equal_the_files(browser: Chrome, pages: Pages) -> None:
    show(browser, pages.pages["measured"])
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.dataset.value)"
    values = {float(found) for found in browser.execute_script(script, "#speed [data-value]")}
    for one in json.loads(RECORDED.read_text()).values():
        assert one["kernel"]["median"] in values
        assert one["eager"]["median"] in values
        assert one["speedup"]["of_medians"] in values
    errors = [float(found) for found in browser.execute_script(script, "td.worst[data-value]")]
    verdict = json.loads((pages.built / "verdict.json").read_text())["verdict"]
    assert errors == [case["comparisons"][0]["worst"] for case in verdict["cases"]]
    # A dot for each, bars for speedups, points for both sides of each roof.
    assert len(all_of(browser, "#verdict .plot .dot")) == len(errors)
    assert len(all_of(browser, "#speed .bar")) == len(json.loads(RECORDED.read_text()))


def test_the_page_of_a_stored_run_says_the_same(
    browser: Chrome, pages: Pages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed(kind: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert run(["store", "list", kind, "--store", str(pages.store), "--json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    place, store = tmp_path / "stored.html", ["--store", str(pages.store)]
    (wrong,) = [one["id"] for one in listed("runs") if one["outcome"] == "exhausted"]
    (right,) = [one["id"] for one in listed("verdicts") if one["passed"]]
    assert run(["report", wrong, *store, "-o", str(place)]) == 0
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
    shown = {}
    for name, page in (("folder", pages.pages["wrong"]), ("store", place)):
        show(browser, page)
        parts = ("#v1-cases td", "#failures h3", ".timeline p", ".call pre", ".listing code")
        shown[name] = [browser.execute_script(script, part) for part in parts]
    assert shown["folder"] == shown["store"]
    assert all(shown["store"])
    # The sketch is lowered again: the lines are linked as they were.
    assert run(["report", right, *store, "-o", str(place)]) == 0
    script = "return [...document.querySelectorAll('[data-links]')].map((e) => e.outerHTML)"
    show(browser, place)
    stored = browser.execute_script(script)
    show(browser, pages.pages["built"])
    assert stored == browser.execute_script(script) != []
    (task,) = listed("tasks")
    assert run(["report", task["id"], *store, "-o", str(place)]) == 2
    assert "give the id of a verdict" in capsys.readouterr().err


def test_without_scripts_everything_is_there(browser: Chrome, pages: Pages) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, pages.pages["built"])
        assert all(row.is_displayed() for row in all_of(browser, "#v1-cases tbody tr"))
        assert not any(form.is_displayed() for form in all_of(browser, "form"))
        assert all_of(browser, "#code li .n")[0].is_displayed()
        link = all_of(browser, "#code a.n")[0]
        assert (link.get_attribute("href") or "").endswith(
            f"#c{(link.find_element('xpath', '..').get_attribute('data-links') or '').split()[0]}"
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_sections_are_named_and_can_be_reached(browser: Chrome, pages: Pages) -> None:
    show(browser, pages.pages["built"])
    targets: list[Any] = [link.get_attribute("href") for link in all_of(browser, "nav a")]
    for target in targets:
        assert len(all_of(browser, f"section#{target.partition('#')[2]}[aria-labelledby]")) == 1
    assert len(all_of(browser, "h1")) == 1
    script = "return [...document.querySelectorAll('[id]')].map((e) => e.id)"
    names = browser.execute_script(script)
    assert len(names) == len(set(names))
    script = "return [...document.querySelectorAll('svg.plot')].map((e) => e.textContent)"
    assert all(browser.execute_script(script))
