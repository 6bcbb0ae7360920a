#!/usr/bin/env bash
# tests/faults/run.sh [N [SEED [KINDS...]]]: N faults drawn from a seed, each in a run of its own under launch/go-on.sh.
#
# KINDS are those of README.md beside this file, which says what is done to a run and what must be true afterwards; by
# default all of them. MOELOOM_BUILD is the build to test. A fault that the machine does not allow is skipped and said.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
count=${1:-8}
RANDOM=${2:-1}
shift $(($# < 2 ? $# : 2))
# shellcheck source=tests/faults/common.sh
. "$here/common.sh"
for file in ranks disks damage others; do
  # shellcheck source=/dev/null
  . "$here/$file.sh"
done

# As often as each is named.
kinds=(kill kill kill kill stop stop stop spin spin throw throw slow nan refused short save-stage save-stage save-stage
  again ending mpirun mpirun full-disk read-only checkpoint checkpoint checkpoint model model clock link-down link-slow)
[[ $# == 0 ]] || kinds=("$@")
for ((fault = 1; fault <= count; ++fault)); do
  draw kind "${kinds[@]}"
  function="fault_${kind//-/_}"
  declare -F "$function" > /dev/null || { echo "unknown kind of fault: $kind" >&2; exit 1; }
  draw_mesh
  whole
  run=$work/run-$fault log=$work/run-$fault.log said=$kind wrong=() why_skipped=
  touch "$run.start"
  began=$(now)
  "$function"
  tell
done
summary
