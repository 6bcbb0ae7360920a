#!/usr/bin/env bash
# launch/install-deps.sh [LIST...] [PACKAGE...]: installs what launch/packages.txt, other lists of this folder
# (packages-test.txt) and the arguments name and dpkg does not know yet: as root directly, else through sudo if it asks no
# password, else it prints the line to type and stops.
set -euo pipefail

wanted=()
for argument in packages.txt "$@"; do
  if [[ $argument == *.txt ]]; then
    mapfile -t -O "${#wanted[@]}" wanted < "$(dirname "$0")/$argument"
  else
    wanted+=("$argument")
  fi
done
missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [[ $(id -u) == 0 ]]; then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
else
  echo "These packages are missing; as root, type this and start again:" >&2
  echo "apt-get update && ${install[*]}" >&2
  exit 1
fi
"${as_root[@]}" apt-get update
"${as_root[@]}" "${install[@]}"
