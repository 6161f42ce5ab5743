#include "op_host/rope_frequency.h"

namespace npu_rope {

std::vector<long double> rope_frequencies(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride) {
    double low = 0, high = 0;
    if (p.ext_factor != 0) rope_corr_dims(p, &low, &high);
    std::vector<long double> freq(p.n_dims / 2);
    for (int i = 0; i < p.n_dims / 2; ++i) {
        long double own = powl(p.freq_base, -2.0L * i / p.n_dims);
        if (freq_factors) own /= freq_factors[i * factor_stride];
        long double interpolated = own * p.freq_scale;
        double mix = p.ext_factor != 0 ? rope_ramp(low, high, i) * p.ext_factor : 0;
        freq[i] = mix != 0 ? interpolated * (1 - mix) + own * mix : interpolated;
    }
    return freq;
}

double rope_mscale(const npu_rope_params& p) {
    double mscale = p.attn_factor;
    if (p.ext_factor != 0) mscale *= 1.0 + 0.1 * std::log(1.0 / p.freq_scale);
    return mscale;
}

}  // namespace npu_rope
