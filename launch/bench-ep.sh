#!/usr/bin/env bash
# launch/bench-ep.sh [--ranks 1,2,4] [options of moeloom bench ep]: builds, measures every world one after the
# other and writes one report: bench-ep/report.html, beside points.jsonl and points.csv. Stopped in the middle,
# the same line goes on with the points that are missing.
# launch/bench-ep.sh --study [--hostfile FILE] [--out bench-ep-study]: which ep, and is it worth it: models of 64 and of
# 512 experts, on one node and on several (FILE as of launch/cluster.sh; without it four namespaces of this machine,
# as root), predicted for 64 ranks; writes which-ep.md, a page about these machines. About 25 minutes on 2 processors.
#
#   MOELOOM_PROGRAM  measure this program instead of building one
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)  # files are named from the caller's folder, which is kept

ranks=
out=
study=
options=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --ranks=*) ranks=${1#*=} ;;
    --ranks | --out)
      [[ $# -gt 1 ]] || { echo "bench-ep: $1 needs a value" >&2; exit 1; }
      if [[ $1 == --ranks ]]; then ranks=$2; else out=$2; fi
      shift
      ;;
    --out=*) out=${1#*=} ;;
    --study) study=yes ;;
    -h | --help)
      sed -n '2,11s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) options+=("$1") ;;
  esac
  shift
done
[[ -z $study || -z $ranks ]] ||
  { echo "bench-ep: --study measures every ep of all ranks there are; leave out --ranks" >&2; exit 1; }
ranks=${ranks:-1,2,4}
[[ $ranks =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] ||
  { echo "bench-ep: --ranks \"$ranks\" must be numbers of ranks with commas, as in --ranks 1,2,4" >&2; exit 1; }

# What no commit names is told apart by this: points of another program are not taken for its own.
hash_of_program() { sha256sum "$program" | cut -c1-12; }
if [[ -n ${MOELOOM_PROGRAM:-} ]]; then
  program=$MOELOOM_PROGRAM
  commit=program-$(hash_of_program)
else
  "$repository/launch/build.sh" -- moeloom
  build=${MOELOOM_BUILD:-build}
  [[ $build == /* ]] || build=$repository/$build
  program=$build/moeloom
  if ! commit=$(git -C "$repository" rev-parse --short HEAD 2> /dev/null); then
    commit=unknown-$(hash_of_program)
  elif ! git -C "$repository" diff --quiet HEAD 2> /dev/null; then
    commit+=-with-changes-$(hash_of_program)
  fi
fi
if [[ -n $study ]]; then
  MOELOOM_PROGRAM=$program COMMIT=$commit exec "$repository/bench/study/run.sh" --out "${out:-bench-ep-study}" "${options[@]}"
fi
out=${out:-bench-ep}
# shellcheck source=launch/env.sh
. "$repository/launch/env.sh"
for world in ${ranks//,/ }; do
  mpirun -n "$world" "$program" bench ep --commit "$commit" --out "$out" "${options[@]}"
done
echo "The report: $out/report.html"
