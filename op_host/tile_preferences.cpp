#include "op_host/tile_preferences.h"

namespace npu_rope {

const TilePreferences& tile_preferences() {
    static const TilePreferences preferences;
    return preferences;
}

}  // namespace npu_rope
