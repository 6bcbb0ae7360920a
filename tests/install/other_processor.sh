#!/usr/bin/env bash
# tests/install/other_processor.sh PROGRAM: a build for oneself says on an older processor why it ends, instead of dying of SIGILL.
set -uo pipefail
program=$1
if [[ $("$program" --version) != *"level native"* ]]; then echo "skipped: this build is not native" && exit 77; fi
command -v qemu-x86_64 > /dev/null || { echo "skipped: there is no qemu-x86_64 (qemu-user)" && exit 77; }
grep -qw avx2 /proc/cpuinfo || { echo "skipped: this processor is as old as the one to try" && exit 77; }

check() { # RANK: what it says in $said
  said=$(OMPI_COMM_WORLD_LOCAL_RANK=$1 qemu-x86_64 -cpu Nehalem "$program" --version 2>&1)
  code=$?
  [[ $code == 1 ]] || { echo "FAILED: rank $1 ended with $code, expected 1: $said" && exit 1; }
}
check 0
[[ $said == "[error] moeloom was built for a processor with "*"build it there (launch/build.sh)"* ]] ||
  { echo "FAILED: said: $said" && exit 1; }
echo "$said"
check 1
[[ -z $said ]] || { echo "FAILED: a second rank of the host says it too: $said" && exit 1; }
