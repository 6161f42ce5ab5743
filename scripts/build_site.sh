#!/usr/bin/env bash
# Build the documentation as a site, without warnings, and check its links.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<TEXT
usage: scripts/build_site.sh [--external-links]

Builds the documentation as a site in build/site. Open build/site/index.html in a browser. A warning of Sphinx is an
error, and so is a link to a file or an anchor that does not exist.

Search also works in a site opened as files, but its results then have no excerpts, because browsers do not let a page
read other files. To see excerpts, run 'python -m http.server -d build/site' and open http://localhost:8000.

  --external-links  also check links to other sites, which needs the network

The first run sets up .venv as scripts/test.sh does, and needs a package registry.
Exit status: 0 the site is built and no link is broken, 1 otherwise, 2 a wrong argument.
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
