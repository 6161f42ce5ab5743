#!/usr/bin/env bash
# Build the operator package for Ascend NPUs: one file to install on the machine that has them.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

usage() {
  cat <<TEXT
usage: scripts/build_npu.sh [SOC...]

Builds build/npu/opp_project/build_out/custom_opp_<os>_<machine>.run with CANN's own tools, for all of
ascend910b, ascend910_93 and ascend310p or for the SoCs named. Needs CANN 8.1's toolkit (ASCEND_HOME_PATH,
which its set_env.sh sets), CMake, make, a C++17 compiler and Python 3; no NPU. What comes out travels with
npu_rope that is installed or packed afterwards, and is found when npu_rope is imported:

  pip install --no-build-isolation .         or: pip wheel --no-build-isolation --no-deps .

Without Python, install it with

  ./custom_opp_<os>_<machine>.run            into CANN's folder, or
  ./custom_opp_<os>_<machine>.run --install-path=DIR, then: source DIR/vendors/npu_rope/bin/set_env.bash

Exit status: 0 built, 1 the build failed, 2 something that it needs is missing.
TEXT
}

missing() {
  printf '[build_npu] %s\n' "$@" >&2
  exit 2
}

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
esac

for soc in "$@"; do
  case "$soc" in
    ascend910b | ascend910_93 | ascend310p) ;;
    *) missing "SOC must be ascend910b, ascend910_93 or ascend310p but got $soc." ;;
  esac
done

cann="${ASCEND_HOME_PATH:-}"
[ -n "$cann" ] || for folder in /usr/local/Ascend/ascend-toolkit/latest "$HOME/Ascend/ascend-toolkit/latest"; do
  [ ! -d "$folder" ] || cann="$folder"
done
where="Get Ascend-cann-toolkit 8.1.RC1 from https://www.hiascend.com/cann, install it, and source its set_env.sh."
[ -n "$cann" ] || missing "CANN's toolkit must be installed but ASCEND_HOME_PATH is not set." "$where"
[ -d "$cann" ] || missing "ASCEND_HOME_PATH must be CANN's folder but got $cann, which is none." "$where"
for part in tools/op_project_templates/ascendc/customize/cmake/func.cmake include/register/op_def_registry.h \
  toolkit/tools/opbuild/op_build; do
  [ -e "$cann/$part" ] || missing "CANN must have $part but $cann has not (is it the toolkit, version 8.1?)." "$where"
done
for tool in cmake make python3 "${CXX:-c++}"; do
  command -v "$tool" >/dev/null || missing "$tool must be installed but is not on the PATH."
done

cd "$ROOT"
units="$(IFS=';' && printf '%s' "$*")"
ASCEND_HOME_PATH="$cann" cmake --preset npu ${units:+"-DNPU_ROPE_COMPUTE_UNITS=$units"} || exit 1
cmake --build --preset npu || exit 1
find build/npu/opp_project/build_out -maxdepth 1 -name 'custom_opp_*.run' -print
