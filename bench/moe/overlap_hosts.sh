#!/usr/bin/env bash
# How much of the rows' travel do the experts' products hide on two hosts that a link of 1 Gbit/s joins?
#
#   bench/moe/overlap_hosts.sh [RATE [RANKS [--tokens N and what else layer_bench takes, instead of the case below]]]
#
# RANKS: on each host, in one row of ep. Two take turns on a processor where there are no more.
#
# Each round runs the layer without overlap and with each number of chunks in turn. The width of the experts is chosen
# so that they compute about as long as rows travel. MOELOOM_BUILD is the build to measure; root, because it makes the
# hosts.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../../tests/cluster/hosts.sh"

rate=${1:-1gbit}
ranks=${2:-1}
shape=("${@:3}")
[[ ${#shape[@]} -gt 0 ]] || shape=(--tokens 512 --hidden 1024 --inter 256 --experts 16 --top-k 4 --samples 9
  --overlap "off,1,2,4,8")
make_hosts 2
shape_links "$rate"
echo "two hosts, $rate each way, $ranks rank(s) each of one thread: ${shape[*]}"
# A rank that has a processor to itself and gives it away at every look for messages measures who else runs.
export MOELOOM_HOSTS=2 OMPI_MCA_mpi_yield_when_idle=$((2 * ranks > $(env -u OMP_NUM_THREADS nproc)))
on 0 timeout -k 5 900 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile "$ranks")" -n $((2 * ranks)) \
  "$MOELOOM_BUILD/bench/layer_bench" --ep $((2 * ranks)) --paths gmm "${shape[@]}"
