"""Words that no name of a sketch becomes, whatever the target: words of the languages that kernels
are written in, and names that generated files need. There is one list for all targets, so that the
tensors, params and results of a kernel are called alike in every target's module. What else a
target's files need stands in its own record.
"""

from __future__ import annotations

import keyword

_CPP = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
CPP_KEYWORDS = frozenset(_CPP.split())
#: Macros, types and functions of C and C++ headers, and what compilers define.
_HEADERS = """
linux unix major minor main std size_t ssize_t NULL NAN INFINITY EOF assert errno stdin stdout
stderr int8_t int16_t int32_t int64_t uint8_t uint32_t
"""
_PYTHON = """
tl triton torch math numpy np ctypes functools range min max int float bool len abs round print
tuple list dict set str type isinstance sum any all zip map object super self _ Exception
ValueError TypeError RuntimeError
"""

RESERVED = CPP_KEYWORDS.union(_HEADERS.split(), _PYTHON.split(), keyword.kwlist, keyword.softkwlist)
