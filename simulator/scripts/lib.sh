# shellcheck shell=bash
# Functions for run.sh and test.sh: set up .venv, and .venv-npu with torch_npu, in this folder. A second run skips finished steps.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"
VENV_NPU="$ROOT/.venv-npu" # separate, because torch loads an installed torch_npu, which needs CANN
LOG="$VENV/setup.log"
TORCH_NPU_VERSION=2.13.0
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

# quietly TEXT COMMAND...: print the text, run the command with its output in a log.
quietly() {
  local text="$1" began=$SECONDS
  shift
  printf '%s ... ' "$text"
  if ! "$@" >>"$LOG" 2>&1 </dev/null; then
    printf 'failed. The last lines of %s:\n' "$LOG" >&2
    tail -n 25 "$LOG" >&2
    exit 1
  fi
  printf 'done (%d s)\n' $((SECONDS - began))
}

# install_listed ENVIRONMENT: install the packages of pyproject.toml (test), the tools of the build and the packages that
# torch and torch_npu need, with exact versions and hashes. npu_rope's scripts/renew_packages.sh writes the list.
install_listed() { "$1/bin/python" -m pip install --require-hashes --only-binary :all: -r "$ROOT/scripts/packages.txt"; }

# setup: install ascend_sim, unless it is installed from the same sources.
setup() {
  local state python="${PYTHON:-python3}"
  command -v "$python" >/dev/null 2>&1 || { printf 'error: %s was not found. PYTHON=/path/to/python3 names a Python >= 3.10.\n' "$python" >&2 && exit 1; }
  state="$(cd "$ROOT" && cksum pyproject.toml scripts/packages.txt CMakeLists.txt $(find include src cann cmake -type f | LC_ALL=C sort) | cksum)"
  [ "$(cat "$VENV/.state" 2>/dev/null)" = "$state" ] && return 0
  [ -x "$VENV/bin/python" ] || { "$python" -m venv "$VENV" || exit 1; }
  : >"$LOG"
  quietly "installing its requirements and the tools of the build" install_listed "$VENV"
  PATH="$VENV/bin:$PATH" quietly "building ascend_sim" "$VENV/bin/python" -m pip install --no-build-isolation --no-deps -e "$ROOT"
  printf '%s\n' "$state" >"$VENV/.state"
}

# setup_torch_npu: install torch (TORCH_INDEX_URL=<url> takes it from another registry) and torch_npu of one version.
# A pip without sources of its own also asks PyTorch's index of CPU builds: PyPI's for x86_64 need gigabytes of CUDA.
setup_torch_npu() {
  local -a index=()
  local state
  state="$TORCH_NPU_VERSION $(cat "$ROOT/scripts/packages.txt" "$ROOT/scripts/torch_npu.txt" | cksum)"
  [ "$(cat "$VENV_NPU/.state" 2>/dev/null)" = "$state" ] && return 0
  "$VENV/bin/python" -m venv --clear "$VENV_NPU" || exit 1
  if [ -n "${TORCH_INDEX_URL:-}" ]; then
    index=(--index-url "$TORCH_INDEX_URL")
  elif ! "$VENV_NPU/bin/python" -m pip config list | grep -E "\.(index-url|extra-index-url|find-links|no-index)=" >/dev/null; then
    index=(--extra-index-url https://download.pytorch.org/whl/cpu)
  fi
  quietly "installing torch $TORCH_NPU_VERSION" "$VENV_NPU/bin/python" -m pip install \
    --no-deps ${index[@]+"${index[@]}"} "torch==$TORCH_NPU_VERSION"
  quietly "installing the packages of torch_npu" install_listed "$VENV_NPU"
  quietly "installing torch_npu $TORCH_NPU_VERSION" "$VENV_NPU/bin/python" -m pip install \
    --no-deps --only-binary :all: -r "$ROOT/scripts/torch_npu.txt"
  printf '%s\n' "$state" >"$VENV_NPU/.state"
}
