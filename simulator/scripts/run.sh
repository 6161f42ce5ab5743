#!/usr/bin/env bash
# Set up a fresh clone and run a kernel: examples/add_custom.cpp on eight simulated cores, compared with NumPy.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
setup test
cd "$ROOT"
exec "$VENV/bin/ascend-sim" kernel examples/add_custom.cpp add_custom 'in:float32[1003]' 'in:float32[1003]' \
  'out:float32[1003]' --block-dim 8 --tiling uint32_t=1003,uint32_t=128 --reference numpy:add "$@"
