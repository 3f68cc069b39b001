"""The target `toy`: NumPy, one program after the other, without half precision and without most
operations. It shows what a target needs."""

from __future__ import annotations

from sketchc.lowering.language import Language
from sketchc.lowering.plan import Capabilities
from sketchc.lowering.target import FailureRule, Target
from sketchc.ops.table import OPS

#: What the emitter writes for each operation; `{0}` and so on are the operands.
FORMULAS = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    "div": "np.true_divide({0}, {1})", "neg": "-{0}", "copy": "{0}", "cast": "{0}",
    **{name: f"np.{name}({{0}})" for name in ("exp", "log", "sqrt", "abs", "tanh", "sin", "cos")},
    "fma": "{0} * {1} + {2}", "atan2": "np.arctan2({0}, {1})",
    "max": "np.maximum({0}, {1})", "min": "np.minimum({0}, {1})",
    "rsqrt": "1 / np.sqrt({0})", "sigmoid": "1 / (1 + np.exp(-{0}))",
    "relu": "np.maximum({0}, 0)", "gemm": "{0} @ {1}",
    **{name: f"np.{name.removeprefix('reduce_')}({{0}}, axis={{axis}})"
       for name in ("reduce_sum", "reduce_max", "reduce_min")},
}  # fmt: skip

LANGUAGE = Language("numpy", "NumPy", "Python with NumPy", (".np.py",), "numpy", "python", True)

TARGET = Target(
    Capabilities(
        name="toy",
        default_hardware="cpu",
        dtypes=frozenset({"f32", "f64", "i32", "i64", "bool"}),
        precisions=frozenset({"ieee"}),
        power_of_two_extents=False,
        symbolic_extents=True,
        persistent_grid=False,
        maximum_elements=2**30,
        ops_missing=frozenset(OPS) - frozenset(FORMULAS),
        atomics={kind: frozenset() for kind in ("add", "max", "min")},
    ),
    description="NumPy in one thread, for tests",
    language=LANGUAGE,
    coder="sketchc.lowering.toy.emit",
    hints="sketchc.lowering.toy.hints",
    abi="sketchc.lowering.python_host.abi",
    toolchain="sketchc.runtime.toolchains.toy.toolchain",
    dsl="NumPy",
    backend="toy",
    packages="numpy",
    documents="toy",
    reserved=frozenset({"np"}),
    imports=("numpy", "math"),
    failures=(FailureRule("api_misuse", ("launch",), says=r"no such ufunc"),),
)
