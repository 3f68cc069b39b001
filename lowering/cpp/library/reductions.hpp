// Reductions of SIMD loops. OpenMP's own max and min ignore NaN; these propagate it.
#pragma once

#include "functions.hpp"

//# propagating_max
#pragma omp declare reduction(propagating_max : float, double \
                              : omp_out = sketch::max(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)

//# propagating_min
#pragma omp declare reduction(propagating_min : float, double \
                              : omp_out = sketch::min(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)
