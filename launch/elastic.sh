# What launch/go-on.sh --elastic knows of hosts, sourced by it: which of them answer, and on how many ranks of those,
# and at which mesh, the run fits (`moeloom mesh`).
#
# In: run, launcher (its words), asked_options (of train), stopped.
# Out: choose_hosts sets job_words, the launcher's words for the hosts that answer; mesh_words, options of train for
# these; silent, hosts that do not answer; newly, those of them that did before; hosts_said, hosts and mesh in words,
# empty where nothing differs from the job before.
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034  # what is go-on.sh's, and what it reads

patience=10  # seconds in which a host must answer

hosts_at='' ranks_at='' program='' agent=()
find_hosts_in_launcher() {
  local i word
  for ((i = 0; i < ${#launcher[@]}; ++i)); do
    word=${launcher[i]}
    case $(basename -- "$word") in
      cluster.sh)
        hosts_at=$((i + 1))
        program=${MOELOOM_BUILD:-build}
        [[ $program == /* ]] || program=$(dirname "$word")/../$program
        program=$(realpath -m "$program")/moeloom
        ;;
      --hostfile | -hostfile | --machinefile | -machinefile) hosts_at=$((i + 1)) ;;
      -H | -host | --host | -H=* | -host=* | --host=*)
        echo "launch/go-on.sh: --elastic does not take hosts from $word; write them in a file, and --hostfile FILE" >&2
        exit 1
        ;;
      --hostfile=* | -hostfile=* | --machinefile=* | -machinefile=* | -n=* | -np=* | --n=* | --np=*)
        echo "launch/go-on.sh: --elastic reads options of mpirun as two words; write '${word%%=*} ${word#*=}'" >&2
        exit 1
        ;;
      -n | -np | --n | --np) ranks_at=$((i + 1)) ;;
    esac
  done
  [[ -n $program ]] || program=${launcher[-1]}
  [[ -x $program || -x $(command -v "$program") ]] ||
    { echo "launch/go-on.sh: --elastic asks the program, and $program is none; end the launcher with it" >&2; exit 1; }
  read -ra agent <<< "${OMPI_MCA_plm_rsh_agent:-${PRTE_MCA_plm_ssh_agent:-ssh -o BatchMode=yes -o ConnectTimeout=$patience}}"
}

hosts=() slots=()
read_hosts() {
  local name rest
  if [[ -z $hosts_at ]]; then
    [[ -n $ranks_at ]] || { echo "launch/go-on.sh: --elastic needs a hostfile, or mpirun's -n N" >&2; exit 1; }
    hosts=(localhost) slots=("${launcher[ranks_at]}")
    return
  fi
  while read -r name rest || [[ -n $name ]]; do
    [[ -n $name && $name != \#* ]] || continue
    [[ " $rest" =~ [[:space:]]slots=([1-9][0-9]*) ]] ||
      { echo "launch/go-on.sh: --elastic must know how many ranks $name takes; write '$name slots=N' in ${launcher[hosts_at]}" >&2; exit 1; }
    hosts+=("$name") slots+=("${BASH_REMATCH[1]}")
  done < "${launcher[hosts_at]}"
}

is_this_host() {
  local address
  [[ $1 != localhost && $1 != "$(hostname)" ]] || return 0
  address=$(getent ahostsv4 "$1" | awk '{print $1; exit}')
  [[ -n $address && " $(hostname -I) 127.0.0.1 " == *" $address "* ]]
}

# ask I: of host I the bytes of its memory, the way mpirun would reach it; nothing, where it does not answer in time.
# What the agent says to it is kept.
ask() {
  local words host=${hosts[$1]}
  if is_this_host "$host"; then
    "$program" mesh --this-host true
  else
    words="$(printf '%q' "$program") mesh --this-host true"
    timeout -k 1 "$patience" "${agent[@]}" "$host" "$words"
  fi < /dev/null 2> "$scratch/agent-$1" | tail -n 1
}

# Sets answered (a word a host, its bytes or -), from all of them at once.
answered=()
ask_all() {
  local i asked=()
  for ((i = 0; i < ${#hosts[@]}; ++i)); do
    ask "$i" > "$scratch/answer-$i" &
    asked+=($!)
  done
  wait "${asked[@]}" || true
  answered=()
  for ((i = 0; i < ${#hosts[@]}; ++i)); do
    answered+=("$(cat "$scratch/answer-$i")")
    [[ ${answered[i]} =~ ^[0-9]+$ ]] || answered[i]=-
  done
}

# line NAME TEXT: what stands behind the name in an answer of `moeloom mesh`.
line() { sed -n "s/^$1 //p" <<< "$2"; }

# The mesh that the run was started with, which train.conf forgets while the run goes on at another. Another run's is
# removed.
asked_mesh() {
  [[ -n $(newest_checkpoint) ]] || rm -f "$run/elastic"
  cat "$run/elastic" 2> /dev/null || true
}

silent='' newly='' agents_said='' chosen=all
# choose_hosts: 1 if the run fits on none.
choose_hosts() {
  local i names=() takes=() least='' away=() base said taken take ranks=0 all=0 left=0 new=()
  ask_all
  for ((i = 0; i < ${#hosts[@]}; ++i)); do ((all += slots[i])) || true; done
  # mpirun's -n N beside a hostfile: never more, even where more would fit.
  [[ -z $ranks_at || ${launcher[ranks_at]} -ge $all ]] || all=${launcher[ranks_at]}
  left=$all
  for ((i = 0; i < ${#hosts[@]}; ++i)); do
    if [[ ${answered[i]} == - ]]; then
      away+=("${hosts[i]}")
      [[ " $silent " == *" ${hosts[i]} "* ]] || new+=("$i")
      continue
    fi
    take=$((slots[i] < left ? slots[i] : left))
    [[ $take != 0 ]] || continue
    ((left -= take)) || true
    names+=("${hosts[i]}") takes+=("$take")
    [[ -n $least && $least -le ${answered[i]} ]] || least=${answered[i]}
  done
  silent=${away[*]} newly=
  [[ -z $stopped ]] || return 1
  for i in "${new[@]}"; do
    newly+="${newly:+ }${hosts[i]}"
    said=$(grep -m 1 . "$scratch/agent-$i" || true)
    [[ -z $said ]] || agents_said+="go-on: ${hosts[i]}: $said"$'\n'
  done
  hosts_said=
  if [[ ${#names[@]} == 0 ]]; then
    hosts_said="none of ${hosts[*]} answers"
    return 1
  fi
  job_words=("${launcher[@]}") mesh_words=()
  if [[ ${#away[@]} == 0 && $chosen == all ]]; then
    read -ra mesh_words <<< "$(asked_mesh)"
    return
  fi
  read -ra base <<< "$(asked_mesh)"
  if [[ -n $(newest_checkpoint) ]]; then
    base=(--resume "$run" "${base[@]}")
  else
    base=("${asked_options[@]}")
  fi
  if ! said=$("$program" mesh --slots "$(IFS=,; echo "${takes[*]}")" --host-memory "$least" -- "${base[@]}" 2> "$scratch/why"); then
    hosts_said=$(sed 's/^\[error\] //' "$scratch/why" | head -n 1)
    return 1
  fi
  mkdir -p "$run"
  [[ -s $run/elastic ]] || line asked "$said" > "$run/elastic"
  read -ra mesh_words <<< "$(line options "$said")"
  IFS=, read -ra taken <<< "$(line slots "$said")"
  : > "$scratch/hosts"
  for ((i = 0; i < ${#names[@]}; ++i)); do
    [[ ${taken[i]} == 0 ]] || echo "${names[i]} slots=${taken[i]}" >> "$scratch/hosts"
    ((ranks += taken[i])) || true
  done
  [[ -z $hosts_at ]] || job_words[hosts_at]=$scratch/hosts
  [[ -z $ranks_at ]] || job_words[ranks_at]=$ranks
  if [[ $chosen != "${away[*]} $ranks" ]]; then
    hosts_said="on $ranks of $all ranks${away[0]:+ without ${away[*]}}, ${mesh_words[*]}"
  fi
  chosen="${away[*]} $ranks"
  [[ ${#away[@]} != 0 || $ranks != "$all" ]] || chosen=all
}

find_hosts_in_launcher
read_hosts
