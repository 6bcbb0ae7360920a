#!/usr/bin/env bash
# launch/cluster.sh HOSTFILE COMMAND...: `moeloom COMMAND...` over plain ssh, a rank for each slot in the hostfile.
#
#   $ cat hosts
#   node1 slots=16
#   node2 slots=16
#   $ launch/cluster.sh hosts train --ep 16 --data /shared/corpus.txt --run /shared/run
#   [info] mesh="dp=2 ep=16 on 2 node(s), 1 thread(s) a rank"
#   ...
#
# ssh must reach each machine without a password, and the program, the data and the run's folder must be at the same
# paths on all. What dies (a rank, a machine, a link) ends the job within seconds: start again with
# `train --resume /shared/run`. TERM, USR1 or INT (Ctrl-C) to this script stops all ranks after the same step with a
# checkpoint; the exit code is then 75. A second INT leaves at once. Nothing is read from the terminal: `chat` needs its
# --message.
#
#   MOELOOM_BUILD  the build folder (build); where it is no absolute path, it is taken from the repository's folder
#   MOELOOM_NET    see launch/env.sh
#   OMPI_MCA_...   as ever, and for the launcher of Open MPI 5 PRTE_MCA_...; OMPI_MCA_plm_rsh_agent, there
#                  PRTE_MCA_plm_ssh_agent, is a program in ssh's place: AGENT HOST COMMAND...
set -euo pipefail

hostfile=${1:?usage: launch/cluster.sh HOSTFILE COMMAND...}
shift
[[ -r $hostfile ]] || { echo "cannot read the hostfile $hostfile; it holds a line 'node1 slots=16' a machine" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
build=${MOELOOM_BUILD:-build}
[[ $build == /* ]] || build=$here/../$build
program=$(realpath -m "$build")/moeloom
[[ -x $program ]] || { echo "there is no $program; build it by launch/build.sh, or set MOELOOM_BUILD" >&2; exit 1; }
[[ ${1:-} != chat || " $* " =~ \ --(message|help|config)[=\ ] ]] ||
  { echo "chat on several machines reads no terminal; give it --message TEXT" >&2; exit 1; }

# mpirun would answer TERM and INT by killing its ranks; USR1 it hands on to them, but forgets it while they are not there
# yet.
job=
heard=
reminder=
interrupts=0
remind() {
  trap '' INT TERM HUP USR1
  while sleep 1; do kill -USR1 "$job" || exit 0; done
}
stop() {
  heard=yes
  [[ -n $job ]] || return 0
  kill -USR1 "$job" 2> /dev/null || true
  [[ -n $reminder ]] || { remind < /dev/null > /dev/null 2>&1 3>&- & reminder=$!; }
}
interrupt() {
  interrupts=$((interrupts + 1))
  if [[ $interrupts == 1 || -z $job ]]; then stop; else kill -INT "$job" 2> /dev/null || true; fi
  heard=yes
}
trap stop TERM USR1 HUP
trap interrupt INT

MOELOOM_HOSTS=$(grep -cvE '^[[:space:]]*(#|$)' "$hostfile") ||
  { echo "the hostfile $hostfile names no machine; write a line 'node1 slots=16' for each" >&2; exit 1; }
# shellcheck source=launch/env.sh
. "$here/env.sh"
# Open MPI reads names of hosts (not addresses) up to their first dot; where that makes one of two, it is told not to.
like_names=$(sed -n 's/^[[:space:]]*\([^[:space:]@#]*@\)\{0,1\}\([[:alnum:]_-]*[[:alpha:]][[:alnum:]_-]*\)\(\.[^[:space:]]*\)\{0,1\}.*/\2\3 \2/p' \
  "$hostfile" | sort -u | awk '{print $2}' | sort | uniq -d)
if [[ -n $like_names ]]; then
  export OMPI_MCA_orte_keep_fqdn_hostnames="${OMPI_MCA_orte_keep_fqdn_hostnames:-1}"
  export PRTE_MCA_prte_keep_fqdn_hostnames="${PRTE_MCA_prte_keep_fqdn_hostnames:-$OMPI_MCA_orte_keep_fqdn_hostnames}"
fi
# A password that is asked for, or a machine that does not answer, would be waited for in silence.
agent=${OMPI_MCA_plm_rsh_agent:-${PRTE_MCA_plm_ssh_agent:-ssh -o BatchMode=yes -o ConnectTimeout=10}}
export OMPI_MCA_plm_rsh_agent="$agent" PRTE_MCA_plm_ssh_agent="${PRTE_MCA_plm_ssh_agent:-$agent}"

# mpirun hands on what is its own; what the program, its loader, its threads and MPI's transports read has to be named.
named=()
for name in $(compgen -e |
  grep -E '^(MOELOOM_|TWINKLE_NPU_|OMP_|OPENBLAS_|UCX_|FI_|GLIBC_TUNABLES$|LD_PRELOAD$|[A-Z]+SAN_OPTIONS$|XDG_CACHE_HOME$)'); do
  named+=(-x "$name")
done

# When a rank has died, or nobody wants to wait, mpirun is not to wait for the others either. Open MPI 5 has no such setting.
export OMPI_MCA_odls_base_sigkill_timeout="${OMPI_MCA_odls_base_sigkill_timeout:-0}"

# The launcher of Open MPI 5 ends with 0 where it has lost a host; only its words tell. Not asked of 4, because what is
# behind a pipe hides the terminal from the ranks. The sentence ends with a zero byte, for which grep calls a log binary.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeloom-cluster-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
exec 3>&2
listener=
version=$(mpirun --version 2> /dev/null || true)
if [[ $version == *"(Open MPI)"* && $version != *"(Open MPI) 4."* ]]; then
  mkfifo "$scratch/words"
  (trap '' INT TERM HUP USR1
    exec sed -u -e 's/\x00//g' -e "/has lost communication with a remote daemon/w $scratch/lost" \
      < "$scratch/words" >&2) 3>&- &
  listener=$!
  exec 3> "$scratch/words"
fi

# The launcher of MPICH, hydra, has words of its own: slots are node1:16, its agent is one program, which it gives options
# of ssh first, and all variables travel.
launch=(mpirun --hostfile "$hostfile" "${named[@]}")
if [[ $version == HYDRA* ]]; then
  awk '!/^[[:space:]]*(#|$)/ {slots = 1; for (i = 2; i <= NF; ++i) if (sub(/^slots=/, "", $i)) slots = $i; print $1 ":" slots}' \
    "$hostfile" > "$scratch/hosts"
  # shellcheck disable=SC2016  # the agent's own words
  printf '%s\n' '#!/bin/sh' 'while [ "$1" != "${1#-}" ]; do shift; done' "exec $agent \"\$@\"" > "$scratch/agent"
  chmod +x "$scratch/agent"
  launch=(mpirun -f "$scratch/hosts" -launcher ssh -launcher-exec "$scratch/agent")
fi

[[ -z $heard ]] || exit 75
# In the background, because bash hears signals only while it waits. In a session of its own it does not hear the
# terminal's Ctrl-C by itself. Before mpirun takes USR1, and once it has ceased to, at its end, a reminder must not kill it;
# ranks do not inherit what it catches.
setsid env --ignore-signal=USR1 "${launch[@]}" "$program" "$@" < /dev/null 2>&3 3>&- &
job=$!
exec 3>&-
[[ -z $heard ]] || stop  # it came before there was a job to tell
code=0
wait "$job" || code=$?
while [[ -n $heard ]]; do
  heard=
  again=0
  wait "$job" || again=$?
  [[ $again == 127 ]] || code=$again  # 127: the job had ended before the signal came
done
[[ -z $reminder ]] || { kill -KILL "$reminder" && wait "$reminder"; } 2> /dev/null || true

# Until all is said; but over a dead link an agent may keep the listener for longer.
for ((tries = 0; tries < 10; ++tries)); do
  [[ -n $listener ]] && kill -0 "$listener" 2> /dev/null || break
  sleep 0.1
done
if [[ $code == 0 && -s $scratch/lost ]]; then code=205; fi # as Open MPI 4 does

# say_network: why hosts cannot use MOELOOM_NET, from all of them at once; 1 if all can. Where the daemons of mpirun find
# no network, they do not say on which host.
say_network() {
  local host rest agent_words words answers code=1
  words="env MOELOOM_NET=$(printf '%q' "$MOELOOM_NET") OMPI_MCA_btl_tcp_if_include=$(printf '%q' "$OMPI_MCA_btl_tcp_if_include")"
  words+=" $(printf '%q' "$program") mesh --this-network true"
  read -ra agent_words <<< "$agent"
  answers=$(mktemp -d)
  while read -r host rest || [[ -n $host ]]; do
    [[ -z $host || $host == \#* ]] ||
      timeout -k 1 10 "${agent_words[@]}" "$host" "$words" < /dev/null > "$answers/$host" 2>&1 &
  done < "$hostfile"
  wait
  grep -hF '[error]' -r "$answers" >&2 && code=0
  rm -r "$answers"
  return $code
}

# The codes of mpirun itself, and of the program where it may have said no more than the first host's reason.
if [[ ($code == 1 || $code -ge 200) && $SECONDS -lt 60 && -n ${MOELOOM_NET:-} && -n ${OMPI_MCA_btl_tcp_if_include:-} ]] && say_network; then
  exit 1
fi
exit "$code"
