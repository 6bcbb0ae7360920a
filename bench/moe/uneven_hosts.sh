#!/usr/bin/env bash
# How much of what uneven routing costs a training run do replicas give back?
#
#   bench/moe/uneven_hosts.sh [HOSTS [RATE [QUOTA [ROUNDS [ROUTINGS]]]]]
#
# A rank a host, joined by links of RATE. In each round balanced routing, which is the aim, and of each of ROUTINGS
# (zipf,rotating-hot,recorded) a run without and one with --rebalance. `recorded` replays what the routers of a new model
# choose while it learns the words of this repository. The time is the median of the last seven of 16 steps; of_first is
# it over the balanced run's of the round. QUOTA: percent of a processor for each host (host_quota.sh). MOELOOM_BUILD is
# the build to measure; root.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../../tests/cluster/hosts.sh"
# shellcheck source=bench/moe/host_quota.sh
. "$(dirname "$0")/host_quota.sh"

hosts=${1:-4}
rate=${2:-1gbit}
quota=${3:-40}
rounds=${4:-3}
IFS=, read -ra routings <<< "${5:-zipf,rotating-hot,recorded}"
make_hosts "$hosts"
shape_links "$rate"
make_quota "$quota"
net=${rate/gbit/Gbit} net=${net/mbit/Mbit}

cat "$root"/*.md "$root"/*/*.md > "$scratch/text"
shape=(--layers 2 --hidden 512 --inter 256 --experts 32 --top-k 2 --heads 8 --kv-heads 2 --head-dim 64 --seq-len 256
  --global-batch $((8 * hosts)) --ep "$hosts" --steps 16 --log-every 4 --heldout 0 --sample-chars 0 --save-every 0
  --net "$net,100us" --data "$scratch/text" --overwrite true)

# train NAME OPTIONS...: such a run, its folder called so.
train() {
  local name=$1
  shift
  on 0 timeout -k 5 300 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile 1)" -n "$hosts" "${under_quota[@]}" \
    "$MOELOOM_BUILD/moeloom" train "${shape[@]}" "$@" --run "$scratch/$name" > "$scratch/$name.log" 2>&1 ||
    { cat "$scratch/$name.log" >&2; fail "$name"; }
}
# seconds NAME OPTIONS...: of a step of it.
seconds() {
  train "$@"
  sed -n 's/.*"seconds":\([0-9.e+-]*\).*/\1/p' "$scratch/$1/metrics.jsonl" | tail -n 7 | sort -g | sed -n 4p
}

echo "$hosts hosts, $rate each way, $quota % of a processor each: ${shape[*]}"
export MOELOOM_HOSTS=$hosts OMPI_MCA_mpi_yield_when_idle=0
train recorder --record-routing "$scratch/routing" --record-steps 1:17
printf '%-26s %10s %10s\n' routing step_s of_first
for ((round = 0; round < rounds; ++round)); do
  first=$(seconds balanced --force-routing balanced)
  printf '%-26s %10.3f %10.3f\n' balanced "$first" 1
  for routing in "${routings[@]}"; do
    forced=(--force-routing "$routing")
    [[ $routing != recorded ]] || forced=(--replay-routing "$scratch/routing")
    for rebalance in false true; do
      of=$(seconds "$routing-$rebalance" "${forced[@]}" --rebalance "$rebalance")
      printf '%-26s %10.3f %10s\n' "$routing, rebalance $rebalance" "$of" "$(awk "BEGIN { printf \"%.3f\", $of / $first }")"
    done
  done
done
