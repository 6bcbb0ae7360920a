# Faults of a rank, sourced by run.sh: killed, stopped, spinning, slow or failing in a phase of a step, while it
# validates, loads or saves, and where a checkpoint is between two system calls.
# shellcheck shell=bash disable=SC2034,SC2154

# Not in the first step: what fails before it is not started again.
draw_place() {
  rank=$((RANDOM % ranks)) step=$((1 + RANDOM % (steps - 1)))
  draw where "${phases[@]}"
  case $((RANDOM % 12)) in
    0) where=validating step=$((4 * (1 + RANDOM % 2))) ;;
    1) where=saving step=$((3 * (1 + RANDOM % 3))) ;;
  esac
}
# The last one is rank 0's alone, as the manifest is.
draw_stage() {
  rank=$((RANDOM % ranks)) step=$((3 * (1 + RANDOM % 4)))
  draw where write fsync rename manifest
  [[ $where != rename && $where != manifest ]] || rank=0
}

with_fault() { # KIND [MORE...]
  said="$1:$rank:$step:$where"
  MOELOOM_FAULT=$said launch "${@:2}"
  check finished "it did not strike" struck
}
expect_named() { # KIND
  local line
  case $1 in
    kill) line="process rank $rank with PID .* exited on signal 9" ;;
    stop | spin) line="\\[error\\] stalled: .*; rank $rank \\(process [^;]*\\) is (stopped )?in [^;]*; " ;;
    throw) line="rank $rank: a fault that was asked for" ;;
    nan) line="\\[error\\] step $step: the gradient is not finite; first in that of .* on rank $rank;" ;;
    enospc) line="save=failed step=$step reason=\"rank $rank: .*No space left on device" ;;
  esac
  check named "rank $rank is not named: $(grep -oE 'stalled: .*' "$log" | head -n 1)" in_log "$line"
  # And by go-on.sh, also where programs read it: a wrong name is worse than none. Of throw see README.md.
  not_in_log "^go-on: ended .*: the run is finished" || return 0
  case $1 in
    kill) line="go-on: ended .*: rank $rank on [^ ]+ ended at " ;;
    stop | spin) line="go-on: ended .*: stalled: .*; rank $rank \\(process " ;;
    *) return 0 ;;
  esac
  check named "go-on.sh does not name rank $rank: $(grep -o 'go-on: ended .*' "$log")" in_log "$line"
  check named "restarts.jsonl has rank $(restarted_ranks | tr '\n' ' ')" in_words "$rank" $(restarted_ranks)
}
restarted_ranks() { sed -n 's/.*"rank":\([0-9]*\),.*/\1/p' "$run/restarts.jsonl"; }

fault_in_place() { # KIND
  draw_place
  with_fault "$1"
  expect_named "$1"
  expect_whole_run
}
fault_kill() { fault_in_place kill; }
fault_stop() { fault_in_place stop; }
fault_spin() { fault_in_place spin; }
fault_throw() { fault_in_place throw; }

# It goes on by itself, although the others wait for longer than a rank that does not move may.
fault_slow() {
  draw_place
  with_fault slow --stall-timeout 4
  check named "a rank was said to be stalled" not_in_log 'stalled: '
  expect_whole_run
}
fault_nan() {
  draw_place
  draw where "${gradients[@]}"
  with_fault nan
  expect_named nan
  expect_whole_run
}
fault_save_stage() {
  draw_stage
  local how
  draw how kill kill stop spin throw
  with_fault "$how"
  expect_named "$how"
  expect_whole_run
}
# A full disk, for one call: the run goes on, and where it was its last checkpoint is started again.
fault_refused() {
  draw_stage
  with_fault enospc
  expect_named enospc
  expect_whole_run
}
fault_short() {
  draw_stage
  draw where write manifest
  [[ $where == write ]] || rank=0
  with_fault short-write
  check named "a save has failed" not_in_log 'save=failed'
  expect_whole_run
}

# After the last step, before the report.
fault_ending() {
  local how
  draw how kill kill stop spin throw enospc
  rank=$((RANDOM % ranks)) step=$steps where=ending
  [[ $how != enospc ]] || rank=0
  with_fault "$how"
  if [[ $how == enospc ]]; then
    check named "the lost report is not said" in_log "report=\"not written\" reason=\"rank 0: .*No space left on device"
  else
    expect_named "$how"
  fi
  expect_whole_run
}

# Killed in a step, and then another rank while the checkpoint is read again.
fault_again() {
  rank=$((RANDOM % ranks)) step=$((7 + RANDOM % 2))
  local first="kill:$rank:$step:experts" how
  rank=$((RANDOM % ranks))
  draw how kill kill stop spin
  said="$first,$how:$rank:6:loading"
  MOELOOM_FAULT=$said launch --async-save false
  check finished "it did not strike" struck
  expect_named "$how"
  expect_whole_run
}
