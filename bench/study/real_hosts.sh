# The hosts of a hostfile for the study; sourced by run.sh.
# shellcheck shell=bash

mapfile -t lines < <(grep -vE '^[[:space:]]*(#|$)' "$hosts_from")
hosts=${#lines[@]}
slots=$(sed -n 's/.*slots=\([0-9]*\).*/\1/p' <<< "${lines[0]}")
slots=${slots:-1}
node_ranks=$slots
host_processors=$(nproc)
for line in "${lines[@]}"; do
  [[ $line =~ slots=$slots([^0-9]|$) || ($slots == 1 && $line != *slots=*) ]] ||
    { echo "study: \"$line\" in $hosts_from has other slots than the first line; every ep needs hosts that are alike" >&2; exit 1; }
done
MOELOOM_BUILD=$(dirname "$program")
export MOELOOM_BUILD

# on_hosts HOSTS WORDS...: moeloom on the first so many, a rank a slot.
on_hosts() {
  local count=$1
  shift
  printf '%s\n' "${lines[@]:0:count}" > "$out/hostfile"
  "$root/launch/cluster.sh" "$out/hostfile" "$@"
}
on_node() { on_hosts 1 "$@"; }

describe() {
  printf '{"hosts": %s, "network": "%s", "what": "%s"}\n' "$hosts" "these machines" \
    "$hosts machines of a hostfile with $slots ranks each, whose threads share $host_processors processors"
}
