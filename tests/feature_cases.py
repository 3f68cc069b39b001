"""The cases of tests/e2e/features: at which sizes each sketch runs, and on what inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

Sizes = dict[str, int]


@attrs.frozen
class Feature:
    """How a sketch is run: `sizes` of its symbols, its params, and what its inputs hold.

    `hold` names kinds of values for tensors: "special" has NaN, infinities and zeros of both signs,
    "wide" integers beyond 32 bits, "nonzero" integers that can divide, "moderate" floats within
    [-4, 4], "halves" multiples of 1/4, "tails" what rounding and saturation change, "positive"
    floats above 1/2, "tenths" 0.1 and its neighbours, "signs" -2, -1 and 1, "below M" indices of an
    axis of M elements, "up to M" counts of them, "few" 0 to 3, "permutation" each number below the
    size once. Optional tensors
    are present in some runs and absent in others. `terms` is the length of the longest sum,
    `factor` the error allowed in units of rounding times its square root; `loose` multiplies it for
    outputs of less precision than their type.
    """

    sizes: list[Sizes]
    params: Mapping[str, Any] = attrs.field(factory=dict)
    hold: Mapping[str, str] = attrs.field(factory=dict)
    terms: int = 1
    factor: float = 4.0
    loose: Mapping[str, float] = attrs.field(factory=dict)


def on(*sizes: str) -> list[Sizes]:
    """`on("M=1 N=17", ...)`."""
    return [
        {name: int(value) for name, value in (part.split("=") for part in text.split())}
        for text in sizes
    ]


PLAIN = on("M=1 N=1", "M=5 N=17", "M=3 N=0")
LINE = on("N=1", "N=31", "N=0")
PRODUCT = on("M=1 N=1 K=1", "M=17 N=33 K=19", "M=5 N=31 K=0")
CUBE = on("B=1 M=1 N=1", "B=3 M=7 N=17", "B=2 M=5 N=0")

CASES: dict[str, Feature] = {
    "accumulators": Feature([*CUBE, *on("B=2 M=0 N=9")], terms=256),
    "aliasing": Feature(PLAIN),
    "atomic_max": Feature(PLAIN, hold={"I": "below M"}),
    "awkward_names": Feature(
        on("lambda=1 int=1", "lambda=5 int=17", "lambda=3 int=0"), {"float": 0.75}
    ),
    "between_levels": Feature(PLAIN),
    "bool_tensors": Feature(LINE),
    "bool_tiles": Feature(PLAIN),
    "branches": Feature(PLAIN, {"mode": 1}, terms=64),
    "broadcasting": Feature(PLAIN),
    "carried_workspaces": Feature(on("S=1 D=1", "S=5 D=17", "S=0 D=3", "S=2 D=0"), terms=8),
    "casts": Feature(LINE, hold={"F32": "tails"}, factor=0.0),
    "casts_double": Feature(LINE, hold={"F64": "tails", "I64": "wide"}, factor=0.0),
    "causal_bounds": Feature(on("M=1", "M=19", "M=0"), terms=64),
    "constants_as_data": Feature(LINE, {"eps": 1e-3}),
    "doubles": Feature(PLAIN, {"c": 1.0 / 3.0}),
    "expressions_of_data": Feature(
        PLAIN, {"gain": 0.5, "zero": 3}, hold={"D": "moderate"}, terms=17
    ),
    "fetch_bound": Feature(PLAIN, hold={"LENGTH": "up to N"}, terms=64),
    "flat_views": Feature(CUBE),
    "float_scalars": Feature(PLAIN, {"gain": 2.5}, hold={"X": "positive"}, factor=64.0),
    "function_names": Feature(PLAIN, hold={"X": "moderate", "truncate": "moderate"}, factor=16.0),
    "function_params": Feature(
        PLAIN, {"tanh": 0.5, "sigmoid": 3, "expm1": True}, hold={"X": "moderate"}, factor=16.0
    ),
    "gather_lane_form": Feature(
        on("M=1 N=1 K=1", "M=5 N=11 K=37", "M=2 N=3 K=0"), hold={"I": "below M", "J": "below N"}
    ),
    "gemm_double": Feature(PRODUCT, terms=19),
    "gemm_half": Feature(PRODUCT),
    "gemm_precision": Feature(PRODUCT, terms=19, loose={"FAST": 2.0**13}),
    "gemm_transposed": Feature(PRODUCT, terms=19),
    "half_types": Feature(on("M=1 N=1", "M=5 N=101", "M=3 N=0"), hold={"X": "moderate"}),
    "hints": Feature(PLAIN),
    "histogram": Feature(on("N=1 B=1", "N=67 B=5", "N=0 B=3")),
    "host_if": Feature(PLAIN, {"doubled": True}, hold={"ROUNDS": "few"}, terms=16),
    "host_loop": Feature(PLAIN, {"steps": 3}, terms=16),
    "indexed_by_param": Feature(on("M=3 N=1", "M=7 N=17", "M=3 N=0"), {"row": 2}),
    "initial_values": Feature(PLAIN),
    "inner_parallel": Feature(CUBE),
    "inout": Feature(PLAIN),
    "integer_axes": Feature(
        on("M=1 N=1", "M=5 N=31", "M=0 N=3", "M=3 N=0"), hold={"A": "signs", "L": "wide"}
    ),
    "integers": Feature(
        on("M=1 N=1", "M=5 N=37", "M=3 N=0"), hold={"A": "nonzero", "B": "nonzero", "L": "wide"}
    ),
    "lets": Feature(on("C=1 H=1 W=1", "C=3 H=7 W=17", "C=0 H=2 W=3"), {"gain": 0.5}),
    "loop_ranges": Feature(on("K=1 N=1", "K=7 N=17", "K=0 N=5")),
    "masked_select": Feature(PLAIN, hold={"POSITION": "permutation"}),
    "masked_updates": Feature(PLAIN),
    "matmul_and_dot": Feature(PRODUCT, terms=19),
    "mixed_access": Feature(
        on("M=1 N=1 K=1", "M=5 N=19 K=11", "M=3 N=2 K=0"), hold={"I": "below M", "Q": "below N"}
    ),
    "mixed_phases": Feature(PLAIN),
    "moving_indices": Feature(
        on("M=1 N=1", "M=7 N=37", "M=5 N=0"), {"K": 3}, hold={"I": "below M"}
    ),
    "negative_constants": Feature(on("N=1", "N=13", "N=18", "N=0")),
    "negative_step_loop": Feature(on("K=1 N=1", "K=7 N=17", "K=0 N=5"), terms=16),
    "nested_loops": Feature(
        on("C=1 H=1 W=1 O=1 KH=1 KW=1", "C=3 H=5 W=11 O=2 KH=2 KW=3", "C=0 H=3 W=9 O=2 KH=1 KW=1")
    ),
    "non_separable_load": Feature(
        on("C=1 H=2 W=1 O=1", "C=3 H=7 W=5 O=6", "C=0 H=3 W=3 O=2"), {"P": 1}, terms=64
    ),
    "optional_sizes": Feature(
        on(
            "M=1 N=1 E=1 R=0",
            "M=5 N=17 E=3 R=2",
            "M=3 N=9 E=7 R=1",
            "M=4 N=8 E=0 R=3",
            "M=2 N=0 E=2 R=1",
        )
    ),
    "optional_bias": Feature([*PLAIN, *on("M=3 N=9", "M=6 N=16")]),
    "padded_slices": Feature(PLAIN, terms=4),
    "params": Feature(LINE, {"scale": 0.3, "negate": True}),
    "positions": Feature(PLAIN),
    "predicates": Feature(PLAIN, {"window": 3}),
    "rank0_output": Feature(LINE, terms=64),
    "reduce_bools": Feature(PLAIN),
    "reduce_nan": Feature(on("M=1 N=1", "M=11 N=17", "M=3 N=0"), hold={"X": "special"}),
    "reductions": Feature([*CUBE, *on("B=2 M=0 N=5")], terms=512),
    "repeated_axes": Feature(on("M=1 N=1", "M=5 N=17", "M=3 N=0")),
    "requires": Feature(on("M=1 N=2", "M=5 N=18", "M=3 N=0"), {"groups": 3}),
    "reversed_slices": Feature(PLAIN),
    "scalar_subscripts": Feature(on("B=1 M=1 N=1", "B=3 M=7 N=5", "B=0 M=1 N=1")),
    "scan_by_hand": Feature(on("K=1 N=1", "K=7 N=17", "K=0 N=5")),
    "scatter_add": Feature(
        on("M=1 N=1 K=1", "M=5 N=19 K=21", "M=3 N=2 K=0"), hold={"I": "below M"}, terms=64
    ),
    "scatter_unique": Feature(
        on("M=1 N=1", "M=5 N=17", "M=3 N=2"), hold={"P": "permutation", "Q": "permutation"}
    ),
    "several_outputs": Feature(PLAIN, terms=64),
    "small_gemm": Feature(on("N=1 K=1", "N=7 K=13", "N=5 K=0")),
    "small_integers": Feature(PLAIN),
    "strided_slices": Feature(on("M=1 N=1", "M=5 N=37", "M=3 N=2"), {"S": 3}),
    "three_phases": Feature(on("M=1 N=1", "M=5 N=17", "M=3 N=0")),
    "transposes": Feature(CUBE),
    "triangular": Feature(on("M=1", "M=19", "M=0")),
    "tuning_points": Feature(PLAIN),
    "two_axes_at_once": Feature(
        on("B=1 C=1 H=1 W=1", "B=2 C=5 H=7 W=17", "B=2 C=3 H=0 W=5"), terms=256
    ),
    "two_phase_sum": Feature(on("N=1", "N=131", "N=0"), terms=256),
    "typed_params": Feature(
        on("M=1 N=1", "M=37 N=17", "M=3 N=0"), hold={"V": "tenths", "H": "tenths"}
    ),
    "unbounded_rows": Feature(PLAIN, {"eps": 1e-3}, hold={"X": "moderate"}),
    "updated_in_loops": Feature(on("M=1 N=1 R=1", "M=3 N=17 R=5", "M=2 N=31 R=0", "M=2 N=0 R=3")),
    "where_load": Feature(PLAIN, {"first": 2}, terms=64),
    "where_store": Feature(PLAIN, {"last": 5}),
    "whole_number_rounding": Feature(LINE, hold={"X": "halves"}),
    "new_axes": Feature(
        on("M=1 N=1", "M=0 N=5", "M=16 N=16", "M=17 N=13", "M=37 N=15"),
        hold={"X": "moderate", "R": "moderate", "S": "moderate"},
        terms=16,
    ),
    "odd_extents": Feature(on("M=1 N=1", "M=11 N=15", "M=3 N=0"), hold={"I": "below M"}),
    "index_floors": Feature(on("N=1", "N=5", "N=37"), hold={"I": "wide"}),
    "lanes_of_rank_two": Feature(
        on("M=1 N=1 K=1", "M=5 N=9 K=19", "M=2 N=3 K=0"), hold={"I": "below M", "J": "below M"}
    ),
    "loads_into_initialised": Feature(on("M=1 N=1", "M=5 N=19", "M=3 N=0"), hold={"I": "below N"}),
    "one_lane_accesses": Feature(on("M=1 N=1", "M=7 N=5"), hold={"I": "below N"}),
    "atomic_kinds": Feature(
        on("M=1 N=1", "M=5 N=19", "M=3 N=0"),
        hold={"I": "below M", "X": "special", "U": "special", "V": "special"},
    ),
    "atomic_unsigned": Feature(on("M=1 N=1", "M=5 N=19", "M=3 N=0"), hold={"I": "below M"}),
    "nested_branches": Feature(on("M=1 N=1", "M=5 N=37", "M=3 N=0", "M=6 N=33"), terms=64),
    "triangular_grids": Feature(on("N=1", "N=13", "N=19", "N=0")),
    "fetched_scalars": Feature(on("M=1 N=1", "M=5 N=17", "M=3 N=0"), hold={"I": "below M"}),
    "symbols_from_shapes": Feature(
        on("N=1 P=1 K=1", "N=17 P=11 K=3", "N=0 P=5 K=1", "N=3 P=0 K=4", "N=2 P=1 K=0"), terms=8
    ),
    "strides_and_views": Feature(on("M=1 N=1", "M=5 N=19", "M=7 N=4", "M=3 N=0")),
    "implicit_convolution": Feature(on("N=1 K=1", "N=5 K=3", "N=7 K=2"), terms=64),
    "store_then_gather": Feature(on("M=1 N=1", "M=5 N=19", "M=3 N=0"), hold={"I": "permutation"}),
    "host_steps": Feature(on("N=1", "N=5", "N=37"), hold={"R": "few", "K": "wide"}),
    "axes_of_one": Feature(PLAIN),
    "padded_sums": Feature(PRODUCT, terms=64),
    "empty_slices": Feature(on("M=1 N=1", "M=9 N=5", "M=5 N=20", "M=3 N=0"), {"last": 7}, terms=64),
    "chosen_integers": Feature(
        on("M=1 N=1", "M=5 N=17", "M=7 N=8"), {"mode": 2, "cut": 0.25}, hold={"I": "wide"}
    ),
    "scalar_arguments": Feature(PLAIN, hold={"X": "moderate"}, terms=16, factor=16.0),
    "heads": Feature(
        on("N=1 D=1 H=1 R=1", "N=9 D=15 H=3 R=5", "N=5 D=24 H=1 R=13"), hold={"AT": "below R"}
    ),
    "compared_tiles": Feature(PLAIN, {"eps": 0.125}, hold={"X": "special"}),
    "stored_values": Feature(on("M=1 N=1", "M=5 N=17", "M=7 N=8"), hold={"I": "below M"}, terms=64),
}
