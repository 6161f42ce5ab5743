#!/usr/bin/env bash
# Set up a fresh clone and run a kernel: examples/add_custom.cpp on eight simulated cores, compared with NumPy.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/run.sh [options of ascend-sim kernel]

Sets up .venv, builds ascend_sim and runs examples/add_custom.cpp on eight simulated cores. The result is compared with
NumPy. It needs Python >= 3.10, a C++17 compiler and a package registry. Later runs skip the setup if no source changed.

  scripts/run.sh                   run the kernel and print how it spent its cycles
  scripts/run.sh --trace add.json  also write the timeline
  scripts/run.sh --json            print the report as JSON

PYTHON=/path/to/python and CXX=/path/to/compiler replace those on the PATH.
Exit status: that of ascend-sim kernel.
TEXT
}

if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then usage && exit 0; fi
setup
cd "$ROOT"
exec "$VENV/bin/ascend-sim" kernel examples/add_custom.cpp add_custom 'in:float32[1003]' 'in:float32[1003]' \
  'out:float32[1003]' --block-dim 8 --tiling uint32_t=1003,uint32_t=128 --reference numpy:add "$@"
