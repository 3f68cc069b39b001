// best_places: a few best of every row by insertion, and the place of an extremum. NaN is the
// largest; of equals the first counts.

#include <cmath>
#include <cstdint>

namespace {

constexpr int64_t best = 4;

// Whether `a` comes before `b` where the largest comes first: NaN before all numbers.
inline bool before(float a, float b)
{
    return a > b || (std::isnan(a) && !std::isnan(b));
}

} // namespace

extern "C" int64_t best_places(const float *__restrict X, float *__restrict VALUES,
                               int64_t *__restrict PLACES, int64_t *__restrict LEAST, int64_t M,
                               int64_t N)
{
    if (!(N >= best)) {
        return 1; // The first `require` of the sketch does not hold.
    }
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < M; ++i) {
        const float *const x = X + i * N;
        float value[best];
        int64_t place[best];
        int64_t found = 0;
        int64_t least = 0;
        for (int64_t lane = 0; lane < N; ++lane) {
            // NaN wins an argmin as well; `<` keeps the first of equals.
            if (x[lane] < x[least] || (std::isnan(x[lane]) && !std::isnan(x[least]))) {
                least = lane;
            }
            if (found == best && !before(x[lane], value[best - 1])) {
                continue; // Most lanes end here.
            }
            int64_t at = found < best ? found++ : best - 1;
            for (; at > 0 && before(x[lane], value[at - 1]); --at) {
                value[at] = value[at - 1];
                place[at] = place[at - 1];
            }
            value[at] = x[lane];
            place[at] = lane;
        }
        for (int64_t k = 0; k < best; ++k) {
            VALUES[i * best + k] = value[k];
            PLACES[i * best + k] = place[k];
        }
        LEAST[i] = least;
    }
    return 0;
}
