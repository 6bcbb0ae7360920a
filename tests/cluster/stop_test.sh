#!/usr/bin/env bash
# TERM to launch/cluster.sh stops the ranks of all hosts after the same step, with a checkpoint from which the run goes
# on as if it had not stopped. INT to launch/go-on.sh does the same, and a second INT ends it at once.
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
soon has_begun || fail "no steps: $(cat "$scratch/log")"
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

# A shell that starts a job in the background has it ignore INT.
run=$scratch/interrupted
interruptible() {
  exec env --default-signal=INT nsenter --net="/run/netns/$(namespace_of 0)" "$root/launch/go-on.sh" "$run" \
    "$root/launch/cluster.sh" "$(hostfile 2)" -- "${small_run[@]}" --global-batch 12 --ep 2 --schedule-steps 1000 \
    --save-every 0 --steps 1000000 --stall-timeout 0
}
(interruptible) > "$scratch/log" 2>&1 &
job=$!
soon has_begun || fail "no steps: $(cat "$scratch/log")"
kill -INT "$job"
code=0
wait "$job" || code=$?
[[ $code == 75 && -d $run/checkpoint-$(steps_of "$run") ]] ||
  fail "INT: the exit code is $code, and the checkpoints are $(ls "$run"): $(cat "$scratch/log")"

# A stopped rank holds up the stop in order.
run=$scratch/twice
(interruptible) > "$scratch/log" 2>&1 &
job=$!
soon has_begun || fail "no steps: $(cat "$scratch/log")"
for pid in $(ip netns pids "$(namespace_of 2)"); do
  [[ $(cat "/proc/$pid/comm") != moeloom ]] || break
done
kill -STOP "$pid"
kill -INT "$job"
sleep 1
kill -0 "$job" || fail "one INT ended the job while a rank was stopped: $(cat "$scratch/log")"
kill -INT "$job"
ended() { ! kill -0 "$job" 2> /dev/null; }
soon ended || fail "a second INT does not end the job: $(cat "$scratch/log")"
code=0
wait "$job" || code=$?
[[ $code != 0 && $code != 75 ]] || fail "a second INT: the exit code is $code: $(cat "$scratch/log")"
soon none_of "$hosts_prefix" || fail "a second INT left: $(processes_of "$hosts_prefix" | xargs -r ps -f -p)"
echo "INT stops in order, a second ends the job at once with code $code, nothing is left"
