#!/usr/bin/env bash
# `moeloom calibrate` finds the one host of four whose link is slow, says its rate beside the median's, and keeps both:
# `plan` then counts the network at the slow link's rate and says whose it is.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

command -v python3 > /dev/null || skip "python3 is not installed"
model=(--layers 2 --hidden 64 --inter 64 --heads 2 --kv-heads 1 --head-dim 32 --experts 8 --top-k 2)
cache=$XDG_CACHE_HOME/moeloom/gmm-rates.json

calibrate() {
  rm -f "$cache"
  on 0 timeout -k 5 300 "$root/launch/cluster.sh" "$(hostfile 1)" calibrate "${model[@]}" --threads 1 --seconds 0.2 \
    > "$scratch/log" 2>&1 || fail "$1: $(cat "$scratch/log")"
}
plan() {
  "$root/launch/with-env.sh" "$MOELOOM_BUILD/moeloom" plan "${model[@]}" --threads 1 --ranks 4 --ranks-per-node 1 \
    --processors 1 --tokens-per-rank 512 --seq-len 256 --json "$scratch/plan.json" > "$scratch/plan.log" 2>&1 ||
    fail "plan: $(cat "$scratch/plan.log")"
}
# kept NAME: a number of the rates file.
kept() { python3 -c 'import json, sys; print([m[sys.argv[2]] for m in json.load(open(sys.argv[1]))["machines"].values()][-1])' "$cache" "$1"; }
# is_named_if_slow WORDS LOG: the slowest host follows these words once, or, if its link is not slow, nothing does.
is_named_if_slow() {
  local times
  times=$(python3 -c 'import sys; print(int(float(sys.argv[1]) < 0.75 * float(sys.argv[2])))' \
    "$(kept link_slowest_bytes_per_second)" "$(kept link_median_bytes_per_second)")
  [[ $(grep -c "$1" "$2") == "$times" && $(grep -c "$1 $(kept slowest_host)\\b" "$2") == "$times" ]]
}
# between LOW NUMBER HIGH
between() { python3 -c 'import sys; low, number, high = map(float, sys.argv[1:]); sys.exit(not low < number < high)' "$@"; }
# slow HOST RATE: its link, both ways.
slow() {
  tc -n "$(namespace_of "$1")" qdisc replace dev eth0 root tbf rate "$2" burst 80kb latency 50ms
  tc -n "$hosts_prefix-net" qdisc replace dev "h$1" root tbf rate "$2" burst 80kb latency 50ms
}

make_hosts 4
shape_links 1gbit
# Another job of this machine may hold a host up: which of equal links are found equal depends on the clock, but not that
# a host is named by `calibrate` and by `plan` where the rates that are kept differ, and only there.
calibrate "equal links"
plan
is_named_if_slow "warning: host" "$scratch/log" || fail "equal links: said is not what is kept: $(cat "$scratch/log" "$cache")"
is_named_if_slow "as slow as the link of" "$scratch/plan.log" ||
  fail "equal links: plan says what is not kept: $(cat "$scratch/plan.log" "$cache")"

# RATES="50 10" tries a link of 1 % too, which takes half a minute more.
for rate in ${RATES:-50}; do
  slow 2 "${rate}mbit"
  calibrate "$rate Mbit/s"
  grep -q 'warning: host h2 has' "$scratch/log" || fail "$rate Mbit/s: host h2 is not named: $(cat "$scratch/log")"
  [[ $(kept slowest_host) == h2 ]] || fail "$rate Mbit/s: kept is $(kept slowest_host)"
  # Lower ones are wide, as other jobs take their time, but tell bytes from bits.
  bytes=$((rate * 125000))
  between $((bytes / 4)) "$(kept link_slowest_bytes_per_second)" $((bytes * 3 / 2)) ||
    fail "$rate Mbit/s: its link has $(kept link_slowest_bytes_per_second) bytes/s: $(cat "$scratch/log")"
  between $((bytes * 4 / 3)) "$(kept link_median_bytes_per_second)" 150e6 ||
    fail "$rate Mbit/s: the median has $(kept link_median_bytes_per_second) bytes/s: $(cat "$scratch/log")"
  between $((bytes / 6)) "$(kept network_bytes_per_second)" $((bytes * 3 / 2)) ||
    fail "$rate Mbit/s: the network has $(kept network_bytes_per_second) bytes/s: $(cat "$scratch/log")"
  plan
  grep -q 'as slow as the link of h2' "$scratch/plan.log" || fail "$rate Mbit/s: plan does not name h2: $(cat "$scratch/plan.log")"
  echo "h2 at $rate Mbit/s: $(grep 'warning: host' "$scratch/log"); $(grep 'as slow as' "$scratch/plan.log")"
done
