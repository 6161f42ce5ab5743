// The loop over a core's tiles, for the kernels that rotate: the loads and the table of a block overlap with the
// computation of the tile before.
#pragma once

#include "../memory/tiles.h"
#include "kernel_operator.h"

namespace rotation {

using namespace memory;

// Processes the tiles of a window, whose first tile is being loaded and has its table. Kernel has NextInput(), which
// waits for the oldest loaded tile, LoadTile(), ProcessTile() and StoreTile(). Table: ComputedTable or GivenTable.
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
