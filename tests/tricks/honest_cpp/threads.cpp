// Threads of its own, all joined before it returns.
#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

extern "C" int64_t relu(const float *X, float *Y, int64_t M, int64_t N)
{
    const int64_t size = M * N, part = (size + 2) / 3;
    std::vector<std::thread> workers;
    for (int64_t start = 0; start < size; start += part) {
        workers.emplace_back([=] {
            for (int64_t i = start; i < std::min(start + part, size); ++i) {
                Y[i] = X[i] > 0.0f ? X[i] : 0.0f;
            }
        });
    }
    for (std::thread &worker : workers) {
        worker.join();
    }
    return 0;
}
