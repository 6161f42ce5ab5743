#include "cann/runtime/device_flags.h"

#include <algorithm>

#include "cann/runtime/scheduler_state.h"

namespace simulated_cann {

void DeviceFlag::note_record(const std::shared_ptr<Record>& record) {
    queued.erase(std::remove_if(queued.begin(), queued.end(), [](const auto& each) { return each->is_done; }),
                 queued.end());
    queued.reserve(queued.size() + 1);
    setting.reserve(setting.size() + 1);  // from here on, nothing needs memory
    queued.push_back(record);
    ++record_count;
    // A wait can end at an earlier record, so a record that happens after it changes nothing.
    for (const auto& earlier : setting)
        if (record->clock.contains(earlier->clock)) return;
    setting.push_back(record);
}

void DeviceFlag::note_reset(const Clock& clock, size_t actor) {
    if (clock.at(reset_actor) >= reset_step) cleared.clear();
    const auto is_before = [&](const auto& record) { return clock.contains(record->clock); };
    cleared.reserve(cleared.size() + setting.size());  // from here on, nothing needs memory
    std::copy_if(setting.begin(), setting.end(), std::back_inserter(cleared), is_before);
    setting.erase(std::remove_if(setting.begin(), setting.end(), is_before), setting.end());
    record_count = setting.size();
    reset_actor = actor;
    reset_step = clock.at(actor);
}

bool DeviceFlag::join_clock(const StreamPtr& stream) const {
    join_device_wait();
    stream->clock.join(scheduler_state().host);
    std::vector<std::shared_ptr<Record>> setters = setting;
    if (stream->clock.at(reset_actor) < reset_step) setters.insert(setters.end(), cleared.begin(), cleared.end());
    if (setters.empty()) return false;
    Clock common = setters.front()->clock;
    for (const auto& record : setters) common.meet(record->clock);
    stream->clock.join(common);
    return true;
}

int32_t enqueue_wait(const StreamPtr& stream, const std::shared_ptr<DeviceFlag>& flag, std::shared_ptr<void> waits) {
    Work work(Work::Kind::kWait, "aclrtStreamWaitEvent");
    work.flag = flag;
    work.waits = std::move(waits);
    return enqueue(stream, std::move(work));
}

int32_t enqueue_reset(const StreamPtr& stream, const std::shared_ptr<DeviceFlag>& flag) {
    Work work(Work::Kind::kReset, "aclrtResetEvent");
    work.flag = flag;
    return enqueue(stream, std::move(work));
}

}  // namespace simulated_cann
