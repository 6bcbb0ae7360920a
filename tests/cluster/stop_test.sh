#!/usr/bin/env bash
# TERM to launch/cluster.sh stops the ranks of all hosts after the same step, with a checkpoint from which the run goes
# on as if it had not stopped.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

make_hosts 3
run=$scratch/run
launch() {
  exec nsenter --net="/run/netns/$(namespace_of 0)" "$root/launch/go-on.sh" "$run" "$root/launch/cluster.sh" \
    "$(hostfile 2)" -- "${small_run[@]}" --global-batch 12 --ep 2 --schedule-steps 1000 --save-every 0 "$@"
}
steps_of() { losses "$1" 2> /dev/null | wc -l; }
has_begun() { [[ $(steps_of "$run") -ge 3 ]]; }

(launch --steps 1000000) > "$scratch/log" 2>&1 &
job=$!
soon 30 has_begun || fail "no steps: $(cat "$scratch/log")"
kill -TERM "$job"
code=0
wait "$job" || code=$?
[[ $code == 75 ]] || fail "the exit code is $code, not 75: $(cat "$scratch/log")"
steps=$(steps_of "$run")
[[ -d $run/checkpoint-$steps ]] || fail "no checkpoint of step $steps: $(ls "$run")"
grep -q "stopped=SIGUSR1 step=$steps " "$scratch/log" || fail "no word of the stop: $(cat "$scratch/log")"

sed -i "s/^steps = .*/steps = $((steps + 3))/" "$run/train.conf"
(launch) > "$scratch/log" 2>&1 || fail "not resumed: $(cat "$scratch/log")"
stopped=$run
run=$scratch/whole
(launch --steps $((steps + 3))) > "$scratch/log" 2>&1 || fail "whole run: $(cat "$scratch/log")"
diff <(losses "$run") <(losses "$stopped") || fail "the run that was stopped took another course"
echo "stopped at step $steps and went on with the same losses"
