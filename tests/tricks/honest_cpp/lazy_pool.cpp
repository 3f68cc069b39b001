// Threads that are started by the first call and wait for the next; all work is done on return.
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

struct Pool {
    std::mutex lock;
    std::condition_variable changed;
    const float *x = nullptr;
    float *y = nullptr;
    int64_t size = 0;
    bool waiting = false;

    void serve()
    {
        std::unique_lock<std::mutex> held(lock);
        for (;;) {
            changed.wait(held, [this] { return waiting; });
            for (int64_t i = 0; i < size; ++i) {
                y[i] = x[i] > 0.0f ? x[i] : 0.0f;
            }
            waiting = false;
            changed.notify_all();
        }
    }
};

extern "C" int64_t relu(const float *X, float *Y, int64_t M, int64_t N)
{
    static Pool *pool = nullptr;
    if (pool == nullptr) {
        pool = new Pool();
        std::thread([] { pool->serve(); }).detach();
    }
    std::unique_lock<std::mutex> held(pool->lock);
    pool->x = X;
    pool->y = Y;
    pool->size = M * N;
    pool->waiting = true;
    pool->changed.notify_all();
    pool->changed.wait(held, [] { return !pool->waiting; });
    return 0;
}
