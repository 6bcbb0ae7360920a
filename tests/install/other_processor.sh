#!/usr/bin/env bash
# tests/install/other_processor.sh PROGRAM: a build for oneself says on an older processor why it ends, instead of dying of SIGILL.
set -uo pipefail
program=$1
fail() { echo "FAILED: $*" && exit 1; }
version=$("$program" --version) || fail "--version ended with $?: $version"
[[ $version == *"level "* ]] || fail "--version names no level: $version"
[[ $version == *"level native"* ]] || { echo "skipped: this build is not native" && exit 77; }
command -v qemu-x86_64 > /dev/null || { echo "skipped: there is no qemu-x86_64 (qemu-user)" && exit 77; }
grep -qw avx2 /proc/cpuinfo || { echo "skipped: this processor is as old as the one to try" && exit 77; }

sentence="[error] moeloom was built for a processor with "
check() { # RANK: what it says in $said
  said=$(OMPI_COMM_WORLD_LOCAL_RANK=$1 qemu-x86_64 -cpu Nehalem "$program" --version 2>&1)
  code=$?
  [[ $code == 1 ]] || fail "rank $1 ended with $code, expected 1: $said"
}
check 0
[[ $said == "$sentence"*"build it there (launch/build.sh)"* ]] || fail "said: $said"
echo "$said"
check 1
[[ -z $said ]] || fail "a second rank of the host says it too: $said"

# As a launcher starts them.
# shellcheck source=launch/env.sh
. "$(dirname "$0")/../../launch/env.sh"
said=$(timeout 300 mpirun -n 2 qemu-x86_64 -cpu Nehalem "$program" train 2>&1)
code=$?
[[ $code == 1 ]] || fail "mpirun -n 2 ended with $code, expected 1: $said"
[[ $(grep -cF "$sentence" <<< "$said") == 1 ]] || fail "mpirun -n 2: expected the sentence once: $said"
echo "2 ranks: once, and exit code 1"
