#!/usr/bin/env bash
# The dispatchers' exchanges on the hosts of a simulated fat tree, beside what the cost model says of them:
#
#   bench/moe/simgrid/run.sh               64 ranks, some seconds
#   bench/moe/simgrid/run.sh 256           not in two and a half minutes
#   bench/moe/simgrid/run.sh 64 --tokens 8 options of exchange_replay_bench follow the ranks
#
# The rooms are built by SimGrid's smpicxx, so that their MPI calls are simulated; computing takes no time. Links are
# of 100 Gbit/s and 1 us, with full bisection. Collectives choose their algorithms as Open MPI's do. A message costs the
# same whatever its size: SimGrid's own factors were fitted to another network. Asking whether one has arrived takes 1 us: who
# asks until it has would never end otherwise. Ranks of `hierarchical` sleep between such questions, so its times mean
# nothing; waits.c waits for many messages.
# MOELOOM_SIMGRID_BUILD is where it builds, and remains.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
for program in smpicc smpicxx smpirun; do
  command -v "$program" > /dev/null || {
    echo "skipped: $program is not installed (apt-get install libsimgrid-dev)"
    exit 77
  }
done

ranks=()
while [[ ${1:-} =~ ^[0-9]+$ ]]; do
  ranks+=("$1")
  shift
done
[[ ${#ranks[@]} -gt 0 ]] || ranks=(64)

build=${MOELOOM_SIMGRID_BUILD:-$root/build/simgrid}
mkdir -p "$build"
{
  smpicc -O2 -fPIC -c "$root/bench/moe/simgrid/waits.c" -o "$build/waits.o"
  cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=smpicxx -DMPI_CXX_COMPILER=smpicxx \
    -DCMAKE_CXX_FLAGS=-DSMPI_NO_OVERRIDE_MALLOC -DMOELOOM_TESTS=OFF \
    -DCMAKE_EXE_LINKER_FLAGS="$build/waits.o -Wl,--wrap=MPI_Waitall,--wrap=MPI_Waitsome"
  cmake --build "$build" --target exchange_replay_bench -j 2
} > "$build/build.log" 2>&1 || {
  tail -n 30 "$build/build.log" >&2
  exit 1
}

# fat_tree SIDE: SIDE switches of SIDE hosts, and SIDE switches over them.
fat_tree() {
  cat << END
<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="fat_tree" prefix="h" suffix="" radical="0-$(($1 * $1 - 1))" speed="1Gf" bw="12.5GBps" lat="1us"
           topology="FAT_TREE" topo_parameters="2;$1,$1;1,$1;1,1"/>
</platform>
END
}

for n in "${ranks[@]}"; do
  side=2
  while ((side * side < n)); do ((side *= 2)); done
  fat_tree "$side" > "$build/platform.xml"
  seq -f 'h%g' 0 $((n - 1)) > "$build/hosts"
  OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 smpirun -np "$n" -platform "$build/platform.xml" -hostfile "$build/hosts" \
    --cfg=smpi/simulate-computation:no --cfg=smpi/coll-selector:ompi \
    --cfg=smpi/bw-factor:0:1 --cfg=smpi/lat-factor:0:1 --cfg=smpi/test:1e-6 --log=root.thresh:warning "$build/bench/exchange_replay_bench" "$@"
done
