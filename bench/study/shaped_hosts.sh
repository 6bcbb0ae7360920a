# Four hosts of this machine for the study, where there is no hostfile; sourced by run.sh. Each is a network namespace
# with a link of 1 Gbit/s each way and $quota percent of a processor (bench/moe/host_quota.sh).
# shellcheck shell=bash
# shellcheck disable=SC2034  # of run.sh
# shellcheck source=tests/cluster/hosts.sh
. "$here/../../tests/cluster/hosts.sh"
# shellcheck source=bench/moe/host_quota.sh
. "$here/../moe/host_quota.sh"

skip() {
  echo "study: $*; without namespaces, links and quotas of one's own there are no hosts here: give --hostfile FILE" >&2
  exit 1
}

hosts=4 slots=1 quota=40
node_ranks=$(env -u OMP_NUM_THREADS nproc)
host_processors=1
# A message of the quota's hosts takes as long as the kernel stops them.
larger_net=(--net "1Gbit,100us")
make_hosts "$hosts"
make_quota "$quota"
OMPI_COMM_WORLD_RANK=0 "${under_quota[@]}" true 2> "$scratch/why" ||
  skip "no quota of processors here: $(tail -1 "$scratch/why")"
shape_links 1gbit

hosts_with() { # QUOTA HOSTS WORDS...
  local percent=$1 count=$2
  shift 2
  on 0 env MOELOOM_HOSTS="$count" OMPI_MCA_mpi_yield_when_idle=0 "$root/launch/with-env.sh" mpirun \
    --hostfile "$(hostfile 1)" -n "$count" "${under_quota[@]:0:2}" "$percent" "$program" "$@"
}
# on_hosts HOSTS WORDS...: moeloom on the first so many, a rank each.
on_hosts() { hosts_with "$quota" "$@"; }
# The same where each has a whole processor, as many hosts as there are: what the quota does to the results.
on_whole() { hosts_with 100 "$@"; }
# As one process with a host's share of a processor.
of_a_host() { OMPI_COMM_WORLD_RANK=0 "${under_quota[@]}" "$root/launch/with-env.sh" "$program" "$@"; }
describe() {
  local what="network namespaces of one machine with $node_ranks processors, joined by links of 1 Gbit/s each way"
  what+=" through a bridge; each has a quota of $quota % of a processor and one rank of one thread. Four ranks get 37 %,"
  what+=" a lone one 40 %. A rank that waits spends its quota, and the kernel stops ranks for up to 6 ms at a time: every"
  what+=" exchange is dearer than on hosts of their own, at ep = 1 too. The four share one memory. Left open: links of"
  what+=" other bandwidths and latencies, hosts with many ranks, more hosts. At ep = 1 with 512 experts most of a step"
  what+=" is sending, so on faster links the gain of sharing is smaller"
  printf '{"hosts": %s, "network": "%s", "larger_network": "%s", "what": "%s"}\n' "$hosts" "of 1 Gbit/s" \
    "1 Gbit/s and 100 us a message" "$what"
}
