# What the faults share, sourced: meshes, runs that nothing disturbed, a run under launch/go-on.sh, and what must be
# true after it.
# shellcheck shell=bash disable=SC2034,SC2154  # set here for the other files, and by them

root=$(cd "$here/../.." && pwd)
# shellcheck source=launch/env.sh
. "$root/launch/env.sh"
export OMP_NUM_THREADS=1 MOELOOM_BUILD=${MOELOOM_BUILD:-$root/build}
longest=${MOELOOM_FAULT_SECONDS:-60} # that a run with its fault may take; a machine that others use needs more
patience=$((longest + 60))           # after which it is ended
work=$(mktemp -d "${TMPDIR:-/tmp}/moeloom-faults-XXXXXX")
export TMPDIR=$work XDG_CACHE_HOME=$work/cache # sessions of mpirun too
end_all() {
  pgrep -f -- "$work" | grep -vx $$ | xargs -r kill -KILL 2> /dev/null
  rm -rf "$work"
}
trap end_all EXIT
trap 'exit 130' INT TERM HUP

for ((i = 0; i < 400; ++i)); do echo "In the beginning was line $((i * i % 97)), and it was good."; done > "$work/text"
steps=12
options=(--layers 2 --hidden 32 --inter 32 --experts 4 --top-k 2 --heads 2 --kv-heads 1 --head-dim 16 --seq-len 32
  --global-batch 12 --steps "$steps" --save-every 3 --keep 0 --eval-every 4 --eval-sequences 12 --sample-chars 0
  --log-every 1000 --progress off --stall-timeout 2 --allow-faults true --data "$work/text")
phases=(data embed attention router plan dispatch experts combine dense loss reduce optimizer)
declare -iA drawn asked good skipped # by kind, and by kind and what is checked
gradients=(embed attention dense router experts loss)

now() { date +%s%N; }
# draw NAME WORDS...: one of them into the variable NAME.
draw() {
  local -n drawn_word=$1
  shift
  local words=("$@")
  drawn_word=${words[RANDOM % $#]}
}

# How many ranks in which mesh, and what must not change a bit: the way of rows, replicas, and how it is saved.
draw_mesh() {
  local ways=(shared alltoall hierarchical)
  draw ranks 2 2 3 4
  case $ranks in
    2) draw ep 1 2 2 ;;
    3) draw ep 1 3 ;;
    4) draw ep 1 2 4 ;;
  esac
  draw async true false
  draw way "${ways[@]}"
  mesh=(--ep "$ep" --async-save "$async")
  ((ep == 1)) || mesh+=(--dispatcher "$way")
  rebalance=
  if ((ep > 1 && RANDOM % 3 == 0)); then
    rebalance=", rebalance"
    mesh+=(--rebalance true)
  fi
  ((ep > 1)) || way="no dispatcher"
  what="$ranks ranks, ep $ep, $way$rebalance, async $async"
}

# whole: the folder of the run of this mesh that nothing disturbed, in $undisturbed; beside it, its model.
whole() {
  undisturbed=$work/whole-$ranks-$ep
  [[ ! -f $undisturbed/report.html ]] || return 0
  mpirun -n "$ranks" "$MOELOOM_BUILD/moeloom" train --ep "$ep" "${options[@]}" --run "$undisturbed" \
    --export "$undisturbed.model" > "$undisturbed.log" 2>&1 && return
  cat "$undisturbed.log"
  echo "the undisturbed run failed" >&2
  exit 1
}

# launch [MORE...]: $run to its end, started again where it has to be -> $code, $seconds.
launch() {
  local start
  start=$(now)
  code=0
  timeout -k 5 "$patience" "$root/launch/go-on.sh" --pause 0 --restarts 3 "$run" \
    mpirun -n "$ranks" "$MOELOOM_BUILD/moeloom" -- "${options[@]}" "${mesh[@]}" "$@" >> "$log" 2>&1 || code=$?
  seconds=$((($(now) - start) / 1000000000))
}

# check WHAT MESSAGE COMMAND...: counts it, and notes the message where the command fails.
check() {
  local counted=$1 message=$2
  shift 2
  asked[$kind.$counted]+=1
  if "$@"; then good[$kind.$counted]+=1; else wrong+=("$message"); fi
}

losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" | sort -n | uniq; }
same_losses() { diff <(losses "$undisturbed") <(losses "$run") > /dev/null; }
same_weights() {
  cmp -s "$undisturbed/checkpoint-$steps/model.safetensors" "$run/checkpoint-$steps/model.safetensors" &&
    cmp -s "$undisturbed/checkpoint-$steps/optimizer.safetensors" "$run/checkpoint-$steps/optimizer.safetensors"
}
# Open MPI 5 says in two lines which rank was killed.
in_log() { grep -qE -- "$1" <(sed '/noticed that process rank/{N;s/\n/ /}' "$log"); }
not_in_log() { ! in_log "$1"; }
struck() { [[ $(sort "$run/faults.log" 2> /dev/null) == "$(tr ',' '\n' <<< "$said" | sort)" ]]; }
is() { [[ $1 == "$2" ]]; }
in_words() { [[ " ${*:2} " == *" $1 "* ]]; }

# Of Open MPI's segments those that nobody uses: other jobs of this machine have theirs.
dead_segments() {
  find /dev/shm -name "*_segment.$(hostname).*" -newer "$run.start" 2> /dev/null | while read -r segment; do
    grep -lqs "$segment" /proc/[0-9]*/maps || echo "$segment"
  done
}
left() {
  pgrep -fa "moeloom(-watch| train).*$run" | grep -v go-on
  dead_segments
  find "$work" -maxdepth 2 \( -name 'pid.*' -o -name 'prte*.*' \) -newer "$run.start"
}
nothing_left() {
  for ((i = 0; i < 300; ++i)); do
    [[ -n $(left) ]] || return 0
    sleep 0.1
  done
  left_behind=$(left | tr '\n' ' ')
  return 1
}

# What must be true of every fault after which the run goes on by itself.
expect_whole_run() {
  check finished "exit code $code" is "$code" 0
  check finished "took $seconds s" test "$seconds" -lt "$longest"
  check finished "no report" test -f "$run/report.html"
  check same "other losses" same_losses
  check same "other weights" same_weights
  left_behind=
  check clean "left behind" nothing_left
}

skip_fault() {
  why_skipped=$*
  skipped[$kind]+=1
}

tell() {
  local took=$((($(now) - began) / 100000000))
  took="$((took / 10)).$((took % 10)) s"
  drawn[$kind]+=1
  if [[ -n $why_skipped ]]; then
    echo "fault $fault, $said: skipped: $why_skipped"
  elif ((${#wrong[@]})); then
    echo "fault $fault, $said ($what): WRONG after $took: $(printf '%s; ' "${wrong[@]}")${left_behind:-}"
    grep -v 'kernel=' "$log" | tail -n 25 | sed 's/^/    /'
  else
    echo "fault $fault, $said ($what): $took"
  fi
  [[ -n ${MOELOOM_KEEP_FAULTS:-} ]] || rm -rf "$run" "$run".*
}

# summary: a line a kind; succeeds where nothing was wrong.
summary() {
  local bad=0 each counted
  for each in $(printf '%s\n' "${!drawn[@]}" | sort); do
    local line="$each: ${drawn[$each]} faults"
    for counted in finished named same clean; do
      local of=${asked[$each.$counted]:-0} right=${good[$each.$counted]:-0}
      ((of == 0)) || line+=", $counted $right of $of"
      ((of == right)) || bad=1
    done
    [[ -z ${skipped[$each]:-} ]] || line+=", ${skipped[$each]} skipped"
    echo "$line"
  done
  return $bad
}
