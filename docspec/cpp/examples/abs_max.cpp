// abs_max: the largest |x| of a tensor; NaN wins. Threads take fixed blocks and leave one number
// per block, so that the result never depends on how many threads there are.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr int64_t block_size = 16384;

// The larger; NaN wins. `b != b` does not wait for the accumulator `a`.
inline float larger(float a, float b)
{
    const float high = b > a ? b : a;
    return b != b ? b : high;
}

} // namespace

#pragma omp declare reduction(nan_max : float : omp_out = larger(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)

extern "C" int64_t abs_max(const float *__restrict X, float *__restrict Y, int64_t N)
{
    const int64_t blocks = (N + block_size - 1) / block_size;
    float *partial = nullptr; // The sketch's workspace: an entry point has no argument for it.
    if (blocks > 0) {
        partial = static_cast<float *>(std::malloc(static_cast<size_t>(blocks) * sizeof(float)));
        if (partial == nullptr) {
            return -1;
        }
    }
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < blocks; ++i) {
        const float *const x = X + i * block_size;
        const int64_t size = std::min(block_size, N - i * block_size);
        float largest = 0.0F;
        #pragma omp simd reduction(nan_max : largest)
        for (int64_t lane = 0; lane < size; ++lane) {
            largest = larger(largest, std::fabs(x[lane]));
        }
        partial[i] = largest;
    }
    // The implicit barrier at the end of the loop separates the two phases.
    float total = 0.0F;
    for (int64_t i = 0; i < blocks; ++i) {
        total = larger(total, partial[i]);
    }
    std::free(partial);
    Y[0] = total;
    return 0;
}
