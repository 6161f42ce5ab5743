#!/usr/bin/env bash
# Build the operator package for Ascend NPUs with CANN's tools.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

usage() {
  cat <<TEXT
usage: scripts/build_npu.sh [--all | SOC...] [-j JOBS] [--check]

Build npu_rope's operator package with CANN 8.5, 9.0 or 9.1. The build needs no NPU.

  SOC      ascend910b (A2), ascend910_93 (A3), ascend310p or, with CANN 9.1, ascend950. If none is named, the script
           runs npu-smi to find this machine's chip; without npu-smi it builds for all that CANN knows.
  --all    build for all that CANN knows.
  -j JOBS  compile this number of kernels at a time. Default: one for each CPU. Each takes 1 to 2 GB of memory.
  --check  look for everything that the build needs, print what is missing, and build nothing.

The script needs CANN's toolkit, CMake, make, a C and a C++17 compiler, and a python3 that has the modules that CANN's
compiler imports. The build does not need CANN's operators for the chip (Ascend-cann-910b-ops and the like), and --check
does not look for them; torch_npu needs them (docs/npu.md, step 1).

Source CANN's set_env.sh first. Without ASCEND_HOME_PATH the script looks in /usr/local/Ascend/cann and ~/Ascend/cann,
then in ascend-toolkit/latest beside them, and sources the set_env.sh that it finds.

Output, only if the whole build succeeds:
  build/npu/opp
      The package. This command installs npu_rope with it:
          pip install --no-build-isolation ./simulator .
  build/npu/custom_opp_<os>_<machine>.run
      An installer of the package for programs without Python. To install into CANN's folder, run it:
          ./custom_opp_<os>_<machine>.run
      To install into another folder DIR:
          ./custom_opp_<os>_<machine>.run --install-path=DIR
          source DIR/vendors/npu_rope/bin/set_env.bash

Each build starts from an empty folder, so an earlier build that failed needs no cleaning.

Exit status: 0: built, or with --check nothing is missing. 1: the build failed. 2: a wrong argument, an unsupported
chip, or something missing or too old.
TEXT
}

say() { printf '[build_npu] %s\n' "$@"; }
refuse() {
  printf '[build_npu] %s\n' "$@" >&2
  exit 2
}
# Collect all missing pieces, then end with status 2.
incomplete=""
missing() {
  printf '[build_npu] %s\n' "$@" >&2
  incomplete=yes
}

SOCS="ascend910b ascend910_93 ascend310p ascend950"
# The versions that CANN's Python packages need. CANN 8.1's tbe/tvm/_ffi/runtime_ctypes.py reads np.float_, which
# NumPy 2 does not have. .devcontainer/requirements.txt of mirror-cann/asc-devkit names protobuf 3.20.3. docs/npu.md
# ("NumPy and protobuf") has all sources.
NUMPY="numpy>=1.26,<2" PROTOBUF="protobuf==3.20.3"
GET_CANN="Get CANN 9.1.0's toolkit from https://www.hiascend.com/cann, install it, and source its set_env.sh."

# ---- arguments: socs, jobs, only_check ---------------------------------------------------------------

socs=() jobs="$(nproc 2>/dev/null || echo 1)" only_check="" all=""
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --all) all=yes ;;
    --check) only_check=yes ;;
    -j) jobs="${2:-}" && shift ;;
    -j*) jobs="${1#-j}" ;;
    ascend910b | ascend910_93 | ascend310p | ascend950) [[ " ${socs[*]-} " == *" $1 "* ]] || socs+=("$1") ;;
    *) refuse "SOC must be ascend910b, ascend910_93, ascend310p or ascend950 but got $1." ;;
  esac
  shift || refuse "-j must be followed by a number of jobs."
done
[ -z "$all" ] || [ ${#socs[@]} -eq 0 ] || refuse "SOC must not be named beside --all but got ${socs[*]}."
[[ "$jobs" =~ ^[1-9][0-9]{0,2}$ ]] || refuse "JOBS must be a number from 1 to 999 but got '$jobs'."

# ---- CANN --------------------------------------------------------------------------------------------

# check_tool TOOL VARIABLE DEBIAN_PACKAGE RPM_PACKAGE: check that the tool is on PATH. The environment variable
# VARIABLE, if not empty, may name another tool.
lines=() debian=() rpm=()
check_tool() {
  local tool="$1" variable="$2"
  [ -z "$variable" ] || tool="${!variable:-$tool}"
  tool="${tool%% *}"
  ! command -v "$tool" >/dev/null || return 0
  if [ "$tool" = "$1" ]; then
    lines+=("$tool must be installed but is not on PATH.")
    debian+=("$3") rpm+=("$4")
  else
    lines+=("$variable must name a compiler but $tool is not on PATH." "Install it, or unset $variable to use $1.")
  fi
}
check_tool python3 "" python3 python3
check_tool cmake "" cmake cmake
check_tool make "" make make
check_tool cc CC gcc gcc
check_tool c++ CXX g++ gcc-c++
if [ ${#debian[@]} -gt 0 ]; then
  lines+=("Install what is not on PATH, on Debian and Ubuntu: apt-get install ${debian[*]}" \
    "on openEuler: dnf install ${rpm[*]}")
fi
[ ${#lines[@]} -eq 0 ] || missing "${lines[@]}"
python3="$(command -v python3 || true)"

# set_env.sh reads unset variables, and its grep may find nothing (hicann/runtime scripts/package/runtime/set_env.sh).
# Therefore -e, -u and pipefail are off while it runs.
source_cann() {
  set +eu +o pipefail
  # shellcheck disable=SC1090
  source "$1" >/dev/null
  set -euo pipefail
}

cann="${ASCEND_HOME_PATH:-}"
if [ -z "$cann" ]; then
  for folder in /usr/local/Ascend/cann ~/Ascend/cann \
    /usr/local/Ascend/ascend-toolkit/latest ~/Ascend/ascend-toolkit/latest; do
    [ -d "$folder" ] || continue
    cann="$folder"
    for setter in "$folder/set_env.sh" "$folder/../set_env.sh" "$folder/bin/setenv.bash"; do
      [ -f "$setter" ] || continue
      say "ASCEND_HOME_PATH is not set: sourcing $setter"
      source_cann "$setter"
      break
    done
    break
  done
fi
if [ -z "$cann" ]; then
  missing "CANN's toolkit must be installed but ASCEND_HOME_PATH is not set." "$GET_CANN"
elif [ ! -d "$cann" ]; then
  missing "ASCEND_HOME_PATH must be CANN's folder but $cann is not a folder." "$GET_CANN"
  cann=""
else
  cann="$(cd "$cann" && pwd)"
fi

version="unknown version" known_socs="$SOCS" op_build="" source_remedy=""
if [ -n "$cann" ]; then
  if [ -n "$python3" ]; then
    # shellcheck disable=SC2086
    found="$(python3 -I "$ROOT/npu_rope/cann_versions.py" "$cann" $SOCS)" && status=0 || status=$?
    version="${found%%$'\n'*}"
    known_socs="${found##*$'\n'}"
    if [ "$status" = 2 ]; then
      missing "CANN must be 8.5 or newer but $cann is $version. No torch_npu for torch 2.10 supports $version." "$GET_CANN"
    fi
  fi

  lines=()
  template="$cann/tools/op_project_templates/ascendc/customize"
  for part in "$template/cmake/func.cmake" "$template/CMakeLists.txt" "$cann/include/register/op_def_registry.h"; do
    [ -e "$part" ] || lines+=("CANN must have $part but this file is missing. Install CANN's complete toolkit.")
  done
  # CANN 8 has op_build below toolkit/tools; in 9.1 toolkit/tools may be a link to tools, or absent.
  for file in "$cann/tools/opbuild/op_build" "$cann/toolkit/tools/opbuild/op_build"; do
    [ -n "$op_build" ] || [ ! -x "$file" ] || op_build="$file"
  done
  [ -n "$op_build" ] || lines+=("CANN must have tools/opbuild/op_build but it is missing in $cann.")
  [ ${#lines[@]} -eq 0 ] || missing "${lines[@]}" "$GET_CANN"

  lines=()
  source_remedy="Source $cann/set_env.sh (or the set_env.sh beside it), then run this script again."
  for tool in opc bisheng llvm-objdump; do
    command -v "$tool" >/dev/null ||
      lines+=("$tool must be on PATH but was not found. CANN compiles kernels with $tool.")
  done
  [ ${#lines[@]} -eq 0 ] || missing "${lines[@]}" "$source_remedy"
fi

# check_modules CANN_FOLDER: print the missing packages, or the error of the import of tbe. CANN's compiler opc runs in
# python3 and imports tbe, which imports the other modules. Without a folder, tbe is not imported.
check_modules() {
  python3 - "$1" <<'PYTHON'
import importlib
import sys

PACKAGES = {"attr": "attrs", "google.protobuf": "protobuf", "yaml": "pyyaml"}
MODULES = ("numpy", "attr", "decorator", "sympy", "scipy", "psutil", "google.protobuf", "cffi", "yaml")
absent = []
for module in MODULES:
    try:
        importlib.import_module(module)
    except ImportError:
        absent.append(PACKAGES.get(module, module))
if absent:
    print("packages", *absent)
elif sys.argv[1]:
    try:
        importlib.import_module("tbe")
    except Exception as error:  # whatever a foreign package raises
        print("tbe", f"{type(error).__name__}: {error}".replace("\n", " "))
PYTHON
}

modules=""
[ -z "$python3" ] || modules="$(check_modules "$cann")" || missing "python3 ($python3) must run but failed." \
  "Put a python3 on PATH that runs."
case "$modules" in
  packages*)
    names="${modules#packages }"
    requirements=" $names "
    requirements="${requirements/ numpy / \'$NUMPY\' }"
    requirements="${requirements/ protobuf / $PROTOBUF }"
    requirements="${requirements# }"
    missing "python3 ($python3) must have the modules that CANN's compiler imports but lacks $names." \
      "Install them: python3 -m pip install ${requirements% }"
    [ -z "$cann" ] || missing "CANN's tbe imports these modules, so the import of tbe was not checked."
    ;;
  tbe*)
    error="${modules#tbe }" error="${error%.}"
    # tbe may need another NumPy or protobuf than the installed one.
    remedy="$source_remedy"
    if [[ "$error" =~ [Nn]um[Pp]y|(^|[^A-Za-z0-9_.])np\. ]]; then
      remedy="Install a NumPy that CANN's tbe works with: python3 -m pip install '$NUMPY'"
    elif [[ "$error" =~ protobuf|_pb2 ]]; then
      remedy="Install a protobuf that CANN's tbe works with: python3 -m pip install $PROTOBUF"
    fi
    missing "python3 ($python3) must import CANN's tbe but fails with $error." "$remedy"
    ;;
esac
[ -n "$cann" ] || missing "CANN's folder was not found, so its files, tools and tbe were not checked."
# A missing piece ends the build before npu-smi is asked.
[ -n "$only_check" ] || [ -z "$incomplete" ] || exit 2

# ---- the SoC -----------------------------------------------------------------------------------------

if [ -n "$all" ]; then
  read -ra socs <<<"$known_socs"
elif [ ${#socs[@]} -eq 0 ] && [ -n "$python3" ]; then
  say "Waiting for npu-smi, for at most 30 s for each command."
  found="$(python3 -I "$ROOT/npu_rope/chips.py")" && status=0 || status=$?
  chip="${found%%$'\n'*}"
  case "$status" in
    0)
      socs=("${found##*$'\n'}")
      say "npu-smi reports $chip: building for ${socs[0]}. (--all builds for all SoCs.)"
      ;;
    2)
      missing "npu-smi reports $chip, for which npu_rope has no kernels." \
        "To build for another machine, name its SoC: $known_socs."
      ;;
    *)
      read -ra socs <<<"$known_socs"
      say "The chip of this machine is not known: $chip." \
        "Building for all SoCs. To build for one, name it: scripts/build_npu.sh ascend910b"
      ;;
  esac
fi
for soc in ${socs[@]+"${socs[@]}"}; do
  [[ " $known_socs " == *" $soc "* ]] ||
    missing "CANN must be 9.1 or newer to compile kernels for $soc but $cann is $version." "$GET_CANN"
done
[ -z "$incomplete" ] || exit 2

say "CANN $version in $cann; SoCs: ${socs[*]}; $jobs kernels at a time"
say "op_build: $op_build; opc: $(command -v opc); bisheng: $(command -v bisheng); python3: $(command -v python3)"
[ -z "$only_check" ] || exit 0

# ---- the build ---------------------------------------------------------------------------------------

cd "$ROOT"
out=build/npu/opp_project/build_out
# Start from an empty folder. CANN's ascendc_compile_kernel.py fails if a folder of a failed build exists. CMake's cache
# keeps an earlier CC and CXX. A package of an earlier build must not be installed if this build fails.
rm -rf build/npu

# Print the number of compiled kernels and of all kernels. A kernel is one column of an operator's types.
progress() {
  local started=$SECONDS done total line="" before=""
  set +e +o pipefail # the build makes and removes the folders
  while sleep "${NPU_ROPE_PROGRESS_SECONDS:-10}" >/dev/null 2>&1; do
    # op_build describes the kernels of all SoCs.
    total="$(for soc in "${socs[@]}"; do cat "$out/autogen/aic-$soc-ops-info.ini" 2>/dev/null; done |
      awk -F= '/^\[/ { fresh = 1 } /^input0\.dtype=/ && fresh { n += split($2, types, ","); fresh = 0 } END { print n + 0 }')"
    done="$(find "$out/op_kernel/binary" -name '*.o' 2>/dev/null | wc -l)"
    line="$done of $total kernels"
    [ "$total" = 0 ] || [ "$line" = "$before" ] || say "$line, $(((SECONDS - started) / 60)) min"
    before="$line"
  done
}

# The build runs in a process group of its own, so that this script can end all its processes.
stop_build() {
  kill -KILL -- "-${!-}" 2>/dev/null || true
}
failed() {
  stop_build
  rm -rf build/npu/opp build/npu/opp.new build/npu/custom_opp_*.run
  printf '[build_npu] %s\n' "$@" >&2
}
for signal in HUP INT TERM; do
  # shellcheck disable=SC2064
  trap "failed 'The build was interrupted; nothing was installed.'; trap - $signal; kill -$signal $$" "$signal"
done

units="$(IFS=';' && printf '%s' "${socs[*]}")"
set -m
{
  progress &
  ASCEND_HOME_PATH="$cann" cmake --preset npu "-DASCEND_HOME_PATH=$cann" "-DNPU_ROPE_COMPUTE_UNITS=$units" \
    "-DNPU_ROPE_JOBS=$jobs" "-DNPU_ROPE_OP_BUILD=$op_build" && cmake --build --preset npu
} </dev/null &
set +m
if ! wait $!; then
  failed "The build failed; nothing was installed. The first error is above." \
    "With -j 1 the output of one kernel is not mixed with others'."
  exit 1
fi
stop_build
say "built $(find build/npu/opp -name '*.o' | wc -l) kernels in $((SECONDS / 60)) min: build/npu/opp"
find build/npu -maxdepth 1 -name 'custom_opp_*.run' -print
