#!/usr/bin/env bash
# Install the wheels into an environment with nothing else, and test them there: natively, or for aarch64 under emulation.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
MACHINE="$(uname -m)"
# Packages of the tests that need neither torch nor a compiler.
PYTEST=(pytest pytest-xdist hypothesis mpmath matplotlib)
TIMES="[test_wheels]"
# Tests of operators, validation and the command line. The others compile programs, or test the sources.
SUITE=(tests/reference tests/rope tests/rotary tests/norm tests/ops tests/validation tests/cli)

usage() {
  cat <<TEXT
usage: scripts/test_wheels.sh [ARCH] [--wheels DIR] [--quick] [--rebuild]

Installs the wheels of scripts/build_wheels.sh into an environment that has NumPy and the packages of the command line
but neither torch nor a compiler. There it runs:

1. npu-rope doctor;
2. one call on each back end but npu;
3. what compiles (kernels of one's own, the stand-ins of torch_npu): each must say that it needs a compiler;
4. pip, which must refuse the wheels for another architecture and for Python 3.9; and 2 again with the wheels in a
   folder with spaces and umlauts;
5. 2,000 random calls of every operator on each instruction set of the CPU; all must have the same bits, and for aarch64
   those that the test of the x86_64 wheels wrote to build/wheels/bits-x86_64.json;
6. npu-rope validate --backend cpu --backend sim;
7. for aarch64 also the C tests and the tests of the suite that need no torch;
8. with --rebuild: scripts/build_wheels.sh from the unpacked source distribution, in another folder. The wheels and
   the source distributions must have the same bytes. This takes as long as the first build.

  ARCH          x86_64 or aarch64. Default: this machine's. On x86_64, aarch64 runs under emulation: QEMU's user mode, the
                arm64 Python of Debian's packages in a folder of its own, and aarch64 wheels of NumPy and the others.
                Needs apt-get and dpkg-deb. The script installs qemu-user-static and g++-aarch64-linux-gnu if it runs
                as root. Emulated code is 10 to 30 times slower.
  --wheels DIR  the folder of the wheels. Default: dist.
  --quick       leave out 6 and the suite.
  --rebuild     also do 8, with this machine's compiler.

The first run needs a package registry; later runs need no network. It sets up .venv-test-<ARCH>.
PYTHON=/path/to/python replaces that on the PATH.
Exit status: 0 all tests passed, 1 a test or a step failed, 2 a wrong argument.
TEXT
}

refuse() {
  printf '[test_wheels] %s\n' "$@" >&2
  exit 2
}

# ---- arguments: arch, wheels, quick, rebuild -----------------------------------------------------

arch="" wheels="$ROOT/dist" quick=no rebuild=no
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --quick) quick=yes ;;
    --rebuild) rebuild=yes ;;
    --wheels)
      [ -d "${2:-}" ] || refuse "--wheels must be followed by a folder but got '${2:-}'."
      wheels="$(cd "$2" && pwd)" && shift
      ;;
    x86_64 | aarch64)
      [ -z "$arch" ] || refuse "one ARCH must be named but got $arch and $1."
      arch="$1"
      ;;
    *) refuse "ARCH must be x86_64 or aarch64 but got $1." ;;
  esac
  shift
done
arch="${arch:-$MACHINE}"
[ "$arch" = "$MACHINE" ] || [ "$MACHINE-$arch" = x86_64-aarch64 ] ||
  refuse "ARCH must be $MACHINE on this machine but got $arch. Only x86_64 machines emulate aarch64."
require_writable "$ROOT" "Copy the checkout to such a folder and run the script there."
WHEELS=()
for name in ascend_sim npu_rope; do
  found="$(compgen -G "$wheels/$name-*-py3-none-*_$arch.whl" || true)"
  [ -n "$found" ] || refuse "$wheels must have a wheel of $name for $arch but has none. Make it: scripts/build_wheels.sh $arch"
  [ "$(wc -l <<<"$found")" = 1 ] || refuse "$wheels must have one wheel of $name for $arch but has several:" "$found"
  WHEELS+=("$found")
done
SDISTS=()
for name in ascend_sim npu_rope; do
  sdist="$(compgen -G "$wheels/$name-*.tar.gz" || true)"
  [ "$rebuild" = no ] || [ -f "$sdist" ] ||
    refuse "$wheels must have one source distribution of $name beside --rebuild but has '$sdist'."
  SDISTS+=("$sdist")
done

# ---- the environment -----------------------------------------------------------------------------

install_packages_native() { pip_install --only-binary :all: "$@"; }

# The arm64 Python of Debian's packages, unpacked. apt gets a state of its own: it does not change this system.
unpack_python() {
  local state="$VENV/apt" deb
  local -a apt=(apt-get -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$state/state"
    -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache" -o Debug::NoLocking=1 -o "APT::Sandbox::User=")
  forget emulated
  rm -rf "$state" "$SYSROOT"
  mkdir -p "$state/state/lists/partial" "$state/cache/archives/partial" "$SYSROOT" && : >"$state/status" || return 1
  "${apt[@]}" update || return 1
  "${apt[@]}" install --download-only --no-install-recommends python3 libstdc++6 || return 1
  for deb in "$state"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$SYSROOT" || return 1; done
  rm -rf "$state"
}

# A virtual environment whose python is a script that starts the emulator. Python finds pyvenv.cfg beside the name by
# which it was called.
make_emulated_venv() {
  local version
  version="$(basename "$(compgen -G "$SYSROOT/usr/bin/python3.*[0-9]")")"
  forget packages
  forget wheels
  rm -rf "$VENV/bin" "$VENV/lib" && mkdir -p "$VENV/bin" "$VENV/lib/$version/site-packages" || return 1
  printf 'home = %s/usr/bin\ninclude-system-site-packages = false\n' "$SYSROOT" >"$VENV/pyvenv.cfg"
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nexec "%s" -L "%s" -0 "$0" "%s" "$@"\n' "$(command -v qemu-aarch64-static)" "$SYSROOT" \
    "$SYSROOT/usr/bin/$version" >"$VENV/bin/python"
  chmod +x "$VENV/bin/python" && ln -s python "$VENV/bin/python3" && "$VENV/bin/python" -c 'import ssl, ctypes, sys
assert sys.prefix != sys.base_prefix, sys.prefix'
}

install_packages_emulated() {
  local version
  version="$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" || return 1
  "$PYTHON_FOUND" -m pip install --target "$VENV/lib/python$version/site-packages" --upgrade --only-binary :all: \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
    --implementation cp --python-version "$version" pip "$@"
}

install_wheels() {
  # pip refuses a wheel whose tag does not fit: the emulated Python's own pip reads it.
  "$VENV/bin/python" -m pip install --no-index --no-deps --force-reinstall "${WHEELS[@]}"
}

setup_environment() {
  local -a packages
  mapfile -t packages < <("$PYTHON_FOUND" "$ROOT/scripts/requirements.py" sim --without scikit-build-core)
  packages+=(ml_dtypes) # bfloat16 arrays of the random calls
  if [ "$arch" = "$MACHINE" ]; then
    next step_venv
    next pip_step packages "$(hash_of "${packages[*]}")" "installing NumPy and the command line's packages" \
      install_packages_native "${packages[@]}" || die "the packages could not be installed." "Is a package registry reachable?"
  else
    next require_debian "a compiler and an emulator for aarch64" g++-aarch64-linux-gnu aarch64-linux-gnu-g++ \
      qemu-user-static qemu-aarch64-static
    next step sysroot "$(hash_of "folder $VENV" python3)" "unpacking Debian's arm64 Python" unpack_python ||
      die "the arm64 Python could not be unpacked." "Is Debian's package registry reachable?"
    next step emulated "$(hash_of "folder $VENV" "$(command -v qemu-aarch64-static)")" "making ${VENV##*/}" \
      make_emulated_venv || die "the emulated Python does not run."
    packages+=("${PYTEST[@]}")
    PYTHON_OF_PIP="$PYTHON_FOUND" next pip_step packages "$(hash_of "${packages[*]}")" \
      "installing NumPy and the tests' packages for aarch64" \
      install_packages_emulated "${packages[@]}" || die "the packages could not be installed." "Is a package registry reachable?"
  fi
  next step wheels "$(hash_of "${WHEELS[@]}")" "installing ${WHEELS[*]##*/}" install_wheels ||
    die "the wheels could not be installed."
}

# ---- the tests -----------------------------------------------------------------------------------

# in_environment [NAME=VALUE...] COMMAND...: run a command outside of the checkout with a PATH on which only the environment is, and few
# variables.
in_environment() {
  (cd "$SCRATCH" && exec env -i HOME="$SCRATCH" TMPDIR="$SCRATCH" LANG=C.UTF-8 OMP_WAIT_POLICY=passive \
    PATH="$VENV/bin:$SCRATCH/path" "$@")
}

FAILED=()
# try TEXT COMMAND...: run a test with its output on the terminal; record its verdict and its seconds.
try() {
  local text="$1" began=$SECONDS verdict=ok
  shift
  printf '\n==> %s\n' "$text"
  "$@" || { verdict=FAILED && FAILED+=("$text"); }
  printf '%s %s: %s (%d s)\n' "$TIMES" "$text" "$verdict" $((SECONDS - began))
}

one_call_on_each_back_end() { in_environment python "$ROOT/tests/scripts/wheel_calls.py"; }
installs() { in_environment python "$ROOT/tests/scripts/wheel_installs.py" "${WHEELS[@]}"; }
doctor() { in_environment python -m npu_rope.cli doctor; }
validate() { in_environment python -m npu_rope.cli validate --quiet --backend cpu --backend sim; }

c_tests() {
  local program
  local folder="$ROOT/build/wheels/c-tests-$arch"
  PATH="$ROOT/.venv-wheels/bin:$PATH" cmake -S "$ROOT" -B "$folder" -DCMAKE_TOOLCHAIN_FILE="$ROOT/cmake/$arch.cmake" \
    -DNPU_ROPE_TORCH=OFF -DNPU_ROPE_SIM=OFF -DNPU_ROPE_C_TESTS=ON -DNPU_ROPE_WERROR=ON >/dev/null &&
    PATH="$ROOT/.venv-wheels/bin:$PATH" cmake --build "$folder" -j 2 >/dev/null || return 1
  PATH="$ROOT/.venv-wheels/bin:$PATH" ctest --test-dir "$folder" --output-on-failure
}

# Hashes of the results of random calls: of each instruction set here, and of this machine beside those of x86_64.
same_bits() {
  local file="$ROOT/build/wheels/bits-x86_64.json" isa
  local -a bits=("PYTHONPATH=$ROOT/tests/fuzz" python "$ROOT/tests/fuzz/random_bits.py")
  if [ "$arch" != x86_64 ]; then
    [ -f "$file" ] || { echo "$file is absent. Write it on x86_64: scripts/test_wheels.sh x86_64 --quick" && return 1; }
    in_environment "${bits[@]}" --compare "$file"
    return
  fi
  mkdir -p "${file%/*}"
  in_environment "${bits[@]}" --write "$file" || return 1
  for isa in $(in_environment "${bits[@]}" --isas); do
    in_environment "${bits[@]}" --compare "$file" --isa "$isa" || return 1
  done
}

# unpack FILE FOLDER: unpack a wheel or a source distribution.
unpack() {
  case "$1" in
    *.whl) "$PYTHON_FOUND" -m zipfile -e "$1" "$2" ;;
    *) mkdir -p "$2" && tar -xzf "$1" --strip-components=1 -C "$2" ;;
  esac
}

# Build the unpacked source distribution. Its files have the time SOURCE_DATE_EPOCH of the first build.
rebuilt() {
  local folder="$SCRATCH/Räder noch einmal" file name verdict=0
  unpack "${SDISTS[1]}" "$folder" || return 1
  SOURCE_DATE_EPOCH="$(stat -c %Y "$folder/pyproject.toml")" PYTHON="$PYTHON_FOUND" \
    "$folder/scripts/build_wheels.sh" "$arch" || return 1
  for file in "${WHEELS[@]}" "${SDISTS[@]}"; do
    name="${file##*/}"
    cmp -s "$file" "$folder/dist/$name" && printf 'the same bytes: %s\n' "$name" && continue
    verdict=1
    printf 'other bytes: %s\n' "$name"
    unpack "$file" "$SCRATCH/first/$name" && unpack "$folder/dist/$name" "$SCRATCH/second/$name" || continue
    diff -rq "$SCRATCH/first/$name" "$SCRATCH/second/$name" || true
  done
  return $verdict
}

# The suite without torch (tests/support/absent_torch.py); -P: the installed package, not the folder of the checkout. A
# case with tensors is skipped, so each case is a test. Kernels of tests are cross-compiled.
suite() {
  (cd "$ROOT" && env CXX=aarch64-linux-gnu-g++ PYTHONPATH="$ROOT/tests/support" NPU_ROPE_TEST_CASES=apart OMP_WAIT_POLICY=passive \
    PATH="$VENV/bin:/usr/bin:/bin" "$VENV/bin/python" -P -m pytest -n 2 --dist worksteal -q -p absent_torch \
    -p no:cacheprovider -m "not slow and not peer and not torch and not native" "${SUITE[@]}")
}

cd "$ROOT"
use_venv ".venv-test-$arch"
SYSROOT="$VENV/sysroot"
STEPS=3
[ "$arch" = "$MACHINE" ] || STEPS=5
require_python
unset PYTHONHOME PYTHONPATH
lock_checkout
setup_environment
unlock_checkout
SCRATCH="$(mktemp -d)"
trap 'rm -rf "$SCRATCH"' EXIT
mkdir "$SCRATCH/path"
# Scripts of the environment start with sh; nothing else of the system is on the PATH.
ln -s "$(command -v sh)" "$SCRATCH/path/sh"

try "doctor" doctor
try "a call on each back end, and what needs a compiler" one_call_on_each_back_end
try "pip refuses other machines, and a folder with spaces and umlauts" installs
[ "$arch" = "$MACHINE" ] || try "C tests" c_tests
try "random calls: the same bits" same_bits
if [ "$quick" = no ]; then
  try "validate --backend cpu --backend sim" validate
  [ "$arch" = "$MACHINE" ] || try "the tests that need no torch" suite
fi
[ "$rebuild" = no ] || try "a second build in another folder: the same bytes" rebuilt
printf '\n'
[ ${#FAILED[@]} -eq 0 ] || die "failed: ${FAILED[*]}"
printf '%s all tests of the wheels for %s passed in %d s\n' "$TIMES" "$arch" "$SECONDS"
