#!/usr/bin/env bash
# Hosts whose names are equal up to the first dot: launch/cluster.sh has Open MPI tell them apart, which by itself complains
# of a host that has slots twice. Ranks have what their loader and OpenBLAS are to read on both.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

# told_apart NAMES...: whether cluster.sh says so for a hostfile of them, to an mpirun that only repeats it.
mkdir "$scratch/bin"
# shellcheck disable=SC2016  # its own words
printf '%s\n' '#!/bin/sh' '[ "$1" = --version ] || echo "${OMPI_MCA_orte_keep_fqdn_hostnames:-0}"' > "$scratch/bin/mpirun"
chmod +x "$scratch/bin/mpirun"
told_apart() {
  printf '%s slots=1\n' "$@" > "$scratch/hosts"
  PATH=$scratch/bin:$PATH "$root/launch/cluster.sh" "$scratch/hosts" train
}
while read -r wanted names; do
  # shellcheck disable=SC2086  # words
  [[ $(told_apart $names) == "$wanted" ]] || fail "told apart: $(told_apart $names), expected $wanted: $names"
done << END
1 node.a node.b
1 node node-1.b node.a
1 ada@node.a node.b
1 ada@node.a ada@node.b
0 ada@node.a bob@node.a
0 node-1.a node-2.a
0 node.a node.a
0 ada@other.a node.b
0 10.77.0.1 10.77.0.2
END
echo "names: those that are equal up to the first dot"

make_hosts 2
printf '%s\n' "10.77.0.1 node.a" "10.77.0.2 node.b" >> "$scratch/names"
cat > "$scratch/agent" << END
#!/usr/bin/env bash
host=\$1
shift
[[ \$host == node.a ]] && address=10.77.0.1 || address=10.77.0.2
exec env -u GLIBC_TUNABLES -u OPENBLAS_CORETYPE -u UBSAN_OPTIONS "$root/tests/cluster/agent.sh" \$address "\$@"
END
chmod +x "$scratch/agent"
export OMPI_MCA_plm_rsh_agent=$scratch/agent PRTE_MCA_plm_ssh_agent=$scratch/agent

printf '%s\n' "node.a slots=1" "node.b slots=1" > "$scratch/hosts"
on 0 timeout -k 5 300 "$root/launch/cluster.sh" "$scratch/hosts" train "${small_run[@]}" --steps 3 --ep 2 \
  --run "$scratch/run" > "$scratch/log" 2>&1 || fail "node.a and node.b: $(cat "$scratch/log")"
grep -q 'on 2 node(s)' "$scratch/log" || fail "the ranks are not on two hosts: $(cat "$scratch/log")"
echo "node.a and node.b: two hosts"

# As over ssh, the agent brings nothing of the environment to the other host.
mkdir "$scratch/build"
# shellcheck disable=SC2016  # its own words
printf '%s\n' '#!/bin/sh' 'echo "$(hostname): $GLIBC_TUNABLES $OPENBLAS_CORETYPE $UBSAN_OPTIONS"' > "$scratch/build/moeloom"
chmod +x "$scratch/build/moeloom"
on 0 env MOELOOM_BUILD="$scratch/build" GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2 OPENBLAS_CORETYPE=Nehalem \
  UBSAN_OPTIONS=halt_on_error=1 timeout -k 5 300 "$root/launch/cluster.sh" "$scratch/hosts" > "$scratch/log" 2>&1 || fail "its environment: $(cat "$scratch/log")"
for host in h0 h1; do
  grep -qx "$host: glibc.cpu.hwcaps=-AVX512F,-AVX2 Nehalem halt_on_error=1" "$scratch/log" || fail "what $host has to read: $(cat "$scratch/log")"
done
echo "GLIBC_TUNABLES, OPENBLAS_CORETYPE and UBSAN_OPTIONS: on both hosts"
