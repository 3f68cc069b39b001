"""`sketchc check --fix` mends what has a fix-it, and the result means the same or is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sketchc.api import Request, check_text
from sketchc.base.diagnostics import Severity, Source, compatible
from sketchc.cli.main import run
from sketchc.interpreter.api import interpret

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((ROOT / "tests" / "golden" / "diagnostics").glob("SK06*.sketch"))

WASTEFUL = """sketch sums {
    symbols: M, N;
    tensors: X[M, N]: in f16; Y[M]: out f16;
    constexpr: T = 8;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        total = alloc([1], f16, init=0)
        for j in range(0, N, T):
            x = alloc([T])
            unused = alloc([T])
            part = alloc([1])
            load(X[i, j:j + T] -> x)
            load(X[i, j:j + T] -> unused)
            reduce_sum(x, axis=0, part)
            add(total, part, total)
        store(total -> Y[i])
}
"""


def findings(text: str, name: str = "a.sketch") -> list[str]:
    return [found.code for found in check_text(Source(name, text), Request()).diagnostics]


def test_a_file_is_mended_in_place_and_says_what_was_done(tmp_path, capsys):
    path = tmp_path / "sums.sketch"
    path.write_text(WASTEFUL, "utf-8")
    assert {"SK0650", "SK0651", "SK0603"} <= set(findings(WASTEFUL)), findings(WASTEFUL)
    assert run(["check", "--fix", "--unsafe-fixes", "--quiet", str(path)]) == 0
    assert "SK0651" in capsys.readouterr().err
    text = path.read_text("utf-8")
    assert not findings(text)
    assert "unused" not in text
    assert "\n\n\n" not in text
    assert all(line.strip() or not line for line in text.split("\n"))


def test_the_mended_sketch_is_more_accurate_and_otherwise_the_same(tmp_path):
    path = tmp_path / "sums.sketch"
    path.write_text(WASTEFUL, "utf-8")
    run(["check", "--fix", "--unsafe-fixes", "--quiet", str(path)])
    values = np.random.default_rng(0).uniform(0, 8, (3, 4001)).astype(np.float16)
    exact = values.astype(np.float64).sum(axis=1)

    def error(text: str) -> float:
        checked = interpret_text(text, values)
        return float(np.abs(checked - exact).max())

    assert error(path.read_text("utf-8")) <= 4.0  # half a unit of f16 at 16,000
    assert error(WASTEFUL) > 100.0


def interpret_text(text: str, values: np.ndarray) -> np.ndarray:
    from sketchc.checker.api import check

    (checked,) = check(Source("a.sketch", text)).sketches
    result = interpret(checked.sketch, {"X": values})
    return np.asarray(result.outputs["Y"], np.float64)


def test_diff_shows_and_does_not_write(tmp_path, capsys):
    path = tmp_path / "sums.sketch"
    path.write_text(WASTEFUL, "utf-8")
    assert run(["check", "--fix", "--diff", str(path)]) == 0
    assert "-            load(X[i, j:j + T] -> unused)" in capsys.readouterr().out
    assert path.read_text("utf-8") == WASTEFUL
    assert run(["check", "--diff", str(path)]) == 2


def test_warnings_can_be_left_out_and_errors_cannot(tmp_path, capsys):
    path = tmp_path / "sums.sketch"
    path.write_text(WASTEFUL, "utf-8")
    run(["check", "--quiet", "--ignore", "SK0650,SK0651", str(path)])
    shown = capsys.readouterr().out
    assert "SK0650" not in shown
    assert "SK0603" in shown
    path.write_text(WASTEFUL.replace("reduce_sum(x,", "reduce_sum(z,"), "utf-8")
    assert run(["check", "--ignore", "SK0201", str(path)]) == 1
    assert run(["check", "--ignore", "SK9999", str(path)]) == 2


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("unsafe", [False, True], ids=["safe", "unsafe"])
def test_mending_ends_without_errors_of_its_own(path, unsafe, tmp_path):
    """Nothing that would be mended is left, and no error is new."""
    copy = tmp_path / path.name
    copy.write_text(path.read_text("utf-8"), "utf-8")
    before = check_text(Source("a", path.read_text("utf-8")), Request())
    run(["check", "--fix", "--quiet", *(["--unsafe-fixes"] if unsafe else []), str(copy)])
    after = check_text(Source("a", copy.read_text("utf-8")), Request())
    left = [found.fixes[0] for found in after.diagnostics if len(found.fixes) == 1]
    assert not [fix for fix in left if fix.safe or unsafe]
    errors = [found for found in after.diagnostics if found.severity is Severity.ERROR]
    assert len(errors) <= sum(f.severity is Severity.ERROR for f in before.diagnostics)


def test_fixes_that_touch_the_same_text_wait_for_the_next_round():
    report = check_text(Source("a", WASTEFUL), Request())
    offered = [fix for found in report.diagnostics for fix in found.fixes[:1]]
    kept = compatible([*offered, *offered])
    assert list(kept) == offered


BLOCK = """sketch sums {
    symbols: M, N <= 64;
    tensors: X[M, N]: in f32; Z[M, N]: in f32; Y[M, N]: out f32;

    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N]); a = alloc([N]); b = alloc([N])  # why
        load(X[i, 0:N] -> x)
        for j in range(3):
            load(X[i, 0:N] -> a)
            load(Z[i, 0:N] -> b)
        store(x -> Y[i, 0:N])
}
"""


def test_a_block_whose_statements_all_go_keeps_one(tmp_path):
    """Each removal alone leaves the other statement; both together would leave no block."""
    path = tmp_path / "sums.sketch"
    path.write_text(BLOCK, "utf-8")
    assert run(["check", "--fix", "--quiet", str(path)]) == 0
    text = path.read_text("utf-8")
    assert "        x = alloc([N])  # why\n" in text
    assert "range(3):\n            pass\n" in text


def test_a_link_stays_one(tmp_path):
    path, link = tmp_path / "sums.sketch", tmp_path / "link.sketch"
    path.write_text(BLOCK, "utf-8")
    link.symlink_to(path)
    assert run(["check", "--fix", "--quiet", str(link)]) == 0
    assert link.is_symlink()
    assert path.read_text("utf-8") != BLOCK


@pytest.mark.parametrize(
    ("hints", "mended"),
    [
        ('["medium", "input_cache", "l1_buffer"]', '["medium", "input_cache"]'),
        ('["ub", "medium", "l1"]', '["medium"]'),
        ('["ub", "l0a"]', '["fast"]'),
        ('["accumulator", "l0c"]', '["accumulator", "fastest"]'),
    ],
)
def test_a_tile_keeps_one_memory(hints, mended, tmp_path):
    text = WASTEFUL.replace("alloc([1], f16, init=0)", f"alloc([1], f32, init=0, llm_hint={hints})")
    path = tmp_path / "a.sketch"
    path.write_text(text, "utf-8")
    assert run(["check", "--fix", "--quiet", str(path)]) == 0
    assert f"llm_hint={mended})" in path.read_text("utf-8")
    assert not findings(path.read_text("utf-8"))


def test_what_is_loaded_twice_is_copied_and_what_feeds_nothing_removed(tmp_path):
    text = WASTEFUL.replace(
        "add(total, part", "add(x, unused, unused)\n            add(total, part"
    )
    kept = text.replace("reduce_sum(x,", "add(x, unused, x)\n            reduce_sum(x,")
    path = tmp_path / "a.sketch"
    path.write_text(kept.replace("add(x, unused, unused)", "pass"), "utf-8")
    assert run(["check", "--fix", "--quiet", str(path)]) == 0
    assert "copy(x, unused)" in path.read_text("utf-8")
    path.write_text(text, "utf-8")
    assert run(["check", "--fix", "--quiet", str(path)]) == 0
    assert "unused" not in path.read_text("utf-8")
    assert set(findings(path.read_text("utf-8"))) == {"SK0651"}


INVARIANT = """sketch weighted {
    symbols: M, N, K <= 256;
    tensors: X[M, N]: in f32; W[N]: in f32; V[K]: in f32; Y[M, N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        w = alloc([1])
        @llm_hint("pipeline")
        for j in range(0, N, T):
            x = alloc([T])
            v = alloc([K], f32, llm_hint=["fast"])
            s = alloc([1])
            load(V[0:K] -> v)
            load(W[0] -> w)
            reduce_max(v, 0, s)
            load(X[i, j:j + T] -> x)
            add(x, s, x)
            add(x, w, x)
            store(x -> Y[i, j:j + T])
}
"""


def test_a_load_moves_before_its_loop_where_it_is_in_bounds_there(tmp_path):
    path = tmp_path / "a.sketch"
    path.write_text(INVARIANT, "utf-8")
    assert findings(INVARIANT) == ["SK0654", "SK0654"]
    assert run(["check", "--fix", "--quiet", str(path)]) == 0
    text = path.read_text("utf-8")
    made = '        v = alloc([K], f32, llm_hint=["fast"])\n        load(V[0:K] -> v)\n'
    assert f'{made}        @llm_hint("pipeline")\n' in text
    assert text.count("load(V") == text.count("v = alloc") == 1
    assert findings(text) == ["SK0654"]  # W[0] may not exist where the loop does not run
    assert run(["check", "--fix", "--quiet", str(path)]) == 0
    assert path.read_text("utf-8") == text
