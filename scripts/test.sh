#!/usr/bin/env bash
# Set up a fresh clone and run the test suite.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/test.sh [pytest arguments]

Sets up .venv (Python >= 3.10, a C++17 compiler and a package registry are all it needs), builds
npu_rope into it, and runs the tests. The first run installs everything, which takes a few minutes;
later runs skip what did not change.

  scripts/test.sh                      the default suite: everything but slow tests and real NPUs
  scripts/test.sh -m slow              the slow tests
  scripts/test.sh tests/ops -k yarn    a part of it; every argument goes to pytest
  scripts/test.sh -n 0 -x --pdb        one process, stop at the first failure, look around

PYTHON=/path/to/python and CXX=/path/to/compiler choose other ones than those on the PATH.
Exit status: pytest's.
TEXT
}

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
esac

setup test
exec "$VENV/bin/python" -m pytest -n 2 -m "not slow and not npu" "$@"
