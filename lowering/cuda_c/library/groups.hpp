// Matrix products of four warps each, on chips that have instructions for it (compute capability 9.0):
// both operands lie in shared memory, and the matrix units go on while the threads do something else.
#pragma once

#include <cstdint>

#include "product.hpp"

namespace sketch {

// What the threads have written to shared memory can be read by the matrix units from here on.
__device__ inline void show_to_units()
{
#ifdef SKETCH_EMULATOR
    emulated::show_to_units();
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Before the first of several products: sums may be in any state of the pipeline.
__device__ inline void begin_products()
{
#ifndef SKETCH_EMULATOR
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Ends a group of products.
__device__ inline void commit_products()
{
#ifdef SKETCH_EMULATOR
    emulated::commit_products();
#else
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits for all groups of products of these warps but the last `left` ones.
template <int left> __device__ inline void wait_for_products()
{
#ifdef SKETCH_EMULATOR
    emulated::wait_for_products(left, __LINE__);
#else
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(left) : "memory");
#endif
}

// How the matrix units find an operand in shared memory: panels of lines of 128 bytes whose chunks of
// 16 bytes are moved as in `staged`, `panel` bytes from one to the next, which begin on 1024 bytes.
__device__ inline uint64_t described(shared_place place, uint64_t panel)
{
    constexpr uint64_t lines = 8 * 128, moved = uint64_t{1} << 62;
#ifdef SKETCH_EMULATOR
    const uint64_t address = emulated::address_of(place);
#else
    const uint64_t address = place;
#endif
    return (address & 0x3ffff) >> 4 | panel >> 4 << 16 | lines >> 4 << 32 | moved;
}

//# SKETCH_SUMS_32
#define SKETCH_SUMS_8(i)                                                                           \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]),     \
        "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SKETCH_SUMS_32(i)                                                                          \
    SKETCH_SUMS_8(i), SKETCH_SUMS_8(i + 8), SKETCH_SUMS_8(i + 16), SKETCH_SUMS_8(i + 24)

// Waits for all products of these warps. Nothing that reads their sums can be moved before it.
template <int count> __device__ inline void wait_for_sums(float (&all)[count])
{
#ifdef SKETCH_EMULATOR
    wait_for_products<0>();
#else
#pragma unroll
    for (int first = 0; first < count; first += 32) {
        float *const sums = all + first;
        asm volatile("wgmma.wait_group.sync.aligned %32;" : SKETCH_SUMS_32(0) : "n"(0) : "memory");
    }
#endif
}

//# group_half (with to_half, by_groups)
// sums += left @ right, of 64 x 16 and 16 x `columns` elements, later on; `left_across`: the left
// operand's lines lie along its rows, `right_across`: the right one's along its columns.
template <int columns, bool left_across, bool right_across>
__device__ inline void multiply_group(float (&sums)[columns / 2], uint64_t left, uint64_t right, half)
{
#ifdef SKETCH_EMULATOR
    emulated::multiply_group<half, columns, left_across, right_across>(sums, left, right, to_float,
                                                                   __LINE__);
#else
    if constexpr (columns == 64) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, "
                     "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
                     "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                     "%32, %33, 1, 1, 1, %34, %35;"
                     : SKETCH_SUMS_32(0)
                     : "l"(left), "l"(right), "n"(left_across ? 1 : 0),
                       "n"(right_across ? 1 : 0));
    } else if constexpr (columns == 128) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, "
                     "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
                     "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, "
                     "%33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
                     "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                     "%61, %62, %63}, "
                     "%64, %65, 1, 1, 1, %66, %67;"
                     : SKETCH_SUMS_32(0), SKETCH_SUMS_32(32)
                     : "l"(left), "l"(right), "n"(left_across ? 1 : 0),
                       "n"(right_across ? 1 : 0));
    } else {
        static_assert(columns == 256);
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {%0, %1, %2, %3, "
                     "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
                     "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, "
                     "%33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
                     "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                     "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, "
                     "%75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, "
                     "%89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, "
                     "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, "
                     "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
                     "%126, %127}, "
                     "%128, %129, 1, 1, 1, %130, %131;"
                     : SKETCH_SUMS_32(0), SKETCH_SUMS_32(32), SKETCH_SUMS_32(64), SKETCH_SUMS_32(96)
                     : "l"(left), "l"(right), "n"(left_across ? 1 : 0),
                       "n"(right_across ? 1 : 0));
    }
#endif
}

//# group_bfloat16 (with to_bfloat16, by_groups)
// The same in bf16.
template <int columns, bool left_across, bool right_across>
__device__ inline void multiply_group(float (&sums)[columns / 2], uint64_t left, uint64_t right, bfloat16)
{
#ifdef SKETCH_EMULATOR
    emulated::multiply_group<bfloat16, columns, left_across, right_across>(sums, left, right, to_float,
                                                                   __LINE__);
#else
    if constexpr (columns == 64) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, "
                     "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
                     "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                     "%32, %33, 1, 1, 1, %34, %35;"
                     : SKETCH_SUMS_32(0)
                     : "l"(left), "l"(right), "n"(left_across ? 1 : 0),
                       "n"(right_across ? 1 : 0));
    } else if constexpr (columns == 128) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, "
                     "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
                     "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, "
                     "%33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
                     "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                     "%61, %62, %63}, "
                     "%64, %65, 1, 1, 1, %66, %67;"
                     : SKETCH_SUMS_32(0), SKETCH_SUMS_32(32)
                     : "l"(left), "l"(right), "n"(left_across ? 1 : 0),
                       "n"(right_across ? 1 : 0));
    } else {
        static_assert(columns == 256);
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%0, %1, %2, %3, "
                     "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
                     "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, "
                     "%33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
                     "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                     "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, "
                     "%75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, "
                     "%89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, "
                     "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, "
                     "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
                     "%126, %127}, "
                     "%128, %129, 1, 1, 1, %130, %131;"
                     : SKETCH_SUMS_32(0), SKETCH_SUMS_32(32), SKETCH_SUMS_32(64), SKETCH_SUMS_32(96)
                     : "l"(left), "l"(right), "n"(left_across ? 1 : 0),
                       "n"(right_across ? 1 : 0));
    }
#endif
}

// An operand of such products in shared memory, which has `extent` lines along the depth if it is `deep`
// and else panels of `depth` lines across it, with 64 elements each.
template <class T, int extent, bool deep, int threads> struct panels {
    static constexpr bool along_depth = deep;
    static constexpr int depth = 64;
    static constexpr int count = deep ? 1 : extent / 64;
    using panel = staged<T, deep ? extent : depth, 64, threads, deep>;
    static constexpr int size = panel::size;
    static constexpr int elements = count * panel::elements;
    static constexpr int bytes = panel::elements * sizeof(T);
    static constexpr bool even = panel::even;
    static __device__ int64_t first(int64_t line_step) { return panel::first(line_step); }
    static __device__ void copy_whole(shared_place to, const T *from, int64_t line_step)
    {
#pragma unroll
        for (int each = 0; each < count; ++each) {
            panel::copy_whole(to + each * bytes, from + each * 64, line_step);
        }
    }
    // In place, for while products are under way no function may be called.
    static __device__ __forceinline__ void copy(T *to, const T *from, strides steps, int64_t lines,
                                                int64_t left)
    {
#pragma unroll 1
        for (int each = 0; each < count; ++each) {
            panel::copy_inline(to + each * panel::elements, from + each * 64 * steps.step, steps, lines,
                               left - each * 64);
        }
    }
    // The operand from a row or column (a multiple of 64) and a place along the depth (of 16) on.
    static __device__ uint64_t from(shared_place place, int line, int inner)
    {
        return described(place + (deep ? line * 128 + inner * 2 : line / 64 * bytes + inner * 128),
                         deep ? 16 : bytes);
    }
};

//# copied_operands
// Operands of steps that all threads copy, `stages` - 2 steps ahead.
template <class T, class Left, class Right, bool left_deep, bool right_deep, int stages>
struct copied_operands : stages_of<T, Left, Right, left_deep, right_deep> {
    using stages_of<T, Left, Right, left_deep, right_deep>::stages_of;
    static constexpr int depth = Left::depth;
    // Begins with the first steps; returns their number.
    template <class Steps> __device__ int begin(Steps &steps)
    {
        int ahead = 0;
        for (int number = 0; number < stages - 2; ++number) {
            ahead += this->template load<depth>(steps, number) ? 1 : 0;
            commit_chunks();
        }
        return ahead;
    }
    // From here on the matrix units see the operands of a stage.
    __device__ void wait(int)
    {
        wait_for_chunks<stages - 3>();
        show_to_units();
        __syncthreads();
    }
    // Once the products of a stage are asked for: begins with one more step, false where none is left,
    // and waits for the products of the step before.
    template <class Steps> __device__ bool next(Steps &steps, int number)
    {
        // The stage that is complete now is that of the step before the last one, with which all
        // warps were ready before the barrier.
        const int free = number < 2 ? number + stages - 2 : number - 2;
        const bool more = this->template load<depth>(steps, free);
        commit_chunks();
        wait_for_products<1>();
        return more;
    }
    // Nothing is under way any more.
    __device__ void end() { wait_for_chunks<0>(); }
};

// How groups of four warps multiply 16-bit types: `groups` of them stand above each other, each with
// `tall` parts of 64 x `columns` elements. Operands pass through `count` stages.
template <int groups, int tall, int width, int count, bool left_deep, bool right_deep>
struct by_groups {
    static constexpr int stages = count;
    static constexpr int warps = groups * 4;
    static constexpr int rows = groups * tall * 64;
    static constexpr int columns = width;
    template <class T> using left_panels = panels<T, rows, left_deep, groups * 128>;
    template <class T> using right_panels = panels<T, columns, right_deep, groups * 128>;
    // The products of all turns, for one block of sums; `staging` begins on 1024 bytes.
    template <bool single, class T, class At, class To>
    static __device__ void multiply(product_steps<single, T, T, At> steps, const To &to, char *staging)
    {
        const bool complete = steps.now.rows >= rows && steps.now.columns >= columns;
        copied_operands<T, left_panels<T>, right_panels<T>, left_deep, right_deep, stages> operands(
            steps.now, staging, complete);
        add_up<T>(steps, to, operands);
    }
    // The same for `operands` that pass through stages, see `copied_operands`.
    template <class T, class Steps, class To, class Operands>
    static __device__ void add_up(Steps &steps, const To &to, Operands &operands)
    {
        using left_stage = left_panels<T>;
        using right_stage = right_panels<T>;
        const int top = threadIdx.x / 128 * tall * 64;
        float sums[tall][columns / 2];
        const bool complete = steps.now.rows >= rows && steps.now.columns >= columns;
        const auto placed = in_tiles<tall, 64, columns / 8>(
            steps.now, steps.row, steps.column, top + threadIdx.x / 32 % 4 * 16, 0,
            [&](int block, int lower, int tile) { return &sums[block][tile * 4 + lower * 2]; });
        placed.begin(to);
        __syncthreads();
        int ahead = operands.begin(steps);
        for (int number = 0; ahead > 0; number = number + 1 == stages ? 0 : number + 1) {
            operands.wait(number);
            const shared_place left = operands.at(number);
            const shared_place right = left + operands.left_bytes;
            begin_products();
#pragma unroll
            for (int inner = 0; inner < left_stage::depth; inner += 16) {
                const uint64_t of_right = right_stage::from(right, 0, inner);
#pragma unroll
                for (int r = 0; r < tall; ++r) {
                    const uint64_t of_left = left_stage::from(left, top + r * 64, inner);
                    multiply_group<columns, !left_deep, !right_deep>(sums[r], of_left, of_right, T{});
                }
            }
            commit_products();
            ahead += operands.next(steps, number) ? 0 : -1;
        }
#pragma unroll
        for (int r = 0; r < tall; ++r) {
            wait_for_sums(sums[r]);
        }
        operands.end();
        __syncthreads();
        placed.end(to, complete);
    }
};

} // namespace sketch
