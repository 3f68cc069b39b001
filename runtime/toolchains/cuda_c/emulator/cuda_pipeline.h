// Asynchronous copies to shared memory: they happen where they are waited for, and not before.
#pragma once

#include "cuda_runtime.h"

inline void __pipeline_memcpy_async(void *to, const void *from, std::size_t bytes,
                                    std::size_t zeros = 0, int line = __builtin_LINE())
{
    const auto place = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if ((bytes != 4 && bytes != 8 && bytes != 16) || place % bytes != 0) {
        emulated::fail("an asynchronous copy is of 4, 8 or 16 aligned bytes: " +
                       emulated::place(line));
    }
    emulated::copy_async(to, from, static_cast<int>(bytes), static_cast<int>(bytes - zeros));
}

inline void __pipeline_commit() { emulated::commit_copies(); }
inline void __pipeline_wait_prior(int groups) { emulated::wait_for_copies(groups); }
