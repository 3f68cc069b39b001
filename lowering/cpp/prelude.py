"""The C++ helpers that generated files carry: only those that a file uses, and what they need.

Every helper is branch-free where it can be, so that g++ turns the loops around it into vector
code. Errors of the f32 functions, against correctly rounded results: exp at most 1 ulp; those that
come from the vector C library (libmvec) at most 4 ulp.
"""

from __future__ import annotations

import re

from sketchc.lowering.cpp.prelude_atomics import ATOMICS
from sketchc.lowering.cpp.prelude_lanes import LANES
from sketchc.lowering.cpp.prelude_launch import LAUNCH
from sketchc.lowering.cpp.prelude_matrix import MATRIX
from sketchc.lowering.cpp.prelude_numbers import NUMBERS

#: One helper per entry, in the order of definition; a key names what the text defines.
_BASE: dict[str, str] = {
    "arena": """
// Scratch memory: pieces are added, then allocated at once for all threads, on cache lines.
class arena {
public:
    arena() = default;
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;
    ~arena() { std::free(memory_); }

    // Adds a piece of `extents` elements and returns its place.
    int64_t add(int64_t element_bytes, std::initializer_list<int64_t> extents)
    {
        const int64_t place = bytes_;
        int64_t size = element_bytes;
        for (const int64_t extent : extents) {
            fits_ = !__builtin_mul_overflow(size, std::max<int64_t>(extent, 0), &size) && fits_;
        }
        fits_ = !__builtin_add_overflow(size, int64_t{63}, &size) && fits_;
        fits_ = !__builtin_add_overflow(bytes_, size / 64 * 64, &bytes_) && fits_;
        return place;
    }

    // False when the memory cannot be had.
    bool allocate(int64_t threads)
    {
        int64_t total = 0;
        fits_ = !__builtin_mul_overflow(bytes_, threads, &total) && fits_;
        if (fits_ && total > 0) {
            memory_ = static_cast<char *>(std::aligned_alloc(64, static_cast<size_t>(total)));
        }
        return fits_ && (total == 0 || memory_ != nullptr);
    }

    template <class T> T *at(int64_t place, int64_t thread) const
    {
        return reinterpret_cast<T *>(memory_ + thread * bytes_ + place);
    }

private:
    char *memory_ = nullptr;
    int64_t bytes_ = 0;
    bool fits_ = true;
};
""",
    "streams": """
// Outputs of more bytes than this do not stay in the caches: they are written past them.
constexpr double cache_bytes = 33554432;

// Whether a tensor is too large for the caches.
inline bool streams([[maybe_unused]] int64_t element_bytes,
                    [[maybe_unused]] std::initializer_list<int64_t> extents)
{
#if defined(__AVX__)
    double bytes = static_cast<double>(element_bytes);
    for (const int64_t extent : extents) {
        bytes *= static_cast<double>(extent);
    }
    return bytes > cache_bytes;
#else
    return false;
#endif
}
""",
    "stream": """
// Copies past the caches: whole lines are written without reading them first.
template <class T> inline void stream(T *to, const T *from, int64_t count)
{
    int64_t done = 0;
#if defined(__AVX__)
    constexpr int64_t line = 64 / sizeof(T);
    const uintptr_t into = reinterpret_cast<uintptr_t>(to) % 64;
    const int64_t head = (line - static_cast<int64_t>(into / sizeof(T))) % line;
    done = into % sizeof(T) == 0 && head < count ? head : count;
    std::copy_n(from, done, to);
    for (; done + line <= count; done += line) {
        for (int64_t part = 0; part < line; part += line / 2) {
            const void *const source = from + done + part;
            _mm256_stream_si256(reinterpret_cast<__m256i *>(to + done + part),
                                _mm256_loadu_si256(static_cast<const __m256i *>(source)));
        }
    }
#endif
    std::copy_n(from + done, count - done, to + done);
}
""",
    "end_streams": """
// Other threads see what this one has streamed.
inline void end_streams()
{
#if defined(__AVX__)
    _mm_sfence();
#endif
}
""",
    "floor_div": """
// Floor division; a divisor of 0 gives 0, so that lanes nobody reads cannot trap.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_div(T a, T b)
{
    if constexpr (std::is_unsigned_v<T>) {
        return b == 0 ? T{0} : static_cast<T>(a / b);
    } else {
        if (b == 0 || b == -1) {
            return b == 0 ? T{0} : static_cast<T>(T{0} - a);
        }
        const T quotient = static_cast<T>(a / b);
        return static_cast<T>(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
    }
}
constexpr int64_t floor_div(int64_t a, int b) { return floor_div(a, int64_t{b}); }
constexpr int64_t floor_div(int a, int64_t b) { return floor_div(int64_t{a}, b); }
""",
    "floor_mod": """
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_mod(T a, T b)
{
    return static_cast<T>(a - b * floor_div(a, b));
}
constexpr int64_t floor_mod(int64_t a, int b) { return floor_mod(a, int64_t{b}); }
constexpr int64_t floor_mod(int a, int64_t b) { return floor_mod(int64_t{a}, b); }
""",
    "whole_quotient": """
// The floor of the quotient before it is rounded: 1 // 0.1 is 9. A zero has the quotient's sign.
template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
inline T whole_quotient(T a, T b)
{
    const T rest = std::fmod(a, b);
    T whole = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        whole -= 1;
    }
    if (whole == 0 || b == 0) {
        return b == 0 ? a / b : std::copysign(T{0}, a / b);
    }
    const T floor = std::floor(whole);
    return whole - floor > T{0.5} ? floor + 1 : floor;
}
""",
    "floor_rest": """
// What floor division leaves, exactly, with the sign of b, also where nothing is left.
template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
inline T floor_rest(T a, T b)
{
    const T rest = std::fmod(a, b);
    if (rest == 0) {
        return std::copysign(rest, b);
    }
    return (rest < 0) != (b < 0) ? rest + b : rest;
}
""",
    "ceil_div": """
constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }
""",
    "truncate": """
inline int64_t truncate(double x) { return static_cast<int64_t>(x); }
""",
    **NUMBERS,
    "absolute": """
template <class T> inline T absolute(T x) { return static_cast<T>(x < T{0} ? T{0} - x : x); }
inline float absolute(float x) { return __builtin_fabsf(x); }
inline double absolute(double x) { return __builtin_fabs(x); }
""",
    "sign": """
template <class T> inline T sign(T x)
{
    return x > T{0} ? T{1} : (x < T{0} ? static_cast<T>(-1) : x);
}
""",
    "max": """
// The larger; NaN wins. Only `larger` waits for `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }
""",
    "min": """
// The smaller; NaN wins. Only `smaller` waits for `a`, the accumulator of a loop.
template <class T> inline T min(T a, T b)
{
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
}
inline bool min(bool a, bool b) { return a && b; }
""",
    "at_least": """
template <class T> inline T at_least(T x, T low) { return x < low ? low : x; }
""",
    "at_most": """
template <class T> inline T at_most(T x, T high) { return x > high ? high : x; }
""",
    "relu": """
template <class T> inline T relu(T x) { return x < T{0} ? T{0} : x; }
""",
    "floor": """
template <class T> inline T floor(T x) { return x; }
inline float floor(float x) { return __builtin_floorf(x); }
inline double floor(double x) { return __builtin_floor(x); }
""",
    "ceil": """
template <class T> inline T ceil(T x) { return x; }
inline float ceil(float x) { return __builtin_ceilf(x); }
inline double ceil(double x) { return __builtin_ceil(x); }
""",
    "round": """
template <class T> inline T round(T x) { return x; }
inline float round(float x) { return __builtin_rintf(x); }
inline double round(double x) { return __builtin_rint(x); }
""",
    "trunc": """
template <class T> inline T trunc(T x) { return x; }
inline float trunc(float x) { return __builtin_truncf(x); }
inline double trunc(double x) { return __builtin_trunc(x); }
""",
    "sqrt": """
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
""",
    "rsqrt": """
inline float rsqrt(float x) { return 1.0F / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
""",
    "exp": """
// e^x = 2^n * e^r with |r| <= ln(2)/2, e^r by a polynomial; n is the nearest integer, from the low
// bits of a large float. The power of two is applied in two parts, so that subnormal results and
// overflow to infinity come out right.
inline float exp(float x)
{
    const float bounded = x < -104.0F ? -104.0F : (x > 89.0F ? 89.0F : x);
    const float shifted = bounded * 1.44269504F + 12582912.0F;
    const float n = shifted - 12582912.0F;
    const float r = (bounded - n * 0.693145752F) - n * 1.42860677e-06F;
    float p = 0.00138145403F;
    p = p * r + 0.00836874527F;
    p = p * r + 0.0416683908F;
    p = p * r + 0.166665204F;
    p = p * r + 0.499999934F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    const bool small = x < 0.0F;
    const float power = float_of((bits_of(shifted) + (small ? 191U : 126U)) << 23);
    return p * power * (small ? 0x1p-64F : 2.0F);
}
inline double exp(double x) { return ::exp(x); }
""",
    "sigmoid": """
template <class T> inline T sigmoid(T x) { return T{1} / (T{1} + exp(-x)); }
""",
    "silu": """
template <class T> inline T silu(T x) { return x / (T{1} + exp(-x)); }
""",
    "short_erf": """
// erf(x) = x * P(x^2) / Q(x^2) to 6 ulp (a weighted least-squares fit); beyond 3.92 it is 1, to the
// last bit: somebody multiplies 1 + erf(x) by a large number.
inline float short_erf(float x)
{
    const float bounded = x < -3.92F ? -3.92F : (x > 3.92F ? 3.92F : x);
    const float square = bounded * bounded;
    float p = 2.04198341e-06F;
    p = p * square + 0.000284808542F;
    p = p * square + 0.00377962808F;
    p = p * square + 0.0527903177F;
    p = p * square + 0.190784082F;
    p = p * square + 1.12837923F;
    float q = 3.80040765e-05F;
    q = q * square + 0.00116521586F;
    q = q * square + 0.0149974739F;
    q = q * square + 0.114257619F;
    q = q * square + 0.50241071F;
    q = q * square + 1.0F;
    const float result = bounded * p / q;
    const float inside = result < -1.0F ? -1.0F : (result > 1.0F ? 1.0F : result);
    return x < -3.92F ? -1.0F : (x > 3.92F ? 1.0F : inside);
}
""",
    "gelu": """
// Of erf in float, 1 + erf(x) needs no more bits than short_erf has.
inline float gelu(float x) { return 0.5F * x * (1.0F + short_erf(x * 0.707106781F)); }
inline double gelu(double x) { return 0.5 * x * (1.0 + erf(x * 0.7071067811865475244)); }
""",
    "gelu_tanh": """
template <class T> inline T gelu_tanh(T x)
{
    const T inner = x + static_cast<T>(0.044715) * x * x * x;
    return static_cast<T>(0.5) * x * (T{1} + tanh(static_cast<T>(0.7978845608028653559) * inner));
}
""",
    "softplus": """
template <class T> inline T softplus(T x)
{
    const T bounded = x > T{30} ? T{30} : x;
    return x > T{30} ? x : log1p(exp(bounded));
}
""",
    "softsign": """
template <class T> inline T softsign(T x) { return x / (T{1} + absolute(x)); }
""",
    "hardsigmoid": """
template <class T> inline T hardsigmoid(T x)
{
    return at_most(at_least(x / T{6} + static_cast<T>(0.5), T{0}), T{1});
}
""",
    "hardswish": """
template <class T> inline T hardswish(T x) { return x * hardsigmoid(x); }
""",
    "elu": """
template <class T> inline T elu(T x, T alpha)
{
    const T negative = alpha * expm1(x > T{0} ? T{0} : x);
    return x > T{0} ? x : negative;
}
""",
    "selu": """
template <class T> inline T selu(T x)
{
    return static_cast<T>(1.0507009873554804934) * elu(x, static_cast<T>(1.6732632423543772848));
}
""",
    "leaky_relu": """
template <class T> inline T leaky_relu(T x, T slope) { return x > T{0} ? x : slope * x; }
""",
    "isnan": """
template <class T> inline bool isnan(T x) { return x != x; }
""",
    "isinf": """
template <class T> inline bool isinf(T x)
{
    return absolute(x) == std::numeric_limits<T>::infinity() && std::is_floating_point_v<T>;
}
""",
    "isfinite": """
template <class T> inline bool isfinite(T x)
{
    return absolute(x) < std::numeric_limits<T>::infinity() || !std::is_floating_point_v<T>;
}
""",
    "pow": """
inline float pow(float a, float b) { return ::powf(a, b); }
inline double pow(double a, double b) { return ::pow(a, b); }
// Wraps on overflow; a negative exponent (an error on valid lanes) gives 1.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
inline T pow(T a, T b)
{
    T result = 1;
    for (T exponent = b; exponent > 0; exponent = static_cast<T>(exponent >> 1)) {
        result = static_cast<T>((exponent & 1) != 0 ? result * a : result);
        a = static_cast<T>(a * a);
    }
    return result;
}
""",
    "shl": """
template <class T> inline T shl(T a, T b)
{
    return static_cast<T>(a << (b & static_cast<T>(sizeof(T) * 8 - 1)));
}
""",
    "shr": """
template <class T> inline T shr(T a, T b)
{
    return static_cast<T>(a >> (b & static_cast<T>(sizeof(T) * 8 - 1)));
}
""",
}

#: Functions of the vector C library, by the name that generated code uses.
_LIBRARY = ("exp2", "log", "log2", "sin", "cos", "tan", "atan", "tanh", "erf", "expm1", "log1p")

#: The widening of a double for `directed`, per narrow type.
_NARROW = {
    "half": "inline half narrow(double x, half) { return to_half(x); }",
    "bfloat16": "inline bfloat16 narrow(double x, bfloat16) { return to_bfloat16(x); }",
}

_VECTOR_MACRO = """
// g++ calls the vector versions of these (libmvec) from SIMD loops.
#if defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define SKETCH_VECTORS __attribute__((simd("notinbranch"), const))
#endif
#endif
#ifndef SKETCH_VECTORS
#define SKETCH_VECTORS
#endif
"""


def _library_text(name: str) -> str:
    return f"""
inline float {name}(float x) {{ return ::{name}f(x); }}
inline double {name}(double x) {{ return ::{name}(x); }}
"""


_HALF = ("to_half", "to_half_double", "half_to_float")
_BFLOAT = ("to_bfloat16", "to_bfloat16_double", "bfloat16_to_float")


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", text))


def _table() -> dict[str, str]:
    """All helpers by name, library functions before their first users."""
    table: dict[str, str] = {}
    for name, text in _BASE.items():
        if name == "exp":
            for function in _LIBRARY:
                table[function] = _library_text(function)
            table["atan2"] = (
                "\ninline float atan2(float y, float x) { return ::atan2f(y, x); }\n"
                "inline double atan2(double y, double x) { return ::atan2(y, x); }\n"
            )
        if name == "directed":
            table["narrow_half"] = f"\n{_NARROW['half']}\n"
            table["narrow_bfloat16"] = f"\n{_NARROW['bfloat16']}\n"
        table[name] = text
    table.update(MATRIX)
    table.update(ATOMICS)
    table.update(LANES)
    table.update(LAUNCH)
    return table


#: Every helper: name -> text, in the order of definition.
HELPERS = _table()

#: Words whose appearance asks for helpers named otherwise.
_IMPLIED = {"half": _HALF, "bfloat16": _BFLOAT}


def used_helpers(body: str) -> list[str]:
    """The helpers that `body` (generated code) needs, in the order of definition."""
    wanted = {name for name in re.findall(r"sketch::(\w+)", body) if name in HELPERS}
    pending = list(wanted)
    narrow = [kind for kind in _IMPLIED if re.search(rf"sketch::(to_)?{kind}\b", body)]
    for kind in narrow:
        pending += [kind, *_IMPLIED[kind]]
        if "directed" in wanted:
            pending.append(f"narrow_{kind}")
        if any(name.startswith("atomic_") for name in wanted):
            pending.append(f"atomic_{kind}")
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        pending += [word for word in _words(HELPERS[name]) if word in HELPERS and word != name]
    if not narrow:
        needed -= {*_HALF, *_BFLOAT, "half", "bfloat16", "odd"}
    return [name for name in HELPERS if name in needed]


def prelude(body: str) -> str:
    """The definitions to put before `body`; empty when it needs none."""
    names = used_helpers(body)
    if not names:
        return ""
    texts = [HELPERS[name].strip("\n") for name in names]
    functions = [name for name in (*_LIBRARY, "exp", "pow", "atan2") if name in names]
    head = ""
    if functions:
        head = (
            _VECTOR_MACRO.lstrip("\n")
            + 'extern "C" {\n'
            + "".join(_declaration(name) for name in functions)
            + "}\n\n"
        )
    return head + "namespace sketch {\n\n" + "\n\n".join(texts) + "\n\n} // namespace sketch\n"


def _declaration(name: str) -> str:
    two = name in ("pow", "atan2")
    arguments = "{0} x, {0} y" if two else "{0} x"
    wide = f"SKETCH_VECTORS double {name}({arguments.format('double')}) noexcept;\n"
    if name == "exp":
        return wide
    return f"SKETCH_VECTORS float {name}f({arguments.format('float')}) noexcept;\n" + wide
