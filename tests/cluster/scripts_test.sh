#!/usr/bin/env bash
# What launch/go-on.sh, cluster.sh, bench-ep.sh and write-options.sh ask of mpirun and of the program, where both are
# scripts that do what a case says: starts, stops, counts and names, without hosts or training.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"
unset MOELOOM_NET
export GIT_CEILING_DIRECTORIES=$scratch TMPDIR=$scratch
export kept=$scratch # go-on.sh has a scratch of its own

# The scripts in a repository of their own, which is not the folder that they are called from.
copy=$scratch/repository
mkdir -p "$copy" "$scratch/bin" "$copy/other"
cp -r "$root/launch" "$copy"
cd "$scratch"
export PATH=$scratch/bin:$PATH

# An mpirun that keeps its words, and does what behaviour says. (Not by env, because it is looked for by its name.)
cat > "$scratch/bin/mpirun" << 'END_OF_MPIRUN'
#!/bin/bash
if [[ $1 == --version ]]; then
  [[ -z ${stopped_early:-} ]] || kill -TERM "$stopped_early"
  echo "mpirun (Open MPI) 4.1.4"
  exit
fi
[[ -n ${taken:-} ]] || echo "$*" >> "$kept/calls"
# take_signals "$@": from here on USR1 may be caught, which a shell that began with it ignored may not do.
take_signals() {
  [[ -n ${taken:-} ]] || taken=yes before=$(trap -p USR1) exec env --default-signal=USR1 "$0" "$@"
}
# As libevent does when its handler is removed.
leave_signals() { if [[ -n $before ]]; then trap '' USR1; else trap - USR1; fi; }
. "$kept/behaviour"
END_OF_MPIRUN
# A program that has memory, and help.
cat > "$copy/other/moeloom" << 'END_OF_PROGRAM'
#!/bin/bash
[[ $1 != mesh ]] || echo 1000
[[ $1 != --help ]] || printf 'a program\n\nCommands\n  mesh  asks\n\n'
END_OF_PROGRAM
chmod +x "$scratch/bin/mpirun" "$copy/other/moeloom"
program=$copy/other/moeloom
for name in orterun mpiexec.other prterun; do ln -s mpirun "$scratch/bin/$name"; done
ln -s mpirun "$scratch/bin/srun"
echo "localhost slots=2" > "$scratch/hosts"

# case_of NAME: a new one, whose mpirun does what stands on standard input.
case_of() {
  name=$1 run=$scratch/$1
  rm -f "$scratch"/{calls,ready,log}
  cat > "$scratch/behaviour"
}
environment=()
go_on() { env "${environment[@]}" "$copy/launch/go-on.sh" "$@" > "$scratch/log" 2>&1; }
# expect_code WANTED COMMAND...
expect_code() {
  local code=0
  "${@:2}" || code=$?
  [[ $code == "$1" ]] || fail "$name: the exit code is $code, not $1: $(cat "$scratch/log")"
}
expect_said() { grep -qF -- "$1" "$scratch/log" || fail "$name: it does not say '$1': $(cat "$scratch/log")"; }
expect_calls() {
  [[ $(cat "$scratch/calls" 2> /dev/null) == "$1" ]] || fail "$name: mpirun is asked '$(cat "$scratch/calls")', not '$1': $(cat "$scratch/log")"
}
number_of_calls() { wc -l < "$scratch/calls"; }

# A run is resumed whatever the letters of its folder.
for folder in 'run[1]' 'run*' 'a {b,c} ?'; do
  case_of "$folder" <<< 'exit 0'
  for each in 8 12; do
    mkdir -p "$run/checkpoint-$each"
    touch "$run/checkpoint-$each/trainer_state.json"
  done
  mkdir "$run/checkpoint-16"  # not whole
  expect_code 0 go_on "$run" mpirun "$program" -- --ep 2
  expect_code 0 go_on --elastic "$run" mpirun -n 2 "$program" -- --ep 2
  expect_calls "$program train --resume $run
-n 2 $program train --resume $run"
  [[ -f $run/checkpoint-12/trainer_state.json ]] || fail "$name: the checkpoint is gone"
done
echo "resumed: folders whose names are patterns"

# The first USR1 is forgotten, as by an mpirun that has no ranks; TERM kills.
# shellcheck disable=SC2016  # its own words
until_it_is_told='
take_signals "$@"
told=0
trap "exit 143" TERM
trap "((++told)); [[ \$told -lt 2 ]] || exit 75" USR1
touch "$kept/ready"
while true; do sleep 0.05; done'
# expect_stop WORDS...: TERM to them as soon as mpirun is ready.
expect_stop() {
  local job code=0
  "$@" > "$scratch/log" 2>&1 &
  job=$!
  soon test -e "$scratch/ready" || fail "$name: mpirun is not started: $(cat "$scratch/log")"
  kill -TERM "$job"
  wait "$job" || code=$?
  [[ $code == 75 ]] || fail "$name: the exit code of a stop is $code, not 75: $(cat "$scratch/log")"
  [[ $(number_of_calls) == 1 ]] || fail "$name: started again: $(cat "$scratch/log")"
}
while read -r words; do
  case_of stop <<< "$until_it_is_told"
  read -ra launcher <<< "$words"
  name=$words
  expect_stop "$copy/launch/go-on.sh" "$run" "${launcher[@]}" "$program" -- --ep 2
done << END
mpirun
orterun
$scratch/bin/mpiexec.other
prterun
env A=1 mpirun -n 2
nice -n 1 mpirun
timeout 60 mpirun
$copy/launch/with-env.sh mpirun
END
export MOELOOM_BUILD=$copy/other
case_of cluster <<< "$until_it_is_told"
expect_stop "$copy/launch/cluster.sh" "$scratch/hosts" train
case_of go_on_cluster <<< "$until_it_is_told"
expect_stop "$copy/launch/go-on.sh" "$run" "$copy/launch/cluster.sh" "$scratch/hosts" -- --ep 2
# A launcher that is no mpirun gets what it is told.
# shellcheck disable=SC2016  # its own words
case_of srun <<< 'trap "exit 75" TERM; touch "$kept/ready"; while true; do sleep 0.05; done'
expect_stop "$copy/launch/go-on.sh" "$run" srun "$program" -- --ep 2
# An mpirun that does not take USR1 yet.
# shellcheck disable=SC2016  # its own words
case_of unprepared << 'END'
[[ -n ${taken:-} ]] || { touch "$kept/ready"; sleep 1.5; }
take_signals "$@"
trap "exit 75" USR1
while true; do sleep 0.05; done
END
expect_stop "$copy/launch/go-on.sh" "$run" mpirun "$program" -- --ep 2
rm "$scratch/calls" "$scratch/ready"
expect_stop "$copy/launch/cluster.sh" "$scratch/hosts" train
# One that has ceased to take it, because its ranks have stopped.
case_of parting << 'END'
take_signals "$@"
run=$* run=${run##* --run } run=${run%% --*}
trap 'told=yes' USR1
touch "$kept/ready"
until [[ -n ${told:-} ]]; do sleep 0.05; done
leave_signals
mkdir -p "$run"
printf '{"step":0,"seconds":0.25}\n' > "$run/metrics.jsonl"
for ((i = 0; i < 50; ++i)); do sleep 0.05; done
exit 75
END
expect_stop "$copy/launch/go-on.sh" "$run" mpirun "$program" -- --ep 2
rm "$scratch/calls" "$scratch/ready"
expect_stop "$copy/launch/cluster.sh" "$scratch/hosts" train --run "$run"
# Before there is an mpirun.
case_of early <<< 'exit 0'
# shellcheck disable=SC2016  # its own words
expect_code 75 bash -c 'export stopped_early=$$; exec "$@"' early "$copy/launch/cluster.sh" "$scratch/hosts" train
[[ ! -e $scratch/calls ]] || fail "stopped before mpirun, which is asked '$(cat "$scratch/calls")'"
echo "stopped: by the second of two signals, before mpirun, and behind other words"

# A relative build is of the repository.
export MOELOOM_BUILD=other
case_of relative <<< 'exit 0'
mkdir -p "$run/checkpoint-8"
touch "$run/checkpoint-8/trainer_state.json"
expect_code 0 go_on --elastic "$run" "$copy/launch/cluster.sh" "$scratch/hosts" -- --ep 2
grep -q -- " $program train --resume $run\$" "$scratch/calls" || fail "$name: $(cat "$scratch/calls" "$scratch/log")"
"$copy/launch/write-options.sh" > "$scratch/log" 2>&1 || fail "write-options: $(cat "$scratch/log")"
grep -q '^a program$' "$copy/launch/options.md" || fail "write-options: $(cat "$copy/launch/options.md")"
chat() { "$copy/launch/cluster.sh" "$scratch/hosts" chat --model m "$@" > "$scratch/log" 2>&1; }
case_of chat <<< 'exit 0'
expect_code 1 chat
expect_said "give it --message TEXT"
expect_code 0 chat --message "Who was Ruth?"
[[ $(number_of_calls) == 1 ]] || fail "$name: $(cat "$scratch/calls")"
echo "a relative build, and chat without a message"

# Numbers are decimal.
case_of restarts <<< 'exit 137'
expect_code 137 go_on --restarts 08 --pause 00 "$run" mpirun "$program" -- --ep 2
[[ $(number_of_calls) == 9 ]] || fail "--restarts 08: $(number_of_calls) starts"
expect_code 1 go_on --restarts 1x "$run" mpirun "$program" -- --ep 2
case_of pause <<< 'exit 137'
"$copy/launch/go-on.sh" --pause 08 "$run" mpirun "$program" -- --ep 2 > "$scratch/log" 2>&1 &
job=$!
waits() { grep -qF "starts again in 8 s" "$scratch/log" 2> /dev/null; }
soon waits || fail "--pause 08: $(cat "$scratch/log")"
kill -TERM "$job"
expect_code 75 wait "$job"
echo "--restarts 08, --pause 08"

# A line that was torn is not the last step, and what came to steps is started again.
# shellcheck disable=SC2016  # its own words
torn='
run=$* run=${run##* --run } run=${run%% --*}
[[ $(wc -l < "$kept/calls") == 1 ]] || exit 0
mkdir -p "$run/ended"
printf "{\"step\":%s,\"seconds\":0.25,\"start_seconds\":1.5}\n" 0 1 > "$run/metrics.jsonl"
printf "{\"st" >> "$run/metrics.jsonl"
echo "${EPOCHREALTIME/,/.} 0 $(hostname) router" > "$run/ended/rank-0"
exit 1'
# expect_restart: once, with its numbers.
expect_restart() {
  expect_code 0 go_on --pause 0 "$run" mpirun "$program" -- --ep 2
  [[ $(number_of_calls) == 2 ]] || fail "$name: $(number_of_calls) starts: $(cat "$scratch/log")"
  expect_said "go-on: ended after step 1: rank 0 on $(hostname) ended at router, exit code 1; starts again at once from the beginning, 2 steps"
  grep -q '"steps":2,"from":0,"lost_seconds":0\.500,"lost_starting":3\.000,"lost_saving":0\.000,' "$run/restarts.jsonl" ||
    fail "$name: restarts.jsonl: $(cat "$run/restarts.jsonl")"
}
case_of torn <<< "$torn"
expect_restart
echo "a torn line of metrics"

if localedef -i de_DE -f UTF-8 "$scratch/de_DE.UTF-8" > /dev/null 2>&1; then
  for awk in mawk gawk; do
    command -v "$awk" > /dev/null || continue
    ln -sf "$(command -v "$awk")" "$scratch/bin/awk"
    case_of "comma-$awk" <<< "$torn"
    environment=(LOCPATH="$scratch" LC_ALL=de_DE.UTF-8)
    expect_restart
    environment=()
  done
  rm -f "$scratch/bin/awk"
  echo "a locale whose numbers have a comma"
else
  echo "no localedef here: a locale whose numbers have a comma is not tried"
fi

# Each program that no commit names has points of its own.
# shellcheck disable=SC2016  # its own words
printf '%s\n' '#!/bin/bash' 'mkdir -p "$copy/built"' 'echo "$content" > "$copy/built/moeloom"' > "$copy/launch/build.sh"
export copy
# commit_of CONTENT: the name that the points of this program get.
commit_of() {
  case_of bench <<< 'exit 0'
  content=$1 MOELOOM_BUILD=built "$copy/launch/bench-ep.sh" --ranks 1 > "$scratch/log" 2>&1 || fail "bench-ep: $(cat "$scratch/log")"
  sed -n 's/.* --commit \([^ ]*\) .*/\1/p' "$scratch/calls"
}
[[ $(commit_of one) == unknown-* ]] || fail "bench-ep without git: $(commit_of one)"
[[ $(commit_of one) == "$(commit_of one)" && $(commit_of one) != "$(commit_of two)" ]] || fail "bench-ep without git: one name"
if command -v git > /dev/null; then
  echo /built > "$copy/.gitignore"
  git -C "$copy" init -q
  git -C "$copy" add .
  git -C "$copy" -c user.name=test -c user.email=test@localhost commit -qm all
  sha=$(git -C "$copy" rev-parse --short HEAD)
  [[ $(commit_of one) == "$sha" ]] || fail "bench-ep of a commit: $(commit_of one)"
  echo >> "$copy/launch/README.md"
  [[ $(commit_of one) == "$sha-with-changes-"* && $(commit_of one) != "$(commit_of two)" ]] ||
    fail "bench-ep with changes: $(commit_of one), $(commit_of two)"
fi
echo "bench-ep: names of what no commit names"
