#!/usr/bin/env bash
# launch/go-on.sh [--elastic] [--restarts N] [--pause S] RUN LAUNCHER... -- OPTIONS...: trains until the run is finished.
#
#   launch/go-on.sh /shared/run launch/cluster.sh hosts -- --ep 16 --data /shared/corpus.txt --steps 100000
#
# becomes `launch/cluster.sh hosts train --run /shared/run ...`, and once RUN holds a checkpoint
# `launch/cluster.sh hosts train --resume /shared/run`, with the options of its train.conf. What a run left that
# came to no checkpoint is replaced.
#
# A job that ends by a crash, a lost machine or a stall is started again, from its newest checkpoint: at once, and where
# that came to no new checkpoint after a pause of S seconds (1) that doubles up to a minute, at most N times (10). A job that was
# asked to stop (exit code 75), or that failed before its first step, is not. Each start again is a line here, which
# says what happened, to which rank or host, and what it cost, and a line of RUN/restarts.jsonl.
#
# --elastic: before each start every host is asked, by ssh as mpirun would, and the job runs on those that answer: on
# as many of their ranks as the sequences of a step divide over, at a mesh that fits their memory. A step stays the
# same sequences; --accumulate may grow. Hosts that answer again are used again at the next start.
set -euo pipefail

usage="usage: launch/go-on.sh [--elastic] [--restarts N] [--pause S] RUN LAUNCHER... -- OPTIONS..."
restarts=10
first_pause=1
elastic=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --elastic)
      elastic=yes
      shift
      continue
      ;;
    --restarts | --pause) ;;
    *) echo "launch/go-on.sh: there is no $1; $usage" >&2; exit 1 ;;
  esac
  [[ ${2:-} =~ ^[0-9]{1,9}$ ]] || { echo "launch/go-on.sh: $1 needs a number; $usage" >&2; exit 1; }
  number=$((10#$2))  # 08 is 8
  if [[ $1 == --restarts ]]; then restarts=$number; else first_pause=$number; fi
  shift 2
done
run=${1:?$usage}
shift
launcher=()
while [[ $# -gt 0 && $1 != -- ]]; do
  launcher+=("$1")
  shift
done
[[ $# -gt 0 ]] || { echo "launch/go-on.sh: -- is missing between the launcher and the options of train" >&2; exit 1; }
shift
asked_options=("$@")
# When a rank has died, mpirun asks the others to end, waits twice so long and kills them: nothing that they could still
# save is of use. (Open MPI 5 waits for a moment, and has no name for it.)
export OMPI_MCA_odls_base_sigkill_timeout="${OMPI_MCA_odls_base_sigkill_timeout:-0}"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeloom-go-on-XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The folder's own name is no pattern, whatever its letters.
newest_checkpoint() {
  local file
  for file in "$run"/checkpoint-*/trainer_state.json; do
    [[ ! -e $file || ! $file =~ /checkpoint-([0-9]+)/trainer_state.json$ ]] || echo "${BASH_REMATCH[1]}"
  done | sort -n | tail -n 1
}
# Whether the run's page is its last: those of validations say that it goes on.
has_ended() { [[ -f $run/report.html ]] && ! head -c 200 "$run/report.html" | grep -q 'data-run="goes on"'; }
# metrics N: the last N lines, without the half of one that a killed job may have left.
metrics() {
  { tail -n $(($1 + 1)) "$run/metrics.jsonl" 2> /dev/null || true; } | LC_ALL=C sed -n '/^{.*}$/p' | tail -n "$1"
}
# The number of steps that the run's metrics tell of.
steps_done() {
  local last
  last=$(metrics 1 | sed -n 's/^{"step":\([0-9]*\),.*/\1/p')
  echo $((${last:--1} + 1))
}
# sum_of FIELD N: over the last N lines of the metrics. In the locale of C, because mawk would write and read a comma for
# the point where the user's has one.
sum_of() {
  metrics "$2" | LC_ALL=C awk -v field="\"$1\":" \
    '(at = index($0, field)) { sum += substr($0, at + length(field)) + 0 } END { printf "%.3f", sum }'
}
now() { echo "${EPOCHREALTIME/,/.}"; }

# first_to_end ENDED: "TIME RANK HOST PLACE" of the rank whose end came first, where it came between the start and the
# end of the job: of a launcher that was killed the ranks end later, maybe in the time of the next one. Hosts' clocks may
# differ by a minute before the start.
first_to_end() {
  local told rank host
  # A launcher knows best whose end made it end the others; on a busy machine ends are seen out of order.
  told=$(sed -nE -e 's/.*noticed that process rank ([0-9]+) with PID [0-9]+ on node ([^ ]+) exited.*/\1 \2/p' \
    -e 's/^srun: error: ([^ :]+): task ([0-9]+): .*/\2 \1/p' "$scratch/told" 2> /dev/null | head -n 1)
  read -r rank host <<< "$told"
  if [[ -n $rank ]]; then
    { cat "$run/ended/rank-$rank" 2> /dev/null || echo "- $rank $host a place that is not known"; } | head -n 1
    return
  fi
  { cat "$run"/ended/rank-* 2> /dev/null || true; } | LC_ALL=C sort -n |
    LC_ALL=C awk -v started="$started" -v ended="$1" -v here="$(hostname)" \
      '$1 < ended && $1 > started - ($3 == here ? 0 : 60) && !found++'
}
# A rank's watch may leave the rank's last place a moment after the launcher has ended.
await_watches() {
  local tries folder=$run
  [[ $folder == /* ]] || folder=$PWD/$run
  folder=${folder//[^[:alnum:]\/_-]/.} # a pattern
  for ((tries = 0; tries < 30; ++tries)); do
    pgrep -f -- "^moeloom-watch $folder *\$" > /dev/null || return 0
    sleep 0.1
  done
}
# stalled_rank: "- RANK HOST" of the rank that stall.json blames, where it is one. Ranks may be on a line or on many.
stalled_rank() {
  [[ -f $run/stall.json ]] || return 0
  { tr -d '\n' < "$run/stall.json"; } 2> /dev/null | sed -n 's/.*"ranks": *\[ *\([0-9]*\) *\].*/\1/p' | {
    read -r rank || true
    [[ -n $rank ]] || return 0
    echo "- $rank $(tr -d '\n' < "$run/stall.json" | sed 's/.*"positions": *\[//' | tr '{' '\n' |
      grep -E "\"rank\": *$rank *[,}]" | sed -n 's/.*"host": *"\([^"]*\)".*/\1/p' | head -n 1)"
  }
}
# why CODE FIRST: in words.
why() {
  local rank host place stall=
  read -r _ rank host place <<< "$2"
  [[ $1 != 76 ]] || stall=$(sed -n 's/^ *"stalled": "\(.*\)",\{0,1\}$/\1/p' "$run/stall.json" 2> /dev/null || true)
  if [[ -n $stall ]]; then
    echo "$stall"
  elif [[ -n $rank ]]; then
    echo "rank $rank on $host ended at $place, exit code $1"
  elif [[ $1 == 76 ]]; then
    echo "a stall"
  else
    echo "the launcher ended with exit code $1"
  fi
}

# The launcher hears what this shell is told, and a job that was asked to stop is not started again. A second INT (Ctrl-C)
# is handed on as it is, and ends the job at once.
job=
heard=
stopped=
reminder=
interrupts=0
# mpirun stands first, or behind words such as env and nice. cluster.sh takes TERM itself.
by_mpirun=
for word in "${launcher[@]}"; do
  case ${word##*/} in
    cluster.sh) break ;;
    mpirun* | mpiexec* | orterun* | prte* | prun*)
      by_mpirun=yes
      break
      ;;
  esac
done
# mpirun would answer TERM and INT by killing its ranks; USR1 it hands on to them. What stands before it may be another
# process, which USR1 would end alone. 1 if there is none yet.
tell_mpirun() {
  local pid
  pid=$(pgrep -o -s "$job" -x 'mpirun.*|mpiexec.*|orterun.*|prte|prterun|prun') && kill -USR1 "$pid"
}
# An mpirun whose ranks are not there yet forgets what it was told. One that is not to be found, as on another host, gets
# the signal through what stands before it.
remind() {
  trap '' INT TERM HUP USR1
  while sleep 1; do
    tell_mpirun || kill -TERM "$job" || exit 0
  done
}
hand_on() {
  heard=yes stopped=yes
  [[ -n $job ]] || return 0
  if [[ -z $by_mpirun || ($1 == INT && $interrupts -gt 1) ]]; then
    kill -"$1" "$job" 2> /dev/null || true
  else
    tell_mpirun 2> /dev/null || true
    [[ -n $reminder ]] || { remind < /dev/null > /dev/null 2>&1 & reminder=$!; }
  fi
}
trap 'hand_on TERM' TERM HUP
trap 'hand_on USR1' USR1
trap 'interrupts=$((interrupts + 1)); hand_on INT' INT

# Hands standard error on, and keeps what a launcher says of ranks that ended. The one of Open MPI 5 breaks its sentence
# into lines, up to one of dashes.
hear() {
  trap '' INT TERM HUP USR1
  exec tee >(exec awk -v told="$scratch/told" '
    function tell(line) { if (line != "") { print line > told; fflush() } }
    /^srun: error: |has lost communication with a remote daemon/ { tell($0) }
    /noticed that process rank/ { sentence = $0; next }
    sentence == "" { next }
    /^-*$/ { tell(sentence); sentence = ""; next }
    { sentence = sentence " " $0 }
    END { tell(sentence) }') >&2
}
# start WORDS...: the launcher with these, to its end -> code
start() {
  heard=
  rm -f "$scratch/told"
  [[ -z $stopped ]] || exit 75
  # In a session of its own it does not hear the terminal's Ctrl-C a second time. What bash starts in the background
  # ignores INT. An mpirun without a handler of USR1 must not die of a reminder, as cluster.sh says.
  setsid env --default-signal=INT ${by_mpirun:+--ignore-signal=USR1} "${job_words[@]}" "$@" < /dev/null 2> >(hear) &
  job=$!
  [[ -z $heard ]] || hand_on TERM  # it came before there was a job to tell
  code=0
  wait "$job" || code=$?
  while [[ -n $heard ]]; do  # a signal ends a wait, not the job
    heard=
    local again=0
    wait "$job" || again=$?
    [[ $again == 127 ]] || code=$again  # 127: the job had ended before the signal came
  done
  job=
  [[ -z $reminder ]] || { kill -KILL "$reminder" && wait "$reminder"; } 2> /dev/null || true
  # The launcher of Open MPI 5 ends with 0 where it has lost a host, that of 4 with 205.
  [[ $code != 0 ]] || sleep 0.2  # until what it said has come through
  [[ $code != 0 ]] || ! grep -q 'has lost communication' "$scratch/told" 2> /dev/null || code=205
}

# fail_try CODE: counts a start that came to no checkpoint; ends with CODE where there were too many.
fail_try() {
  ((++tries))
  [[ $tries -gt $restarts ]] || return 0
  [[ $restarts == 0 ]] || echo "go-on: $restarts starts came to no new checkpoint; $run is left as it is" >&2
  exit "$1"
}
# What the agents of hosts that are newly silent said, once.
say_agents() {
  printf '%s' "${agents_said:-}" >&2
  agents_said=
}
stop_if_asked() {
  [[ -z $stopped ]] || { echo "go-on: asked to stop; is not started again" >&2; exit 75; }
}
rest() { # before the next start
  stop_if_asked
  sleep "$pause" &
  wait $! || true
  [[ -z $stopped ]] || kill $! 2> /dev/null || true
  stop_if_asked
  if [[ $pause == 0 ]]; then pause=$first_pause; else pause=$((pause * 2 > 60 ? 60 : pause * 2)); fi
}
in_a_while() { if [[ $pause == 0 ]]; then echo "at once"; else echo "in $pause s"; fi; }
# note ENDED: a line of restarts.jsonl.
note() {
  local rank host reason=${what//[\"\\]/}
  read -r _ rank host _ <<< "$who"
  [[ -d $run ]] || return 0
  printf '{"started":%s,"ended":%s,"exit_code":%s,"reason":"%s",%s"resumed":%s,"steps":%s,"from":%s,"lost_seconds":%s,"lost_starting":%s,"lost_saving":%s,"pause":%s}\n' \
    "$started" "$1" "$code" "$reason" "${rank:+\"rank\":$rank,}${host:+\"host\":\"$host\",}" "${before:-0}" "$done" "${after:-0}" \
    "$(sum_of seconds "$lost")" "$(sum_of start_seconds "$lost")" "$(sum_of save_seconds "$lost")" "$pause" >> "$run/restarts.jsonl"
}

# How much of its time the run trained, as its log says at its end.
say_share() {
  local said
  said=$(grep -o 'trained_s=.*' "$run/train.log" 2> /dev/null | tail -n 1) || return 0
  [[ $code != 0 ]] || echo "go-on: finished; $said" >&2
}

tries=0
pause=0
job_words=("${launcher[@]}")
mesh_words=()
hosts_said=
silent=
if [[ -n $elastic ]]; then
  # shellcheck source=launch/elastic.sh
  . "$(dirname "$0")/elastic.sh"
  until choose_hosts; do
    stop_if_asked
    fail_try 1
    echo "go-on: $hosts_said; asks again $(in_a_while)" >&2
    say_agents
    rest
  done
  stop_if_asked
  [[ -z $hosts_said ]] || echo "go-on: starts $hosts_said" >&2
  say_agents
fi
while true; do
  before=$(newest_checkpoint)
  had=$(steps_done)
  missing=$silent
  rm -rf "$run/ended" "$run/stall.json" || true  # a rank of a killed launcher may just leave its place there
  started=$(now)
  if [[ -n $before ]]; then
    start train --resume "$run" "${mesh_words[@]}"
  elif [[ -z ${ended:-} ]]; then
    had=0
    replace=(--overwrite true)
    if [[ -n $elastic ]]; then
      # By hand: --overwrite would remove RUN/elastic too, which may just have been written.
      rm -rf "$run"/checkpoint-* "$run"/{metrics.jsonl,report.html,train.log,restarts.jsonl} || true
      replace=()
    fi
    start train --run "$run" "${replace[@]}" "$@" "${mesh_words[@]}"
  else
    had=0
    rm -f "$run/metrics.jsonl" "$run/report.html"  # what came before it is kept: when the run began, and why again
    start train --run "$run" "$@" "${mesh_words[@]}"
  fi
  ended=$(now)
  if [[ $code == 0 || $code == 75 || -n $stopped ]]; then
    say_share
    after=$(newest_checkpoint) done=$(steps_done)
    # USR1 came before a rank could take it, which ended of it: there was nothing to save yet.
    [[ $code != 138 || $interrupts -gt 1 || $done -gt $had || $after != "$before" ]] || code=75
    who='' what="asked to stop, exit code $code"
    lost=$((done - ${after:-0}))
    [[ $code == 0 ]] || note "$ended"
    exit "$code"
  fi
  after=$(newest_checkpoint)
  done=$(steps_done)
  if [[ -n $after && $after == "$(sed -n 's/^steps = //p' "$run/train.conf")" ]] && has_ended; then
    if [[ $code == 74 ]]; then
      echo "go-on: the run is finished, but some of what it writes is missing, exit code 74" >&2
      exit 74
    fi
    echo "go-on: ended with $code after the last step and its report: the run is finished" >&2
    code=0
    say_share
    exit 0
  fi
  await_watches
  [[ -s $scratch/told ]] || sleep 0.2  # nor has what the launcher said come through yet
  first=$(first_to_end "$ended")
  who=$first
  [[ $code != 76 || ! -f $run/stall.json ]] || who=$(stalled_rank)
  what=$(why "$code" "$first")
  lost=$((done - ${after:-0}))
  fits=yes newly=
  if [[ -n $elastic ]]; then
    choose_hosts || fits=
    [[ -n $stopped || -z $newly ]] || what="no answer from $newly, exit code $code"
  fi
  if [[ -n $stopped ]]; then
    note "$ended"
    echo "go-on: ended after step $((done - 1)): $what" >&2
    stop_if_asked
  fi
  # Nothing was done: a wrong option or file, or nothing but the fault that came before.
  [[ ($code != 1 && $code != 65) || $done -gt $had || $after != "$before" || $silent != "$missing" ]] || exit "$code"
  if [[ $after != "$before" ]]; then tries=0 pause=0; fi
  # Of a launcher that was killed or cut off the ranks may still be there, and hold the run's folder.
  [[ -n $first || $pause != 0 ]] || pause=$first_pause
  fail_try "$code"
  note "$ended"
  echo "go-on: ended after step $((done - 1)): $what; ${fits:+starts again $(in_a_while) ${hosts_said:+$hosts_said }}from ${after:+checkpoint-}${after:-the beginning}, $lost steps of $(sum_of seconds "$lost") s are done again" >&2
  say_agents
  rest
  until [[ -n $fits ]]; do
    if choose_hosts; then
      fits=yes
      stop_if_asked
      echo "go-on: starts $hosts_said" >&2
    else
      fail_try "$code"
      echo "go-on: $hosts_said; asks again $(in_a_while)" >&2
      say_agents
      rest
    fi
  done
done
