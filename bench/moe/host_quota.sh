# Slow processors for hosts of tests/cluster/hosts.sh, sourced after it: make_quota PERCENT.
#
# Some hosts share this machine's processors, and a waiting rank polls. A quota, in percent of a processor, is therefore
# given to each host by the kernel (cgroup cpu, periods of 10 ms), so that neither a rank that waits nor one that has
# less to do makes another one faster: as if each host had a slow processor to itself. 100: no quota, for as many hosts
# as processors. Ranks are bound to processors in turn, or those of two hosts would at times share one beside an idle
# one. Linux stops a group at a tick (4 ms): with periods of 2.5 ms ranks of 40 % got 32, with these 37, a lone one 40.
# shellcheck shell=bash

groups=/sys/fs/cgroup/cpu/$hosts_prefix
remove_groups() {
  local group
  for group in "$groups"-*; do [[ ! -d $group ]] || rmdir "$group" 2> /dev/null || true; done
}
trap 'remove_hosts; remove_groups' EXIT

# under_quota COMMAND...: what a rank runs to be under its host's quota.
make_quota() {
  cat > "$scratch/under-quota" << 'END'
#!/usr/bin/env bash
group=$1-$OMPI_COMM_WORLD_RANK
quota=$2
shift 2
if [[ $quota != 100 ]]; then
  mkdir -p "$group" && echo 10000 > "$group/cpu.cfs_period_us" && echo $((100 * quota)) > "$group/cpu.cfs_quota_us" &&
    echo 65536 > "$group/cpu.shares" && echo $$ > "$group/tasks" || exit 77
fi
exec taskset -c $((OMPI_COMM_WORLD_RANK % $(env -u OMP_NUM_THREADS nproc))) "$@"
END
  chmod +x "$scratch/under-quota"
  under_quota=("$scratch/under-quota" "$groups" "$1")
}
