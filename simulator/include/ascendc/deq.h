// SetDeqScale: the register of dequantization, which Cast of int32 to half, CastDequant and AddDeqRelu use.
//
// Rules: a conversion needs the form of SetDeqScale that its page names (SIM-STATE-04). The tensor of the vector form
// has 128 bytes, aligned to 32. An offset has nine bits. On Ascend950, TPipe and InitSocState set the scale to 1.
// Meaning: the vector form stores 16 parameters in the tensor. In a parameter, bits 0 .. 31 are the scale, bits
// 37 .. 45 the offset, and bit 46 is the sign mode. The form's scalar stores are ordered before later vector work, as
// the page's example shows.
// Cost: a scalar cycle; for the vector form, a scalar store for each of the 16 parameters.
// Sources: the pages SetDeqScale, InitSocState; asc-devkit impl/basic_api/dav_3510/kernel_operator_vec_vconv_impl.h for
// the steps of int32 to half.
#pragma once

#include "ascendc/convert.h"
#include "ascendc/sync.h"

namespace AscendC {

struct VdeqInfo {
    static constexpr int kParameters = 16;
    VdeqInfo() = default;
    VdeqInfo(const float scale[kParameters], const int16_t offset[kParameters], const bool sign[kParameters]) {
        for (int i = 0; i < kParameters; ++i) {
            vdeqScale[i] = scale[i];
            vdeqOffset[i] = offset[i];
            vdeqSignMode[i] = sign[i];
        }
    }
    float vdeqScale[kParameters] = {};
    int16_t vdeqOffset[kParameters] = {};
    bool vdeqSignMode[kParameters] = {};
};

}  // namespace AscendC

namespace ascend_sim {

inline uint64_t pack_deq_parameters(float scale, int16_t offset, bool sign_mode) {
    if (offset < -256 || offset > 255)
        broken(Rule::Mode01, "an offset must be -256 .. 255 (nine bits) but got %d.", int(offset));
    return bits<uint32_t>(scale) | (uint64_t(offset) & 0x1ff) << 37 | uint64_t(sign_mode) << 46;
}

// The parameters of a conversion, from their bits. The unit reads ten bits of the scale's mantissa.
struct DeqParameters {
    explicit DeqParameters(uint64_t raw)
        : scale(bits<float>(uint32_t(raw) & 0xffffe000)),
          offset(int32_t(raw >> 37 & 0x1ff) - int32_t(raw >> 45 & 1) * 512),
          is_signed(raw >> 46 & 1) {}
    float scale;
    int32_t offset;
    bool is_signed;
};

// Checks that the last SetDeqScale had this form, and returns the register. `call` is the form in messages.
inline const DeqRegister& check_deq_form(DeqForm form, const char* call) {
    const DeqRegister& contents = deq_register();
    if (contents.form != form)
        broken(Rule::State04, "the instruction needs a call of %s before it but %s.", call,
               contents.form == DeqForm::Unset ? "there is none" : "the last SetDeqScale has another form");
    return contents;
}

// Converts int32 to half: the scaled product is rounded to float and then to half.
class Dequantizer {
public:
    Dequantizer() {
        half scale;
        scale.raw = uint16_t(check_deq_form(DeqForm::Half, "SetDeqScale(half scale)").bits);
        scale_ = half_to_float(scale.raw);
    }
    half operator()(int32_t value) const { return type_.narrow(float(value) * 0x1p-17f * scale_ * 0x1p17f); }

private:
    float scale_;
    Arithmetic<half> type_;
};

inline void set_deq_register(const DeqRegister& value) {
    deq_register() = value;
    finish_scalar(cycles_of(Cost::Mask));
}

}  // namespace ascend_sim

namespace AscendC {

inline void SetDeqScale(half scale, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::S, "SetDeqScale", site);
    ascend_sim::set_deq_register({ascend_sim::DeqForm::Half, scale.raw, {}});
}
inline void SetDeqScale(float scale, int16_t offset, bool signMode, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::S, "SetDeqScale", site);
    ascend_sim::set_deq_register(
        {ascend_sim::DeqForm::Tensor, ascend_sim::pack_deq_parameters(scale, offset, signMode), {}});
}
template <class T>
void SetDeqScale(const LocalTensor<T>& vdeq, const VdeqInfo& vdeqInfo, ASCEND_SIM_SITE) {
    static_assert(std::is_same_v<T, uint64_t>, "SetDeqScale: the parameters are in a tensor of uint64_t");
    constexpr uint32_t kBytes = VdeqInfo::kParameters * sizeof(uint64_t);
    ascend_sim::start(ascend_sim::Pipe::S, "SetDeqScale", site);
    ascend_sim::check_aligned("vdeq", vdeq.view().addr);
    if (vdeq.view().bytes < kBytes)
        ascend_sim::broken(ascend_sim::Rule::Work01, "`vdeq` must have %u bytes but has %u.", kBytes,
                           vdeq.view().bytes);
    const ascend_sim::Range range{vdeq.view().addr, int64_t(vdeq.view().addr) + kBytes};
    ascend_sim::writes("vdeq", vdeq.view(), &range, 1);
    for (int i = 0; i < VdeqInfo::kParameters; ++i)
        vdeq.data()[i] =
            ascend_sim::pack_deq_parameters(vdeqInfo.vdeqScale[i], vdeqInfo.vdeqOffset[i], vdeqInfo.vdeqSignMode[i]);
    ascend_sim::deq_register() = {ascend_sim::DeqForm::Vector, vdeq.view().addr, vdeq.view()};
    ascend_sim::finish_scalar(VdeqInfo::kParameters * ascend_sim::cycles_of(ascend_sim::Cost::ScalarUb));
    ascend_sim::order_pipes(ascend_sim::Pipe::S, ascend_sim::Pipe::V);
}

}  // namespace AscendC
