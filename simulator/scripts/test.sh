#!/usr/bin/env bash
# Set up a fresh clone and run the tests. Arguments go to pytest.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
setup test
cd "$ROOT"
exec "$VENV/bin/python" -m pytest -n 2 "$@"
