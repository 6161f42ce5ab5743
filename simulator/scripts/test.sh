#!/usr/bin/env bash
# Set up a fresh clone and run the tests.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/test.sh [--npu] [pytest arguments]

Sets up .venv, builds ascend_sim and runs its tests. It needs Python >= 3.10, a C++17 compiler and a package
registry. Later runs skip the setup if no source changed.

  scripts/test.sh                               all tests; without torch_npu, not those of its programs
  scripts/test.sh --npu                         install torch and torch_npu into .venv-npu first
  scripts/test.sh tests/test_runner.py -k chip  some tests; every argument goes to pytest
  scripts/test.sh -n 0 -x --pdb                 one process; start the debugger at the first failure

PYTHON=/path/to/python and CXX=/path/to/compiler replace those on the PATH.
Exit status: pytest's.
TEXT
}

if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then usage && exit 0; fi
setup
if [ "${1:-}" = --npu ]; then
  shift
  setup_torch_npu
fi
cd "$ROOT"
exec "$VENV/bin/python" -m pytest -n 2 "$@"
