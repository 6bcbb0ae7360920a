#!/usr/bin/env bash
# launch/check.sh [asan] [tsan] [valgrind] [fuzz] [load] [--room ROOM] [--shard K/N] [--runs N]
# launch/check.sh status | ci
#
# The tests under tools that see what tests do not; the first four without an argument. What passed is kept and not run
# again until its room has changed, so that a run which was interrupted goes on, and so does another shard at another
# commit. tests/checked.md has a row for each check and room, `status` says which of them are stale. A part that a
# missing tool stops is skipped.
#
#   asan         every test under the address and undefined-behaviour sanitizers, also ranks, hosts, faults and Python
#   tsan         the threaded tests under the thread sanitizer (clang 16 or later, and libomp's archer)
#   valgrind     small tests under memcheck
#   fuzz         libFuzzer's programs (clang 16 or later, and libomp), without a sanitizer, ten times as fast, then what
#                they found new under those of asan: --runs N executions of each, or what a row has to have (10 million
#                of binary formats and fast parsers, 1 million of others)
#   load         the suite of build/ five times, on processors that have three times as much to do; by name only
#   ci           a room's tests under asan's sanitizers, which the commit draws, within three minutes
#   --room ROOM  the tests of one room, whose programs alone are built; not of fuzz
#   --shard K/N  tests, or targets of fuzz, whose name falls to K of N
#
# MOELOOM_CHECK_BUILD: where builds lie (build-check/). MOELOOM_CHECK_BY: a command by which each piece of a minute or
# two is started, such as `flock -s FILE`. MOELOOM_CHECK_ONLY: a pattern (grep -E) of the tests and targets that run.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=launch/env.sh
. launch/env.sh
source=$PWD
builds=${MOELOOM_CHECK_BUILD:-$source/build-check}
read -ra by <<< "${MOELOOM_CHECK_BY:-}"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
mkdir -p "$builds/state"
skipped=77 nothing=78
for part in record build asan others fuzz load ci; do
  # shellcheck disable=SC1090
  . "launch/check/$part.sh"
done

check() { # arguments; a function, so that an edit does not change what is running
  local parts=() failed=0 summary=() begin result said part
  shard=1/1
  only_room=
  runs=
  while (($# > 0)); do
    case $1 in
      asan | tsan | valgrind | fuzz | load) parts+=("$1") ;;
      status | ci) "check_$1"; exit ;;
      --shard) shard=${2:-} && shift ;;
      --room) only_room=${2:-} && shift ;;
      --runs) runs=${2:-none} && shift ;;
      *) parts=(none) && break ;;
    esac
    shift
  done
  if [[ ${parts[*]} = none || ! $runs =~ ^([1-9][0-9]*)?$ || ! $shard =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] ||
    ((${shard%/*} > ${shard#*/})); then
    sed -n '2,/^set /p' launch/check.sh | sed '$d;s/^# \{0,1\}//' >&2
    exit 2
  fi
  ((${#parts[@]})) || parts=(asan tsan valgrind fuzz)
  for part in "${parts[@]}"; do
    begin=$SECONDS
    ("check_$part")
    result=$?
    case $result in
      0) said=passed ;;
      "$skipped") said="skipped: the tool is not there" ;;
      "$nothing") said="had nothing to do" ;;
      *) said=FAILED && failed=1 ;;
    esac
    summary+=("check: $part $([[ $shard = 1/1 ]] || echo "$shard ")$said, $((SECONDS - begin)) s")
  done
  printf '%s\n' "${summary[@]}"
  return $failed
}
check "$@"; exit
