// best_places: a few best of every row and the place of an extremum, a warp a row. Each round finds
// the best that stands behind the one before in the order of value and place.

#include <cstdint>
#include <cuda_runtime.h>

namespace {

constexpr int best = 4;
constexpr int warps = 4;

struct placed {
    float value;
    int64_t place; // -1: there is none
};

// Whether `a` stands before `b`: the largest (or smallest) first, NaN before all numbers, of equals
// the smaller place; what is not there stands last.
template <bool largest> __device__ bool before(placed a, placed b)
{
    if (a.place < 0 || b.place < 0) {
        return a.place >= 0;
    }
    const bool a_nan = a.value != a.value;
    const bool b_nan = b.value != b.value;
    if (a_nan || b_nan) {
        return a_nan && (!b_nan || a.place < b.place);
    }
    if (a.value == b.value) {
        return a.place < b.place;
    }
    return largest ? a.value > b.value : a.value < b.value;
}

// The first of a row behind `last`, for all lanes of the warp.
template <bool largest> __device__ placed next_of(const float *x, int64_t N, placed last)
{
    placed found{0.0F, -1};
    for (int64_t lane = threadIdx.x % 32; lane < N; lane += 32) {
        const placed own{x[lane], lane};
        if ((last.place < 0 || before<largest>(last, own)) && before<largest>(own, found)) {
            found = own;
        }
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        placed other;
        other.value = __shfl_xor_sync(0xffffffffU, found.value, distance);
        other.place = __shfl_xor_sync(0xffffffffU, found.place, distance);
        found = before<largest>(other, found) ? other : found;
    }
    return found;
}

__global__ void searched(const float *__restrict X, float *__restrict VALUES,
                         int64_t *__restrict PLACES, int64_t *__restrict LEAST, int64_t M,
                         int64_t N)
{
    const int64_t i = int64_t{blockIdx.x} * warps + threadIdx.x / 32;
    if (i >= M) {
        return; // The whole warp.
    }
    placed last{0.0F, -1};
    for (int k = 0; k < best; ++k) {
        last = next_of<true>(X + i * N, N, last);
        if (threadIdx.x % 32 == 0) {
            VALUES[i * best + k] = last.value;
            PLACES[i * best + k] = last.place;
        }
    }
    const placed least = next_of<false>(X + i * N, N, {0.0F, -1});
    if (threadIdx.x % 32 == 0) {
        LEAST[i] = least.place;
    }
}

} // namespace

extern "C" int64_t best_places(const float *__restrict X, float *__restrict VALUES,
                               int64_t *__restrict PLACES, int64_t *__restrict LEAST, int64_t M,
                               int64_t N)
{
    if (!(N >= best)) {
        return 1; // The first `require` of the sketch does not hold.
    }
    if (M > 0) {
        const unsigned blocks = static_cast<unsigned>((M + warps - 1) / warps);
        searched<<<blocks, 32 * warps>>>(X, VALUES, PLACES, LEAST, M, N);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
