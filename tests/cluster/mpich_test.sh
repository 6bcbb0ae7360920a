#!/usr/bin/env bash
# Under MPICH a run has the losses that Open MPI gives it, on one machine by mpiexec.hydra and on two by launch/cluster.sh.
# It builds the program for MPICH by itself, as $MOELOOM_BUILD is, in build-mpich beside it, so the first time takes
# minutes; MOELOOM_MPICH_BUILD names a build that is taken as it is. 77 where there is no MPICH.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

# as_built NAME...: options of cmake with the values that $MOELOOM_BUILD has for them.
as_built() {
  local name
  for name in "$@"; do sed -n "s/^\($name:[A-Z]*=.*\)/-D\1/p" "$MOELOOM_BUILD/CMakeCache.txt"; done
}
build_for_mpich() { # FOLDER; what has not changed is not compiled again
  local options
  mapfile -t options < <(as_built CMAKE_BUILD_TYPE CMAKE_CXX_COMPILER CMAKE_CXX_FLAGS MOELOOM_NATIVE MOELOOM_WERROR)
  [[ -f $1/CMakeCache.txt ]] || options+=(-G Ninja)
  cmake -S "$root" -B "$1" "${options[@]}" -DMOELOOM_TESTS=OFF -DMOELOOM_BENCH=OFF \
    -DMPI_CXX_COMPILER="$(command -v mpicxx.mpich)" -DMPIEXEC_EXECUTABLE="$(command -v mpiexec.hydra)" &&
    nice cmake --build "$1" --parallel "$(nproc)" --target moeloom
}

mpich=${MOELOOM_MPICH_BUILD:-}
if [[ -z $mpich ]]; then
  mpich=$(realpath -m "$MOELOOM_BUILD")-mpich
  for program in mpicxx.mpich mpiexec.hydra; do
    command -v "$program" > /dev/null || skip "$program is not installed (on Debian: apt install libmpich-dev mpich)"
  done
  build_for_mpich "$mpich" > "$scratch/log" 2>&1 || fail "the build for MPICH: $(tail -n 30 "$scratch/log")"
fi
[[ -x $mpich/moeloom ]] || skip "no $mpich/moeloom"
hydra=$(sed -n 's/^MPIEXEC_EXECUTABLE:[A-Z]*=//p' "$mpich/CMakeCache.txt")
[[ $("$hydra" --version 2> /dev/null) == HYDRA* ]] || skip "$hydra is no hydra of MPICH"

for ranks in 1 2; do
  for way in open mpich; do
    run=$scratch/$way-$ranks
    if [[ $way == open ]]; then start=(mpirun_here -n "$ranks" "$MOELOOM_BUILD/moeloom"); else
      start=(timeout 300 "$root/launch/with-env.sh" "$hydra" -n "$ranks" "$mpich/moeloom"); fi
    "${start[@]}" train "${small_run[@]}" --steps 20 --ep "$ranks" --run "$run" > "$run.log" 2>&1 ||
      fail "$way on $ranks: $(cat "$run.log")"
  done
  [[ $(losses "$scratch/mpich-$ranks" | wc -l) == 20 ]] || fail "20 steps have 20 losses: $(cat "$scratch/mpich-$ranks.log")"
  diff <(losses "$scratch/open-$ranks") <(losses "$scratch/mpich-$ranks") || fail "$ranks ranks: other losses than Open MPI's"
done
echo "one machine: the losses of Open MPI"

make_hosts 2
mkdir "$scratch/bin"
printf '%s\n' '#!/bin/sh' "exec $hydra \"\$@\"" > "$scratch/bin/mpirun" # it looks for its proxy beside itself
chmod +x "$scratch/bin/mpirun"
on 0 env -u MOELOOM_NET UCX_TLS=self,tcp UCX_NET_DEVICES=eth0 MOELOOM_BUILD="$mpich" PATH="$scratch/bin:$PATH" \
  timeout -k 5 300 "$root/launch/cluster.sh" "$(hostfile 1)" train "${small_run[@]}" --steps 20 --ep 2 \
  --run "$scratch/hosts-run" > "$scratch/log" 2>&1 || fail "two hosts: $(cat "$scratch/log")"
grep -q 'on 2 node(s)' "$scratch/log" || fail "the ranks are not on two hosts: $(cat "$scratch/log")"
diff <(losses "$scratch/open-2") <(losses "$scratch/hosts-run") || fail "two hosts: other losses than Open MPI's"
echo "two hosts: the losses of Open MPI"
