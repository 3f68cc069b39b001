"""Claims that hold at the defaults of params only are refuted (LANGUAGE section 6)."""

from __future__ import annotations

from itertools import product

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import CheckResult, check
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.checker.facts import other_params
from sketchc.checker.testing.settings import Setting, Settings
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse


def storing(params: str, condition: str, head: str = "", index: str = "i:i+4") -> str:
    return f"""sketch storing {{
    symbols: N;
    params: {params};
    {head}
    tensors: X[N]: in f32; Y[N]: out f32;
    @llm_hint("parallel")
    for i in range(0, N, 4):
        x = alloc([4])
        load(X[i:i+4] -> x)
        if {condition}:
            store(x -> Y[{index}])
}}
"""


def checked(text: str, shapes: dict[str, int] | None = None) -> CheckResult:
    return check(Source("test", text), shapes=shapes)


def tier(result: CheckResult, claim: str) -> ir.Tier:
    (sketch,) = result.sketches
    return next(proof.tier for proof in sketch.proofs if proof.claim == claim)


#: A subscript that proofs leave open.
ODD = "(i*i + i)//(i + 1) + iota(4)"


@pytest.mark.parametrize("index", ["i:i+4", ODD])
@pytest.mark.parametrize(
    ("params", "condition", "head"),
    [
        ("alpha: f32 = 1.0", "alpha > 0.0", ""),
        ("alpha: f16 = 1.0", "alpha < 100.0", ""),
        ("alpha: f32", "alpha != 0.0", ""),
        ("flag: bool = True", "flag", ""),
        ("flag: bool = False", "not flag", ""),
        ("k: i64 = 3", "k*k > 1", ""),
        ("k: u8 = 3", "k*k > 1", ""),
        ("k: i32 = 3", "k*k < 1000", ""),
        ("alpha: f32 = 1.0; beta: f32 = 1.0", "alpha > 0.0 or beta > 0.0", ""),
        ("alpha: f32 = 1.0", "root > 0.5", "let: root = sqrt(alpha);"),
        ("alpha: f32 = 2.0", "alpha > 0.0", "require: alpha > -2.0;"),
    ],
)
def test_other_values_of_params_are_tried(
    params: str, condition: str, head: str, index: str
) -> None:
    result = checked(storing(params, condition, head, index))
    assert "SK0510" in {diagnostic.code for diagnostic in result.diagnostics}, result


@pytest.mark.parametrize("index", ["i:i+4", ODD])
@pytest.mark.parametrize(
    ("params", "condition", "head"),
    [
        ("alpha: f32 = 1.0", "alpha > 0.0", "require: alpha > 0.0;"),
        ("flag: bool = True", "flag", "require: flag;"),
        ("k: i64", "k > 1 and k*k % 3 != 2", "require: k >= 2;"),
        ("alpha: f32 = 1.0", "root >= 0.0", "let: root = sqrt(alpha);"),
    ],
)
def test_values_that_a_launch_refuses_do_not_count(
    params: str, condition: str, head: str, index: str
) -> None:
    result = checked(storing(params, condition, head, index))
    assert result.ok, result.diagnostics
    assert tier(result, "covered") is ir.Tier.TESTED


def test_iterations_that_overlap_on_one_side_of_a_condition() -> None:
    text = storing("alpha: f32 = 1.0", "alpha < 0.0", index="0:4").replace(
        "Y[N]: out", "Y[N]: inout"
    )
    result = checked(text)
    (found,) = [d for d in result.diagnostics if d.code == "SK0520"]
    assert "alpha = -1.5" in found.label


def test_sizes_do_not_decide_what_a_param_decides() -> None:
    guarded = storing("alpha: f32 = 1.0", "alpha > 0.0", "require: alpha > 0.0;", ODD)
    assert tier(checked(guarded, {"N": 9}), "covered") is ir.Tier.TESTED
    plain = storing("alpha: f32 = 1.0", "N > 0", index=ODD)
    assert tier(checked(plain, {"N": 9}), "covered") is ir.Tier.PROVED_FOR_SHAPES


def test_other_params_are_never_the_defaults() -> None:
    text = storing("a: f32 = 0.0; b: bool = True; c: u8", "a > 0.0 or b or c > 1")
    tree, _ = parse(Source("test", text))
    assert tree is not None
    sketch, _ = elaborate(tree.sketches[0], {})
    assert sketch is not None
    found = other_params(sketch, ("a", "b"))
    assert {"a": 0.0} not in found
    assert {"b": False} in found
    assert len({tuple(sorted(some.items())) for some in found}) == len(found)
    assert other_params(sketch, ()) == ()
    assert all(some["c"] >= 0 for some in other_params(sketch, ("c",)))


def test_sizes_are_fitted_to_params() -> None:
    text = """sketch grouped {
    symbols: C, CG, O;
    params: groups: i64 = 1;
    let: OG = O//groups;
    tensors: X[C, CG, O]: in f32; Y[O]: out f32;
    require: C == CG*groups and O == OG*groups and C >= 1;
    for o in range(O):
        y = alloc([1], init=0)
        store(y -> Y[o:o+1])
}
"""
    tree, _ = parse(Source("test", text))
    assert tree is not None
    sketch, _ = elaborate(tree.sketches[0], {})
    assert sketch is not None
    settings = Settings(sketch, {})
    for sizes, groups in product(((7, 2, 7), (1, 1, 1), (5, 1, 1)), (1, 3, 4)):
        setting = settings.setting(sizes, {"groups": groups}, keep=True)
        assert setting is not None
        assert setting.params == {"groups": groups}
        symbols = setting.symbols
        assert symbols["C"] == symbols["CG"] * groups >= 1
        assert symbols["O"] % groups == 0
        assert symbols["O"] >= 1
    assert settings.setting((7, 2, 7), {"groups": 0}, keep=True) is None  # no launch accepts it
    moved = settings.setting((7, 2, 7), {"groups": 0})
    assert isinstance(moved, Setting)
    assert moved.params != {"groups": 0}


def test_settings_round_params_as_a_launch_does() -> None:
    text = """sketch rounded {
    symbols: N;
    params: h: f16 = 0.1; g: f32;
    require: h != 0.1 and g != 0.7;
    tensors: X[N]: in f32; Y[N]: out f32;
    for i in range(N):
        x = alloc([1])
        load(X[i] -> x)
        store(x -> Y[i])
}
"""
    tree, _ = parse(Source("test", text))
    assert tree is not None
    sketch, _ = elaborate(tree.sketches[0], {})
    assert sketch is not None
    setting = Settings(sketch, {"g": 0.7}).setting((3,), keep=True)
    assert setting is not None
    assert setting.symbols == {"N": 3}
