#!/usr/bin/env bash
# Set up a fresh clone and run the main job: npu-rope validate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/validate.sh [options of npu-rope validate]

Sets up .venv, builds npu_rope into it, and runs 'npu-rope validate', which compares every case on every
available back end with a float64 reference and with a real ggml. It needs Python >= 3.10, a C++17 compiler and
a package registry. The first run installs all packages, which takes a few minutes; later runs skip the steps
whose inputs did not change.

PYTHON=/path/to/python and CXX=/path/to/compiler replace those on the PATH.
NPU_ROPE_PACKAGES=newest installs the newest packages that pyproject.toml allows, instead of the versions and hashes in
scripts/packages.
Exit status: 0 all results are within their bounds, 1 some are not, 2 bad usage or a named back end is absent.
TEXT
}

case "${1:-}" in
  -h | --help)
    usage
    if [ -x "$VENV/bin/npu-rope" ]; then
      "$VENV/bin/npu-rope" validate --help
    else
      printf '\nAfter the first run, this lists the options of npu-rope validate.\n'
    fi
    exit 0
    ;;
esac

setup test
exec "$VENV/bin/npu-rope" validate "$@"
