// Runs CUDA kernels on the CPU, for tests: blocks one after the other, their threads as fibers.
//
// Each thread of a block has a stack of its own and runs until it waits: at a barrier, or for the
// other lanes of its warp in a shuffle or a matrix instruction. Shared memory is poisoned before
// each block. Threads and blocks run in an order of `SKETCH_ORDER` (a seed; 0 and 1: forwards and
// backwards), so that a missing barrier shows as another result in some order. What CUDA leaves
// undefined is refused: a barrier that only some threads of a block reach, a shuffle or a matrix
// instruction that lanes of its mask do not reach together, shared memory beyond what a launch asked
// for, an asynchronous copy of shared memory, a wait that nothing ends. Copies that are read before they
// are waited for have not happened yet.
//
// `translation.py` turns what is no C++ into calls of this header: launches and shared memory.
//
// Fragments of `mma` and `ldmatrix` are laid out as in the PTX ISA manual, sections "Warp-level
// Matrix Instructions".
#pragma once

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned x;
    unsigned y;
    unsigned z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace emulated {

constexpr int warp_size = 32;
constexpr std::size_t stack_bytes = 1 << 16;
constexpr std::size_t shared_limit = 232448;
// Bytes behind the shared memory of a launch that nobody may write.
constexpr std::size_t border = 4096;

enum class State { ready, at_barrier, in_warp, in_phase, done };

// An asynchronous copy that was asked for and not waited for yet; `group` counts commits.
struct Copy {
    void *to;
    const void *from;
    int bytes;
    int taken;
    int64_t group;
};

// A matrix product of a warp group that was asked for; `happen` adds it to the sums.
struct Product {
    float *sums;
    int64_t group;
    std::function<void()> happen;
};

// A barrier in shared memory: how many arrive in a phase, how many of them are missing still, the bytes
// that are, and which phase it is.
struct Barrier {
    int arrivals;
    int missing;
    int64_t bytes;
    unsigned phase;
};

// A box of a tensor that was asked for and has not arrived yet.
struct Box {
    char *to;
    const void *map;
    int at[4];
    const char *barrier;
};

struct Fiber {
    std::unique_ptr<char[]> stack;
    ucontext_t start;
    jmp_buf at;
    State state = State::ready;
    bool begun = false;
    int site = 0;             // the line of the barrier or instruction that it waits at
    unsigned mask = 0;        // lanes that take part
    const void *given = nullptr; // what it gives to the other lanes
    std::vector<Copy> copies;
    int64_t group = 0;
    bool shown = true; // whether units and engine know of what was copied, and of barriers
    std::vector<Product> pending;
    std::map<float *, std::vector<float>> held; // sums of products under way
    int64_t products = 0;
    const char *barrier = nullptr; // it waits for the end of this one's phase
    unsigned phase = 0;
};

// A block that runs; there is one at a time.
struct Block {
    std::vector<Fiber> fibers;
    std::vector<unsigned> order;
    bool ahead = false; // a warp runs as far as it can before the next one
    std::size_t shared = 0;
    std::vector<std::pair<void *, std::size_t>> tiles; // shared memory of a size known to the compiler
    std::map<const char *, Barrier> barriers;
    std::vector<Box> boxes;
    std::function<void()> body;
    jmp_buf scheduler;
    ucontext_t returned;
    unsigned current = 0;
    std::string failure;
};

inline Block block;

// The shared memory whose size the launch gives, and its border.
alignas(1024) inline char memory[shared_limit + border];

template <class T> T *buffer() { return reinterpret_cast<T *>(memory); }

// Knows a shared variable from the first time on that a thread comes past it.
template <class T> void shares(T &tile)
{
    for (const auto &[known, bytes] : block.tiles) {
        if (known == &tile) {
            return;
        }
    }
    block.tiles.emplace_back(&tile, sizeof tile);
    std::memset(static_cast<void *>(&tile), 0xff, sizeof tile);
}

// Ends the block with a reason; called by one of its threads.
[[noreturn]] inline void fail(const std::string &why)
{
    block.failure = why;
    _longjmp(block.scheduler, 1);
}

inline Fiber &self() { return block.fibers[block.current]; }

inline unsigned lane() { return block.current % warp_size; }

// The calling thread waits in this state until the scheduler goes on with it.
inline void wait(State state, int line)
{
    self().state = state;
    self().site = line;
    if (_setjmp(self().at) == 0) {
        _longjmp(block.scheduler, 1);
    }
}

inline void enter()
{
    block.body();
    self().state = State::done;
    _longjmp(block.scheduler, 1);
}

inline void resume(unsigned thread)
{
    block.current = thread;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
                 thread / (blockDim.x * blockDim.y)};
    if (_setjmp(block.scheduler) != 0) {
        return;
    }
    Fiber &fiber = block.fibers[thread];
    if (fiber.begun) {
        _longjmp(fiber.at, 1);
    }
    fiber.begun = true;
    if (!fiber.stack) {
        fiber.stack.reset(new char[stack_bytes]);
    }
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = stack_bytes;
    fiber.start.uc_link = &block.returned;
    makecontext(&fiber.start, enter, 0);
    setcontext(&fiber.start);
}

inline std::string place(int line) { return "line " + std::to_string(line); }

// Lets lanes of the warp from a thread on go on that wait for one another and are complete; false
// where there are none.
inline bool release_warp(unsigned first)
{
    bool any = false;
    const unsigned last = std::min(first + warp_size, static_cast<unsigned>(block.fibers.size()));
    for (unsigned thread = first; thread < last; ++thread) {
        const Fiber &one = block.fibers[thread];
        if (one.state != State::in_warp) {
            continue;
        }
        bool whole = true;
        for (unsigned other = first; other < last; ++other) {
            const Fiber &each = block.fibers[other];
            const bool wanted = one.mask >> (other - first) & 1U;
            whole = whole && (!wanted || (each.state == State::in_warp && each.mask == one.mask &&
                                          each.site == one.site));
        }
        if (whole) {
            for (unsigned other = first; other < last; ++other) {
                if (one.mask >> (other - first) & 1U) {
                    block.fibers[other].state = State::ready;
                }
            }
            any = true;
        }
    }
    return any;
}

void arrive_box(const Box &box);

// All boxes that were asked for arrive.
inline void arrive_boxes()
{
    for (const Box &box : std::exchange(block.boxes, {})) {
        arrive_box(box);
    }
}

// Lets threads go on whose barrier is in another phase now; false where there are none.
inline bool release_phases()
{
    bool any = false;
    for (Fiber &each : block.fibers) {
        const auto found = block.barriers.find(each.barrier);
        if (each.state == State::in_phase &&
            (found == block.barriers.end() || found->second.phase != each.phase)) {
            each.state = State::ready;
            any = true;
        }
    }
    return any;
}

// Lets go on what waits for one another and is complete; false where nothing can go on.
inline bool release()
{
    bool any = release_phases();
    for (unsigned first = 0; first < block.fibers.size(); first += warp_size) {
        any = release_warp(first) || any;
    }
    if (any) {
        return true;
    }
    arrive_boxes();
    if (block.failure.empty() && release_phases()) {
        return true;
    }
    const int site = block.fibers[0].site;
    for (const Fiber &each : block.fibers) {
        if (!block.failure.empty()) {
            return false;
        }
        if (each.state == State::in_phase) {
            block.failure = "a phase of a barrier does not end, for which a thread waits in " +
                            place(each.site);
            return false;
        }
        if (each.state == State::in_warp) {
            block.failure = "lanes of a warp do not meet at " + place(each.site);
            return false;
        }
        if (each.state != State::at_barrier || each.site != site) {
            const int line = each.state == State::at_barrier ? each.site : site;
            block.failure = "not all threads of a block reach the barrier in " + place(line);
            return false;
        }
    }
    for (Fiber &each : block.fibers) {
        each.state = State::ready;
    }
    return true;
}

// Runs a thread up to where it waits, if it waits for nothing.
inline void run(unsigned thread)
{
    if (block.fibers[thread].state == State::ready) {
        resume(thread);
    }
    if (!block.failure.empty()) {
        throw std::runtime_error(block.failure);
    }
}

inline void run_block()
{
    std::memset(memory, 0xff, block.shared + border);
    for (const auto &[tile, bytes] : block.tiles) {
        std::memset(tile, 0xff, bytes);
    }
    block.failure.clear();
    block.barriers.clear();
    block.boxes.clear();
    for (Fiber &fiber : block.fibers) {
        fiber.state = State::ready;
        fiber.begun = false;
        fiber.copies.clear();
        fiber.pending.clear();
        fiber.held.clear();
        fiber.group = fiber.products = 0;
        fiber.shown = true;
    }
    for (;;) {
        for (const unsigned thread : block.order) {
            run(thread);
            const unsigned first = thread / warp_size * warp_size;
            while (block.ahead && release_warp(first)) {
                for (const unsigned other : block.order) {
                    if (other / warp_size * warp_size == first) {
                        run(other);
                    }
                }
            }
        }
        const auto ended = [](const Fiber &fiber) { return fiber.state == State::done; };
        if (std::all_of(block.fibers.begin(), block.fibers.end(), ended)) {
            break;
        }
        if (!release()) {
            throw std::runtime_error(block.failure);
        }
    }
    if (!block.boxes.empty() || !block.barriers.empty()) {
        throw std::runtime_error("a block ends before its barriers and what arrives on them");
    }
    const char *const behind = memory + block.shared;
    if (std::any_of(behind, behind + border, [](char byte) { return byte != '\xff'; })) {
        throw std::runtime_error("a write beyond the shared memory that the launch asked for");
    }
}

inline std::vector<unsigned> ordered(unsigned count, unsigned seed)
{
    std::vector<unsigned> found(count);
    std::iota(found.begin(), found.end(), 0U);
    if (seed == 1) {
        std::reverse(found.begin(), found.end());
    } else if (seed > 1) {
        std::shuffle(found.begin(), found.end(), std::mt19937(seed));
    }
    return found;
}

// Runs a kernel; raises std::runtime_error for what CUDA leaves undefined.
template <class Kernel, class... Arguments>
void launch(Kernel kernel, dim3 grid, dim3 threads, std::size_t shared, Arguments... arguments)
{
    static unsigned launches = 0;
    const char *const given = std::getenv("SKETCH_ORDER");
    const unsigned seed = given == nullptr ? launches++ : static_cast<unsigned>(std::atoi(given));
    const unsigned count = threads.x * threads.y * threads.z;
    if (grid.y > 65535 || grid.z > 65535) {
        throw std::runtime_error("a launch of more blocks than there may be along y or z");
    }
    if (count > 1024 || shared > shared_limit) {
        throw std::runtime_error("a block of " + std::to_string(count) + " threads and " +
                                 std::to_string(shared) + " bytes of shared memory");
    }
    block.fibers.resize(count);
    block.order = ordered(count, seed);
    block.ahead = seed % 2 == 1;
    block.shared = shared;
    block.body = [&] { kernel(arguments...); };
    gridDim = grid;
    blockDim = threads;
    for (const unsigned each : ordered(grid.x * grid.y * grid.z, seed)) {
        blockIdx = {each % grid.x, each / grid.x % grid.y, each / (grid.x * grid.y)};
        run_block();
    }
}

// What lane `from` gives, where every lane of the mask gives something.
template <class T> T exchanged(unsigned mask, const T &value, unsigned from, int line)
{
    Fiber &own = self();
    if (!(mask >> lane() & 1U)) {
        fail("a lane is not in its own mask at " + place(line));
    }
    T kept = value;
    own.given = &kept;
    own.mask = mask;
    wait(State::in_warp, line);
    const unsigned first = block.current - lane();
    const unsigned other = first + from;
    const bool there = from < warp_size && (mask >> from & 1U) && other < block.fibers.size();
    T result = there ? *static_cast<const T *>(block.fibers[other].given) : value;
    own.mask = mask;
    wait(State::in_warp, -line); // nobody leaves before all have read
    return result;
}

} // namespace emulated

inline void __syncthreads(int line = __builtin_LINE())
{
    emulated::wait(emulated::State::at_barrier, line);
}

inline void __syncwarp(unsigned mask = 0xffffffffU, int line = __builtin_LINE())
{
    emulated::exchanged(mask, 0, emulated::lane(), line);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, int line = __builtin_LINE())
{
    const unsigned base = emulated::lane() / width * width;
    return emulated::exchanged(mask, value, base + static_cast<unsigned>(from) % width, line);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE())
{
    const unsigned from = emulated::lane() ^ static_cast<unsigned>(bits);
    const bool inside = from / width <= emulated::lane() / width;
    return emulated::exchanged(mask, value, inside ? from : emulated::lane(), line);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, int by, int width = 32, int line = __builtin_LINE())
{
    const unsigned lane = emulated::lane(), from = lane + static_cast<unsigned>(by);
    return emulated::exchanged(mask, value, from / width == lane / width ? from : lane, line);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, int by, int width = 32, int line = __builtin_LINE())
{
    const unsigned lane = emulated::lane();
    const bool inside = lane % width >= static_cast<unsigned>(by);
    return emulated::exchanged(mask, value, inside ? lane - by : lane, line);
}

inline unsigned __ballot_sync(unsigned mask, int holds, int line = __builtin_LINE())
{
    unsigned found = 0;
    for (unsigned from = 0; from < emulated::warp_size; ++from) {
        const int other = emulated::exchanged(mask, holds, from, line);
        found |= (mask >> from & 1U) && other != 0 ? 1U << from : 0U;
    }
    return found;
}

// Whether a place is in the shared memory of a block.
inline unsigned __isShared(const void *place)
{
    const auto inside = [place](const void *begin, std::size_t bytes) {
        const char *const first = static_cast<const char *>(begin);
        return !std::less<const void *>{}(place, first) &&
               std::less<const void *>{}(place, first + bytes);
    };
    unsigned found = inside(emulated::memory, sizeof emulated::memory) ? 1U : 0U;
    for (const auto &[tile, bytes] : emulated::block.tiles) {
        found |= inside(tile, bytes) ? 1U : 0U;
    }
    return found;
}

namespace emulated {

inline void copy_async(void *to, const void *from, int bytes, int taken)
{
    if (__isShared(from)) {
        fail("an asynchronous copy reads shared memory: it reads the device's alone");
    }
    self().copies.push_back({to, from, bytes, taken, self().group});
}

inline void commit_copies() { ++self().group; }

// Copies of all groups but the last `left` happen now.
inline void wait_for_copies(int left)
{
    std::vector<Copy> &copies = self().copies;
    const int64_t until = self().group - left;
    for (const Copy &each : copies) {
        if (each.group < until) {
            self().shown = false;
            std::memset(each.to, 0, static_cast<std::size_t>(each.bytes));
            std::memcpy(each.to, each.from, static_cast<std::size_t>(each.taken));
        }
    }
    std::erase_if(copies, [&](const Copy &each) { return each.group < until; });
}

// One 8 x 8 matrix of 16-bit elements a register: lane l of `ldmatrix` gives the address of row
// l % 8 of matrix l / 8, and takes elements 2*(l % 4) and the next of row l / 4.
template <int count> void load_matrices(uint32_t (&into)[count], const void *row, bool across, int line)
{
    const unsigned own = lane();
    for (int each = 0; each < count; ++each) {
        uint16_t pair[2];
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned r = across ? own % 4 * 2 + half : own / 4;
            const unsigned c = across ? own / 4 : own % 4 * 2 + half;
            const void *const start = exchanged(0xffffffffU, row, each * 8 + r, line);
            std::memcpy(&pair[half], static_cast<const uint16_t *>(start) + c, 2);
        }
        std::memcpy(&into[each], pair, 4);
    }
}

// d = a @ b + d with d 16 x 8, a 16 x depth and b depth x 8; `size` elements of A and B in 32 bits.
// Lane l has rows l / 4 and l / 4 + 8 of a and d, and column l / 4 of b.
template <class A, class D, int depth>
void multiply(D (&d)[4], const uint32_t *a, const uint32_t *b, float (*wide)(A), int line)
{
    constexpr int size = 4 / sizeof(A);
    constexpr int parts = depth / (4 * size); // registers along the depth
    struct Fragments {
        A a[2 * parts * size];
        A b[parts * size];
    } own;
    std::memcpy(own.a, a, sizeof own.a);
    std::memcpy(own.b, b, sizeof own.b);
    const unsigned mine = lane();
    Fragments all[warp_size];
    for (unsigned other = 0; other < warp_size; ++other) {
        all[other] = exchanged(0xffffffffU, own, other, line);
    }
    for (int place = 0; place < 4; ++place) {
        const unsigned row = mine / 4 + place / 2 * 8, column = mine % 4 * 2 + place % 2;
        double sum = static_cast<double>(d[place]);
        for (int k = 0; k < depth; ++k) {
            const int part = k / (4 * size), inside = k % (4 * size);
            const unsigned at = inside / size, element = inside % size;
            const A left = all[row % 8 * 4 + at].a[(part * 2 + row / 8) * size + element];
            const A right = all[column * 4 + at].b[part * size + element];
            sum += static_cast<double>(wide(left)) * static_cast<double>(wide(right));
        }
        d[place] = static_cast<D>(sum);
        if (std::isfinite(d[place]) && std::abs(static_cast<double>(d[place])) > std::abs(sum)) {
            d[place] = std::nextafter(d[place], D{}); // matrix units drop bits
        }
    }
}

} // namespace emulated

template <class T, class V> T atomicAdd(T *place, V value)
{
    const T before = *place;
    *place = static_cast<T>(before + static_cast<T>(value));
    return before;
}

template <class T> T atomicCAS(T *place, T expected, T value)
{
    const T before = *place;
    *place = before == expected ? value : before;
    return before;
}

template <class T> T atomicExch(T *place, T value)
{
    const T before = *place;
    *place = value;
    return before;
}

// ---------------------------------------------------------------- the host's part

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
using cudaStream_t = void *;

inline cudaError_t cudaMalloc(void **memory, std::size_t bytes)
{
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (*memory != nullptr) {
        std::memset(*memory, 0xff, bytes);
    }
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

inline cudaError_t cudaFree(void *memory)
{
    std::free(memory);
    return cudaSuccess;
}

inline cudaError_t cudaMemcpy(void *to, const void *from, std::size_t bytes, cudaMemcpyKind)
{
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr)
{
    return cudaMemcpy(to, from, bytes, kind);
}

inline cudaError_t cudaMemset(void *memory, int byte, std::size_t bytes)
{
    std::memset(memory, byte, bytes);
    return cudaSuccess;
}

inline cudaError_t cudaMemsetAsync(void *memory, int byte, std::size_t bytes, cudaStream_t = nullptr)
{
    return cudaMemset(memory, byte, bytes);
}

template <class T> cudaError_t cudaMalloc(T **memory, std::size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(memory), bytes);
}

template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int)
{
    return cudaSuccess;
}

enum { cudaEnableDefault = 0 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };

namespace emulated {
int encode_map(void *map, int, uint32_t rank, void *data, const uint64_t *extents,
               const uint64_t *steps, const uint32_t *box, const uint32_t *each, int together,
               int moved, int, int beyond);
}

// The one function of the driver that there is.
inline cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned,
                                                    unsigned long long,
                                                    cudaDriverEntryPointQueryResult *found = nullptr)
{
    const bool known = std::string(name) == "cuTensorMapEncodeTiled";
    *function = known ? reinterpret_cast<void *>(emulated::encode_map) : nullptr;
    if (found != nullptr) {
        *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}

inline cudaError_t &last_error()
{
    static cudaError_t error = cudaSuccess;
    return error;
}

inline cudaError_t cudaGetLastError() { return std::exchange(last_error(), cudaSuccess); }

inline const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "the launch failed";
}

inline cudaError_t cudaDeviceSynchronize() { return last_error(); }

namespace emulated {

// Why the first launch that failed did so, or nothing: known also where the host's code does not ask for errors.
inline std::string &complaint()
{
    static std::string why;
    return why;
}

// What `kernel<<<grid, threads, shared, stream>>>` stands for.
template <class... P> struct Launcher {
    void (*kernel)(P...);
    dim3 grid;
    dim3 threads;
    std::size_t shared;

    template <class... A> void operator()(A... given) const
    {
        if (std::min({grid.x, grid.y, grid.z, threads.x, threads.y, threads.z}) == 0) {
            // CUDA refuses it and goes on, which is right where there is nothing to do.
            last_error() = cudaErrorInvalidConfiguration;
            return;
        }
        try {
            launch(kernel, grid, threads, shared, static_cast<P>(given)...);
        } catch (const std::exception &error) {
            complaint() = complaint().empty() ? error.what() : complaint();
            last_error() = cudaErrorLaunchFailure;
        }
    }
};

template <class... P>
Launcher<P...> launcher(void (*kernel)(P...), dim3 grid, dim3 threads, std::size_t shared = 0,
                        cudaStream_t = nullptr)
{
    return {kernel, grid, threads, shared};
}

} // namespace emulated

// For `native/worker.py`, after each call of the entry point: why a launch failed, null if none did.
extern "C" const char *sketch_failed_launch()
{
    static std::string told;
    told = std::exchange(emulated::complaint(), "");
    return told.empty() ? nullptr : told.c_str();
}

#include "groups.h"
#include "maps.h"
#include "functions.h"
