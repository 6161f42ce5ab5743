// The simulated memory of one tensor of a launch.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "src/core.h"

namespace ascend_sim {

// A 512-byte aligned copy between two guard zones.
class Arena {
public:
    // If data is null, every byte is `fill`.
    Arena(const void* data, uint64_t bytes, int fill) : bytes_(bytes) {
        const uint64_t inner = (bytes + kAlignment - 1) / kAlignment * kAlignment;
        store_.reset(new uint8_t[inner + 2 * kGuardBytes + kAlignment]);
        base_ = store_.get() + kGuardBytes;
        base_ += (kAlignment - reinterpret_cast<uintptr_t>(base_) % kAlignment) % kAlignment;
        std::memset(base_ - kGuardBytes, kGuard, kGuardBytes);
        std::memset(base_ + bytes, kGuard, inner - bytes + kGuardBytes);
        if (!bytes) return;
        if (data)
            std::memcpy(base_, data, bytes);
        else
            std::memset(base_, fill, bytes);
    }
    uint8_t* base() const { return base_; }
    // Offset of the changed guard byte that is nearest to the tensor; INT64_MIN if no guard byte has changed.
    int64_t broken_guard() const {
        for (uint64_t i = 0; i < kGuardBytes; ++i) {
            if (base_[bytes_ + i] != kGuard) return int64_t(bytes_ + i);
            if (base_[-1 - int64_t(i)] != kGuard) return -1 - int64_t(i);
        }
        return INT64_MIN;
    }

private:
    static constexpr uint64_t kAlignment = 512;
    static constexpr uint8_t kGuard = 0xA5;

    std::unique_ptr<uint8_t[]> store_;
    uint8_t* base_;
    uint64_t bytes_;
};

}  // namespace ascend_sim
