#!/usr/bin/env bash
# tests/install/levels.sh PREFIX: what the loader picks of an installation by launch/package.sh, at each level of x86-64 that
# this machine has, and whether a run has the same losses there. By hand: four builds are too long for every test.
#
# A level is reached by hiding what makes the next one from the loader (glibc.cpu.hwcaps), and the lesser ones besides on
# older processors in qemu-user, where that is installed. OpenBLAS looks at the processor itself, whatever the loader
# picks, so it is told what it would find (OPENBLAS_CORETYPE), as launch/machines.md tells mixed clusters to.
set -uo pipefail
prefix=$(realpath -- "${1:?usage: tests/install/levels.sh PREFIX}")
cd "$(dirname "$0")/../.." || exit
# shellcheck source=launch/env.sh
. launch/env.sh
export OMP_NUM_THREADS=1
program=$prefix/bin/moeloom
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeloom-levels-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() { echo "FAILED: $*" && failed=1; }

declare -A hidden=([x86-64-v4]='' [x86-64-v3]=-AVX512F [x86-64-v2]=-AVX512F,-AVX2 [x86-64]=-AVX512F,-AVX2,-SSE4_2)
# masked LEVEL COMMAND...
masked() {
  local mask=${hidden[$1]}
  shift
  env ${mask:+GLIBC_TUNABLES=glibc.cpu.hwcaps=$mask} "$@"
}
# losses NAME LEVEL [NAME=VALUE]... [EMULATOR]: of 20 steps, as metrics.jsonl prints them -> NAME.losses
losses() {
  local name=$1 level=$2 words=("${@:3}")
  masked "$level" timeout 1200 mpirun -n 2 env "${words[@]}" "$program" train --ep 2 --data README.md --steps 20 \
    --global-batch 4 --seq-len 32 --hidden 64 --layers 2 --experts 8 --seed 1 --run "$scratch/$name" > "$scratch/$name.log" 2>&1 ||
    fail "$name does not train: $(tail -3 "$scratch/$name.log")"
  sed -nE 's/^\{"step":[0-9]+,"loss":([^,]*),.*/\1/p' "$scratch/$name/metrics.jsonl" > "$scratch/$name.losses" 2> /dev/null
  [[ $(wc -l < "$scratch/$name.losses") == 20 ]] || fail "$name: 20 steps have 20 losses"
}
same() { cmp -s "$scratch/$1.losses" "$scratch/$2.losses"; }
differing() { diff "$scratch/$1.losses" "$scratch/$2.losses" | grep -c '^<'; }

loader=$(patchelf --print-interpreter "$program" 2> /dev/null || echo /lib64/ld-linux-x86-64.so.2)
known=$("$loader" --help)
here=()
for level in x86-64-v4 x86-64-v3 x86-64-v2 x86-64; do
  if [[ $level != x86-64 && $known != *"$level (supported"* ]]; then
    echo "$level: skipped, this machine does not have it"
    continue
  fi
  here+=("$level")
  picked=$(masked "$level" ldd "$program" | sed -n 's/.*libmoeloom.so[^ ]* => \([^ ]*\) .*/\1/p')
  said=$(masked "$level" "$program" --version | sed -n 's/^level //p')
  echo "$level: the loader picks ${picked#"$prefix"/}, --version says $said"
  [[ $said == "$level" ]] || fail "expected $level"
  losses "$level" "$level"
  echo "  loss of step 1 $(head -1 "$scratch/$level.losses"), of step 20 $(tail -1 "$scratch/$level.losses")"
done
has() { [[ " ${here[*]} " == *" $1 "* ]]; }

# By the same OpenBLAS.
! has x86-64-v4 || same x86-64-v4 x86-64-v3 || fail "losses of v4 and v3 differ"
! has x86-64-v2 || same x86-64-v2 x86-64 || fail "losses of v2 and x86-64 differ"
! has x86-64-v3 || same x86-64-v3 x86-64-v2 ||
  echo "v3 and v2 (products and sums rounded each, without FMA) differ in $(differing x86-64-v3 x86-64-v2) of 20 losses"

# By each processor's own, and by the older one's for both.
if has x86-64-v4; then
  losses v3-Haswell x86-64-v3 OPENBLAS_CORETYPE=Haswell
  losses v4-Haswell x86-64-v4 OPENBLAS_CORETYPE=Haswell
  if same x86-64-v4 v3-Haswell; then agree="agree"; else agree="differ in $(differing x86-64-v4 v3-Haswell) of 20 losses"; fi
  echo "v4, and v3 with OPENBLAS_CORETYPE=Haswell, as processors with and without AVX-512 have it, $agree"
  same v4-Haswell v3-Haswell || fail "with OPENBLAS_CORETYPE=Haswell on both, losses of v4 and v3 differ"
fi

# The processors themselves, whose losses are those that machines.md promises.
if ! command -v qemu-x86_64 > /dev/null; then
  echo "older processors: skipped, there is no qemu-x86_64 (qemu-user)"
  exit $failed
fi
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma # qemu does not have this system call
for cpu in qemu64:x86-64 Nehalem:x86-64-v2 Haswell:x86-64-v3; do
  name=${cpu%:*} level=${cpu#*:}
  said=$(qemu-x86_64 -cpu "$name" "$program" --version 2> /dev/null | sed -n 's/^level //p')
  echo "qemu-x86_64 -cpu $name: level $said"
  [[ $said == "$level" ]] || fail "expected $level"
  [[ $name != qemu64 ]] && has "$level" || continue
  losses "qemu-$name" x86-64-v4 qemu-x86_64 -cpu "$name"
  losses "as-$name" "$level" OPENBLAS_CORETYPE="$name"
  same "qemu-$name" "as-$name" || fail "losses differ from those here with OPENBLAS_CORETYPE=$name and $level"
done
exit $failed
