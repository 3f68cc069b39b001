"""Identifiers in generated C++: a sketch's names, kept unless C++ or the C library owns them."""

from __future__ import annotations

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""

#: Macros and types that the generated file includes, and its own namespaces and locals.
_INCLUDED = """
INFINITY NAN HUGE_VAL INT64_C UINT64_C EOF NULL assert errno signbit isnan isinf isfinite int8_t
int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t std sketch linux unix
SKETCH_VECTORS thread_arena threads status grid
"""

RESERVED = frozenset(f"{_KEYWORDS} {_INCLUDED}".split())

#: Functions of the C library that an `extern "C"` entry point must not redefine.
_LIBRARY_NAMES = """
main abs acos asin atan atan2 cbrt ceil copysign cos cosh div erf erfc exp exp2 expm1 exit fabs
fdim floor fma fmax fmin fmod free frexp gamma hypot index j0 j1 jn ldexp lgamma log log10 log1p
log2 logb lrint malloc modf nearbyint pow printf puts rand read remainder remove rename rint round
scalb signal sin sinh sleep sort sqrt strlen system tan tanh tgamma time trunc wait write y0 y1 yn
"""
_LIBRARY = frozenset(_LIBRARY_NAMES.split())


def identifier(name: str) -> str:
    """`name`, or `name_` where C++ has another use for it."""
    return f"{name}_" if name in RESERVED else name


def entry_name(sketch: str) -> str:
    """The exported function's name: the sketch's, unless the C library has a function so named."""
    return f"{sketch}_sketch" if sketch in _LIBRARY or sketch in RESERVED else sketch
