#!/usr/bin/env bash
# How long is a step of several hosts that share the experts over that of one host by itself with as many tokens?
#
#   bench/train/weak_scaling_hosts.sh [HOSTS [RATE [QUOTA [--layers N and what else step_bench takes, for the case below]]]]
#
# One rank a host, a thread each, ep = HOSTS. Each round takes a step in which every rank trains alone, all experts its
# own and nobody to exchange with, all ranks at the same time; then steps of all ranks together, with reductions at the
# end and under products. of_first is a step's time over the one alone: weak scaling is its inverse.
#
# QUOTA, in percent of a processor (100: none), is what each host has (bench/moe/host_quota.sh): hosts that share
# processors would else compute while others wait for a link, as no host of a cluster can. At 40 percent links of 400
# Mbit/s stand for 1 Gbit/s, as all is 2.5 times slower; there the case's experts compute as long as its rows travel.
# MOELOOM_BUILD is the build to measure; root, because it makes hosts.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../../tests/cluster/hosts.sh"
# shellcheck source=bench/moe/host_quota.sh
. "$(dirname "$0")/../moe/host_quota.sh"

hosts=${1:-4}
rate=${2:-400mbit}
quota=${3:-40}
shape=("${@:4}")
[[ ${#shape[@]} -gt 0 ]] || shape=(--hidden 512 --heads 8 --kv-heads 4 --head-dim 64 --inter 960 --layers 2 --experts 32
  --top-k 4 --sequences 4 --seq-len 256 --routing balanced --chunks 8 --overlap "off,all" --samples 7)
make_hosts "$hosts"
make_quota "$quota"
shape_links "$rate"
echo "$hosts hosts of one rank and $quota % of a processor, $rate each way, load $(cut -d' ' -f1 /proc/loadavg): ${shape[*]}"
((hosts > $(env -u OMP_NUM_THREADS nproc) && quota == 100)) || export OMPI_MCA_mpi_yield_when_idle=0
export MOELOOM_HOSTS=$hosts
on 0 timeout -k 5 1800 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile 1)" -n "$hosts" "${under_quota[@]}" \
  "$MOELOOM_BUILD/bench/step_bench" --case custom --path gmm --check off --alone on --ep "$hosts" "${shape[@]}"
