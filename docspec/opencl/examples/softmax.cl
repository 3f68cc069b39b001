// softmax of every row: a work-group a row, which its items go through together.

/* plan
{
  "launches": [
    {
      "kernel": "softmax_rows",
      "global": ["M * 64"],
      "local": [64],
      "arguments": ["X", "Y", "N", {"local": "64 * 4"}]
    }
  ]
}
*/

__kernel void softmax_rows(__global const float *X, __global float *Y, long N, __local float *parts)
{
    const long row = get_group_id(0);
    const int item = get_local_id(0), items = get_local_size(0);
    __global const float *x = X + row * N;
    __global float *y = Y + row * N;

    float largest = -INFINITY;
    for (long n = item; n < N; n += items) {
        largest = fmax(largest, x[n]); // May lose NaN: the sum meets every NaN of the row.
    }
    parts[item] = largest;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int other = 0; other < items; ++other) {
        largest = fmax(largest, parts[other]);
    }
    barrier(CLK_LOCAL_MEM_FENCE); // All have read the parts before they are written again.

    float total = 0.0f;
    for (long n = item; n < N; n += items) {
        y[n] = exp(x[n] - largest);
        total += y[n];
    }
    parts[item] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    total = 0.0f;
    for (int other = 0; other < items; ++other) {
        total += parts[other];
    }
    for (long n = item; n < N; n += items) {
        y[n] /= total;
    }
}
