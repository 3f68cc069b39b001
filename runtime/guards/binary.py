"""Inspection of compiled libraries: the symbols that they import, and what runs on loading.

Source text can be spelled in many ways; the symbols that a library imports cannot. `inspect_elf`
reads the undefined symbols, the needed libraries and the constructors of an ELF file; `refusal`
says which of them no kernel needs. Needs only the standard library, so that worker processes can
check before they load anything. A library can still make system calls with instructions of its own,
which no symbol table shows.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from pathlib import Path

import attrs

_MAGIC = b"\x7fELF"
_DYNAMIC, _DYNSYM = 6, 11
_DT_NEEDED, _DT_INIT_ARRAY_SIZE, _DT_PREINIT_ARRAY_SIZE = 1, 27, 33
_POINTER = 8
_UNDEFINED = 0

#: Functions of libc that kernels may need: memory, text of numbers, sorting, errors, threads.
_LIBC = frozenset(
    {
        *("malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign", "memalign"),
        *("valloc", "reallocarray", "malloc_usable_size"),
        *("memcpy", "memmove", "memset", "memcmp", "memchr", "memrchr", "mempcpy", "bcmp"),
        *("strlen", "strnlen", "strcmp", "strncmp", "strcpy", "strncpy", "strcat", "strchr"),
        *("strrchr", "strstr", "strtol", "strtoll", "strtoul", "strtoull", "strtod", "strtof"),
        *("atoi", "atol", "atof", "qsort", "bsearch", "rand", "srand", "rand_r", "random"),
        *("abort", "exit", "_exit", "_Exit", "quick_exit", "abs", "labs", "llabs", "div", "ldiv"),
        *("printf", "fprintf", "sprintf", "snprintf", "vsnprintf", "vfprintf", "puts", "fputs"),
        *("putchar", "fputc", "putc", "fwrite", "fflush", "perror", "stdout", "stderr", "stdin"),
        *("clock", "clock_gettime", "time", "gettimeofday", "sched_yield", "sysconf"),
        *("sched_getcpu", "get_nprocs", "errno", "isnan", "isinf", "finite", "strerror"),
        *("pthread_mutex_lock", "pthread_mutex_unlock", "pthread_once", "pthread_key_create"),
        *("pthread_getspecific", "pthread_setspecific", "pthread_self", "pthread_create"),
        *("pthread_join", "pthread_cond_wait", "pthread_cond_signal", "pthread_cond_broadcast"),
        *("pthread_mutex_init", "pthread_mutex_destroy", "pthread_cond_destroy", "pthread_detach"),
        *("pthread_cond_init", "pthread_rwlock_rdlock", "pthread_rwlock_wrlock"),
        *("pthread_rwlock_unlock", "wmemset", "towupper", "isalpha", "isdigit", "isspace"),
        *("toupper", "tolower", "_Unwind_Resume", "_Unwind_RaiseException", "dl_iterate_phdr"),
    }
)
#: C's mathematics, with the endings of its float and long double variants.
_MATHS = (
    r"(acos|asin|atan|atan2|cos|sin|tan|sincos|acosh|asinh|atanh|cosh|sinh|tanh|exp|exp2|exp10|"
    r"expm1|frexp|ilogb|ldexp|log|log10|log1p|log2|logb|modf|scalbn|scalbln|cbrt|fabs|hypot|pow|"
    r"sqrt|erf|erfc|lgamma|tgamma|ceil|floor|nearbyint|rint|lrint|llrint|round|roundeven|lround|"
    r"llround|trunc|fmod|remainder|remquo|copysign|nan|nextafter|nexttoward|fdim|fmax|fmin|fma|"
    r"j0|j1|jn|y0|y1|yn|feclearexcept|feraiseexcept|fetestexcept|fegetround|fesetround|fegetenv|"
    r"fesetenv|feholdexcept|feupdateenv|c?abs|cexp|clog|csqrt|cpow|c?real|c?imag|carg|conj)"
)
_ALLOWED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_MATHS}[fl]?",
        rf"__{_MATHS}[fl]?_finite|__(isnan|isinf|fpclassify|signbit|finite)[fl]?",
        r"_ZGV[a-zA-Z]\w*",  # libmvec
        r"(omp|GOMP|kmpc|__kmpc|GOACC)_\w+",
        r"__cxa_\w+|__gxx_personality_v0|__dynamic_cast|__cxx_\w+|_Unwind_\w+",
        r"_Z\w*(St|S[aosibd]|__gnu_cxx|__cxxabiv1)\w*",  # the standard library
        r"_Z(nwm|nam|dlPv|daPv)\w*",  # new and delete
        r"__(gmon_start__|tls_get_addr|stack_chk_fail|stack_chk_guard|assert_fail|errno_loc\w*)",
        r"_ITM_\w+|__libc_single_threaded|__(mem|str)\w+_chk|__(v|s|f)?n?printf_chk|"
        r"__\w*printf_chk",
        r"__(add|sub|mul|div|neg|fix|float|extend|trunc|mod|umod|udiv|cmp|un|eq|ne|lt|le|gt|ge)"
        r"\w*[tsdxh]f\w*",
        r"__(u?div|u?mod|mul|neg|ash[lr]|lshr|popcount|clz|ctz|bswap)\w*[sdt]i\d?",
        r"__(cpu_model|cpu_indicator_init|isoc\d\d_\w+|ctype_\w+_loc|sched_\w+)",
        r"__atomic_\w+|__sync_\w+",
    )
)
#: Patterns of symbols that no kernel may import, however it is built, with the reasons.
_REFUSED = {
    re.compile(pattern): why
    for pattern, why in (
        (
            r"(cblas_\w+|[sdczh]b?gemm\w*_?|[sdcz](gemv|symm|trsm|axpy|dot[uc]?|scal|ger)_)",
            "a routine of BLAS",
        ),
        (r"(mkl_|MKL_|vml\w+_|vs[A-Z]|vd[A-Z]|dnnl_|mkldnn_|fftwf?_|LAPACKE_)\w*", "a library"),
        (r"_Z\w*(2at6native|2at3cpu|2at4cuda|4dnnl|3jit|8inductor)\w*", "torch's own kernels"),
        (r"(__)?(system|popen|v?fork|clone3?|exec[lv]p?e?|posix_spawnp?)", "a process"),
        (r"(__libc_)?dl(open|sym|vsym|mopen|addr|info)|_dl_\w+", "code from elsewhere"),
        (r"syscall|ptrace|prctl|mprotect|pkey_mprotect|personality", "the system itself"),
        (
            r"(f|fd|fre)?open(64|at|at64)?|creat(64)?|unlink(at)?|rename|f?read|pread(64)?|"
            r"mmap(64)?|shm_open|memfd_create|process_vm_\w+|getdelim|fgets|fscanf|"
            r"__isoc\d\d_fscanf",
            "files or foreign memory",
        ),
        (r"_ZNSt\w*basic_[io]?f(stream|ilebuf)\w*|_ZNSt10filesystem\w*", "files"),
        (
            r"socket(pair)?|connect|bind|listen|accept4?|getaddrinfo|send(to|msg)?|recv\w*",
            "the network",
        ),
        (r"(secure_)?getenv|setenv|putenv|environ|clearenv", "the environment"),
        (
            r"sigaction|signal|raise|kill|alarm|setitimer|_?_?(sig)?(set|long)jmp",
            "signals or jumps",
        ),
        (r"atexit|on_exit|at_quick_exit|pthread_atfork", "code that runs by itself"),
    )
}
#: Libraries that a kernel may be linked with.
_NEEDED = re.compile(
    r"lib(c|m|mvec|stdc\+\+|gcc_s|gomp|omp|iomp5|pthread|rt|dl|torch\w*|c10\w*|python[\d.]*)\.so[\d.]*|"
    r"ld-linux[\w.-]*"
)


class NotElfError(ValueError):
    """The file is not a valid 64-bit little-endian ELF file."""


@attrs.frozen
class Library:
    """The symbols, needed libraries and constructors of an ELF library.

    `undefined`: symbols that other libraries must define; `needed`: libraries it is linked with;
    `constructors`: the number of functions that run when it is loaded, besides those of the
    toolchain (`frame_dummy`) and of the standard streams.
    """

    undefined: tuple[str, ...]
    needed: tuple[str, ...]
    constructors: int

    def without(self, symbols: frozenset[str], constructors: int) -> Library:
        """The library without what is known to be in it by another's doing."""
        kept = tuple(name for name in self.undefined if name not in symbols)
        return Library(kept, self.needed, max(0, self.constructors - constructors))


def inspect_elf(path: Path) -> Library:
    """Read a shared library (64 bit, little-endian). Raises `NotElfError` and `OSError`."""
    data = path.read_bytes()
    if data[:4] != _MAGIC or data[4:6] != b"\x02\x01":
        raise NotElfError(f"{path.name} is no 64-bit ELF file")
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as error:
        raise NotElfError(f"{path.name} is a broken ELF file: {error}") from error


def _read(data: bytes) -> Library:
    # The offset of the section table, the bytes of an entry, and the number of entries.
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    if not start or not count:
        raise ValueError("it has no table of sections")
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    undefined: list[str] = []
    needed: list[str] = []
    constructors = 0
    for section in sections:
        _, kind, _, _, offset, length, link, _, _, entry = section
        if kind == _DYNSYM:
            names = sections[link][4]
            for place in range(offset, offset + length, entry or 24):
                name, _, _, where = struct.unpack_from("<IBBH", data, place)
                if where == _UNDEFINED and name:
                    undefined.append(_text(data, names + name))
        elif kind == _DYNAMIC:
            names = sections[link][4]
            for place in range(offset, offset + length, 16):
                tag, value = struct.unpack_from("<qQ", data, place)
                if tag == _DT_NEEDED:
                    needed.append(_text(data, names + value))
                elif tag in (_DT_INIT_ARRAY_SIZE, _DT_PREINIT_ARRAY_SIZE):
                    constructors += value // _POINTER
    # Not counted: `frame_dummy` of the toolchain, and the standard streams' initialiser.
    own = 1 + any("ios_base4InitC" in name for name in undefined)
    return Library(tuple(sorted(set(undefined))), tuple(needed), max(0, constructors - own))


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("utf-8", "replace")


def refusal(
    library: Library, *, extension: bool = False, exists: Callable[[str], bool] = lambda _: True
) -> str:
    """A sentence on why a library is not accepted as a kernel; "" where it is.

    `extension`: it is a Python extension module, which uses Python, torch and more of the C
    library, and has constructors. `exists` says of a symbol on none of the lists whether there is
    such a function: a mistyped name is for the loader to report.
    """
    for name in library.undefined:
        if what := _refused(name):
            return f"it calls `{name}`: {what}"
        if not extension and not _known(name) and exists(name):
            return f"it calls `{name}`, which no kernel needs"
    for name in library.needed:
        if not _NEEDED.fullmatch(name):
            return f"it is linked with {name}, which no kernel needs"
    if library.constructors and not extension:
        return (
            "it has code that runs by itself when it is loaded (a constructor, or a global object)"
        )
    return ""


def in_libc(name: str) -> bool:
    """Whether the C library has a symbol `name`, which is not called."""
    return hasattr(ctypes.CDLL("libc.so.6"), name)


def _refused(name: str) -> str:
    """Why a kernel must never import the symbol `name`; "" for other symbols."""
    return next((why for pattern, why in _REFUSED.items() if pattern.fullmatch(name)), "")


def _known(name: str) -> bool:
    return name in _LIBC or any(pattern.fullmatch(name) for pattern in _ALLOWED)


def allowed_symbol(name: str) -> bool:
    """Whether a kernel may call the function `name` of the system's libraries."""
    return not _refused(name) and _known(name)
