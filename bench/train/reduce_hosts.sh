#!/usr/bin/env bash
# How much of gradients' sums and new weights' travel do backward and forward hide on hosts that shaped links join?
#
#   bench/train/reduce_hosts.sh [HOSTS [RATE [--layers N and what else step_bench takes, instead of the case below]]]
#
# RANKS ranks a host (1), a thread each, ep = 1, so that every gradient crosses. Each round takes a step with all of it at the end,
# with sums under backward, and with weights under the next forward too. The case is wide enough that backward takes as
# long as its sums. OVERLAP=all,all+thread compares polling with a thread that moves messages. MOELOOM_BUILD is the build
# to measure; root, because it makes the hosts.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../../tests/cluster/hosts.sh"

hosts=${1:-2}
ranks=${RANKS:-1}
rate=${2:-1gbit}
shape=("${@:3}")
[[ ${#shape[@]} -gt 0 ]] || shape=(--hidden 512 --heads 8 --kv-heads 4 --head-dim 64 --inter 512 --layers 4 --experts 8
  --top-k 2 --sequences 8 --seq-len 256 --samples 9)
make_hosts "$hosts"
shape_links "$rate"
echo "$hosts hosts, $rate each way, $ranks ranks of one thread each: ${shape[*]}"
# With a processor each, a rank that gives it away at every look for messages measures who else runs.
((hosts * ranks > $(env -u OMP_NUM_THREADS nproc))) || export OMPI_MCA_mpi_yield_when_idle=0
export MOELOOM_HOSTS=$hosts
on 0 timeout -k 5 900 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile "$ranks")" -n "$((hosts * ranks))" \
  "$MOELOOM_BUILD/bench/step_bench" --case custom --path gmm --check off --overlap "${OVERLAP:-off,reduce,all}" "${shape[@]}"
