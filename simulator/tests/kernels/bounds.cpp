// Bounds of an instruction's accesses: its tensor, the tensor's buffer, a tensor of GM, the guard zones of GM.
#include "mini.h"

KERNEL(add_up_to_the_tensors_end) {
    Ub ub(1024);
    Add(ub.at<float>(512, 64), ub.at<float>(0, 60), ub.at<float>(256, 64), 60);  // keeps SIM-BOUNDS-01
}

KERNEL(add_past_the_tensors_end) {
    Ub ub(1024);
    Add(ub.at<float>(512, 64), ub.at<float>(0, 60), ub.at<float>(256, 64), 61);  // breaks SIM-BOUNDS-01: `src0` is touched at UB bytes [0, 244) but covers [0, 240): 4 bytes too far
}

KERNEL(repeats_up_to_the_tensors_end) {
    Ub ub(4096);
    Adds(ub.at<float>(2048, 64 * 3), ub.at<float>(0, 64 * 2 + 32), 1.0f, 32, 3, {1, 1, 8, 8});  // keeps SIM-BOUNDS-01
}

KERNEL(repeats_past_the_tensors_end) {
    Ub ub(4096);
    Adds(ub.at<float>(2048, 64 * 3), ub.at<float>(0, 64 * 2 + 32), 1.0f, 33, 3, {1, 1, 8, 8});  // breaks SIM-BOUNDS-01: `src`
}

KERNEL(block_stride_past_the_tensors_end) {
    Ub ub(8192);
    Adds(ub.at<float>(4096, 64), ub.at<float>(0, 64 * 2), 1.0f, 64, 1, {1, 3, 8, 8});  // breaks SIM-BOUNDS-01: `src`
}

KERNEL(copy_past_the_tensors_end) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), 72);  // breaks SIM-BOUNDS-01: `dst`
}

KERNEL(copy_of_a_block_that_the_tensor_ends_in) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 12), global<float>(x), {1, 48, 0, 0, 0}, {false, 0, 0, 0.0f});  // warns SIM-BOUNDS-07: `dst` is touched at UB bytes [0, 64) but covers [0, 48).
}

KERNEL(copy_of_whole_blocks_of_the_tensor) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 16), global<float>(x), {1, 48, 0, 0, 0}, {false, 0, 0, 0.0f});  // keeps SIM-BOUNDS-07
}

KERNEL(scalar_at_the_tensors_end) {
    Ub ub(1024);
    ub.at<float>(0, 64).SetValue(63, 1.0f);  // keeps SIM-BOUNDS-01
}

KERNEL(scalar_past_the_tensors_end) {
    Ub ub(1024);
    ub.at<float>(0, 64).SetValue(64, 1.0f);  // breaks SIM-BOUNDS-01: UB bytes [256, 260)
}

KERNEL(fill_up_to_the_end_of_ub) {
    Ub ub(196608);
    Duplicate(ub.at<float>(196608 - 256, 64), 1.0f, 64);  // keeps SIM-BOUNDS-01
}

KERNEL(scalar_before_a_tensor_without_elements) {
    Ub ub(1024);
    float value = ub.at<float>(256, 0).GetValue(-1);  // breaks SIM-BOUNDS-01: `tensor` is touched at UB bytes [252, 256) but covers [256, 256): 4 bytes before its start.
    (void)value;
}

KERNEL(offset_past_the_tensors_end) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 64);
    Duplicate(t[72], 1.0f, 8);  // breaks SIM-BOUNDS-01: `dst`
}

KERNEL(tensor_inside_its_buffer) {
    Ub ub(1024);
    Duplicate(ub.at<float>(512, 128), 1.0f, 8);  // keeps SIM-BOUNDS-02
}

KERNEL(tensor_longer_than_its_buffer) {
    Ub ub(1024);
    Duplicate(ub.at<float>(512, 129), 1.0f, 8);  // breaks SIM-BOUNDS-02: `dst` covers UB bytes [512, 1028) but its buffer is [0, 1024)
}

KERNEL(size_set_past_the_buffer) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    t.SetSize(300);
    Duplicate(t, 1.0f, 8);  // breaks SIM-BOUNDS-02: `dst`
}

KERNEL(tensor_without_a_buffer) {
    Ub ub(1024);
    LocalTensor<float> t;
    Duplicate(t, 1.0f, 8);  // breaks SIM-BOUNDS-02: `dst` is no tensor
}

KERNEL(copy_in_up_to_the_end) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x)[kBytes / 4 - 8], 8);  // keeps SIM-BOUNDS-03
}

KERNEL(copy_in_past_the_end) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x)[kBytes / 4 - 8], 16);  // breaks SIM-BOUNDS-03: bytes [16352, 16416) of GM tensor `x`, which has 16384
}

KERNEL(copy_in_from_before_the_start) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x - 32), 16);  // breaks SIM-BOUNDS-03: bytes [-32, 32) of GM tensor `x`
}

// The guard zone has 4096 bytes. Before it there is other memory.
KERNEL(copy_in_from_the_begin_of_the_guard_zone) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x - 4096), 16);  // breaks SIM-BOUNDS-03: bytes [-4096, -4032) of GM tensor `x`
}

KERNEL(copy_out_past_the_end) {
    Ub ub(1024);
    DataCopy(global<float>(y)[kBytes / 4 - 8], ub.at<float>(0, 64), 16);  // breaks SIM-BOUNDS-03: GM tensor `y`
}

KERNEL(copy_out_to_nowhere) {
    Ub ub(1024);
    DataCopy(global<float>((GM_ADDR)64), ub.at<float>(0, 64), 16);  // breaks SIM-BOUNDS-03: belong to no tensor
}

// A plain DataCopy reads whole blocks; a DataCopyPad reads only its bytes.
KERNEL(padded_copy_up_to_the_end) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x)[kBytes / 4 - 3], {1, 12, 0, 0, 0}, {false, 0, 0, 0});  // keeps SIM-BOUNDS-03
}

KERNEL(padded_copy_past_the_end) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x)[kBytes / 4 - 3], {1, 16, 0, 0, 0}, {false, 0, 0, 0});  // breaks SIM-BOUNDS-03: GM tensor `x`
}

KERNEL(gm_gap_past_the_end) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), {2, 1, kBytes / 32 - 1, 0});  // breaks SIM-BOUNDS-03: GM tensor `x`
}

KERNEL(gm_gap_up_to_the_end) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), {2, 1, kBytes / 32 - 2, 0});  // keeps SIM-BOUNDS-03
}

KERNEL(scalar_read_past_the_end) {
    float value = global<float>(x).GetValue(kBytes / 4);  // breaks SIM-BOUNDS-03: bytes [16384, 16388)
    (void)value;
}

KERNEL(raw_pointer_at_the_end) {
    y[kBytes - 1] = 1;  // keeps SIM-BOUNDS-04
}

KERNEL(raw_pointer_past_the_end) {
    y[kBytes] = 1;  // breaks SIM-BOUNDS-04 (no line): byte 16384 of GM `y`
}

KERNEL(raw_pointer_before_the_start) {
    y[-1] = 1;  // breaks SIM-BOUNDS-04 (no line): byte -1 of GM `y`
}

// ---- the size passed to SetGlobalBuffer ----------------------------------------------------------------

KERNEL(copies_inside_what_the_buffer_was_given) {
    Ub ub(1024);
    GlobalTensor<float> z = global<float>(y, 512);
    for (int32_t i = 0; i < 2; ++i) DataCopy(z[i * 256], ub.at<float>(0, 256), 256);  // keeps SIM-BOUNDS-05
}

KERNEL(copies_past_what_the_buffer_was_given) {
    Ub ub(1024);
    GlobalTensor<float> z = global<float>(y, 16);
    for (int32_t i = 0; i < 2; ++i) DataCopy(z[i * 256], ub.at<float>(0, 256), 256);  // warns SIM-BOUNDS-05: `dst` touches bytes [0, 1024) of GM `y` but SetGlobalBuffer was given [0, 64).
}

KERNEL(copy_in_before_what_the_buffer_was_given) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x + 256, 64)[-8], 16);  // warns SIM-BOUNDS-05: `src` touches bytes [224, 288) of GM `x` but SetGlobalBuffer was given [256, 512).
}

KERNEL(padded_copy_past_what_the_buffer_was_given) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x, 6), {1, 28, 0, 0, 0}, {false, 0, 0, 0});  // warns SIM-BOUNDS-05: [0, 28)
}

KERNEL(scalar_past_what_the_buffer_was_given) {
    float value = global<float>(x, 6).GetValue(6);  // warns SIM-BOUNDS-05: [24, 28)
    (void)value;
}

KERNEL(copy_of_a_buffer_without_a_size) {
    Ub ub(1024);
    GlobalTensor<float> z;
    z.SetGlobalBuffer((__gm__ float*)y);
    DataCopy(z[256], ub.at<float>(0, 256), 256);  // keeps SIM-BOUNDS-05
}

// ---- indices, counts and offsets that wrap --------------------------------------------------------------

KERNEL(scalar_before_the_first_byte) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    for (int32_t i = 0; i < 8; ++i) t.SetValue(i - 1, 1.0f);  // breaks SIM-BOUNDS-01: [-4, 0) but covers [0, 256)
}

KERNEL(scalar_read_before_the_first_byte) {
    Ub ub(16384);
    float value = ub.at<float>(8192, 64).GetValue(-2049);  // breaks SIM-BOUNDS-01: [-4, 0) but covers [8192, 8448): 8196 bytes before its start.
    (void)value;
}

KERNEL(reference_before_the_first_byte) {
    Ub ub(256);
    ub.at<float>(0, 64)(-1) = 3.0f;  // breaks SIM-BOUNDS-01: [-4, 0)
}

KERNEL(element_4_gib_ahead) {
    Ub ub(256);
    ub.at<float>(0, 64).SetValue(0x40000000, 1.0f);  // breaks SIM-BOUNDS-01: [4294967296, 4294967300)
}

KERNEL(count_that_wraps) {
    Ub ub(256);
    Duplicate(ub.at<float>(0, 64), 1.0f, 0x40000000);  // breaks SIM-BOUNDS-01: [0, 4294967296)
}

KERNEL(index_count_that_wraps) {
    Ub ub(256);
    CreateVecIndex(ub.at<float>(0, 64), 0.0f, 0x40000000u);  // breaks SIM-BOUNDS-01: [0, 4294967296)
}

KERNEL(tensor_that_wraps) {
    Ub ub(32768);
    Duplicate(ub.at<float>(0, 0x40000008u), 1.0f, 8);  // breaks SIM-BOUNDS-02: covers UB bytes [0, 4294967295)
}

KERNEL(tensor_before_its_buffer) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0xffffffe0u, 8);
    Duplicate(t, 1.0f, 8);  // breaks SIM-BOUNDS-02
}

KERNEL(offset_before_the_first_byte) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    Muls(t[-8], t, 2.0f, 16);  // breaks SIM-BOUNDS-02: `dst` begins at UB byte -32 but its buffer is [0, 256).
}

KERNEL(gap_in_ub_that_wraps) {
    Ub ub(1024);
    const uint32_t pitch = 0, used = 1;
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {2, 32, 0, pitch - used, 0}, {false, 0, 0, 0.0f});  // breaks SIM-BOUNDS-01: UB bytes [137438953472
}

KERNEL(pointer_into_ub) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    const float value = *(__ubuf__ float*)t.GetPhyAddr();  // warns SIM-BOUNDS-06: the simulator does not check what the kernel reads and writes through this address.
    Adds(t, t, value, 64);
}

KERNEL(pointer_to_an_element_that_was_not_written) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    volatile float value = *(__ubuf__ float*)buffer.Get<float>().GetPhyAddr();  // warns SIM-BOUNDS-06: through this address; its element had not been written.
    (void)value;
}

KERNEL(address_for_an_instruction) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    DuplicateImpl((__ubuf__ float*)t.GetPhyAddr(), 1.0f, 64);  // keeps SIM-BOUNDS-06
}

KERNEL(offset_back_into_the_tensor) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 64);
    Muls(t[32][-8], t, 2.0f, 8);  // keeps SIM-BOUNDS-02
}

KERNEL(gm_offset_that_wraps) {
    Ub ub(256);
    DataCopy(ub.at<float>(0, 8), global<float>(x)[(1ull << 62) + 8], 8);  // breaks SIM-BOUNDS-03
}

KERNEL(gm_element_that_wraps) {
    global<float>(y).SetValue(1ull << 62, 1.0f);  // breaks SIM-BOUNDS-03
}

KERNEL(gm_offset_back_into_the_tensor) {
    Ub ub(256);
    DataCopy(ub.at<float>(0, 8), global<float>(x)[64][-8], 8);  // keeps SIM-BOUNDS-03
}

KERNEL(gathered_mask_that_wraps) {
    Ub ub(16384);
    uint64_t count = 0;
    GatherMask(ub.at<float>(0, 64), ub.at<float>(8192, 64), 1, true, 0xffffffffu, {1, 1, 8, 0}, count);  // breaks SIM-MASK-01: at most what UB holds
}

KERNEL(gathered_past_the_tensors_end) {
    Ub ub(32768);
    uint64_t count = 0;
    GatherMask(ub.at<float>(0, 64), ub.at<float>(8192, 64), 1, true, 128, {1, 1, 8, 0}, count);  // breaks SIM-BOUNDS-01: `src0` is touched
}

KERNEL(mask_count_that_wraps) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 64);
    SetMaskCount();
    SetVectorMask<float, MaskMode::COUNTER>(0, (1ull << 32) + 64);
    Adds<float, false>(t, t, 2.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});  // breaks SIM-MASK-01: more elements than UB holds
    SetMaskNorm();
    ResetMask();
}

KERNEL(offset_4_gib_ahead) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 64);
    Duplicate(t[0x40000000u], 1.0f, 8);  // breaks SIM-BOUNDS-02
}

KERNEL(offset_2_gib_ahead) {
    Ub ub(256);
    ub.at<uint8_t>(0, 64)[0x7fffffffu].SetValue(0, 1);  // breaks SIM-BOUNDS-02: begins at UB byte 2147483647 but its buffer is [0, 256).
}
