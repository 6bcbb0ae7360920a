#!/usr/bin/env bash
# launch/test-clients.sh [--part today|N/M] [--only v4|v5] [pytest's arguments]: Hugging Face's programs beside the
# built one, in two virtual environments that it makes once: $XDG_CACHE_HOME/moeloom/clients-v4 and -v5.
#
#   MOELOOM_BUILD        where the program is (build/)
#   MOELOOM_TORCH_INDEX  an index with torch's CPU builds, which are a tenth of the default's size
#   MOELOOM_TEXT         tokenizers and templates, where not in ../shared/text
set -euo pipefail
cd "$(dirname "$0")/.."

parts=8 # of these CI runs one a push; each takes less than four minutes
versions=(v4 v5)
arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --part)
      part=${2:?--part needs today, or N/M}
      [[ $part != today ]] || part=$(($(git rev-list --count HEAD) % parts + 1))/$parts
      echo "clients: part $part"
      arguments+=(--part "$part")
      shift
      ;;
    --only) versions=("${2:?--only needs v4 or v5}") && shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

cache=${XDG_CACHE_HOME:-$HOME/.cache}/moeloom
export MOELOOM_BUILD=${MOELOOM_BUILD:-build}

skipped() {
  echo "skipped: $1"
  return 1
}

# Whether an environment that was made by hand has what the list asks for.
holds() {
  "$1/bin/python" - "$2" 2> /dev/null << 'END'
import sys
from importlib.metadata import version
wanted = (line.strip().split("==") for line in open(sys.argv[1]) if "==" in line)
sys.exit(any(version(name).split("+")[0] != number for name, number in wanted))
END
}

# The stamp has the list's hash: another list makes the environment anew. A folder without a stamp stays as it is.
make_environment() {
  local environment=$1 list=$2 stamp=$1/moeloom-stamp hash log
  hash=$(sha256sum < "$list")
  [[ $(cat "$stamp" 2> /dev/null) != "$hash" ]] || return 0
  if ! holds "$environment" "$list"; then
    [[ ! -e $environment || -e $stamp ]] ||
      skipped "$environment is not of this script and not what $list asks for" || return 1
    echo "clients: makes $environment" >&2
    python3 -c 'import venv, ensurepip' 2> /dev/null || skipped "python3 has no venv" || return 1
    log=$(mktemp)
    python3 -m venv --clear "$environment" > "$log" 2>&1 || skipped "python3 has no venv" || return 1
    echo unfinished > "$stamp"
    if ! "$environment/bin/python" -m pip install --quiet --retries 1 --timeout 15 --disable-pip-version-check \
      ${MOELOOM_TORCH_INDEX:+--extra-index-url "$MOELOOM_TORCH_INDEX"} -r "$list" > "$log" 2>&1; then
      # An index that answers, without what the list names, is a mistake in the list.
      if grep -qE 'from versions: [^n)]|ResolutionImpossible' "$log"; then
        tail -n 5 "$log" >&2
        exit 1
      fi
      rm -f "$log"
      skipped "no package index answers" || return 1
    fi
    rm -f "$log"
  fi
  echo "$hash" > "$stamp"
}

# shellcheck source=launch/env.sh
. launch/env.sh
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONDONTWRITEBYTECODE=1
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
ready=()
for version in "${versions[@]}"; do
  if make_environment "$cache/clients-$version" "tests/clients/$version.txt"; then ready+=("$version"); fi
done
# Side by side: both wait for processes most of the time.
for version in "${ready[@]}"; do
  "$cache/clients-$version/bin/python" -m pytest -q -rfE --tb=short -p no:cacheprovider --rootdir tests/clients \
    tests/clients "${arguments[@]}" > "$results/$version" 2>&1 &
done
failed=0
for version in "${ready[@]}"; do
  wait -n || failed=1
done
[[ ${#ready[@]} = 0 ]] || cat "$results"/*
exit "$failed"
