#!/usr/bin/env bash
# Set up a fresh clone and run the main job: npu-rope validate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/validate.sh [options of npu-rope validate]

Sets up .venv (Python >= 3.10, a C++17 compiler and a package registry are all it needs), builds
npu_rope into it, and runs 'npu-rope validate': every case on every backend that is here, against a
float64 reference and against a real ggml. The first run installs everything, which takes a few
minutes; later runs skip what did not change.

PYTHON=/path/to/python and CXX=/path/to/compiler choose other ones than those on the PATH.
Exit status: 0 all within bounds, 1 some not, 2 bad usage or a forced backend is absent.
TEXT
}

case "${1:-}" in
  -h | --help)
    usage
    if [ -x "$VENV/bin/npu-rope" ]; then
      "$VENV/bin/npu-rope" validate --help
    else
      printf '\nThe options are listed here once .venv exists.\n'
    fi
    exit 0
    ;;
esac

setup test
exec "$VENV/bin/npu-rope" validate "$@"
