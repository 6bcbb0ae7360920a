# The hosts of a hostfile for the study; sourced by run.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034  # of run.sh

[[ ${program##*/} == moeloom ]] ||
  { echo "study: with a hostfile the program's file is called moeloom, not $program" >&2; exit 1; }
MOELOOM_BUILD=$(dirname "$program")
export MOELOOM_BUILD
mapfile -t lines < <(grep -vE '^[[:space:]]*(#|$)' "$hosts_from")
hosts=${#lines[@]}
slots_of() { if [[ $1 =~ slots=([0-9]+) ]]; then echo "${BASH_REMATCH[1]}"; else echo 1; fi; }
slots=$(slots_of "${lines[0]:-}")
for line in "${lines[@]}"; do
  [[ $(slots_of "$line") == "$slots" ]] ||
    { echo "study: \"$line\" in $hosts_from has other slots than the first line; hosts must be alike" >&2; exit 1; }
done
((hosts > 1)) || { echo "study: $hosts_from names $hosts machines; a study takes two and more" >&2; exit 1; }
node_ranks=$slots
larger_net=()

# on_hosts HOSTS WORDS...: moeloom on the first so many, a rank a slot.
on_hosts() {
  local count=$1
  shift
  printf '%s\n' "${lines[@]:0:count}" > "$out/hostfile"
  "$root/launch/cluster.sh" "$out/hostfile" "$@"
}
on_node() { on_hosts 1 "$@"; }
describe() {
  printf '{"hosts": %s, "network": "%s", "larger_network": "%s", "what": "%s"}\n' "$hosts" "those of these machines" \
    "the rates that calibrate measured between them" "$hosts machines of a hostfile with $slots ranks each"
}
