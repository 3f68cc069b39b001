// running_sum: a work-group a row; each item adds up a stretch, and then adds what lies before it.

/* plan
{
  "launches": [
    {"kernel": "scanned", "global": ["M * 64"], "local": [64], "arguments": ["X", "Y", "N"]}
  ]
}
*/

__kernel void scanned(__global const float *X, __global float *Y, long N)
{
    __local double before[65];
    const int item = get_local_id(0), items = get_local_size(0);
    __global const float *x = X + get_group_id(0) * N;
    __global float *y = Y + get_group_id(0) * N;
    const long each = (N + items - 1) / items;
    const long start = min(item * each, N), stop = min(start + each, N);

    double total = 0.0; // A carry in f64 costs nothing here.
    for (long n = start; n < stop; ++n) {
        total += x[n];
    }
    before[item + 1] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
        before[0] = 0.0;
        for (int n = 1; n <= items; ++n) {
            before[n] += before[n - 1];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    total = before[item];
    for (long n = start; n < stop; ++n) {
        total += x[n];
        y[n] = (float)total;
    }
}
