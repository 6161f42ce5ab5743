// The preferences of the tilings, in place of op_host/tile_preferences.cpp. search_tiles.py sets them.
#include <cstring>

#include "op_host/tile_preferences.h"

namespace {

npu_rope::TilePreferences g_preferences;

}  // namespace

const npu_rope::TilePreferences& npu_rope::tile_preferences() { return g_preferences; }

// Sets member `index` of TilePreferences. -1: resets all members to their defaults.
extern "C" __attribute__((visibility("default"))) void npu_rope_prefer(int index, int64_t value) {
    if (index < 0) {
        g_preferences = {};
    } else {
        std::memcpy(reinterpret_cast<char*>(&g_preferences) + sizeof value * static_cast<size_t>(index), &value,
                    sizeof value);
    }
}
