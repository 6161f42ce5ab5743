// Loop over a core's tiles, for the kernels that rotate. While a tile is processed, the next tile and the data of its
// table are loaded, and the previous tile is stored.
#pragma once

#include "../memory/tiles.h"
#include "kernel_operator.h"

namespace rotation {

using namespace memory;

// Processes the tiles of `window`. The caller has called LoadTile() for the first tile and has built its table. Kernel
// has LoadTile(), ProcessTile(), StoreTile(), and NextInput(), which waits for the oldest tile that LoadTile() loads.
// Table is ComputedTable or GivenTable.
template <typename Kernel, typename Table>
__aicore__ inline void ProcessTiles(Kernel* kernel, Table* table, TileWindow* window) {
    do {
        auto x = kernel->NextInput();
        window->FindNext();
        const bool opens_block = window->has_next && window->next.opens_block != 0;
        if (opens_block) table->Load(window->next);
        if (window->has_next) kernel->LoadTile(window->next);
        if (window->has_previous) kernel->StoreTile(window->previous);
        kernel->ProcessTile(x, window->current);
        if (opens_block) table->Build(window->next.block_tokens);
    } while (window->Advance());
    kernel->StoreTile(window->previous);
}

}  // namespace rotation
