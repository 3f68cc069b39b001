// matmul_bias: work-groups of 16 x 16 items make tiles of Y; tiles of X and W lie in local memory.

/* plan
{
  "launches": [
    {"kernel": "product", "global": ["N", "M"], "local": [16, 16],
     "arguments": ["X", "W", "BIAS", "Y", "M", "N", "K"]}
  ]
}
*/

#define TILE 16

__kernel void product(__global const float *X, __global const float *W, __global const float *BIAS,
                      __global float *Y, long M, long N, long K)
{
    __local float x[TILE][TILE], w[TILE][TILE + 1];
    const int column = get_local_id(0), row = get_local_id(1);
    const long n = get_global_id(0), m = get_global_id(1);
    const long first = get_group_id(0) * TILE; // The first row of W that the group reads.
    float sum = 0.0f;
    for (long k0 = 0; k0 < K; k0 += TILE) {
        // Elements beyond an edge are 0: they change no sum.
        x[row][column] = m < M && k0 + column < K ? X[m * K + k0 + column] : 0.0f;
        w[row][column] = first + row < N && k0 + column < K ? W[(first + row) * K + k0 + column]
                                                            : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; ++k) {
            sum = fma(x[row][k], w[column][k], sum);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (m < M && n < N) {
        Y[m * N + n] = sum + BIAS[n];
    }
}
