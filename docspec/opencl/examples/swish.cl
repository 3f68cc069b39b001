// swish: an item an element, over the whole tensor.

/* plan
{
  "launches": [
    {"kernel": "swished", "global": ["M * N"], "local": [256],
     "arguments": ["X", "Y", "M * N", "beta"]}
  ]
}
*/

__kernel void swished(__global const float *X, __global float *Y, long total, float beta)
{
    const long n = get_global_id(0);
    if (n < total) { // The global size is rounded up to work-groups.
        const float x = X[n];
        Y[n] = x / (1.0f + exp(-beta * x));
    }
}
