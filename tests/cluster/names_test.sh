#!/usr/bin/env bash
# Hosts whose names are equal up to the first dot: launch/cluster.sh has Open MPI tell them apart, which by itself complains
# of a host that has slots twice.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

make_hosts 2
printf '%s\n' "10.77.0.1 node.a" "10.77.0.2 node.b" >> "$scratch/names"
printf '%s\n' "node.a slots=1" "node.b slots=1" > "$scratch/hosts"
cat > "$scratch/agent" << END
#!/usr/bin/env bash
host=\$1
shift
[[ \$host == node.a ]] && address=10.77.0.1 || address=10.77.0.2
exec "$root/tests/cluster/agent.sh" \$address "\$@"
END
chmod +x "$scratch/agent"
export OMPI_MCA_plm_rsh_agent=$scratch/agent PRTE_MCA_plm_ssh_agent=$scratch/agent

on 0 timeout -k 5 60 "$root/launch/cluster.sh" "$scratch/hosts" train "${small_run[@]}" --steps 3 --ep 2 \
  --run "$scratch/run" > "$scratch/log" 2>&1 || fail "node.a and node.b: $(cat "$scratch/log")"
grep -q 'on 2 node(s)' "$scratch/log" || fail "the ranks are not on two hosts: $(cat "$scratch/log")"
echo "node.a and node.b: two hosts"
