// Operands of products of groups of warps by the copy engine of chips that have one (compute
// capability 9.0): one thread asks for a step's boxes of tensors, a barrier in shared memory counts
// their bytes. What lies beyond a tensor is 0 there.
#pragma once

#include <cstdint>

#include "groups.hpp"

namespace sketch {

//# tensor_map
// How the copy engine finds the elements of a tensor; the driver writes it, see `described_tensor`.
struct alignas(64) tensor_map {
    uint64_t words[16];
};

// A barrier on which so many arrivals, and the bytes that they expect, complete a phase.
__device__ inline void begin_barrier(shared_place barrier, int arrivals)
{
#ifdef SKETCH_EMULATOR
    emulated::begin_barrier(barrier, arrivals);
#else
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
#endif
}

// Its memory may be used for something else from here on.
__device__ inline void end_barrier(shared_place barrier)
{
#ifdef SKETCH_EMULATOR
    emulated::end_barrier(barrier);
#else
    asm volatile("mbarrier.inval.shared.b64 [%0];" : : "r"(barrier) : "memory");
#endif
}

__device__ inline void arrive(shared_place barrier)
{
#ifdef SKETCH_EMULATOR
    emulated::arrive(barrier, 0, __LINE__);
#else
    [[maybe_unused]] uint64_t phase;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(phase) : "r"(barrier) : "memory");
#endif
}

// The same, and lets the phase last until so many bytes have come.
__device__ inline void arrive_expecting(shared_place barrier, int bytes)
{
#ifdef SKETCH_EMULATOR
    emulated::arrive(barrier, bytes, __LINE__);
#else
    [[maybe_unused]] uint64_t phase;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;"
                 : "=l"(phase)
                 : "r"(barrier), "r"(bytes)
                 : "memory");
#endif
}

// Waits for the end of a phase: 0 for the first one, then 1 and 0 in turn.
__device__ inline void wait_for_phase(shared_place barrier, unsigned phase)
{
#ifdef SKETCH_EMULATOR
    emulated::wait_for_phase(barrier, phase, __LINE__);
#else
    unsigned done = 0;
    do {
        asm volatile("{ .reg .pred %%done; mbarrier.try_wait.parity.shared::cta.b64 %%done, [%1], %2; "
                     "selp.u32 %0, 1, 0, %%done; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(phase)
                     : "memory");
    } while (done == 0);
#endif
}

// Lets the copy engine bring a box of a tensor, from the element with these indices on, the innermost
// one first, and tell a barrier of its bytes.
__device__ inline void copy_box(shared_place to, const tensor_map &map, const int (&at)[4],
                                shared_place barrier)
{
#ifdef SKETCH_EMULATOR
    emulated::copy_box(to, &map, at, barrier);
#else
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6];"
                 :
                 : "r"(to), "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier)
                 : "memory");
#endif
}

// Brings the panels of an operand whose lines lie along the columns of its matrix if `along_columns`.
template <class Panels, bool along_columns>
__device__ inline void copy_panels(shared_place to, const tensor_map &map, const window &from,
                                   shared_place barrier)
{
    const int inner = static_cast<int>(along_columns ? from.column : from.row);
    const int line = static_cast<int>(along_columns ? from.row : from.column);
#pragma unroll
    for (int each = 0; each < Panels::count; ++each) {
        const int at[4] = {inner + each * 64, static_cast<int>(from.between), line,
                           static_cast<int>(from.before)};
        copy_box(to + each * Panels::bytes, map, at, barrier);
    }
}

// Operands of steps that the copy engine brings, `stages` - 1 steps ahead. Each stage has a barrier that
// says that it is full, and one that says that all warps have done with what was in it before; behind
// the stages. See `copied_operands`.
template <class T, class How> struct mapped_operands {
    using left_panels = typename How::template left_panels<T>;
    using right_panels = typename How::template right_panels<T>;
    static constexpr int stages = How::stages;
    static constexpr int left_bytes = left_panels::elements * int{sizeof(T)};
    static constexpr int bytes = left_bytes + right_panels::elements * int{sizeof(T)};
    const tensor_map &left;
    const tensor_map &right;
    shared_place places;
    unsigned phase = 0; // of the barriers of a stage
    __device__ shared_place at(int number) const { return places + number * bytes; }
    __device__ shared_place full(int number) const { return places + stages * bytes + number * 8; }
    __device__ shared_place empty(int number) const { return full(number + stages); }
    // Begins to bring a step.
    template <class Steps> __device__ void load(const Steps &steps, int number)
    {
        arrive_expecting(full(number), bytes);
        copy_panels<left_panels, left_panels::along_depth>(at(number), left, steps.now.left_at,
                                                           full(number));
        copy_panels<right_panels, !right_panels::along_depth>(at(number) + left_bytes, right,
                                                              steps.now.right_at, full(number));
    }
    template <class Steps> __device__ int begin(Steps &steps)
    {
        if (threadIdx.x == 0) {
            for (int number = 0; number < stages; ++number) {
                begin_barrier(full(number), 1);
                begin_barrier(empty(number), How::warps);
            }
        }
        show_to_units(); // the barriers, and that the threads have done with this memory
        __syncthreads();
        int ahead = 0;
        for (; ahead < stages - 1 && steps.find(); ++ahead) {
            if (threadIdx.x == 0) {
                load(steps, ahead);
            }
            steps.take(left_panels::depth);
        }
        __syncwarp();
        return ahead;
    }
    __device__ void wait(int number) { wait_for_phase(full(number), phase); }
    template <class Steps> __device__ bool next(Steps &steps, int number)
    {
        // Before the first step, the last stage is one that all have done with.
        const int free = number == 0 ? stages - 1 : number - 1;
        wait_for_products<1>();
        if (threadIdx.x % 32 == 0) {
            arrive(empty(free));
        }
        const bool more = steps.find();
        if (more) {
            if (threadIdx.x == 0) {
                wait_for_phase(empty(free), phase);
                load(steps, free);
            }
            steps.take(left_panels::depth);
        }
        __syncwarp();
        phase ^= number == stages - 1 ? 1U : 0U;
        return more;
    }
    __device__ void end()
    {
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int number = 0; number < stages; ++number) {
                end_barrier(full(number));
                end_barrier(empty(number));
            }
        }
    }
};

// As `How` says, which is `by_groups`, where the two operands have maps.
template <class How> struct by_maps {
    static constexpr int rows = How::rows;
    static constexpr int columns = How::columns;
    const tensor_map &left;
    const tensor_map &right;
    template <bool single, class T, class At, class To>
    __device__ void multiply(product_steps<single, T, T, At> steps, const To &to, char *staging) const
    {
        mapped_operands<T, How> operands{left, right, place_of(staging)};
        How::template add_up<T>(steps, to, operands);
    }
};

// See `multiply_blocks`; by maps of the two operands, if the launch has them.
template <class How, bool single, class At, class To>
__device__ inline void multiply_mapped(bool mapped, const tensor_map &left, const tensor_map &right,
                                       int64_t turns, At at, const To &to, char *staging)
{
    if (mapped) {
        const by_maps<How> how{left, right};
        multiply_blocks<by_maps<How>, single>(how, at(0), turns, at, to, staging);
    } else {
        multiply_along<How, single>(turns, at, to, staging);
    }
}

} // namespace sketch
