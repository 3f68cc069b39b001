// sum_middle: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace sketch {

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

// Other threads see what this one has streamed.
inline void end_streams()
{
#if defined(__AVX__)
    _mm_sfence();
#endif
}

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

constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// The larger; NaN wins. Only `larger` waits for `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

// Whether a tensor has more elements than memory, an extent of 0 counted as 1.
inline bool too_large(std::initializer_list<int64_t> extents)
{
    int64_t elements = 1;
    bool wraps = false;
    for (const int64_t extent : extents) {
        wraps |= __builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements);
    }
    return wraps || elements >= int64_t{1} << 48;
}

} // namespace sketch

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  B >= 0 and M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t sum_middle(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t M, int64_t N)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TN = 512;

    if (B < 0 || M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({B, M, N})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, N});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t lanes_place = arena.add(sizeof(float), {TM, TN});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict lanes = arena.at<float>(lanes_place, omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t b = 0; b < B; ++b) {
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    alignas(64) float total[TN];
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M); ++row) {
                        // lanes = alloc([TM, TN], init=0.0)
                        float *const lanes_row = lanes + row * TN;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            lanes_row[lane] = 0.0f;
                        }
                    }
                    // for m in range(ceil(M, TM)):
                    for (int64_t m = 0; m < sketch::ceil_div(M, TM); ++m) {
                        for (int64_t row = 0; row < std::min<int64_t>(TM, M - m * TM); ++row) {
                            // load(X[b, m*TM:(m+1)*TM, j*TN:(j+1)*TN] -> x)
                            // add(lanes, x, lanes)
                            float *const lanes_row_2 = lanes + row * TN;
                            const float *const X_row = X + ((b * M + (m * TM + row)) * N + j * TN);
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN);
                                ++lane) {
                                const float lanes_value = lanes_row_2[lane];
                                const float x = X_row[lane];
                                const float lanes_value_2 = lanes_value + x;
                                lanes_row_2[lane] = lanes_value_2;
                            }
                        }
                    }
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                        total[lane] = 0.0f;
                    }
                    // reduce_sum(lanes, 0, total)
                    const int64_t row_whole =
                        sketch::floor_div(std::max<int64_t>(std::min<int64_t>(TM, M), 0), 8) * 8;
                    for (int64_t row = 0; row < row_whole; row += 8) {
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            float row_sum = 0.0f;
                            #pragma GCC unroll 16
                            for (int64_t row_next = 0; row_next < 8; ++row_next) {
                                const float lanes_value = lanes[(row + row_next) * TN + lane];
                                row_sum += lanes_value;
                            }
                            total[lane] += row_sum;
                        }
                    }
                    for (int64_t row = row_whole; row < std::min<int64_t>(TM, M); ++row) {
                        const float *const lanes_row_3 = lanes + row * TN;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            const float lanes_value = lanes_row_3[lane];
                            total[lane] += lanes_value;
                        }
                    }
                    // store(total -> Y[b, j*TN:(j+1)*TN])
                    for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j *
                            TN), block + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + (b * N + j * TN + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float total_value = total[lane];
                            Y_row[lane - block] = total_value;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + (b * N + j * TN + block), Y_block, block_end -
                                block);
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
