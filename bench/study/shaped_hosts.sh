# Four hosts of this machine for the study, where there is no hostfile; sourced by run.sh. Each is a network namespace
# with a link of $rate each way and $quota percent of a processor (bench/moe/host_quota.sh).
# shellcheck shell=bash
# shellcheck disable=SC2034  # of run.sh
# shellcheck source=tests/cluster/hosts.sh
. "$here/../../tests/cluster/hosts.sh"
# shellcheck source=bench/moe/host_quota.sh
. "$here/../moe/host_quota.sh"

hosts=4 slots=1 rate=1gbit quota=40
node_ranks=$(env -u OMP_NUM_THREADS nproc)
host_processors=1
make_hosts "$hosts"
make_quota "$quota"
shape_links "$rate"

# on_hosts HOSTS WORDS...: moeloom on the first so many, a rank each.
on_hosts() {
  local count=$1
  shift
  on 0 env MOELOOM_HOSTS="$count" OMPI_MCA_mpi_yield_when_idle=0 "$root/launch/with-env.sh" \
    mpirun --hostfile "$(hostfile 1)" -n "$count" "${under_quota[@]}" "$program" "$@"
}
# As one process with a host's share of a processor.
of_a_host() { OMPI_COMM_WORLD_RANK=0 "${under_quota[@]}" "$root/launch/with-env.sh" "$program" "$@"; }
describe() {
  printf '{"hosts": %s, "network": "%s", "what": "%s"}\n' "$hosts" "1 Gbit/s" "network namespaces of one machine with $node_ranks \
processors, joined by links of 1 Gbit/s each way through a bridge; each has a quota of $quota % of a processor and one rank \
of one thread. A whole processor would want links 2.5 times as fast for the same ratios, and the four share one memory, \
whose bandwidth a real host has to itself. Left open: links with other latencies, hosts with many ranks, more hosts"
}
