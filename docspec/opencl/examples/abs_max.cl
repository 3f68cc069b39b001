// abs_max: work-groups reduce blocks into a workspace, a second launch reduces that. NaN wins.

/* plan
{
  "workspaces": {"PARTIAL": {"type": "float", "elements": "cdiv(N, 4096)"}},
  "launches": [
    {"kernel": "of_block", "global": ["cdiv(N, 4096) * 128"], "local": [128],
     "arguments": ["X", "PARTIAL", "N"]},
    {"kernel": "of_all", "global": [1], "arguments": ["PARTIAL", "Y", "cdiv(N, 4096)"]}
  ]
}
*/

// fmax drops NaN: this keeps it.
float larger(float a, float b) { return isnan(a) || a > b ? a : b; }

__kernel void of_block(__global const float *X, __global float *partial, long N)
{
    __local float parts[128];
    const int item = get_local_id(0);
    const long start = get_group_id(0) * 4096L, stop = min(start + 4096L, N);
    float largest = 0.0f;
    for (long n = start + item; n < stop; n += get_local_size(0)) {
        largest = larger(fabs(X[n]), largest);
    }
    parts[item] = largest;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_of = get_local_size(0) / 2; half_of > 0; half_of /= 2) {
        if (item < half_of) {
            parts[item] = larger(parts[item], parts[item + half_of]);
        }
        barrier(CLK_LOCAL_MEM_FENCE); // Outside of the branch: every item comes here.
    }
    if (item == 0) {
        partial[get_group_id(0)] = parts[0];
    }
}

__kernel void of_all(__global const float *partial, __global float *Y, long blocks)
{
    float largest = 0.0f;
    for (long n = 0; n < blocks; ++n) {
        largest = larger(partial[n], largest);
    }
    Y[0] = largest;
}
