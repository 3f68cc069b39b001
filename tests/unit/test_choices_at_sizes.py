"""What `--symbols` chooses for Triton kernels: legal, within the sketch's sets, always the same,
never predicted to be slower than what is chosen without sizes; and what products may take."""

from __future__ import annotations

from pathlib import Path

import pytest
from triton_cases import example

from sketchc.base.diagnostics import Source, UsageError
from sketchc.lowering.cost.predict import predict, sized_values
from sketchc.lowering.crowding import crowding
from sketchc.lowering.launches import product_options, stages_fit, warps_of
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan, has_product
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Examples with products and without, with sets, listed points and blocks of the plan's own, each
#: at sizes that fill a chip, at sizes of one, and at primes.
SIZES: dict[str, list[dict[str, int]]] = {
    "causal_attention": [
        {"B": 2, "HQ": 16, "HK": 16, "M": 1024, "N": 1024, "D": 64},
        {"B": 1, "HQ": 1, "HK": 1, "M": 1, "N": 7, "D": 128},
    ],
    "conv2d": [
        {"N": 32, "C": 64, "H": 56, "W": 56, "O": 128, "CG": 64, "KH": 3, "KW": 3},
        {"N": 1, "C": 1, "H": 7, "W": 11, "O": 1, "CG": 1, "KH": 1, "KW": 1},
    ],
    "depthwise_conv2d": [{"N": 8, "C": 64, "H": 128, "W": 512, "KH": 3, "KW": 3}],
    "matmul": [{"M": 2048, "N": 2048, "K": 2048}, {"M": 1, "N": 4099, "K": 13}],
    "matmul_half": [{"M": 4096, "N": 4096, "K": 4096}, {"M": 31, "N": 1, "K": 8191}],
    "max_pool2d": [{"N": 32, "C": 64, "H": 112, "W": 112}, {"N": 1, "C": 1, "H": 2, "W": 2}],
    "online_softmax": [{"M": 2048, "N": 32768}, {"M": 1, "N": 1}],
    "rms": [{"B": 16, "F": 64, "D1": 256, "D2": 256}, {"B": 1, "F": 3, "D1": 5, "D2": 1}],
    "softmax": [{"M": 16384, "N": 4096}, {"M": 1, "N": 1}],
    "split_k_matmul": [{"M": 256, "N": 256, "K": 32768}],
}
CASES = [(name, sizes) for name, several in SIZES.items() for sizes in several]


def planned(text: str, sizes: dict[str, int] | None, **constants: int) -> Plan:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    return build_plan(tree.entries[0], "triton_cuda", constants=constants, sizes=sizes).plan


def chosen(plan: Plan) -> dict[str, int]:
    return {c.name: int(c.value) for c in plan.sketch.constants} | dict(plan.options)


def without_sets(text: str, *names: str) -> str:
    for name in names:
        head, _, rest = text.partition(f"{name} in [")
        assert rest
        text = f"{head}{name}{rest.partition(']')[2]}"
    return text


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_a_choice_is_legal_and_no_slower_by_the_model(name: str, sizes: dict[str, int]) -> None:
    plan, default = planned(example(name), sizes), planned(example(name), None)
    values = sized_values(plan.sketch, sizes)
    for constant in plan.sketch.constants:
        assert not constant.choices or constant.value in constant.choices
    for use in (use for phase in plan.phases for use in phase.memory_use):
        assert use.bytes <= use.capacity
    for phase in plan.phases:
        assert stages_fit(plan, phase)
        warps = warps_of(plan, phase, values)
        assert warps is not None
        assert crowding(plan, phase.body, values, warps) == 0
    times = [predict(p, sized_values(p.sketch, sizes)).seconds for p in (plan, default)]
    usual = sized_values(default.sketch, sizes)
    crowded = any(
        crowding(default, phase.body, usual, warps_of(default, phase, usual) or 1) > 0
        for phase in default.phases
    )
    assert crowded or times[0] <= times[1] * 1.001


@pytest.mark.parametrize("name", ["conv2d", "matmul_half", "rms"])
def test_a_choice_is_always_the_same(name: str) -> None:
    found = [chosen(planned(example(name), SIZES[name][0])) for _ in range(2)]
    assert found[0] == found[1]
    assert "at these sizes" in " ".join(planned(example(name), SIZES[name][0]).notes)


def test_sizes_decide_on_launches_where_no_constant_is_open() -> None:
    found = [
        planned(example("group_norm"), {"N": n, "C": 256, "H": 64, "W": 64}, T=1024).options
        for n in (1, 4096)
    ]
    assert found[0] != found[1]


@pytest.mark.parametrize("groups", [1, 4, 32])
def test_params_count_as_sizes_do(groups: int) -> None:
    sizes = {"N": 64, "C": 128, "H": 112, "W": 113}
    text = example("group_norm")
    default = text.replace("groups: i64 = 1", f"groups: i64 = {groups}")
    assert groups == 1 or default != text
    assert chosen(planned(text, {**sizes, "groups": groups})) == chosen(planned(default, sizes))


def test_listed_points_are_taken_as_they_are() -> None:
    points = [{"TM": 64, "TN": 64, "TK": 32}, {"TM": 32, "TN": 32, "TK": 32}]
    points += [{"TM": 128, "TN": columns, "TK": 64} for columns in (64, 256)]
    taken = []
    for sizes in ({"M": 4096, "N": 4096, "K": 4096}, {"M": 64, "N": 64, "K": 4096}):
        found = chosen(planned(example("matmul_half"), sizes))
        taken.append({name: found[name] for name in ("TM", "TN", "TK")})
        assert taken[-1] in points
        assert "num_stages" not in found  # the sketch says how many
    assert taken[0] == points[3]


LISTED = """sketch f {
    symbols: M, N;
    params: P: f32 = 2.0;
    constexpr: class, TN = 64;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;

    for i in range(ceil(M, class)):
        for j in range(ceil(N, TN)):
            x = alloc([class, TN])
            load(X[i*class:(i+1)*class, j*TN:(j+1)*TN] -> x)
            mul(x, P, x)
            store(x -> Y[i*class:(i+1)*class, j*TN:(j+1)*TN])
}
available_tiling:
    class = 1, TN = 8
    class = 32, TN = 64
"""


def test_listed_points_may_name_reserved_words() -> None:
    """Which code spells in another way."""
    assert chosen(planned(LISTED, {"M": 8192, "N": 8192})) == {"class_": 32, "TN": 64}


def test_points_that_name_a_param_are_not_chosen() -> None:
    """Sizes decide on how fast results are there, not on which these are."""
    text = LISTED.replace("class = 32, TN = 64", "class = 32, TN = 64, P = 3.0")
    assert chosen(planned(text, {"M": 8192, "N": 8192}))["class_"] == 1


def test_what_is_set_stays() -> None:
    sizes = SIZES["conv2d"][0]
    plan = planned(example("conv2d"), sizes, TK=32, num_warps=8)
    assert chosen(plan)["TK"] == 32
    assert plan.options["num_warps"] == 8
    half = planned(example("matmul_half"), SIZES["matmul_half"][0], TM=32)
    assert [chosen(half)[name] for name in ("TM", "TK")] == [32, 32]


def test_without_a_set_any_size_may_be_chosen() -> None:
    text = without_sets(example("max_pool2d"), "TH", "TW")
    found = {tuple(chosen(planned(text, sizes)).items()) for sizes in SIZES["max_pool2d"]}
    assert len(found) == 2


def test_what_cannot_be_proved_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what the model would choose does not plan, the choice without sizes stands."""
    from sketchc.lowering.passes import descent

    def too_large(self: descent.Descent, choice: descent.Choice) -> descent.Choice:
        return dict.fromkeys(choice, 4096)

    monkeypatch.setattr(descent.Descent, "from_point", too_large)
    text = without_sets(example("sum_middle"), "TM", "TN")
    sizes = {"B": 3, "M": 5, "N": 7}
    assert chosen(planned(text, sizes)) == chosen(planned(text, None))


#: A sum of rows, whose axis D nothing crosses.
ROWS = """sketch rows {
    symbols: B, P, D;
    tensors: X[B, P, D]: in f32; Y[B, D]: out f32;
    @llm_hint("parallel", "grididx")
    for b in range(B):
        total = alloc([D], f32, init=0)
        for p in range(P):
            x = alloc([D])
            load(X[b, p, 0:D] -> x)
            add(total, x, total)
        store(total -> Y[b, 0:D])
}"""


@pytest.mark.parametrize("depth", [1, 64, 65, 127, 128, 256])
def test_a_block_is_no_longer_than_the_axis_needs(depth: int) -> None:
    """The launch has no product, and its block of D no other reason to be short."""
    sizes = {"B": 16, "P": 16, "D": depth}
    assert chosen(planned(ROWS, sizes))["D_BLOCK"] < 2 * depth


@pytest.mark.parametrize("rows", [1, 2, 7, 16])
def test_few_rows_of_a_product_get_few_rows_of_a_block(rows: int) -> None:
    """Blocks of the sketch's sets, the usual choice from which is one for many rows."""
    text = (EXAMPLES.parent / "benchmarks" / "decoder" / "swiglu.sketch").read_text()
    head, _, rest = text.partition("constexpr: ")
    sets = "TM in [16, 32, 64, 128], TN in [16, 32, 64, 128], TK in [32, 64, 128, 256]"
    text = f"{head}constexpr: {sets};{rest.partition(';')[2]}"
    sizes = {"M": rows, "N": 4096, "K": 2048}
    assert chosen(planned(text, None))["TM"] == 128
    assert chosen(planned(text, sizes))["TM"] == 16


def test_sizes_of_no_symbol_are_refused() -> None:
    with pytest.raises(UsageError, match="Q"):
        planned(example("matmul"), {"Q": 3})


def test_only_what_has_been_compared_chooses() -> None:
    """The same sketch on the same chip, by a target whose times were not compared."""
    compared = {
        name: load_target(name).capabilities.trusted_below is not None
        for name in ("cpp", "triton_cuda", "cuda_c", "tilelang_cuda", "triton_ascend")
    }
    assert compared == dict.fromkeys(compared, False) | {"cpp": True, "triton_cuda": True}
    tree, _ = parse(Source("test.sketch", example("sum_middle")))
    assert tree is not None
    for target in ("cuda_c", "triton_ascend"):
        found = [build_plan(tree.entries[0], target, sizes=s).plan for s in (None, {"M": 1})]
        assert chosen(found[0]) == chosen(found[1])


# ---------------------------------------------------------------- registers of products


def product(m: int, n: int, k: int, more: str, dtype: str = "f32") -> Plan:
    text = f"""sketch f {{
    symbols: M, N, K;
    tensors: A[M, K]: in {dtype}; B[{"N, K" if "trans_b" in more else "K, N"}]: in {dtype};
    tensors: C[M, N]: out f32;
    for i in range(ceil(M, {m})):
        for j in range(ceil(N, {n})):
            c = alloc([{m}, {n}], f32, init=0)
            for k in range(ceil(K, {k})):
                a = alloc([{m}, {k}])
                b = alloc([{f"{n}, {k}" if "trans_b" in more else f"{k}, {n}"}])
                load(A[i*{m}:(i+1)*{m}, k*{k}:(k+1)*{k}] -> a)
                load(B[{
        f"j*{n}:(j+1)*{n}, k*{k}:(k+1)*{k}"
        if "trans_b" in more
        else f"k*{k}:(k+1)*{k}, j*{n}:(j+1)*{n}"
    }] -> b)
                gemm(a, b, c{more})
            store(c -> C[i*{m}:(i+1)*{m}, j*{n}:(j+1)*{n}])
}}"""
    return planned(text, None)


def need(plan: Plan, warps: int) -> float:
    values = sized_values(plan.sketch, {})
    return crowding(plan, plan.phases[0].body, values, warps)


def test_an_operand_that_is_read_across_its_rows_takes_more_registers() -> None:
    plain, across = product(64, 64, 64, ""), product(64, 64, 64, ", trans_b=True")
    assert need(plain, 4) == 0
    assert need(across, 4) > 0
    assert need(across, 8) == 0
    assert [product_options(p, p.phases[0])["num_warps"] for p in (plain, across)] == [4, 8]


def test_matrix_units_read_their_own_operands() -> None:
    for more in (', precision="tf32"', ', precision="tf32", trans_b=True'):
        assert need(product(64, 64, 128, more), 4) == 0
    assert need(product(64, 64, 128, ", trans_b=True", "f16"), 4) == 0
    assert need(product(256, 256, 16, "", "f16"), 8) > 0  # accumulators are registers all the same


@pytest.mark.parametrize("depth", [16, 32, 64])
def test_more_threads_never_need_more_each(depth: int) -> None:
    plan = product(128, 64, depth, ", trans_b=True")
    found = [need(plan, warps) for warps in (1, 2, 4, 8, 16)]
    assert found == sorted(found, reverse=True)
    assert need(plan, 4) <= need(product(128, 64, 2 * depth, ", trans_b=True"), 4)


def test_no_example_is_planned_with_more_than_its_registers() -> None:
    for path in sorted(EXAMPLES.glob("*.sketch")):
        tree, _ = parse(Source(path.name, path.read_text("utf-8")))
        assert tree is not None
        plan = build_plan(tree.entries[0], "triton_cuda").plan
        values = sized_values(plan.sketch, {})
        for phase in plan.phases:
            if has_product(phase.body):
                warps = product_options(plan, phase)["num_warps"]
                assert crowding(plan, phase.body, values, warps) < 1, path.stem
