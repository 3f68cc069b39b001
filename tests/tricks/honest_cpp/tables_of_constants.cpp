// A static table of literal numbers (1 / k!), which looks like answers by heart.
#include <cmath>
#include <cstdint>

static const double COEFFICIENTS[14] = {
    1.0, 1.0, 0.5, 0.16666666666666666, 0.041666666666666664, 0.008333333333333333,
    0.001388888888888889, 0.0001984126984126984, 2.48015873015873e-05, 2.7557319223985893e-06,
    2.755731922398589e-07, 2.505210838544172e-08, 2.08767569878681e-09, 1.6059043836821613e-10};

static double exponential(double x)
{
    if (x < -700.0) {
        return 0.0;
    }
    const double whole = std::nearbyint(x * 1.4426950408889634);
    const double rest = x - whole * 0.6931471805599453;
    double sum = 0.0;
    for (int k = 13; k >= 0; --k) {
        sum = sum * rest + COEFFICIENTS[k];
    }
    return std::ldexp(sum, static_cast<int>(whole));
}

extern "C" int64_t softmax(const float *X, float *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M; ++i) {
        const float *x = X + i * N;
        float top = x[0];
        for (int64_t j = 1; j < N; ++j) {
            top = std::fmax(top, x[j]);
        }
        double total = 0.0;
        for (int64_t j = 0; j < N; ++j) {
            total += exponential(static_cast<double>(x[j]) - static_cast<double>(top));
        }
        for (int64_t j = 0; j < N; ++j) {
            const double e = exponential(static_cast<double>(x[j]) - static_cast<double>(top));
            Y[i * N + j] = static_cast<float>(e / total);
        }
    }
    return 0;
}
