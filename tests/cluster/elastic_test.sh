#!/usr/bin/env bash
# launch/go-on.sh --elastic: of two hosts one is cut off, and the run goes on on the other, at another mesh, with the
# losses of the undisturbed run. A host that answers again is used again.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

run=$scratch/run
options=("${small_run[@]}" --ep 4 --steps 24 --save-every 4 --keep 0 --stall-timeout 0 --allow-faults true)

train() { # RUN WORDS...: under go-on.sh on host 0
  local folder=$1
  shift
  on 0 timeout -k 5 300 "$root/launch/go-on.sh" "$@" "$folder" "$root/launch/cluster.sh" "$(hostfile 2)" -- "${options[@]}"
}
has_checkpoint() { [[ -f $run/checkpoint-$1/trainer_state.json ]]; }
ended() { ! kill -0 "$job" 2> /dev/null; }
said() { grep -q -- "$1" "$scratch/log"; }
expect_said() { said "$1" || fail "it does not say '$1': $(cat "$scratch/log")"; }
same_losses() {
  local lines
  lines=$(losses "$run" | wc -l)
  [[ $lines == 24 ]] || fail "24 steps have 24 losses, not $lines: $(cat "$scratch/log")"
  # Of 2 ranks each sums over twice the tokens before the ranks are summed: that is another order.
  paste <(losses "$scratch/whole") <(losses "$run") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-5 * $1)) exit 1 }' ||
    fail "$1: other losses than the undisturbed run's: $(paste <(losses "$scratch/whole") <(losses "$run"))"
}

make_hosts 2
train "$scratch/whole" > "$scratch/log" 2>&1 || fail "the undisturbed run: $(cat "$scratch/log")"

# Slower, so that there is a middle.
shape_links 2mbit
train "$run" --elastic --pause 1 > "$scratch/log" 2>&1 &
job=$!
soon has_checkpoint 4 || fail "no checkpoint: $(cat "$scratch/log")"
link down 1
soon said "no answer from 10.77.0.2" || fail "the lost host is not named: $(cat "$scratch/log")"
expect_said "on 2 of 4 ranks without 10.77.0.2, --dp 0 --ep 2 --accumulate 1"
soon ended || fail "the run does not end on the host that is left: $(cat "$scratch/log")"
wait "$job" || fail "the run failed on the host that is left: $(cat "$scratch/log")"
same_losses "a host lost"
grep -q '"reason":"no answer from 10.77.0.2, exit code' "$run/restarts.jsonl" || fail "restarts.jsonl: $(cat "$run/restarts.jsonl")"
echo "a host lost: $(grep go-on: "$scratch/log")"

# Cut off from the start; then it answers again, and a rank dies.
rm -rf "$run"
# On one host 24 steps take a tenth of a second: step 9, after a checkpoint, is made to last.
MOELOOM_FAULT=slow:0:9:router train "$run" --elastic --pause 1 > "$scratch/log" 2>&1 &
job=$!
soon said "starts on 2 of 4 ranks without 10.77.0.2" || fail "it does not start without the lost host: $(cat "$scratch/log")"
soon has_checkpoint 4 || fail "no checkpoint on one host: $(cat "$scratch/log")"
link up 1
for pid in $(ip netns pids "$(namespace_of 0)"); do
  [[ $(cat "/proc/$pid/comm") != moeloom ]] || break
done
kill -KILL "$pid"
soon said "on 4 of 4 ranks, --dp 0 --ep 4" || fail "the host that is back is not used: $(cat "$scratch/log")"
soon ended || fail "the run does not end on both hosts: $(cat "$scratch/log")"
wait "$job" || fail "the run failed on both hosts: $(cat "$scratch/log")"
same_losses "a host that comes back"
echo "a host that comes back: $(grep go-on: "$scratch/log")"
soon none_of "$hosts_prefix" || fail "left: $(processes_of "$hosts_prefix" | xargs -r ps -f -p)"
