"""The target `cpp`: C++17 for CPUs, and the rules for C++ kernels by others."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.lowering.language import CPP
from sketchc.lowering.plan import Capabilities, LoopStyle
from sketchc.lowering.target import FailureRule, Target

#: Names of a generated function beside those of the sketch.
RESERVED = ("arena", "workspace", "threads")

#: Bytes of a storage on the stack, and of all of a program; threads have stacks of some megabytes.
_STACK_BYTES, _PROGRAM_BYTES = 4096, 1 << 20

CAPABILITIES = Capabilities(
    name="cpp",
    default_hardware="cpu",
    dtypes=frozenset(dtype.value for dtype in DType),
    precisions=frozenset({"ieee", "tf32", "tf32x3"}),
    power_of_two_extents=False,
    symbolic_extents=True,
    persistent_grid=False,
    maximum_elements=2**40,
    loops=LoopStyle("stack", _STACK_BYTES, _PROGRAM_BYTES, on_cores=True, names=RESERVED),
    trusted_below=1.0,
)

#: Headers that a C++ kernel may include.
_HEADERS = (
    *("algorithm", "array", "atomic", "bit", "cassert", "cfloat", "cinttypes", "climits"),
    *("cmath", "complex", "cstddef", "cstdint", "cstdlib", "cstring", "functional"),
    *("initializer_list", "limits", "memory", "new", "numeric", "optional", "tuple"),
    *("type_traits", "utility", "vector", "omp.h", "immintrin.h", "x86intrin.h", "arm_neon.h"),
    *("float.h", "limits.h", "math.h", "stdbool.h", "stddef.h", "stdint.h", "stdlib.h"),
    *("string.h", "stdalign.h", "iterator", "numbers", "valarray", "xmmintrin.h"),
    *("emmintrin.h", "pmmintrin.h", "smmintrin.h", "tmmintrin.h", "nmmintrin.h", "malloc.h"),
)
#: Further headers that are accepted in a kernel; authors are not told of them.
_MORE_HEADERS = frozenset(
    {
        *("cstdio", "stdio.h", "string", "map", "unordered_map", "exception", "stdexcept"),
        *("thread", "mutex", "condition_variable", "chrono", "random", "deque"),
    }
)

#: g++, which names no codes: what its parser says, and what its name look-up says.
_SYNTAX = (
    r"error: (expected |stray |missing terminating|unterminated|invalid preprocessing|extraneous|"
    r"'else' without|invalid suffix|too many decimal points|[^\n]*before '[^']*' token|"
    r"a function-definition is not allowed here|[^\n]* at end of input)"
)
_MISUSE = (
    r"was not declared|has not been declared|is not a member of|has no member named|"
    r"does not name a type|is not a (class|namespace|template|type)|no matching function|"
    r"too (many|few) (template )?arguments|wrong number of template arguments|"
    r"cannot convert|invalid conversion|could not convert|no match for|"
    r"invalid operands|invalid types|not declared in this scope|No such file or directory|"
    r"request for member|is not captured|undefined symbol|undefined reference|"
    r"there are no arguments to|"
    r"cannot be used as a function|no type named|has incomplete type|"
    r"call of overloaded|invalid use of|target specific option mismatch|is not valid for|"
    r"invalid (controlling|increment|form of) "
)
#: What gcc's driver says of a part of it that somebody killed: tools have no bound of their own at
#: which they are killed.
_KILLED = r"Killed signal terminated program"

TARGET = Target(
    CAPABILITIES,
    description="C++17 with OpenMP and SIMD, for x86-64 and other CPUs",
    language=CPP,
    coder="sketchc.lowering.cpp.emit",
    hints="sketchc.lowering.cpp.hints",
    abi="sketchc.lowering.c_source.abi",
    toolchain="sketchc.runtime.toolchains.cpp.toolchain",
    dsl="C++",
    device="cpu",
    backend="cpu",
    packages="nanobind",
    extras=(("nanobind", "cpp"),),
    documents="cpp",
    imports=_HEADERS,
    tolerated=_MORE_HEADERS,
    failures=(
        FailureRule("infrastructure", ("compile",), says=_KILLED, where="log"),
        FailureRule("syntax", ("compile",), says=_SYNTAX),
        FailureRule("api_misuse", ("compile", "launch"), says=_MISUSE),
    ),
)
