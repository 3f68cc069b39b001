// noise: Philox4x32-10, an item an element.

/* plan
{
  "launches": [
    {"kernel": "noisy", "global": ["N"], "local": [128], "arguments": ["X", "Y", "N", "seed", "scale"]}
  ]
}
*/

// Uniform in [0, 1), a multiple of 2^-24, bit for bit as every target makes it.
float uniform_number(ulong seed, ulong offset)
{
    uint c0 = (uint)offset, c1 = (uint)(offset >> 32), c2 = 0, c3 = 0;
    uint low = (uint)seed, high = (uint)(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint a = mul_hi(0xD2511F53u, c0), b = mul_hi(0xCD9E8D57u, c2);
        const uint a_low = 0xD2511F53u * c0, b_low = 0xCD9E8D57u * c2;
        c0 = b ^ c1 ^ low;
        c1 = b_low;
        c2 = a ^ c3 ^ high;
        c3 = a_low;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return (float)(c0 >> 8) * 0x1p-24f;
}

__kernel void noisy(__global const float *X, __global float *Y, long N, long seed, float scale)
{
    const long n = get_global_id(0);
    if (n < N) {
        Y[n] = X[n] + scale * uniform_number((ulong)seed, (ulong)n);
    }
}
