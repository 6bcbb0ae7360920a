#!/usr/bin/env bash
# tests/arm/run.sh [FOLDER]: moeloom for aarch64, by Debian's cross compiler and without a warning; no tile of the products
# keeps a sum in memory; under qemu the tests of tensor and kernels pass, and 20 steps on 2 ranks have the losses of
# $MOELOOM_BUILD (build), which is of x86 with AVX-512, to all digits. FOLDER (build-arm) keeps libraries and build for the next
# time. MOELOOM_JOBS: as many compilers at once (all processors). 77 where the compiler or qemu is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath -m "${1:-build-arm}")
native=$(realpath -m "${MOELOOM_BUILD:-build}")
qemu=(qemu-aarch64 -L "$folder/sysroot")

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v $program > /dev/null ||
    { echo "skipped: no $program here; apt-get install --no-install-recommends g++-aarch64-linux-gnu qemu-user"; exit 77; }
done
fail() {
  echo "failed: $*" >&2
  exit 1
}

tests/arm/sysroot.sh "$folder/sysroot"
cmake -S . -B "$folder/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE=tests/arm/toolchain.cmake \
  -DMOELOOM_SYSROOT="$folder/sysroot" -DMOELOOM_WERROR=ON -DMOELOOM_BENCH=OFF > "$folder/configure.log" ||
  fail "$(cat "$folder/configure.log")"
nice cmake --build "$folder/build" --parallel "${MOELOOM_JOBS:-$(nproc)}" --target moeloom tests_tensor tests_kernels

tests/arm/spilled_tiles.py "$folder/build"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Those of kernels take 20 minutes of one thread, half of it two tests of products (EveryPathEqualsTheDefinitionInDouble,
# GiveTheBitsOfTheirMasters).
for room in tensor kernels; do
  OMP_NUM_THREADS=2 timeout 7200 "${qemu[@]}" "$folder/build/tests_$room" --gtest_brief=1 > "$scratch/log" 2>&1 ||
    fail "tests of $room, code $?: $(cat "$scratch/log")"
  grep -q '^\[  PASSED  \] [1-9]' "$scratch/log" || fail "tests of $room: none passed: $(cat "$scratch/log")"
  echo "$room: $(sed -nE 's/^\[  (PASSED |SKIPPED) \] ([0-9]+) tests?.*/\1 \2/p' "$scratch/log" | tr -s '\n ' ' ')"
done

seq 1 4000 | sed 's/.*/And the weaver drew thread & through the loom./' > "$scratch/corpus.txt"
# shellcheck source=launch/env.sh
. launch/env.sh
# Copies between processes are a system call that qemu does not have.
export OMP_NUM_THREADS=1 MOELOOM_GMM_PATCH=force OMPI_MCA_btl_vader_single_copy_mechanism=none
# train NAME PROGRAM...: 20 steps of it -> NAME.losses. MPI's start takes a minute in qemu, which is no stall.
train() {
  timeout 1200 mpirun -n 2 "${@:2}" train --ep 2 --stall-timeout 0 --layers 2 --hidden 64 --inter 64 --heads 2 \
    --kv-heads 1 --head-dim 32 --experts 8 --top-k 2 --seq-len 64 --global-batch 8 --eval-every 0 --eval-sequences 8 \
    --sample-chars 0 --steps 20 --data "$scratch/corpus.txt" --run "$scratch/$1" > "$scratch/log" 2>&1 ||
    fail "$1: $(cat "$scratch/log")"
  sed -n 's/^{"step":[0-9]*,"loss":\([^,]*\),.*/\1/p' "$scratch/$1/metrics.jsonl" > "$scratch/$1.losses"
  [[ $(wc -l < "$scratch/$1.losses") == 20 ]] || fail "$1: 20 steps have 20 losses"
}
train aarch64 "${qemu[@]}" "$folder/build/moeloom"
echo "aarch64: 20 steps on 2 ranks, the last with loss $(tail -n 1 "$scratch/aarch64.losses")"
# OpenBLAS sums products of routers in the order of its code for AVX-512, not of that for AVX2.
if [[ ! -x $native/moeloom ]] || ! grep -qw avx512f /proc/cpuinfo; then
  echo "skipped: losses are not compared, because there is no $native/moeloom, or no AVX-512 here"
  exit 0
fi
train x86 env OPENBLAS_CORETYPE=SkylakeX "$native/moeloom"
diff "$scratch/x86.losses" "$scratch/aarch64.losses" || fail "other losses than those of x86 with AVX-512"
echo "the losses of x86 with AVX-512, to all digits"
