// Conversions and their round modes. An unsupported pair of types does not compile.
#include "mini.h"

KERNEL(bfloat16_to_nearest) {
    Ub ub(4096);
    Cast(ub.at<bfloat16_t>(2048, 64), ub.at<float>(0, 64), RoundMode::CAST_RINT, 64);  // keeps SIM-ROUND-01
}

KERNEL(bfloat16_without_a_mode) {
    Ub ub(4096);
    Cast(ub.at<bfloat16_t>(2048, 64), ub.at<float>(0, 64), RoundMode::CAST_NONE, 64);  // breaks SIM-ROUND-01
}

KERNEL(exact_without_a_mode) {
    Ub ub(4096);
    Cast(ub.at<float>(2048, 64), ub.at<half>(0, 64), RoundMode::CAST_NONE, 64);  // keeps SIM-ROUND-01
}

KERNEL(exact_with_a_mode) {
    Ub ub(4096);
    Cast(ub.at<float>(2048, 64), ub.at<half>(0, 64), RoundMode::CAST_RINT, 64);  // breaks SIM-ROUND-01
}

KERNEL(integer_without_a_mode) {
    Ub ub(4096);
    Cast(ub.at<int32_t>(2048, 64), ub.at<float>(0, 64), RoundMode::CAST_NONE, 64);  // breaks SIM-ROUND-01
}

KERNEL(integer_floor) {
    Ub ub(4096);
    Cast(ub.at<int32_t>(2048, 64), ub.at<float>(0, 64), RoundMode::CAST_FLOOR, 64);  // keeps SIM-ROUND-01
}

KERNEL(half_to_odd) {
    Ub ub(4096);
    Cast(ub.at<half>(2048, 64), ub.at<float>(0, 64), RoundMode::CAST_ODD, 64);  // keeps SIM-ROUND-01
}

KERNEL(integer_to_odd) {
    Ub ub(4096);
    Cast(ub.at<int32_t>(2048, 64), ub.at<float>(0, 64), RoundMode::CAST_ODD, 64);  // breaks SIM-ROUND-01
}

KERNEL(integers_to_half_by_a_scale) {
    Ub ub(1024);
    SetDeqScale(half(0.5f));
    Cast(ub.at<half>(512, 64), ub.at<int32_t>(0, 64), RoundMode::CAST_NONE, 64);  // keeps SIM-STATE-04
}

KERNEL(integers_to_half_without_a_scale) {
    Ub ub(1024);
    Cast(ub.at<half>(512, 64), ub.at<int32_t>(0, 64), RoundMode::CAST_NONE, 64);  // breaks SIM-STATE-04: the instruction needs a call of SetDeqScale(half scale) before it but there is none.
}

KERNEL(offset_of_ten_bits_after_an_instruction) {
    Ub ub(1024);
    Duplicate(ub.at<half>(0, 64), half(1.0f), 64);
    SetDeqScale(0.5f, int16_t(256), true);  // breaks SIM-MODE-01: an offset must be -256 .. 255 (nine bits) but got 256.
}

KERNEL(integers_to_half_by_parameters_of_another_conversion) {
    Ub ub(1024);
    SetDeqScale(0.5f, int16_t(1), true);
    Cast(ub.at<half>(512, 64), ub.at<int32_t>(0, 64), RoundMode::CAST_NONE, 64);  // breaks SIM-STATE-04: the instruction needs a call of SetDeqScale(half scale) before it but the last SetDeqScale has another form.
}
