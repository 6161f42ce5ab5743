// aclrt's calls for streams and for the synchronization of the device. scheduler.h describes when queued work runs.
#include <cstring>
#include <utility>

#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

constexpr int32_t kNoTimeout = -1;
constexpr int32_t kComplete = 0, kNotReady = 1;  // aclrtStreamStatus
// ACL_STREAM_... of hicann/runtime include/external/acl/acl_rt.h.
constexpr uint32_t kStreamPersistent = 0x4, kStreamHuge = 0x8, kStreamCpuSchedule = 0x10, kStreamDeviceUseOnly = 0x20;
constexpr uint64_t kContinueOnFailure = 0, kStopOnFailure = 1;
enum StreamAttribute { kFailureMode = 1, kOverflowSwitch, kCustomTag, kCacheOpInfo, kPriority };  // aclrtStreamAttr

aclError make_stream(void** out, const char* call) {
    if (!out) return fail(kInvalidParam, call, "stream must not be null.");
    if (aclError error = check_context(call)) return error;
    note_call_in_host_function(call);
    // hicann/runtime docs/zh/api_ref/06_stream_management.md, aclrtCreateStream. The default stream is one of them.
    const size_t most = is_ascend310p() ? 1024 : 1984;
    auto lock = lock_streams();
    if (number_of_streams(current_device()) >= most)
        return fail(kNoStreamResource, call, "a device must have at most " + std::to_string(most) + " streams.");
    *out = new_stream(current_context()).get();
    return kSuccess;
}

aclError destroy_stream(void* handle, bool waits_for_work, const char* call) {
    if (!handle) return fail(kInvalidParam, call, "stream must not be null.");
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(call);
    note_call_in_host_function(call);
    StreamPosition target{stream, 0};
    {
        // hicann/runtime src/runtime/api/impl/api_error.cc, StreamDestroy.
        auto lock = lock_streams();
        if (is_capturing(*stream)) return refuse_and_keep_capture(*stream, call);
        if (aclError error = check_stream_context(call, *stream)) return error;
        target.position = stream->last_queued;
        // hicann/runtime docs/zh/api_ref/06_stream_management.md, aclrtDestroyStream: synchronize the stream first.
        if (waits_for_work && !has_host_waited(*stream))
            count_beyond_document(std::string(call) + " of a stream with work for which the host has not waited");
    }
    if (waits_for_work) run_until({target});
    end_reports(*stream);
    auto lock = lock_streams();
    forget_stream(handle);
    return kSuccess;
}

// hicann/runtime src/runtime/api/impl/api_error.cc, StreamSynchronize: a timeout is -1 or positive, and a
// stream that is being captured cannot be waited for.
aclError wait_for(void* handle, int32_t timeout_ms, const char* call) {
    count_host_wait("aclrtSynchronizeStream");
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(call);
    if (timeout_ms < kNoTimeout || timeout_ms == 0)
        return fail(kRtInvalid, call, "timeout must be -1 or greater than 0", timeout_ms);
    {
        auto lock = lock_streams();
        if (is_capturing(*stream)) return refuse_captured_stream(*stream, call);
    }
    if (aclError error = check_context(call)) return error;
    return synchronize(stream, call);
}

// hicann/runtime src/runtime/core/src/context/context.cc, Synchronize: no stream of the context may be captured.
// If its cache is off, torch_npu calls this before it frees a tensor. So the check of guard zones must be fast:
// kPartial.
aclError wait_for_device(const char* call) {
    count_host_wait("aclrtSynchronizeDevice");
    if (aclError error = check_context(call)) return error;
    {
        auto lock = lock_streams();
        if (StreamPtr captured = any_captured_stream(current_context().number))
            return refuse_captured_stream(*captured, call);
    }
    if (int32_t status = synchronize_all(call)) return status;
    std::string damage = check_guards("when the device was synchronized", GuardCheck::kPartial);
    return damage.empty() ? kSuccess : fail(kDeviceMemoryError, damage);
}

// On Ascend310P a null handle is not the default stream in calls that set a property of a stream (hicann/runtime
// src/runtime/core/src/runtime.cc, GetCurStream).
aclError check_not_null_on_310p(void* handle, const char* call) {
    return handle || !is_ascend310p() ? kSuccess : fail(kRtInvalid, call, "stream must not be null on this chip.");
}

// hicann/runtime src/runtime/api/impl/api_impl.cc, StreamSetMode: mode 1 cannot be changed back to 0.
aclError change_failure_mode(void* handle, uint64_t mode, const char* call) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(call);
    if (aclError error = check_not_null_on_310p(handle, call)) return error;
    if (mode > kStopOnFailure) return fail(kRtInvalid, call, "mode must be 0 or 1", mode);
    if (aclError error = check_stream_context(call, *stream)) return error;
    auto lock = lock_streams();
    if (mode == kContinueOnFailure && stream->stops_on_failure)
        return fail(kRtNotSupported, call, "mode must stay 1 once it is 1 but got 0.");
    // hicann/runtime docs/zh/api_ref/06_stream_management.md, aclrtSetStreamFailureMode: only once for each stream.
    if (std::exchange(stream->has_failure_mode, true))
        count_beyond_document(std::string(call) + " for a stream whose failure mode was set before");
    set_failure_mode(stream, mode == kStopOnFailure);
    return kSuccess;
}

// Checks a value that a call sets for the stream. The effect of the value is not simulated. hicann/runtime
// src/runtime/api/impl/api_error.cc, ApiErrorDecorator::SetStreamOverflowSwitch and ::SetStreamTag: the stream must not
// be captured; api_impl.cc, the functions of the same names: it is one of the context.
aclError check_ignored_value(void* handle, uint32_t max_value, uint32_t value, const char* call) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(call);
    if (value > max_value) return fail(kRtInvalid, call, "value must be at most " + std::to_string(max_value), value);
    {
        auto lock = lock_streams();
        if (handle && is_capturing(*stream)) return refuse_and_keep_capture(*stream, call);
    }
    return check_stream_context(call, *stream);
}

aclError change_overflow_switch(void* handle, uint32_t value, const char* call) {
    if (aclError error = check_ignored_value(handle, 1, value, call)) return error;
    auto lock = lock_streams();
    if (StreamPtr stream = stream_of(handle)) stream->overflow_switch = value;
    return kSuccess;
}

}  // namespace

aclError refuse_unknown_stream(const char* call) { return refuse_unknown_handle(call, "stream"); }

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtCreateStream(void** out) { return make_stream(out, __func__); }
// hicann/runtime src/runtime/api/impl/api_error.cc, CheckStreamFlags. Unknown flags are ignored
// (src/acl/aclrt_impl/stream.cpp). The streams that wait for no work are not simulated.
NPU_CANN_API aclError aclrtCreateStreamWithConfig(void** out, uint32_t /*priority*/, uint32_t flag) {
    if (!out) return fail(kInvalidParam, __func__, "stream must not be null.");
    if ((flag & kStreamHuge) && is_ascend310p())
        return fail(kRtNotSupported, __func__, "flag must not have 8, ACL_STREAM_HUGE, on this chip", flag);
    if ((flag & kStreamDeviceUseOnly) && (flag & (kStreamDeviceUseOnly - 1)))
        return fail(kRtInvalid, __func__, "flag must have 32, ACL_STREAM_DEVICE_USE_ONLY, alone", flag);
    if (flag & (kStreamPersistent | kStreamCpuSchedule | kStreamDeviceUseOnly))
        return fail(kNotSupported, __func__, "flag must not have 4, 16 or 32: these streams are not simulated", flag);
    return make_stream(out, __func__);
}
NPU_CANN_API aclError aclrtDestroyStream(void* stream) { return destroy_stream(stream, true, __func__); }
NPU_CANN_API aclError aclrtDestroyStreamForce(void* stream) { return destroy_stream(stream, false, __func__); }
NPU_CANN_API aclError aclrtStreamGetId(void* handle, int32_t* id) {
    if (!id) return fail(kInvalidParam, __func__, "streamId must not be null.");
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(__func__);
    // hicann/runtime src/runtime/api/impl/api_impl.cc, GetStreamId: the default stream is the context's.
    if (!handle)
        if (aclError error = check_context(__func__)) return error;
    *id = stream->id;
    return kSuccess;
}

NPU_CANN_API aclError aclrtStreamQuery(void* handle, int32_t* status) {
    if (!status) return fail(kInvalidParam, __func__, "status must not be null.");
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(__func__);
    StreamPosition target{stream, 0};
    {
        // hicann/runtime src/runtime/api/impl/api_error.cc, StreamQuery: the capture is checked before the context.
        auto lock = lock_streams();
        if (is_capturing(*stream)) return refuse_captured_stream(*stream, __func__);
        if (aclError error = check_context(__func__)) return error;
        if (int32_t error = context_error(stream->context)) return error;
        target.position = stream->last_queued;
    }
    run_some({target});
    auto lock = lock_streams();
    *status = stream->last_finished >= target.position ? kComplete : kNotReady;
    if (*status == kComplete) note_host_wait(stream->clock);
    return kSuccess;
}

NPU_CANN_API aclError aclrtSetStreamFailureMode(void* handle, uint64_t mode) {
    return change_failure_mode(handle, mode, __func__);
}
// hicann/runtime src/acl/aclrt_impl/stream.cpp. The effect of the switch is not simulated. On Ascend310P the call has
// no effect and checks no stream (src/runtime/api/api_c_stream.cc, rtSetStreamOverflowSwitch), and its document
// (06_stream_management.md) excludes the chip.
NPU_CANN_API aclError aclrtSetStreamOverflowSwitch(void* handle, uint32_t flag) {
    if (flag > 1) return fail(kInvalidParam, __func__, "flag must be 0 or 1", flag);
    if (is_ascend310p()) {
        count_beyond_document(__func__, kUnlistedChip);
        return kSuccess;
    }
    return change_overflow_switch(handle, flag, __func__);
}

// hicann/runtime src/runtime/api/api_c_stream.cc, rtsStreamSetAttribute. Only the failure mode has an effect; of the
// other attributes only the overflow switch is stored. On Ascend310P the overflow switch and the tag have no effect.
// The priority needs a stream that is not null (src/runtime/api/impl/api_error.cc, SetStreamPriorityValue). The switch
// of operator information needs a context only to find the default stream (api_impl.cc, SetStreamCacheOpInfoSwitch).
NPU_CANN_API aclError aclrtSetStreamAttribute(void* handle, int attribute, void* value) {
    if (!value) return fail(kInvalidParam, __func__, "value must not be null.");
    uint32_t value32 = 0;
    std::memcpy(&value32, value, sizeof(value32));
    switch (attribute) {
        case kFailureMode: {
            uint64_t mode = 0;
            std::memcpy(&mode, value, sizeof(mode));
            return change_failure_mode(handle, mode, __func__);
        }
        case kOverflowSwitch:
        case kCustomTag:
            if (!find_stream(handle)) return refuse_unknown_stream(__func__);
            if (is_ascend310p()) return kSuccess;
            if (attribute == kCustomTag) return check_ignored_value(handle, UINT32_MAX, value32, __func__);
            return change_overflow_switch(handle, value32, __func__);
        case kCacheOpInfo:
            if (!find_stream(handle)) return refuse_unknown_stream(__func__);
            if (aclError error = check_not_null_on_310p(handle, __func__)) return error;
            if (value32 > 1) return fail(kRtInvalid, __func__, "value must be 0 or 1", value32);
            return handle ? kSuccess : check_context(__func__);
        case kPriority:
            if (!handle) return fail(kRtInvalid, __func__, "stream must not be null.");
            return find_stream(handle) ? check_context(__func__) : refuse_unknown_stream(__func__);
        default:
            if (!find_stream(handle)) return refuse_unknown_stream(__func__);
            return fail(kRtInvalid, __func__, "stmAttrType must be 1 to 5", attribute);
    }
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, GetStreamOverflowSwitch.
NPU_CANN_API aclError aclrtGetStreamOverflowSwitch(void* handle, uint32_t* flag) {
    if (!flag) return fail(kInvalidParam, __func__, "flag must not be null.");
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(__func__);
    if (aclError error = check_stream_context(__func__, *stream)) return error;
    auto lock = lock_streams();
    *flag = is_ascend310p() ? 1 : stream->overflow_switch;
    return kSuccess;
}

NPU_CANN_API aclError aclrtSynchronizeStream(void* stream) { return wait_for(stream, kNoTimeout, __func__); }
NPU_CANN_API aclError aclrtSynchronizeStreamWithTimeout(void* stream, int32_t timeout_ms) {
    return wait_for(stream, timeout_ms, __func__);
}
NPU_CANN_API aclError aclrtSynchronizeDevice() { return wait_for_device(__func__); }
NPU_CANN_API aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) {
    if (timeout_ms < kNoTimeout || timeout_ms == 0)
        return fail(kRtInvalid, __func__, "timeout must be -1 or greater than 0", timeout_ms);
    return wait_for_device(__func__);
}
