#!/usr/bin/env bash
# Set up a fresh clone and run the tests. Arguments go to pytest. If the first one is --npu, install torch and torch_npu
# into .venv-npu first. Without torch_npu the tests of its programs are skipped.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
setup test
if [ "${1:-}" = --npu ]; then
  shift
  setup_torch_npu
fi
cd "$ROOT"
exec "$VENV/bin/python" -m pytest -n 2 "$@"
