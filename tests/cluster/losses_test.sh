#!/usr/bin/env bash
# Training over four hosts with links of 1 Gbit/s has the losses of one host, bit for bit, with one rank a host and two,
# whether or not experts compute while rows travel, and with replicas of experts, which pay by the network named here.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

make_hosts 4
shape_links 1gbit
for slots in 1 2; do
  ranks=$((4 * slots))
  for ep in $slots 4; do
    over=$scratch/over-$slots-$ep
    one=$scratch/one-$slots-$ep
    mpirun_here -n "$ranks" \
      "$MOELOOM_BUILD/moeloom" train "${small_run[@]}" --steps 6 --ep "$ep" --run "$one" > "$one.log" 2>&1 ||
      fail "one host, $ranks ranks, ep = $ep: $(cat "$one.log")"
    for way in "" "--dispatcher alltoall --overlap 3" "--rebalance --net 100000Gbit,1us"; do
      [[ -z $way || $ep == 4 ]] || continue
      # shellcheck disable=SC2086  # words
      on 0 timeout -k 5 300 "$root/launch/cluster.sh" "$(hostfile "$slots")" train "${small_run[@]}" --steps 6 --ep "$ep" \
        --run "$over" --overwrite $way > "$scratch/log" 2>&1 ||
        fail "4 hosts x $slots, ep = $ep $way: $(cat "$scratch/log")"
      grep -q 'on 4 node(s)' "$scratch/log" || fail "the ranks are not on four hosts: $(cat "$scratch/log")"
      [[ $(losses "$one" | wc -l) == 6 ]] || fail "six steps have six losses: $(losses "$one")"
      [[ $way != --rebalance* ]] || grep -q '"made":[1-9]' "$over/metrics.jsonl" || fail "no expert got a replica"
      diff <(losses "$one") <(losses "$over") || fail "4 hosts x $slots, ep = $ep $way: other losses than one host's"
      echo "4 hosts x $slots, ep = $ep $way: the losses of one host"
    done
  done
done
