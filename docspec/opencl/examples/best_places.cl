// best_places: an item a row. It keeps the four best in order; of equals the first one stays first.

/* plan
{
  "launches": [
    {"kernel": "placed", "global": ["M"], "local": [64],
     "arguments": ["X", "VALUES", "PLACES", "LEAST", "M", "N"]}
  ]
}
*/

// Whether a comes before b in falling order: NaN is larger than any number.
bool larger(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }
bool smaller(float a, float b) { return isnan(a) ? !isnan(b) : a < b; }

__kernel void placed(__global const float *X, __global float *VALUES, __global long *PLACES,
                     __global long *LEAST, long M, long N)
{
    const long m = get_global_id(0);
    if (m >= M) {
        return;
    }
    float value[4];
    long place[4], least = 0;
    int held = 0;
    __global const float *x = X + m * N;
    for (long n = 0; n < N; ++n) {
        if (smaller(x[n], x[least])) {
            least = n;
        }
        if (held == 4 && !larger(x[n], value[3])) {
            continue;
        }
        int k = held < 4 ? held++ : 3;
        for (; k > 0 && larger(x[n], value[k - 1]); --k) {
            value[k] = value[k - 1];
            place[k] = place[k - 1];
        }
        value[k] = x[n];
        place[k] = n;
    }
    for (int k = 0; k < 4; ++k) {
        VALUES[m * 4 + k] = value[k];
        PLACES[m * 4 + k] = place[k];
    }
    LEAST[m] = least;
}
