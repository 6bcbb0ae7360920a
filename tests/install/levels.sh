#!/usr/bin/env bash
# tests/install/levels.sh PREFIX: what the loader picks of an installation by launch/package.sh, at each level of x86-64 that
# this machine has, and whether a run has the same losses there. By hand: four builds are too long for every test.
#
# A level is reached by hiding what makes the next one from the loader (glibc.cpu.hwcaps), and the least one besides on the
# oldest processor that there is, in qemu-user, where that is installed.
set -uo pipefail
prefix=$(realpath -- "${1:?usage: tests/install/levels.sh PREFIX}")
cd "$(dirname "$0")/../.." || exit
# shellcheck source=launch/env.sh
. launch/env.sh
program=$prefix/bin/moeloom
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeloom-levels-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() { echo "FAILED: $*" && failed=1; }

declare -A hidden=([x86-64-v4]='' [x86-64-v3]=-AVX512F [x86-64-v2]=-AVX512F,-AVX2 [x86-64]=-AVX512F,-AVX2,-SSE4_2)
masked() { # LEVEL COMMAND...
  local mask=${hidden[$1]}
  shift
  env ${mask:+GLIBC_TUNABLES=glibc.cpu.hwcaps=$mask} "$@"
}
losses() { # LEVEL: of 20 steps, as they are printed in metrics.jsonl
  masked "$1" mpirun -n 2 "$program" train --ep 2 --data README.md --steps 20 --global-batch 4 --seq-len 32 --hidden 64 \
    --layers 2 --experts 8 --seed 1 --run "$scratch/$1" > "$scratch/$1.log" 2>&1 || { tail -3 "$scratch/$1.log" && return 1; }
  sed -nE 's/^\{"step":[0-9]+,"loss":([^,]*),.*/\1/p' "$scratch/$1/metrics.jsonl"
}

loader=$(patchelf --print-interpreter "$program" 2> /dev/null || echo /lib64/ld-linux-x86-64.so.2)
for level in x86-64-v4 x86-64-v3 x86-64-v2 x86-64; do
  if [[ $level != x86-64 ]] && ! "$loader" --help | grep -q "$level (supported"; then
    echo "$level: skipped, this machine does not have it"
    continue
  fi
  picked=$(masked "$level" ldd "$program" | sed -n 's/.*libmoeloom.so[^ ]* => \([^ ]*\) .*/\1/p')
  said=$(masked "$level" "$program" --version | sed -n 's/^level //p')
  echo "$level: the loader picks ${picked#"$prefix"/}, --version says $said"
  [[ $said == "$level" ]] || fail "expected $level"
  losses "$level" > "$scratch/$level.losses" || fail "$level does not train"
  echo "  loss of step 1 $(head -1 "$scratch/$level.losses"), of step 20 $(tail -1 "$scratch/$level.losses")"
done
same() { cmp -s "$scratch/$1.losses" "$scratch/$2.losses"; }
[[ ! -e $scratch/x86-64-v4.losses ]] || same x86-64-v4 x86-64-v3 || fail "losses of v4 and v3 differ"
same x86-64-v2 x86-64 || fail "losses of v2 and x86-64 differ"
if ! same x86-64-v3 x86-64-v2; then
  echo "v3 and v2 (products and sums rounded each, without FMA) differ in $(diff "$scratch"/x86-64-v{3,2}.losses | grep -c '^<') of 20 losses"
fi
if command -v qemu-x86_64 > /dev/null; then
  for cpu in qemu64:x86-64 Nehalem:x86-64-v2 Haswell:x86-64-v3; do
    said=$(qemu-x86_64 -cpu "${cpu%:*}" "$program" --version 2> /dev/null | sed -n 's/^level //p')
    echo "qemu-x86_64 -cpu ${cpu%:*}: level $said"
    [[ $said == "${cpu#*:}" ]] || fail "expected ${cpu#*:}"
  done
fi
exit $failed
