#!/usr/bin/env bash
# Fuzz by coverage: libFuzzer changes inputs, and keeps those that reach new code. Programs: tests/fuzz/coverage.
set -uo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
SOURCES="$ROOT/tests/fuzz/coverage"
BUILD="$ROOT/build/fuzz"
TARGETS=(capi tiling aclnn ggml torch readers reports)
ATHERIS=atheris==3.0.0 # its hashes are in scripts/atheris.txt
VENV_FUZZ="$ROOT/.venv-fuzz" # with atheris
FUZZER_LIBRARY='/usr/lib/llvm-14/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' # of libclang-rt-14-dev

usage() {
  cat <<TEXT
usage: scripts/fuzz.sh [TARGET...] [--seconds N] [--seed N] [--keep]
       scripts/fuzz.sh TARGET FILE

Builds the targets with AddressSanitizer and UndefinedBehaviorSanitizer, runs the inputs of the corpus, and searches for
inputs that crash or break a property. At the end it prints for each target the executions, the lines of the code under
test that the inputs reached, and each crash with the command that repeats it.

  capi     the C interface: tensors with any rank, size, stride, type and address, and any attributes
  tiling   the tilings of op_host, judged as in tests/tiling
  aclnn    the simulated aclnn functions: both phases with any tensors, lists, scalars and attributes
  ggml     the adapter for ggml's CANN backend: nodes and graphs with any fields
  torch    the operators of torch on the CPU, and npu_rope's functions: tensors of any kind
  readers  RopeParams.from_gguf and from_hf: files and configurations of any content
  reports  the files that ascend-sim trace, ascend-sim kernel, npu-rope inspect and npu-rope bench --from read

  --seconds N  search for N seconds in each target. 0: only run the corpus. Default: 60
  --seed N     search with this seed, from the corpus alone: such runs try the same inputs, as far as their time
               allows. Default: another seed for each run, and also from the inputs that earlier runs have kept
  --keep       add the inputs that reach new code to tests/fuzz/coverage/corpus, and remove those that reach none that
               other inputs do not reach. Commit the result after a change of a target
  FILE         run this input only, such as a crash

Examples:
  scripts/fuzz.sh                             a minute for each target
  scripts/fuzz.sh capi --seconds 7200 --keep  before a release
  scripts/fuzz.sh capi build/fuzz/crashes/capi-crash-0123

After you have mended a crash, put its input into tests/fuzz/coverage/corpus/TARGET as mended-<what>: every run repeats
it, and --keep keeps it.
Needs clang-14, libclang-rt-14-dev and llvm-14 of Debian or Ubuntu, which the script installs if it runs as root; torch,
readers and reports need .venv (scripts/test.sh sets it up) and install $ATHERIS into .venv-fuzz.
Exit status: 0 no crash, 1 a crash or a failed step, 2 a wrong argument.
TEXT
}

refuse() {
  printf '[fuzz] %s\n' "$@" >&2
  exit 2
}

# ---- arguments: targets, seconds, seed, keep, input -------------------------------------------------

targets=() seconds=60 seed=0 keep=no input=""
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --keep) keep=yes ;;
    --seconds)
      [[ "${2:-}" =~ ^[0-9]{1,9}$ ]] || refuse "--seconds must be followed by a number of at most 9 digits but got '${2:-}'."
      seconds="$2" && shift
      ;;
    --seed)
      [[ "${2:-}" =~ ^[1-9][0-9]{0,8}$ ]] || refuse "--seed must be followed by 1 to 999999999 but got '${2:-}'."
      seed="$2" && shift
      ;;
    *)
      if [[ " ${TARGETS[*]} " = *" $1 "* ]]; then
        targets+=("$1")
      elif [ -f "$1" ] && [ ${#targets[@]} -eq 1 ] && [ -z "$input" ]; then
        input="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
      elif [ ${#targets[@]} -eq 1 ] && [ -z "$input" ] && [[ "$1" = */* ]]; then
        refuse "FILE must be a file that exists but got $1."
      else
        refuse "TARGET must be one of ${TARGETS[*]}, or one of them and a file, but got $1."
      fi
      ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || targets=("${TARGETS[@]}")

is_python() { [ -f "$SOURCES/fuzz_$1.py" ]; }

# ---- steps ---------------------------------------------------------------------------------------

configure_and_build() {
  command -v make >/dev/null 2>&1 || export CMAKE_GENERATOR=Ninja
  (cd "$ROOT" && cmake --preset fuzz && cmake --build --preset fuzz --parallel 2 --target "$@")
}

build_programs() {
  local target
  local -a programs=()
  for target in "${targets[@]}"; do
    if [ "$target" = torch ]; then programs+=(npu_rope_torch); fi # which the program in Python loads
    is_python "$target" || programs+=("fuzz_$target")
  done
  [ ${#programs[@]} -gt 0 ] || return 0
  require_debian "the fuzzers need Clang" clang-14 clang++-14 llvm-14 llvm-cov-14 \
    libclang-rt-14-dev "$(compgen -G "$FUZZER_LIBRARY" | head -n 1)"
  forget fuzz
  step fuzz always "building ${programs[*]} with Clang (the first time: some minutes)" \
    configure_and_build "${programs[@]}" || die "the fuzzers could not be built."
}

# atheris has an environment of its own, which shares all other packages with .venv.
install_atheris() {
  local python="$VENV/bin/python"
  venv_is_good "$VENV_FUZZ" || "$python" -m venv --clear "$VENV_FUZZ" || return 1
  "$VENV_FUZZ/bin/python" -m pip install --only-binary :all: -r "$ROOT/scripts/atheris.txt" &&
    printf 'import site; site.addsitedir("%s")\n' "$(site_packages_of "$VENV")" >"$(site_packages_of "$VENV_FUZZ")/shared.pth"
}

set_up_python() {
  local target needed=no
  for target in "${targets[@]}"; do ! is_python "$target" || needed=yes; done
  [ $needed = yes ] || return 0
  [ -x "$VENV/bin/python" ] || die "torch, readers and reports need .venv." "scripts/test.sh --help describes how to set it up."
  refuse_link "$VENV_FUZZ"
  venv_is_good "$VENV_FUZZ" || forget atheris
  pip_step atheris "$(hash_of "$ATHERIS" "$("$VENV/bin/python" -V)")" "installing $ATHERIS into .venv-fuzz" install_atheris ||
    die "$ATHERIS could not be installed." "Is a package registry reachable?"
}

# program TARGET: set `command` to the target's program.
program() {
  if is_python "$1"; then
    command=("$VENV_FUZZ/bin/python" "$SOURCES/fuzz_$1.py")
    # AddressSanitizer's runtime must be loaded before Python, whose own leaks are not reported.
    [ "$1" != torch ] || command=(env "LD_PRELOAD=$(site_packages_of "$VENV_FUZZ")/asan_with_fuzzer.so"
      "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0" "NPU_ROPE_LIB_DIR=$BUILD" "${command[@]}")
  else
    command=("$BUILD/tests/fuzz/coverage/fuzz_$1")
  fi
}

# The code under test of a target in C++, and the binary that contains it.
covered() {
  case "$1" in
    capi) echo "$BUILD/libnpu_rope.so" csrc/capi csrc/core csrc/cpu ;;
    tiling) echo "$BUILD/tests/fuzz/coverage/fuzz_tiling" op_host ;;
    ggml) echo "$BUILD/tests/fuzz/coverage/fuzz_ggml" integrations/ggml_cann ;;
    aclnn) echo "$BUILD/simulator/libascend_sim_cann.so" simulator/cann/opapi ;;
    torch) echo "$BUILD/libnpu_rope_torch.so" csrc/torch ;;
  esac
}

# lines TARGET: print how many lines of the code under test the inputs reached, of the run whose profiles are in $work.
lines() {
  local binary sources
  if [ -z "$(covered "$1")" ]; then
    "${command[@]}" --lines "$found" "$SOURCES/corpus/$1" 2>/dev/null | grep lines ||
      echo "lines unknown, because an input of the corpus fails"
    return
  fi
  read -r binary sources <<<"$(covered "$1")"
  compgen -G "$work/*.profraw" >/dev/null || { echo "no profile, because the program crashed" && return; }
  # llvm-cov's own filter fails for files that a unity build includes by a relative path.
  # shellcheck disable=SC2086 # several folders
  (cd "$ROOT" && llvm-profdata-14 merge -sparse "$work"/*.profraw -o "$work/profile" &&
    llvm-cov-14 export "$binary" -instr-profile="$work/profile" -summary-only | python3 -c '
import json, os, sys
files = json.load(sys.stdin)["data"][0]["files"]
folders = tuple(os.path.join(os.getcwd(), folder, "") for folder in sys.argv[1:])
lines = [f["summary"]["lines"] for f in files if os.path.realpath(f["filename"]).startswith(folders)]
reached, of = (sum(line[key] for line in lines) for key in ("covered", "count"))
print(f"{reached} of {of} lines of {chr(32).join(sys.argv[1:])}, {reached / of:.1%}")' $sources) 2>&1 |
    grep -v 'functions have mismatched data' # inline functions of two libraries in one profile
}

# search TARGET: run the corpus, and search. Sets the variables that `report` prints.
search() {
  local target="$1" status=0 label="$STEP/$STEPS"
  work="$BUILD/work/$target"
  rm -rf "$work/files" # of a program in Python, which ends without removing them
  found="$work/corpus"
  [ "$seed" = 0 ] || { found="$work/seeded" && rm -rf "$found"; }
  mkdir -p "$found" "$work/files" "$BUILD/crashes" "$SOURCES/corpus/$target"
  rm -f "$work"/*.profraw
  local -a limits=(-max_len=512 -len_control=0 -timeout=60 -rss_limit_mb=3000 "-seed=$seed" "-artifact_prefix=$BUILD/crashes/$target-")
  if [ "$seconds" -gt 0 ]; then limits+=("-max_total_time=$seconds"); else limits+=(-runs=0); fi
  is_python "$target" || limits+=(-malloc_limit_mb=1000)
  TMPDIR="$work/files" LLVM_PROFILE_FILE="$work/%m.profraw" "${command[@]}" "${limits[@]}" -print_final_stats=1 \
    "$found" "$SOURCES/corpus/$target" >"$work/log" 2>&1 </dev/null &
  local pid=$!
  while kill -0 $pid 2>/dev/null; do
    if [ -t 1 ]; then
      printf '\r[%s] %s: %s\e[K' "$label" "$target" "$(grep -aE '^#[0-9]+' "$work/log" | tail -n 1 | cut -c 1-80)"
    fi
    sleep 1
  done
  wait $pid || status=$?
  [ ! -t 1 ] || printf '\r\e[K'
  executions="$(awk '/number_of_executed_units/ {print $2}' "$work/log")"
  printf '[%s] %-8s %s executions, %s\n' "$label" "$target" "${executions:-no}" "$(lines "$target" | paste -sd ';' | sed 's/;/\n                /g')"
  [ $status -ne 0 ] || return 0
  local crash
  crash="$(sed -n 's/.*Test unit written to //p' "$work/log" | tail -n 1)"
  grep -aE '^(broken: |SUMMARY: |==[0-9]+==ERROR|[^ ]*: runtime error| *=== Uncaught|[A-Za-z]+Error: )' "$work/log" | head -n 5 |
    sed 's/^/  | /'
  # An input of the corpus is not written again.
  crash="${crash:-$(sed -n 's/^Running: //p' "$work/log" | tail -n 1)}"
  if [ -n "$crash" ]; then
    FAILED+=("scripts/fuzz.sh $target ${crash#"$ROOT/"}")
  else
    FAILED+=("scripts/fuzz.sh $target   # it ended with status $status: see ${work#"$ROOT/"}/log")
  fi
}

# Merge the inputs that a run has found into the corpus, which is minimised.
keep_inputs() {
  local target="$1" minimal="$work/minimal"
  rm -rf "$minimal" && mkdir "$minimal"
  local -a merge=(-set_cover_merge=1 -use_counters=0 -max_len=512)
  ! is_python "$target" || merge=(--keep)
  "${command[@]}" "${merge[@]}" "$minimal" "$SOURCES/corpus/$target" "$found" >>"$work/log" 2>&1 ||
    die "the corpus of $target could not be minimised." "See $work/log"
  find "$SOURCES/corpus/$target" -type f ! -name 'mended-*' -delete
  local file
  for file in "$minimal"/*; do
    [[ "${file##*/}" = mended-* ]] || cp "$file" "$SOURCES/corpus/$target/$(basename "$file" | cut -c 1-12)"
  done
  printf '    %s has %d inputs in %s\n' "$target" "$(find "$SOURCES/corpus/$target" -type f | wc -l)" \
    "$(du -sh --apparent-size "$SOURCES/corpus/$target" | cut -f 1)"
}

# ---- run -----------------------------------------------------------------------------------------

if [ -d "$VENV/bin" ]; then export PATH="$VENV/bin:$PATH"; fi
STEP_LABEL=fuzz
set_up_python
build_programs
unset STEP_LABEL
export ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:${ASAN_OPTIONS:-}" UBSAN_OPTIONS=print_stacktrace=1
if [ -n "$input" ]; then
  program "${targets[0]}"
  "${command[@]}" "$input"
  exit $(($? != 0))
fi
FAILED=()
STEPS=${#targets[@]}
for target in "${targets[@]}"; do
  STEP=$((STEP + 1))
  program "$target"
  search "$target"
  [ "$keep" = no ] || keep_inputs "$target"
done
if [ ${#FAILED[@]} -gt 0 ]; then
  printf '%d crash(es). Repeat them with:\n' ${#FAILED[@]} >&2
  printf '  %s\n' "${FAILED[@]}" >&2
  exit 1
fi
echo "0 crashes"
