#!/usr/bin/env bash
# Make the wheels and the source distributions of npu_rope and ascend_sim.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_venv .venv-wheels
MACHINE="$(uname -m)"
MOST_BYTES=$((25 * 1000 * 1000)) # of a wheel

usage() {
  cat <<TEXT
usage: scripts/build_wheels.sh [ARCH...] [--output DIR]
       scripts/build_wheels.sh --npu [--output DIR]

Makes wheels of ascend_sim and of npu_rope with the simulated kernels and the registration of torch, and both source
distributions. A wheel works with every Python from 3.10 on, with and without torch, and needs no compiler.

  ARCH          x86_64 or aarch64. Default: this machine's. An x86_64 machine cross-compiles for aarch64. That needs
                g++-aarch64-linux-gnu and qemu-user-static, which the script installs if it runs as root and
                finds apt-get.
  --npu         instead make the wheels for this machine's NPU: with the operator package that scripts/build_npu.sh has
                built, and with the binding of torch_npu $TORCH_NPU_VERSION. They keep the tag linux_<arch>, because the
                package needs this CANN, and the binding this torch_npu.
  --output DIR  the folder of the files. Default: dist, or dist/npu with --npu.

auditwheel names each wheel after the oldest glibc that it works with, and adds libgomp (OpenMP) to npu_rope's, whose
metadata then also names the license of libgomp (LICENSE.libgomp). The compiler decides the version of glibc:
manylinux_2_34 with g++ of Debian 12, whose wheels also need the libstdc++ of GCC 11 or newer. For an older one, run the
script with an older distribution's compiler, for example in an image of manylinux_2_28.

Two builds of the same sources with the same compiler give the same bytes, also in another folder. File times are those
of the last commit, or SOURCE_DATE_EPOCH.

The script needs Python >= 3.10, g++ with C++20 and, the first time, a package registry. Later runs need no network. It
sets up .venv-wheels and builds in build/wheels. scripts/test_wheels.sh tests the wheels.
PYTHON=/path/to/python and CXX=/path/to/compiler replace those on the PATH.
Exit status: 0 all files were made, 1 a step failed and the output folder did not change, 2 a wrong argument.
TEXT
}

refuse() {
  printf '[build_wheels] %s\n' "$@" >&2
  exit 2
}

# ---- arguments: archs, npu, output ---------------------------------------------------------------

archs=() npu=no output=""
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --npu) npu=yes ;;
    --output)
      [ -n "${2:-}" ] || refuse "--output must be followed by a folder."
      output="$2" && shift
      ;;
    x86_64 | aarch64) [[ " ${archs[*]-} " == *" $1 "* ]] || archs+=("$1") ;;
    *) refuse "ARCH must be x86_64 or aarch64 but got $1." ;;
  esac
  shift
done
[ "$(uname -s)" = Linux ] || refuse "Wheels are made on Linux only, but this is $(uname -s)."
[ ${#archs[@]} -gt 0 ] || archs=("$MACHINE")
for arch in "${archs[@]}"; do
  [ "$arch" = "$MACHINE" ] || [ "$MACHINE-$arch" = x86_64-aarch64 ] ||
    refuse "ARCH must be $MACHINE on this machine but got $arch. Only x86_64 machines cross-compile, for aarch64."
done
opp="$ROOT/build/npu/opp/packages/vendors/npu_rope"
if [ "$npu" = yes ]; then
  [ "${archs[*]}" = "$MACHINE" ] || refuse "ARCH must be $MACHINE beside --npu but got ${archs[*]}."
  [ -d "$opp" ] || refuse "--npu must find the operator package but $opp is absent. Build it: scripts/build_npu.sh"
fi
if [ -z "$output" ]; then
  output="$ROOT/dist"
  [ "$npu" = no ] || output="$ROOT/dist/npu"
fi
[[ "$output" = /* ]] || output="$PWD/$output"

# ---- the steps -----------------------------------------------------------------------------------

install_tools() { install_listed -r "$PACKAGES/wheels.txt"; }

step_tools() {
  pip_step tools "$(hash_of "$PACKAGES/wheels.txt")" "installing the tools of the builds" install_tools ||
    die "the tools could not be installed." "Is a package registry reachable?"
}

# torch's headers and the library that the registration is linked with; torch itself does not run.
step_torch_headers() {
  pip_step torch "$(hash_of "torch==$TORCH_VERSION")" "installing torch $TORCH_VERSION, for its headers" \
    install_torch --no-deps || die "torch $TORCH_VERSION could not be installed." \
    "Is a package registry reachable? TORCH_INDEX_URL=<url> names another one for torch."
}

step_torch_npu_headers() {
  pip_step torch_npu "$(hash_of "$TORCH_NPU_VERSION")" "installing torch_npu $TORCH_NPU_VERSION, for its headers" \
    pip_install --no-deps --only-binary :all: -r "$TORCH_NPU_HASHES" ||
    die "torch_npu $TORCH_NPU_VERSION could not be installed." "Is a package registry reachable?"
}

step_cross_compiler() {
  require_debian "a compiler and an emulator for aarch64" g++-aarch64-linux-gnu aarch64-linux-gnu-g++ \
    qemu-user-static qemu-aarch64-static
}

# make_wheel FOLDER PROJECT [OPTION...]: make a project's wheel in FOLDER.
make_wheel() {
  local folder="$1" project="$2"
  shift 2
  "$VENV/bin/python" -m build --wheel --no-isolation --skip-dependency-check --outdir "$folder" \
    -C wheel.py-api=py3 -C "build-dir=$folder/build-${project##*/}" "$@" "$project"
}

# The compiler writes these folders into assertions and debug information as the second name.
same_bytes_in_every_folder() {
  local work="$1" folder flags=""
  for folder in "$ROOT=/npu_rope" "$work=/npu_rope/build" "$VENV=/tools"; do flags+=" \"-ffile-prefix-map=$folder\""; done
  # CMake records these paths in libraries and removes them when it installs the libraries, but their lengths remain.
  printf '%s\n' -C cmake.define.CMAKE_BUILD_WITH_INSTALL_RPATH=ON -C "cmake.define.CMAKE_C_FLAGS=${CFLAGS:-}$flags" \
    -C "cmake.define.CMAKE_CXX_FLAGS=${CXXFLAGS:-}$flags"
}

# The options of both projects' builds for an architecture, in the array `options`.
set_options() {
  local arch="$1" work="$2"
  mapfile -t options < <(same_bytes_in_every_folder "$work")
  if [ "$arch" != "$MACHINE" ]; then
    options+=(-C "cmake.define.CMAKE_TOOLCHAIN_FILE=$ROOT/cmake/$arch.cmake")
  fi
}

build_ascend_sim() {
  local arch="$1" work="$2"
  local -a options
  set_options "$arch" "$work"
  rm -rf "$work" && mkdir -p "$work" || return 1
  make_wheel "$work" "$ROOT/simulator" "${options[@]}" || return 1
  # npu_rope is built with the libraries of this wheel.
  "$VENV/bin/python" -m zipfile -e "$work"/ascend_sim-*.whl "$work/site"
}

build_npu_rope() {
  local arch="$1" work="$2" site="$VENV/lib/python3*/site-packages"
  local -a options
  set_options "$arch" "$work"
  # shellcheck disable=SC2086
  options+=(-C cmake.define.NPU_ROPE_TORCH=ON -C "cmake.define.NPU_ROPE_TORCH_DIR=$(compgen -G "$site/torch")")
  if [ "$npu" = yes ]; then
    options+=(-C cmake.define.NPU_ROPE_TORCH_NPU=ON -C "cmake.define.NPU_ROPE_OPP=$opp"
      -C "cmake.define.NPU_ROPE_TORCH_NPU_DIR=$(compgen -G "$site/torch_npu")")
  else
    options+=(-C cmake.define.NPU_ROPE_TORCH_NPU=OFF -C cmake.define.NPU_ROPE_OPP=)
  fi
  PYTHONPATH="$work/site" make_wheel "$work" "$ROOT" "${options[@]}"
}

# state_license WHEEL: name libgomp's license in the metadata of a wheel to which auditwheel added libgomp. pyproject.toml
# names that of the sources, which holds for source distributions and for wheels without libgomp.
state_license() {
  "$VENV/bin/python" - "$1" <<'END'
import pathlib, sys
from auditwheel.wheeltools import InWheelCtx

wheel = pathlib.Path(sys.argv[1])
with InWheelCtx(wheel, wheel) as contents:
    if any(contents.path.glob("*.libs/libgomp*")):
        (metadata,) = contents.path.glob("*.dist-info/METADATA")
        text, sources = metadata.read_text(encoding="utf-8"), "License-Expression: Apache-2.0\n"
        assert sources in text
        both = "License-Expression: Apache-2.0 AND GPL-3.0-or-later WITH GCC-exception-3.1\n"
        metadata.write_text(text.replace(sources, both, 1), encoding="utf-8")
END
}

# auditwheel leaves out the libraries of the other wheel and of torch: those lie where the wheels are installed.
repair() {
  local arch="$1" work="$2" cxx="${CXX:-c++}" wheel
  [ "$arch" = "$MACHINE" ] || cxx="$arch-linux-gnu-g++"
  for wheel in "$work"/*.whl; do
    if [ "$npu" = yes ]; then
      mkdir -p "$work/done" && mv "$wheel" "$work/done" || return 1
      continue
    fi
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH="$(dirname "$($cxx -print-file-name=libgomp.so.1)")" "$VENV/bin/python" -m auditwheel repair \
      --exclude libascend_sim.so --exclude libascend_sim_cann.so --exclude libtorch_cpu.so \
      --wheel-dir "$work/done" "$wheel" || return 1
  done
  for wheel in "$work"/done/*.whl; do
    state_license "$wheel" || return 1
    "$VENV/bin/python" -m auditwheel show "$wheel"
    # auditwheel show knows no --exclude, so it judges a wheel with an excluded library by that library. repair has
    # checked all others, and refuses a wheel that needs a newer glibc than its tag.
    if [ "$npu" = no ] && [[ "${wheel##*/}" != *-manylinux_*_"$arch".whl ]]; then
      echo "$wheel must have a manylinux tag." && return 1
    fi
    if [ "$(stat -c %s "$wheel")" -gt "$MOST_BYTES" ]; then
      echo "$wheel must have at most $MOST_BYTES bytes but has $(stat -c %s "$wheel")." && return 1
    fi
  done
}

build_sdists() {
  local project
  rm -rf "$1" && mkdir -p "$1" || return 1
  for project in "$ROOT/simulator" "$ROOT"; do
    "$VENV/bin/python" -m build --sdist --no-isolation --skip-dependency-check --outdir "$1" "$project" || return 1
  done
}

# fresh NAME TEXT COMMAND...: run a step every time.
fresh() {
  local name="$1"
  shift
  forget "$name"
  step "$name" made "$@" || die "the step failed, and the output folder did not change."
}

build_arch() {
  local arch="$1" work="$WORK/$1"
  # The builds for another architecture ask Python for the name of the platform.
  [ "$arch" = "$MACHINE" ] || export _PYTHON_HOST_PLATFORM="linux-$arch"
  next fresh "ascend_sim-$arch" "building ascend_sim for $arch" build_ascend_sim "$arch" "$work"
  next fresh "npu_rope-$arch" "building npu_rope for $arch" build_npu_rope "$arch" "$work"
  unset _PYTHON_HOST_PLATFORM
  next fresh "repair-$arch" "checking the wheels for $arch" repair "$arch" "$work"
}

cd "$ROOT"
WORK="$ROOT/build/wheels"
STEPS=$((4 + 3 * ${#archs[@]}))
[ "$npu" = no ] || STEPS=$((STEPS + 1))
[[ " ${archs[*]} " == *" $MACHINE "* && ${#archs[@]} = 1 ]] || STEPS=$((STEPS + 1))
require_writable "$ROOT" "Copy the checkout to such a folder and run the script there."
require_writable "$output" "Name another folder: scripts/build_wheels.sh --output DIR"
require_compiler
lock_checkout
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 315532800)}"
export SOURCE_DATE_EPOCH PATH="$VENV/bin:$PATH"
unset PYTHONHOME PYTHONPATH
umask 022

next step_venv
next step_tools
next step_torch_headers
[ "$npu" = no ] || next step_torch_npu_headers
for arch in "${archs[@]}"; do
  [ "$arch" = "$MACHINE" ] || next step_cross_compiler
done
for arch in "${archs[@]}"; do build_arch "$arch"; done
next fresh sdist "packing the source distributions" build_sdists "$WORK/sdist"

# Everything was made: put it into the output folder.
made=()
for arch in "${archs[@]}"; do made+=("$WORK/$arch"/done/*.whl); done
made+=("$WORK"/sdist/*.tar.gz)
publish "$output" "${made[@]}" || die "the files could not be copied into $output, which did not change."
printf '\n%s:\n' "$output"
for file in "${made[@]}"; do
  name="${file##*/}"
  printf '  %8d bytes  %s  %s\n' "$(stat -c %s "$file")" "$(sha256sum <"$file" | cut -d' ' -f1)" "$name"
done
unlock_checkout
