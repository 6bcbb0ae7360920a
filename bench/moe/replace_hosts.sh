#!/usr/bin/env bash
# How much of what lasting uneven routing costs a training run do experts that change ranks give back?
#
#   bench/moe/replace_hosts.sh [HOSTS [RATE [QUOTA [ROUNDS]]]]
#
# A rank a host, joined by links of RATE. In each round one run each: balanced routing, which is the aim, and zipf
# routing with experts that stay, that move (--replace-every 4), and that move and have replicas (--rebalance). The
# time is the median of the steps after the second decision; of_first is it over the balanced run's of the round.
# QUOTA: percent of a processor for each host (host_quota.sh). MOELOOM_BUILD is the build to measure; root.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../../tests/cluster/hosts.sh"
# shellcheck source=bench/moe/host_quota.sh
. "$(dirname "$0")/host_quota.sh"

hosts=${1:-4}
rate=${2:-1gbit}
quota=${3:-40}
rounds=${4:-3}
make_hosts "$hosts"
shape_links "$rate"
make_quota "$quota"
net=${rate/gbit/Gbit} net=${net/mbit/Mbit}

for _ in {1..4000}; do echo "In the beginning was the word, and lines of words make bytes to learn."; done > "$scratch/text"
shape=(--layers 2 --hidden 512 --inter 256 --experts 32 --top-k 2 --heads 8 --kv-heads 2 --head-dim 64 --seq-len 256
  --global-batch $((8 * hosts)) --ep "$hosts" --steps 16 --log-every 4 --heldout 0 --sample-chars 0 --save-every 0
  --net "$net,100us" --data "$scratch/text" --overwrite true)

# seconds NAME OPTIONS...: of a step of such a run.
seconds() {
  local name=$1
  shift
  on 0 timeout -k 5 300 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile 1)" -n "$hosts" "${under_quota[@]}" \
    "$MOELOOM_BUILD/moeloom" train "${shape[@]}" "$@" --run "$scratch/$name" > "$scratch/$name.log" 2>&1 ||
    { cat "$scratch/$name.log" >&2; fail "$name"; }
  grep -o "replaced_experts=.*" "$scratch/$name.log" >&2 || true
  sed -n 's/.*"seconds":\([0-9.e+-]*\).*/\1/p' "$scratch/$name/metrics.jsonl" | tail -n 7 | sort -g | sed -n 4p
}

echo "$hosts hosts, $rate each way, $quota % of a processor each: ${shape[*]}"
export MOELOOM_HOSTS=$hosts OMPI_MCA_mpi_yield_when_idle=0
printf '%-24s %10s %10s\n' routing step_s of_first
for ((round = 0; round < rounds; ++round)); do
  first=$(seconds balanced --force-routing balanced)
  printf '%-24s %10.3f %10.3f\n' balanced "$first" 1
  for way in "stays" "moves --replace-every 4" "both --replace-every 4 --rebalance"; do
    read -ra options <<< "$way"
    of=$(seconds "${options[0]}" --force-routing zipf "${options[@]:1}")
    printf '%-24s %10.3f %10s\n' "zipf, ${options[0]}" "$of" "$(awk "BEGIN { printf \"%.3f\", $of / $first }")"
  done
done
