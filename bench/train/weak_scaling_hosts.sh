#!/usr/bin/env bash
# How long is a step of several hosts that share the experts over that of one host by itself with as many tokens?
#
#   bench/train/weak_scaling_hosts.sh [HOSTS [RATE [QUOTA [--layers N and more of step_bench's, a case of one's own]]]]
#
# One rank a host, a thread each, ep = HOSTS. Each round takes a step in which every rank trains alone, all experts its
# own and nobody to exchange with, all ranks at the same time; then steps of all ranks together, with reductions at the
# end and under products. of_first is a step's time over the one alone: weak scaling is its inverse.
#
# The case's experts are as wide as makes their products take as long as rows travel, both measured first (ms of layers:
# those of experts alone, and of dispatch and combine of rows that travel whole).
#
# QUOTA, in percent of a processor (100: none), is what each host has (bench/moe/host_quota.sh): hosts that share
# processors would else compute while others wait for a link, as no host of a cluster can. At 40 percent links of 400
# Mbit/s stand for 1 Gbit/s, as all is 2.5 times slower.
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
make_hosts "$hosts"
make_quota "$quota"
shape_links "$rate"
((hosts > $(env -u OMP_NUM_THREADS nproc) && quota == 100)) || export OMPI_MCA_mpi_yield_when_idle=0
export MOELOOM_HOSTS=$hosts
steps() {
  on 0 timeout -k 5 1800 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile 1)" -n "$hosts" "${under_quota[@]}" \
    "$MOELOOM_BUILD/bench/step_bench" --case custom --path gmm --check off --alone on --ep "$hosts" "$@"
}
if [[ ${#shape[@]} -eq 0 ]]; then
  shape=(--hidden 512 --heads 8 --kv-heads 4 --head-dim 64 --layers 2 --experts 32 --top-k 4 --sequences 4 --seq-len 256
    --routing balanced)
  probed=512
  steps "${shape[@]}" --inter $probed --samples 3 --json "$scratch/probe.json" > /dev/null
  inter=$(python3 - "$scratch/probe.json" $probed << 'END'
import json, sys
alone, together = json.load(open(sys.argv[1]))
travel = sum(together[key] - alone[key] for key in ("ms_dispatch", "ms_combine"))
print(f"rows travel {travel:.0f} ms, experts of {sys.argv[2]} compute {alone['ms_experts']:.0f} ms", file=sys.stderr)
print(max(32, round(int(sys.argv[2]) * travel / alone["ms_experts"] / 32) * 32))
END
  )
  shape+=(--inter "$inter" --chunks 8 --overlap "off,all" --samples 7)
fi
echo "$hosts hosts of one rank and $quota % of a processor, $rate each way, load $(cut -d' ' -f1 /proc/loadavg): ${shape[*]}"
steps "${shape[@]}"
