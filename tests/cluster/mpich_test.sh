#!/usr/bin/env bash
# Under MPICH a run has the losses that Open MPI gives it, on one machine by mpiexec.hydra and on two by launch/cluster.sh.
# The build folder is one for MPICH: MOELOOM_MPICH_BUILD (build-mpich), beside $MOELOOM_BUILD; 77 where there is none.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

mpich=${MOELOOM_MPICH_BUILD:-$root/build-mpich}
[[ -x $mpich/moeloom ]] || skip "no $mpich/moeloom: a build with cmake -DMPI_CXX_COMPILER=mpicxx.mpich -DMPIEXEC_EXECUTABLE=$(command -v mpiexec.hydra || echo mpiexec.hydra)"
hydra=$(sed -n 's/^MPIEXEC_EXECUTABLE:[A-Z]*=//p' "$mpich/CMakeCache.txt")
[[ $("$hydra" --version 2> /dev/null) == HYDRA* ]] || skip "$hydra is no hydra of MPICH"

for ranks in 1 2; do
  for way in open mpich; do
    run=$scratch/$way-$ranks
    if [[ $way == open ]]; then start=(mpirun_here -n "$ranks" "$MOELOOM_BUILD/moeloom"); else
      start=(timeout 60 "$root/launch/with-env.sh" "$hydra" -n "$ranks" "$mpich/moeloom"); fi
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
  timeout -k 5 60 "$root/launch/cluster.sh" "$(hostfile 1)" train "${small_run[@]}" --steps 20 --ep 2 \
  --run "$scratch/hosts-run" > "$scratch/log" 2>&1 || fail "two hosts: $(cat "$scratch/log")"
grep -q 'on 2 node(s)' "$scratch/log" || fail "the ranks are not on two hosts: $(cat "$scratch/log")"
diff <(losses "$scratch/open-2") <(losses "$scratch/hosts-run") || fail "two hosts: other losses than Open MPI's"
echo "two hosts: the losses of Open MPI"
