#!/usr/bin/env bash
# Set up a fresh clone and run the test suite.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/test.sh [--long | --npu] [pytest arguments]

Sets up .venv and .venv-npu (the real torch_npu), builds npu_rope, and runs three sets of tests:

1. the default suite,
2. the tests of torch_npu on a simulated CANN,
3. the operator tests again, on the simulated CANN by back end npu.

It needs Python >= 3.10, a C++17 compiler and a package registry. The first run installs all packages, which
takes a few minutes; later runs skip the steps whose inputs did not change.

  scripts/test.sh                      all three sets, without long and slow tests
  scripts/test.sh --long               the long tests of all three sets: each takes about a second or more
  scripts/test.sh -m slow              the slow tests: each takes more than a few seconds, or there are very many
  scripts/test.sh tests/rope -k cache  some tests and their long ones, without npu; every argument goes to pytest
  scripts/test.sh -n 0 -x --pdb        one process; start the debugger at the first failure
  scripts/test.sh --npu                the operator tests on back end npu only
  scripts/test.sh --npu tests/rope/test_rope_qk.py -k heads    some of these tests

A test runs many small cases and names those that fail. With NPU_ROPE_TEST_CASES=apart each case is a separate
test, which -k can select by its name.
PYTHON=/path/to/python and CXX=/path/to/compiler replace those on the PATH.
NPU_ROPE_PACKAGES=newest installs the newest packages that pyproject.toml allows, instead of the versions and hashes in
scripts/packages.
Exit status: pytest's; of several runs, the first that is not 0.
TEXT
}

# The operator tests for back end npu, without tests of the CPU library itself.
NPU_TESTS=(tests/ops tests/rope tests/rotary tests/norm/test_rms_norm.py tests/norm/test_rms_norm_backward.py
  tests/norm/test_add_rms_norm.py tests/norm/test_rms_norm_rope.py tests/norm/test_qkv_norm_rope_cache.py
  tests/norm/test_qkv_norm_rope_cache_errors.py tests/norm/test_qk_square_sums.py tests/integrations/test_onnx_backend.py
  --ignore=tests/rope/test_rope_kernels.py)

# Tests that need torch_npu; each test runs in separate processes.
TORCH_NPU_TESTS=(tests/npu/test_npu_rope.py tests/npu/test_first_call.py simulator/tests/programs/test_torch_npu.py)

# Waiting threads sleep, because two test processes with two spinning threads each would slow each other.
export OMP_WAIT_POLICY=passive
# Without bytecode files, each of the hundreds of processes that tests start compiles npu_rope's modules again.
unset PYTHONDONTWRITEBYTECODE

run_default() { "$VENV/bin/python" -m pytest -n 2 --dist worksteal -m "not slow" "$@"; }

run_npu() {
  local argument names_tests=no
  for argument in "$@"; do
    if [ -e "${argument%%::*}" ]; then names_tests=yes; fi
  done
  [ "$names_tests" = yes ] || set -- "${NPU_TESTS[@]}" "$@"
  XDG_CACHE_HOME="$VENV_NPU/cache" NPU_ROPE_TEST_BACKEND=npu "$VENV/bin/npu-rope" sim --report "$LOGS/npu-report.json" -- \
    "$VENV_NPU/bin/python" -m pytest -n 2 --dist worksteal -p no:cacheprovider -m "not slow" "$@"
}

marks="not slow and not long"
case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  --npu)
    shift
    setup --npu test
    run_npu "$@"
    exit
    ;;
  --long)
    [ $# -eq 1 ] || { echo "[test] --long must be the only argument but got: $*" >&2 && exit 2; }
    marks="long and not slow"
    ;;
  ?*)
    setup test
    run_default "$@"
    exit
    ;;
esac

setup --npu test
status=0
COUNTS="$(mktemp -d)"
trap 'rm -rf "$COUNTS"' EXIT
printf '\n==> the default suite\n'
without=()
if has_torch_npu; then without=("${TORCH_NPU_TESTS[@]/#/--ignore=}"); fi
NPU_ROPE_TEST_COUNTS="$COUNTS/default" run_default ${without[@]+"${without[@]}"} -m "$marks" || status=$?
if has_torch_npu; then
  printf '\n==> torch_npu %s on a simulated CANN, no hardware\n' "$TORCH_NPU_VERSION"
  NPU_ROPE_TEST_COUNTS="$COUNTS/torch_npu" run_default "${TORCH_NPU_TESTS[@]}" -m "$marks" || status=$((status ? status : $?))
  printf '\n==> the operator tests on back end npu: torch_npu %s on a simulated CANN, no hardware\n' "$TORCH_NPU_VERSION"
  NPU_ROPE_TEST_COUNTS="$COUNTS/npu" run_npu -m "$marks" || status=$((status ? status : $?))
fi
printf '\n==> summary\n'
"$VENV/bin/python" "$ROOT/tests/support/counts.py" "$COUNTS"/*
exit "$status"
