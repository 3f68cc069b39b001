// sum_middle: an item an output element; neighbouring items read neighbouring elements of each row.

/* plan
{
  "launches": [
    {"kernel": "summed", "global": ["N", "B"], "local": [64, 1], "arguments": ["X", "Y", "M", "N"]}
  ]
}
*/

__kernel void summed(__global const float *X, __global float *Y, long M, long N)
{
    const long n = get_global_id(0), b = get_global_id(1);
    if (n >= N) {
        return; // There is no barrier behind it.
    }
    __global const float *x = X + b * M * N + n;
    float total = 0.0f, rest = 0.0f;
    for (long m = 0; m < M; ++m) { // With a correction: long sums stay accurate.
        const float value = x[m * N] - rest;
        const float sum = total + value;
        rest = (sum - total) - value;
        total = sum;
    }
    Y[b * N + n] = total;
}
