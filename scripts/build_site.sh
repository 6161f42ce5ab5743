#!/usr/bin/env bash
# Build the documentation as a site, without warnings, and check its links.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/build_site.sh [--external-links]

Builds the site in build/site; its first page is build/site/index.html. A warning of Sphinx, or a link to a file or an
anchor that does not exist, is an error. Search works in the browser without a server, but its results then have no
excerpts: browsers do not let a page read other files. 'python -m http.server -d build/site' shows them.

  --external-links  also request each link to another site, which needs the network

The first run sets up .venv as scripts/test.sh does, and needs a package registry.
Exit status: 0 the site is built and all links lead somewhere, 1 otherwise, 2 a wrong argument.
TEXT
}

external=no
case "${1:-}" in
  "") ;;
  --external-links) external=yes && shift ;;
  -h | --help) usage && exit 0 ;;
esac
[ $# -eq 0 ] || {
  printf '[build_site] the argument must be --external-links but got: %s\n' "$*" >&2
  exit 2
}

setup test
setup_dev
python -m sphinx -q -W --keep-going -c docs . build/site
python scripts/check_links.py build/site
[ "$external" = no ] || python -m sphinx -q --keep-going -b linkcheck -c docs . build/linkcheck
printf 'the site is build/site/index.html\n'
