// The SoCs, as data. Sources, in the notes on the Ascend architecture the project keeps: the chip
// table (cores, clock, UB, L2 and DDR rates of CANN's platform files), the measured samples (copy
// instruction cost, burst sizes, one core's bandwidth) and the vector unit model. Rates marked
// "guess" have no published figure. Nothing here was fitted to hardware.
#include <cstring>

#include "simulator/src/profile.h"

namespace npu_sim {
namespace {

// All four 910B and the 910_93 are the same core: what the samples measured on an A2.
constexpr double kCopyIssue = 20;     // 128-byte copies: about 20 cycles per instruction
constexpr double kReadLatency = 240;  // the vendor's model of L2: 241 cycles
constexpr double kWriteLatency = 96;  // and 96
constexpr double kBurst = 17;         // 64 rows x 128 bytes: 1.37 of 1.55 TB/s
constexpr double kVectorIssue = 22;   // 1000 adds of 64 repeats: 86 cycles each
constexpr double kBarrier = 1;        // guess: the pipeline's depth is in the 22 already
constexpr double kFlag = 8;           // guess: 5 to 10
constexpr double kScalar = 2;         // guess
constexpr double kScalarAccess = 30;  // guess: 30 to 60 for a round trip
constexpr double kCoreGm = 24;        // one core alone: 43 GB/s at 1.8 GHz
constexpr double kMte3 = 64;          // ub_to_l2_rate, ub_to_ddr_rate

// DDR bytes per cycle are per AI core in CANN's files: 32 for each of 24 (20) cores, two vector
// cores sharing one.
constexpr Profile kProfiles[] = {
    {"Ascend910B1", "ascend910b", 220, 48, 196608, 188416, 1.85, 32.0 * 24, kCoreGm, kMte3, kCopyIssue, kReadLatency,
     kWriteLatency, kBurst, kVectorIssue, kBarrier, kFlag, kScalar, kScalarAccess},
    {"Ascend910B2", "ascend910b2", 220, 48, 196608, 188416, 1.80, 32.0 * 24, kCoreGm, kMte3, kCopyIssue, kReadLatency,
     kWriteLatency, kBurst, kVectorIssue, kBarrier, kFlag, kScalar, kScalarAccess},
    {"Ascend910B3", "ascend910b3", 220, 40, 196608, 188416, 1.80, 32.0 * 20, kCoreGm, kMte3, kCopyIssue, kReadLatency,
     kWriteLatency, kBurst, kVectorIssue, kBarrier, kFlag, kScalar, kScalarAccess},
    {"Ascend910B4", "ascend910b4", 220, 40, 196608, 188416, 1.50, 32.0 * 20, kCoreGm, kMte3, kCopyIssue, kReadLatency,
     kWriteLatency, kBurst, kVectorIssue, kBarrier, kFlag, kScalar, kScalarAccess},
    {"Ascend910_9392", "ascend910_93", 220, 48, 196608, 188416, 1.85, 32.0 * 24, kCoreGm, kMte3, kCopyIssue,
     kReadLatency, kWriteLatency, kBurst, kVectorIssue, kBarrier, kFlag, kScalar, kScalarAccess},
    // Eight AI cores, DDR 17 and L2 114 bytes per cycle each; instruction costs as above (guess).
    {"Ascend310P3", "ascend310p", 200, 8, 262144, 253952, 1.06, 17.0 * 8, 17, 17, kCopyIssue, kReadLatency,
     kWriteLatency, kBurst, kVectorIssue, kBarrier, kFlag, kScalar, kScalarAccess},
    // Copy instructions measured at about 39 cycles; V to V order is the hardware's.
    {"Ascend950", "ascend950", 310, 64, 253952, 253952, 1.65, 31.0 * 32, kCoreGm, kMte3, 39, kReadLatency,
     kWriteLatency, kBurst, kVectorIssue, kBarrier, kFlag, kScalar, kScalarAccess},
};

}  // namespace

const Profile* find_profile(const char* name) {
    for (const Profile& p : kProfiles)
        if (!std::strcmp(p.name, name) || !std::strcmp(p.soc, name)) return &p;
    return nullptr;
}

const Profile* profile_at(int32_t index) {
    return index >= 0 && index < int32_t(sizeof kProfiles / sizeof *kProfiles) ? &kProfiles[index] : nullptr;
}

}  // namespace npu_sim
