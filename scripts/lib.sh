# shellcheck shell=bash
# Functions that set up .venv from a clean clone, step by step, and skip finished steps.
# scripts/test.sh, scripts/validate.sh and .ci/run source this file and then call `setup`. scripts/build_wheels.sh and
# scripts/test_wheels.sh use its functions for environments of their own.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV_NPU="$ROOT/.venv-npu" # with torch_npu
# use_venv NAME: the folder of the checkout that the steps set up, with their stamps and logs.
use_venv() { VENV="$ROOT/$1" STAMPS="$ROOT/$1/.stamps" LOGS="$ROOT/$1/.logs"; }
use_venv .venv
TORCH_VERSION=2.13.0
TORCH_NPU_VERSION=2.13.0
TORCH_NPU_HASHES="$ROOT/simulator/scripts/torch_npu.txt"
GGML_NPM="@node-llama-cpp/linux-x64@3.22.1"
GGML_NPM_HASH="sha512-5uCCDNqWCNfaAm8aR/Uzxbo4HBpKgNF91kCHPepKhgMgV2OAmatoefbOlMihsqCiH2Od35E/eUHQCFbfRBJuOg=="
GGML_PIP="pywhispercpp==1.5.1" # its hashes are in scripts/pywhispercpp.txt

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off
export PYTHONUNBUFFERED=1

die() {
  printf '\nerror: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

# ---- a step: print its text, run its command with the output in a log, and record that it is done --

# hash_of WORD|FILE|FOLDER...: print one hash of all contents. An argument that is not a path counts as text.
hash_of() {
  local item
  for item in "$@"; do
    if [ -d "$item" ]; then
      find "$item" -type f -exec cksum {} + | LC_ALL=C sort
    elif [ -f "$item" ]; then
      cksum "$item"
    else
      printf '%s\n' "$item"
    fi
  done | cksum | tr ' ' -
}

# is_done NAME HASH: whether the step was done with this hash.
is_done() { [ "$(cat "$STAMPS/$1" 2>/dev/null)" = "$2" ]; }

mark_done() {
  mkdir -p "$STAMPS" && { printf '%s\n' "$2" >"$STAMPS/$1.new"; } 2>/dev/null &&
    mv "$STAMPS/$1.new" "$STAMPS/$1" && return 0
  rm -f "$STAMPS/$1.new"
  die "$STAMPS/$1 could not be written." "Is the disk full? The next run repeats this step."
}

# publish FOLDER FILE...: copy the files into the folder. If one cannot be copied, the folder keeps its earlier files.
publish() {
  local folder="$1" file
  shift
  mkdir -p "$folder" || return 1
  for file in "$@"; do
    if ! cp "$file" "$folder/.${file##*/}.new"; then
      for file in "$@"; do rm -f "$folder/.${file##*/}.new"; done
      return 1
    fi
  done
  for file in "$@"; do mv "$folder/.${file##*/}.new" "$folder/${file##*/}" || return 1; done
}

forget() { rm -f "$STAMPS/$1"; }

say() { IS_SHOWN=yes && printf '[%s] %s' "$1" "$2"; }

# quietly NAME COMMAND...: run the command with its output in the step's log.
quietly() {
  local log="$LOGS/$1.log"
  shift
  mkdir -p "$LOGS"
  "$@" >>"$log" 2>&1 </dev/null
}

# show_log NAME: print the end of a failed step's log, and the log's path.
show_log() {
  printf 'failed. The last lines of %s:\n' "$LOGS/$1.log" >&2
  tail -n 25 "$LOGS/$1.log" | sed 's/^/  | /' >&2
}

# An interrupt (Ctrl+C) of a step ends the script with a sentence. While a function writes into a log, its
# redirections are also those of the trap; descriptor 8 stays the script's standard error.
# on_interrupt [FOLDER]: an interrupt also removes this folder.
interrupted() {
  [ -z "$INTERRUPT_REMOVES" ] || rm -rf "$INTERRUPT_REMOVES"
  printf '\n%s: interrupted. Run it again: it continues with the step that was interrupted.\n' "$0" >&8
  exit 130
}
on_interrupt() { INTERRUPT_REMOVES="${1:-}" && exec 8>&2 && trap interrupted INT; }
off_interrupt() { trap - INT && exec 8>&-; }

# The number of the current step, and the number of all steps. A skipped step is not counted: STEPS becomes less. A step
# outside of them sets STEP_LABEL.
STEP=0
STEPS=5
IS_SHOWN=yes # whether the current step has printed its number
step_label() { printf '%s' "${STEP_LABEL:-$STEP/$STEPS}"; }

# step NAME HASH TEXT COMMAND...: run a step, or skip it if NAME was done with the same HASH.
step() {
  local name="$1" hash="$2" text="$3" began=$SECONDS
  shift 3
  if is_done "$name" "$hash"; then return 0; fi
  forget "$name"
  say "$(step_label)" "$text ... "
  mkdir -p "$LOGS" && : >"$LOGS/$name.log"
  on_interrupt
  if ! quietly "$name" "$@"; then
    off_interrupt
    show_log "$name"
    return 1
  fi
  off_interrupt
  mark_done "$name" "$hash"
  printf 'done (%d s)\n' $((SECONDS - began))
}

# ---- requirements of the machine ------------------------------------------------------------------

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }

find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11 python3.14 python3.10 python; do
    if command -v "$name" >/dev/null 2>&1 && is_new_enough "$name"; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

require_python() {
  if [ -n "${PYTHON:-}" ]; then
    PYTHON_FOUND="$(command -v "$PYTHON")" && is_new_enough "$PYTHON" || die \
      "PYTHON must name a Python 3.10 or newer but got '$PYTHON'." "Unset it to take the one on the PATH."
  else
    PYTHON_FOUND="$(find_python)" || die "no Python 3.10 or newer was found." \
      "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)," \
      "or name it: PYTHON=/path/to/python3 $0"
  fi
  "$PYTHON_FOUND" -c 'import venv, ensurepip' >/dev/null 2>&1 || die \
    "$PYTHON_FOUND cannot make virtual environments (its venv or ensurepip module is missing)." \
    "Install it (Debian, Ubuntu: apt install python3-venv), or name another: PYTHON=/path/to/python3 $0"
}

# is_compiler WORD...: whether these words run a C++17 compiler.
is_compiler() {
  command -v "$1" >/dev/null 2>&1 &&
    printf '#include <optional>\nint main() { return std::optional<int>(0).value(); }\n' |
    "$@" -std=c++17 -fsyntax-only -x c++ - >/dev/null 2>&1
}

require_compiler() {
  local cxx
  local -a words
  if [ -n "${CXX:-}" ]; then # CMake uses this compiler only; it may be several words, such as "ccache g++"
    read -ra words <<<"$CXX"
    is_compiler "${words[@]}" && return 0
    die "CXX=$CXX is not a C++17 compiler, or is absent." \
      "Name another one (CXX=/path/to/compiler $0), or unset CXX to use c++, g++ or clang++."
  fi
  for cxx in c++ g++ clang++; do
    is_compiler "$cxx" && return 0
  done
  die "no C++17 compiler was found (tried c++, g++, clang++)." \
    "Install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install)," \
    "or name it: CXX=/path/to/compiler $0"
}

# require_writable FOLDER REMEDY: end if no file can be made in the folder, or in the one that would contain it.
require_writable() {
  local folder="$1"
  while [ ! -e "$folder" ]; do folder="$(dirname "$folder")"; done
  [ -d "$folder" ] && [ -w "$folder" ] && return 0
  [ "$folder" != "$1" ] || die "$folder must be a folder that this user can write." "$2"
  die "$1 must be a folder that this user can write, but $folder is not." "$2"
}

# has_tool NAME MAJOR MINOR: whether the system has the tool in this version or a newer one.
has_tool() {
  local version
  version="$("$1" --version 2>/dev/null | head -n 1 | grep -oE '[0-9]+\.[0-9]+' | head -n 1)" || return 1
  [ -n "$version" ] || return 1
  [ "${version%%.*}" -gt "$2" ] || { [ "${version%%.*}" -eq "$2" ] && [ "${version#*.}" -ge "$3" ]; }
}

# require_debian TEXT [PACKAGE TOOL]...: find each tool, a command or a file. If one is absent, install the Debian
# packages as a step, or end with the command that installs them.
require_debian() {
  local text="$1"
  local -a packages=() missing=()
  shift
  while [ $# -gt 0 ]; do
    packages+=("$1")
    command -v "$2" >/dev/null 2>&1 || [ -e "$2" ] || missing+=("$1")
    shift 2
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || die "${missing[*]} must be installed: $text." \
    "Install as root (Debian, Ubuntu): apt-get install ${packages[*]}"
  forget debian
  step debian installed "installing ${missing[*]} with apt-get" install_debian "${missing[@]}" ||
    die "apt-get could not install ${missing[*]}." "Is Debian's package registry reachable?"
}

install_debian() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update && apt-get install -y --no-install-recommends "$@"
}

# ---- the steps ------------------------------------------------------------------------------------

# venv_is_good FOLDER: whether the environment is complete and was made at this path. pip is its last part.
venv_is_good() {
  is_new_enough "$1/bin/python" && [ -f "$1/bin/pip" ] && head -n 2 "$1/bin/pip" | grep -qF "$1/bin/python"
}

# refuse_link FOLDER: end if FOLDER is a link, because "venv --clear" would empty the folder that it leads to.
refuse_link() {
  [ ! -L "$1" ] || die "$1 is a link to $(readlink "$1"), and it is no complete environment of this checkout." \
    "Remove the link (rm $1) and run the command again."
}

step_venv() {
  local began=$SECONDS output
  venv_is_good "$VENV" && return 0
  refuse_link "$VENV"
  require_python
  say "$(step_label)" "making ${VENV##*/} with $("$PYTHON_FOUND" -V) ... "
  on_interrupt
  if ! output="$("$PYTHON_FOUND" -m venv --clear "$VENV" 2>&1)"; then
    off_interrupt
    printf 'failed:\n' >&2
    tail -n 25 <<<"$output" | sed 's/^/  | /' >&2
    die "the environment ${VENV##*/} could not be made."
  fi
  off_interrupt
  printf 'done (%d s)\n' $((SECONDS - began))
}

pip_install() { "$VENV/bin/python" -m pip install "$@"; }

# pip_step NAME HASH TEXT COMMAND...: a step that needs the package registry. pip repeats its requests for minutes, so
# the first such step asks once before, and says so if there is no answer.
pip_step() {
  is_done "$1" "$2" || ask_registry
  step "$@"
}

# pip_settings PYTHON NAME|...: print the settings of pip with these names, of its files and of the environment.
pip_settings() { "$1" -m pip config list 2>/dev/null | grep -E "^(global|install|:env:)\.($2)="; }

# PYTHON_OF_PIP: the Python whose pip the step uses, if it is not that of the environment.
ask_registry() {
  local folder="$LOGS/registry" python="${PYTHON_OF_PIP:-$VENV/bin/python}"
  [ -z "${REGISTRY_ASKED:-}" ] || return 0
  REGISTRY_ASKED=yes
  # pip then asks no index.
  ! pip_settings "$python" no-index | grep -iE "='(1|y|yes|t|true|on)'" >/dev/null || return 0
  mkdir -p "$folder"
  on_interrupt "$folder"
  "$python" -m pip download --retries 0 --timeout 10 --no-deps --dest "$folder" iniconfig \
    >"$folder/log" 2>&1 </dev/null ||
    printf '%s\n' "note: pip could not fetch a small package from its index. If the index does not answer, each step that" \
      "      needs it tries again for up to two minutes; Ctrl+C ends it." >&2
  off_interrupt
  rm -rf "$folder"
}

# PyTorch's index of CPU builds, which pip prefers as local versions (+cpu). PyPI's build for x86_64 needs gigabytes of
# CUDA. Only for a pip without sources of its own, because these may be the only ones that it reaches.
TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
has_own_sources() { pip_settings "$VENV/bin/python" "index-url|extra-index-url|find-links|no-index" >/dev/null; }

# torch is installed first and separately, so that no package that depends on it chooses another build. Its own
# requirements are in the lists of packages.
# install_torch [pip options]
install_torch() {
  local -a index=()
  if [ -n "${TORCH_INDEX_URL:-}" ]; then
    index=(--index-url "$TORCH_INDEX_URL")
  elif ! has_own_sources; then
    index=(--extra-index-url "$TORCH_CPU_INDEX")
  fi
  pip_install ${index[@]+"${index[@]}"} "torch==$TORCH_VERSION" "$@"
}

step_torch() {
  pip_step torch "$(hash_of "torch==$TORCH_VERSION")" \
    "installing torch $TORCH_VERSION (CPU build; the largest step)" install_torch --no-deps ||
    die "torch $TORCH_VERSION could not be installed." \
      "Is a package registry reachable? TORCH_INDEX_URL=<url> names another one for torch."
}

# Files of packages with exact versions and hashes: pip refuses any other file. scripts/renew_packages.sh writes them.
PACKAGES="$ROOT/scripts/packages"
install_listed() { pip_install --require-hashes --only-binary :all: "$@"; }

# install_packages EXTRA: install the packages of an extra and the tools of the build. torch and the ggml peer have
# their own steps.
install_packages() {
  local -a wanted=("$1") lists=()
  local name
  has_tool cmake 3 21 || wanted+=(cmake)
  has_tool ninja 1 8 || wanted+=(ninja)
  if [ "${NPU_ROPE_PACKAGES:-}" = newest ]; then
    install_newest "${wanted[@]}"
    return
  fi
  for name in "${wanted[@]}"; do lists+=(-r "$PACKAGES/$name.txt"); done
  install_listed "${lists[@]}"
}

# install_newest EXTRA [REQUIREMENT...]: the newest versions that pyproject.toml and the registry have, without hashes.
install_newest() {
  local requirements requirement
  requirements="$("$VENV/bin/python" "$ROOT/scripts/requirements.py" "$1" --without torch pywhispercpp)" || return 1
  local -a names=("${@:2}")
  while IFS= read -r requirement; do names+=("$requirement"); done <<<"$requirements"
  pip_install --upgrade "torch==$TORCH_VERSION" "${names[@]}"
}

require_choice_of_packages() {
  case "${NPU_ROPE_PACKAGES:-}" in
    "" | newest) ;;
    *) die "NPU_ROPE_PACKAGES must be newest or unset but got $NPU_ROPE_PACKAGES." ;;
  esac
}

# packages_step NAME EXTRA TEXT
packages_step() {
  local text="$3"
  require_choice_of_packages
  [ -z "${NPU_ROPE_PACKAGES:-}" ] || text="$3, newest versions"
  pip_step "$1" "$(hash_of "$ROOT/pyproject.toml" "$ROOT/simulator/pyproject.toml" "$PACKAGES" "$text")" "$text" \
    install_packages "$2" && return 0
  if grep -qF "DO NOT MATCH THE HASHES" "$LOGS/$1.log"; then
    die "a file has another hash than its list in scripts/packages names." \
      "The registry, or something before it, serves a changed file: do not install it without its hash."
  fi
  die "the packages could not be installed." "Is a package registry reachable?" \
    "If a package has no file for this Python: NPU_ROPE_PACKAGES=newest installs the newest versions, without hashes."
}

step_packages() { packages_step packages "$1" "installing the packages of pyproject.toml ($1)"; }

# The tools that CI and pre-commit run besides the tests.
setup_dev() { STEP_LABEL=dev packages_step packages-dev dev "installing the tools that check the code"; }

install_ggml() {
  if command -v npm >/dev/null 2>&1; then
    echo "npm install $GGML_NPM"
    npm install --prefix "$VENV/ggml" --no-audit --no-fund --ignore-scripts --prefer-offline "$GGML_NPM" &&
      has_npm_hash && return 0
  fi
  echo "pip install $GGML_PIP"
  pip_install --no-deps --only-binary :all: -r "$ROOT/scripts/pywhispercpp.txt"
}

# npm compares a package with the hash that the registry names, and records this hash.
has_npm_hash() {
  grep -qF "\"$GGML_NPM_HASH\"" "$VENV/ggml/node_modules/.package-lock.json" && return 0
  echo "error: $GGML_NPM must have the hash $GGML_NPM_HASH but got another one; it is removed."
  rm -rf "$VENV/ggml"
  return 1
}

# A prebuilt ggml for comparisons. All other steps work without it, so this step may fail.
step_ggml() {
  local npm=without
  command -v npm >/dev/null 2>&1 && npm=with
  if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
    say "$(step_label)" "ggml: no prebuilt library for $(uname -s) $(uname -m); --ggml-lib PATH compares with your own"$'\n'
    return 0
  fi
  step ggml "$(hash_of "$GGML_NPM" "$GGML_PIP" "$npm")" "installing a prebuilt ggml to compare with" \
    install_ggml || printf 'note: continuing without ggml; --ggml-lib PATH compares with your own.\n' >&2
}

# scikit-build-core keeps its build folders, so unchanged files are not compiled again. CMake stores the compiler
# in these folders. Therefore, after a change of CXX or a failed build, the builds start from empty folders.
install_projects() {
  local compiler
  local -a settings=()
  if has_torch_npu; then settings=("--config-settings=cmake.define.NPU_ROPE_TORCH_NPU_DIR=$(torch_npu_folder)"); fi
  compiler="$(hash_of "CXX=${CXX:-}")"
  is_done compiler "$compiler" || rm -rf "$ROOT"/build/cp3*-* "$ROOT"/simulator/build/cp3*-*
  forget compiler
  # -v: the log contains the compiler's output, in which .ci/run searches for warnings.
  pip_install -v --no-build-isolation --no-deps -e "$ROOT/simulator" || return 1
  pip_install -v --no-build-isolation --no-deps ${settings[@]+"${settings[@]}"} -e "$ROOT" || return 1
  mark_done compiler "$compiler"
}

has_libraries() {
  compgen -G "$VENV/lib/python3*/site-packages/npu_rope/lib/libnpu_rope.*" >/dev/null &&
    compgen -G "$VENV/lib/python3*/site-packages/ascend_sim/lib/libascend_sim.*" >/dev/null
}

step_build() {
  local npu=without
  if has_torch_npu; then npu="with torch_npu $TORCH_NPU_VERSION"; fi
  has_libraries || forget build
  step build "$(hash_of "$ROOT/csrc" "$ROOT/op_host" "$ROOT/op_kernel" "$ROOT"/simulator/{src,include,cann,cmake,CMakeLists.txt,pyproject.toml,ascend_sim/__init__.py} "$ROOT/include" \
    "$ROOT/cmake" "$ROOT/CMakeLists.txt" "$ROOT/pyproject.toml" "torch==$TORCH_VERSION" "$npu" "${CXX:-}")" \
    "building the simulator, the C++ library, its torch registration and the simulated kernels" install_projects ||
    die "npu_rope did not build."
}

# torch_npu has an environment of its own, because in its environment every import of torch loads torch_npu and fails
# without CANN. That environment shares all other packages with .venv.
install_torch_npu() {
  venv_is_good "$VENV_NPU" || "$VENV/bin/python" -m venv --clear "$VENV_NPU" || return 1
  "$VENV_NPU/bin/python" -m pip install --no-deps --only-binary :all: -r "$TORCH_NPU_HASHES" &&
    printf 'import site; site.addsitedir("%s")\n' "$(site_packages_of "$VENV")" >"$(site_packages_of "$VENV_NPU")/shared.pth"
}

site_packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])'; }
torch_npu_folder() { compgen -G "$VENV_NPU/lib/python3*/site-packages/torch_npu"; }
has_torch_npu() { is_done torch_npu "$(torch_npu_hash)" && torch_npu_folder >/dev/null; }
torch_npu_hash() { hash_of "$TORCH_NPU_VERSION" "$("$VENV/bin/python" -V)"; }

# torch_npu's wheels are for Linux, on x86_64 and aarch64.
step_torch_npu() {
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64 | Linux-aarch64) ;;
    *)
      say "$(step_label)" "torch_npu: no wheel for $(uname -s) $(uname -m); back end npu is not tested here."$'\n'
      return 0
      ;;
  esac
  if ! has_torch_npu; then
    refuse_link "$VENV_NPU"
    forget torch_npu
  fi
  pip_step torch_npu "$(torch_npu_hash)" "installing torch_npu $TORCH_NPU_VERSION into .venv-npu" install_torch_npu || die \
    "torch_npu $TORCH_NPU_VERSION could not be installed into .venv-npu." \
    "Is a package registry reachable, and does torch_npu have a wheel for this Python?" \
    "To run the tests without back end npu, pass arguments to pytest: scripts/test.sh tests"
  ln -sfn ../.venv/ggml "$VENV_NPU/ggml"
}

# next STEP [ARGUMENT...]: run the next step.
next() {
  if [ "$IS_SHOWN" = yes ]; then STEP=$((STEP + 1)); else STEPS=$((STEPS - 1)); fi
  IS_SHOWN=no
  "$@"
}

# Concurrent set-ups of a checkout wait for each other.
lock_checkout() {
  exec 9<"$ROOT/pyproject.toml"
  if command -v flock >/dev/null 2>&1; then flock 9; fi
}
unlock_checkout() { exec 9<&-; }

# setup [--npu] EXTRA: run all steps, except those that an earlier call completed. Concurrent calls wait for each
# other.
setup() {
  local began=$SECONDS npu=no
  if [ "$1" = --npu ]; then npu=yes STEPS=6 && shift; fi
  cd "$ROOT" || exit 1
  require_writable "$ROOT" "Copy the checkout to such a folder and run the command there."
  require_compiler
  require_choice_of_packages
  lock_checkout
  next step_venv
  export PATH="$VENV/bin:$PATH" VIRTUAL_ENV="$VENV"
  unset PYTHONHOME
  next step_torch
  next step_packages "$1"
  next step_ggml
  if [ "$npu" = yes ]; then next step_torch_npu; fi
  next step_build
  unlock_checkout
  [ $((SECONDS - began)) -lt 5 ] || printf 'set up in %d s; the next time this is skipped.\n' $((SECONDS - began))
}
