// rope: a C++ kernel for cpu, made from a sketch.

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
//   1  B >= 0 and S >= 0 and H >= 0 and HALF >= 0
//   2  HALF <= 256
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t rope(
    const float *__restrict X, const float *__restrict COS, const float *__restrict SIN, float
    *__restrict Y, int64_t B, int64_t S, int64_t H, int64_t HALF)
{
    if (B < 0 || S < 0 || H < 0 || HALF < 0) {
        return 1;
    }
    if (HALF > 256) {
        return 2;
    }
    if (sketch::too_large({B, S, H, HALF})) {
        return 3;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, S, H, 2 * HALF});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t right_fma_place = arena.add(sizeof(float), {HALF});
        const int64_t y_place = arena.add(sizeof(float), {2 * HALF});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict right_fma = arena.at<float>(right_fma_place,
                omp_get_thread_num());
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t b = 0; b < B; ++b) {
                for (int64_t s = 0; s < S; ++s) {
                    // for h in range(H):
                    for (int64_t h = 0; h < H; ++h) {
                        // load(X[b, s, h, HALF:2*HALF] -> second)
                        // load(SIN[s, 0:HALF] -> sin)
                        // mul(second, sin, left)
                        // neg(left, left)
                        // load(X[b, s, h, 0:HALF] -> first)
                        // load(COS[s, 0:HALF] -> cos)
                        // fma(first, cos, left, left)
                        // mul(first, sin, right)
                        // fma(second, cos, right, right)
                        // concat(left, right, 0, y)
                        const float *const X_row = X + (((b * S + s) * H + h) * (2 * HALF) + HALF);
                        const float *const SIN_row = SIN + s * HALF;
                        const float *const X_row_2 = X + ((b * S + s) * H + h) * (2 * HALF);
                        const float *const COS_row = COS + s * HALF;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < HALF; ++lane) {
                            const float second = X_row[lane];
                            const float sin = SIN_row[lane];
                            const float left = second * sin;
                            const float left_neg = -left;
                            const float first = X_row_2[lane];
                            const float cos = COS_row[lane];
                            const float left_fma = first * cos + left_neg;
                            const float right = first * sin;
                            const float right_fma_value = second * cos + right;
                            right_fma[lane] = right_fma_value;
                            const float y_value = left_fma;
                            y[lane] = y_value;
                        }
                        float *const y_row = y + HALF;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < HALF; ++lane) {
                            const float right_fma_value = right_fma[lane];
                            y_row[lane] = right_fma_value;
                        }
                        // store(y -> Y[b, s, h, 0:2*HALF])
                        for (int64_t block = 0; block < 2 * HALF; block += 1024) {
                            const int64_t block_end = std::min<int64_t>(2 * HALF, block + 1024);
                            alignas(64) float Y_block[1024];
                            float *const Y_row = Y_streams ? Y_block : Y + (((b * S + s) * H + h) *
                                (2 * HALF) + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float y_value = y[lane];
                                Y_row[lane - block] = y_value;
                            }
                            if (Y_streams) {
                                sketch::stream(Y + (((b * S + s) * H + h) * (2 * HALF) + block),
                                    Y_block, block_end - block);
                            }
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
