# Faults of what is around the ranks, sourced by run.sh: mpirun killed, a link down or slow, a clock set back.
# shellcheck shell=bash disable=SC2034,SC2154

# While a rank is slow or stopped in a drawn place, so that the job still runs.
fault_mpirun() {
  draw_place
  local how fault_text mpirun
  draw how slow slow stop
  fault_text="$how:$rank:$step:$where"
  said="mpirun killed at $fault_text"
  {
    for ((i = 0; i < 600; ++i)); do
      [[ ! -s $run/faults.log ]] || break
      sleep 0.05
    done
    sleep "0.$((RANDOM % 10))"
    mpirun=$(pgrep -f "^(mpirun|prterun) .*$run") # the mpirun of Open MPI 5 becomes prterun
    [[ -z $mpirun ]] || { kill -KILL "$mpirun"; touch "$run.killed"; }
  } &
  MOELOOM_FAULT=$fault_text launch --stall-timeout 4
  wait $!
  check finished "mpirun was not there to be killed" test -f "$run.killed"
  expect_whole_run
}

# What a clock that was set back leaves: files from the future, and new ones that are older than old ones. The clock
# itself is the machine's; time namespaces have none of their own.
fault_clock() {
  cp -r "$undisturbed" "$run"
  rm -rf "$run/checkpoint-$steps" "$run/report.html"
  touch -d "next year" "$run"/checkpoint-3/* "$run/checkpoint-3" "$run/train.conf"
  touch -d "1971-01-01" "$run"/checkpoint-9/* "$run/checkpoint-9" "$run/metrics.jsonl"
  [[ ! -f $run/run.lock ]] || touch -d "next year" "$run/run.lock"
  rank=$((RANDOM % ranks)) step=10
  draw where "${phases[@]}"
  said="kill:$rank:$step:$where"
  MOELOOM_FAULT=$said launch
  check finished "it did not strike" struck
  said="clock set back, then $said"
  check named "it did not go on from checkpoint-9" in_log 'resumed=.*/checkpoint-9'
  expect_whole_run
}

# On hosts of its own, by links.sh, which says what it checked.
was_right() { in_log "^right $1$" && not_in_log "^wrong $1:"; }
fault_link() { # down|slow
  local result
  said="link-$1"
  what="4 hosts"
  code=0
  bash "$here/links.sh" "$1" $((RANDOM % 4)) >> "$log" 2>&1 || code=$?
  if [[ $code == 77 ]]; then
    skip_fault "$(sed -n 's/^skipped: //p' "$log" | tail -n 1)"
    return
  fi
  for result in finished named same clean; do
    check $result "$result: $(sed -n "s/^wrong $result: //p" "$log")" was_right "$result"
  done
}
fault_link_down() { fault_link down; }
fault_link_slow() { fault_link slow; }
