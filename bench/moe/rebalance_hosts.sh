#!/usr/bin/env bash
# How much of what uneven routing costs do replicas of experts give back, on hosts that shaped links join?
#
#   bench/moe/rebalance_hosts.sh [HOSTS [RATE [QUOTA [and what else layer_bench takes, instead of the case below]]]]
#
# A rank a host. In one run, round by round in turn: balanced routing without replicas, which is the aim, and each
# uneven routing without and with them; of_first is a step's time over the balanced one's of the same round, its inverse
# the share of forced-balance throughput.
#
# QUOTA: percent of a processor for each host (host_quota.sh).
# MOELOOM_BUILD is the build to measure; root, because it makes the hosts.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../../tests/cluster/hosts.sh"
# shellcheck source=bench/moe/host_quota.sh
. "$(dirname "$0")/host_quota.sh"

hosts=${1:-4}
rate=${2:-1gbit}
quota=${3:-40}
shape=("${@:4}")
[[ ${#shape[@]} -gt 0 ]] || shape=(--tokens 2048 --hidden 512 --inter 256 --experts 32 --top-k 2 --samples 7)
make_hosts "$hosts"
shape_links "$rate"

make_quota "$quota"

# bytes_per_second RATE: of 1gbit, 200mbit.
bytes_per_second() {
  case $1 in
    *gbit) echo $((${1%gbit} * 125000000)) ;;
    *mbit) echo $((${1%mbit} * 125000)) ;;
    *) fail "a rate in gbit or mbit, not $1" ;;
  esac
}

echo "$hosts hosts, $rate each way, $quota % of a processor each, one rank and one thread each: ${shape[*]}"
export MOELOOM_HOSTS=$hosts OMPI_MCA_mpi_yield_when_idle=0
on 0 timeout -k 5 540 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile 1)" -n "$hosts" \
  "${under_quota[@]}" "$MOELOOM_BUILD/bench/layer_bench" --ep "$hosts" --paths gmm \
  --routing balanced,zipf,hot-rank,rotating-hot --rebalance off,on \
  --net-bytes-per-second "$(bytes_per_second "$rate")" --check off "${shape[@]}"
