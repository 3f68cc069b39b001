// weighted_counts: sums by class. WEIGHT may be absent, and is null then. There are no atomics on
// floats: an exchange that is tried until nobody else was faster.

/* plan
{
  "launches": [
    {"fill": "Y", "value": 0},
    {"kernel": "counted", "global": ["N"], "local": [256],
     "arguments": ["CLASS", "SEEN", "WEIGHT", "Y", "N", "C"]}
  ]
}
*/

void atomic_add_float(volatile __global float *place, float value)
{
    volatile __global int *bits = (volatile __global int *)place;
    int seen = *bits, before;
    do {
        before = seen;
        seen = atomic_cmpxchg(bits, before, as_int(as_float(before) + value));
    } while (seen != before);
}

__kernel void counted(__global const long *CLASS, __global const float *SEEN,
                      __global const float *WEIGHT, __global float *Y, long N, long C)
{
    const long n = get_global_id(0);
    if (n >= N) {
        return;
    }
    const long c = CLASS[n];
    if (c >= 0 && c < C) { // A loaded index out of range: its lane neither reads nor writes.
        atomic_add_float(&Y[c], WEIGHT ? SEEN[c] * WEIGHT[c] : SEEN[c]);
    }
}
