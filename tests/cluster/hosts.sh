# Hosts for tests, sourced: network namespaces of this machine with a name and an address each, on one bridge.
#
#   make_hosts 4; shape_links 1gbit; on 2 COMMAND; link down 2
#
# What a machine does not allow ends the test with 77 and a word, which ctest calls skipped. Everything is removed when
# the shell ends, however it ends; what a killed one left, by the next.
# shellcheck shell=bash

# In a chroot the test starts again in a root that is a mount.
if [[ $(id -u) == 0 && -z ${MOELOOM_TEST_ROOT:-} ]] && ! unshare --mount true 2> /dev/null; then
  export MOELOOM_TEST_ROOT=mounted
  exec "$(dirname "${BASH_SOURCE[0]}")/../support/mounted_root.sh" bash "$(realpath "$0")" "$@"
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
hosts_prefix=moeloom-$$
number_of_hosts=0
scratch=$(mktemp -d "${TMPDIR:-/tmp}/$hosts_prefix-XXXXXX")

skip() {
  echo "skipped: $*"
  exit 77
}

fail() {
  echo "failed: $*" >&2
  exit 1
}

namespace_of() { echo "$hosts_prefix-h$1"; }

# on HOST COMMAND...: there, under the host's own name, and knowing the others'.
on() {
  local host=$1
  shift
  nsenter --net="/run/netns/$(namespace_of "$host")" unshare --uts --mount -- \
    bash -c "hostname h$host && mount --bind '$scratch/names' /etc/hosts && exec \"\$@\"" on "$@"
}

namespaces_of() { ip netns list | awk '{print $1}' | grep "^$1-" || true; }

processes_of() {
  local name
  for name in $(namespaces_of "$1"); do ip netns pids "$name"; done
}

none_of() { [[ -z $(processes_of "$1") ]]; }

# remove_namespaces PREFIX: whatever runs in them ends first, in order where it does so within seconds.
remove_namespaces() {
  local name
  processes_of "$1" | xargs -r kill -TERM 2> /dev/null || true
  within 5 none_of "$1" || processes_of "$1" | xargs -r kill -KILL 2> /dev/null || true
  for name in $(namespaces_of "$1"); do ip netns delete "$name" || true; done
}

remove_hosts() {
  remove_namespaces "$hosts_prefix"
  rm -rf "$scratch"
}
trap remove_hosts EXIT
trap 'exit 130' INT TERM HUP

remove_what_killed_tests_left() {
  local maker
  for maker in $(ip netns list | sed -n 's/^moeloom-\([0-9]*\)-.*/\1/p' | sort -u); do
    [[ ! -d /proc/$maker ]] || continue
    remove_namespaces "moeloom-$maker"
    rm -rf "${TMPDIR:-/tmp}/moeloom-$maker-"*
  done
}

make_host() {
  local name
  name=$(namespace_of "$1")
  ip netns add "$name" 2> "$scratch/why" || skip "no network namespaces here: $(cat "$scratch/why")"
  ip -n "$hosts_prefix-net" link add "h$1" type veth peer name eth0 netns "$name" 2> "$scratch/why" ||
    skip "no virtual links here: $(cat "$scratch/why")"
  ip -n "$hosts_prefix-net" link set "h$1" master bridge up
  ip -n "$name" link set lo up
  ip -n "$name" address add "10.77.0.$(($1 + 1))/24" dev eth0
  ip -n "$name" link set eth0 up
  echo "10.77.0.$(($1 + 1)) h$1" >> "$scratch/names"
}

# make_hosts N: numbered from 0.
make_hosts() {
  local program
  for program in ip tc nsenter unshare mpirun; do
    command -v "$program" > /dev/null || skip "$program is not installed"
  done
  remove_what_killed_tests_left
  ip netns add "$hosts_prefix-net" 2> "$scratch/why" || skip "no network namespaces here: $(cat "$scratch/why")"
  ip -n "$hosts_prefix-net" link add bridge type bridge 2> "$scratch/why" ||
    skip "no bridges here: $(cat "$scratch/why")"
  ip -n "$hosts_prefix-net" link set bridge up
  local host
  echo "127.0.0.1 localhost" > "$scratch/names"
  for ((host = 0; host < $1; ++host)); do make_host "$host"; done
  number_of_hosts=$1
  on 0 true 2> "$scratch/why" || skip "no names for hosts here: $(cat "$scratch/why")"
}

# second_network: a further link eth1 of every host, 10.78.0.0/24, on a bridge of its own.
second_network() {
  local host name
  ip -n "$hosts_prefix-net" link add bridge1 type bridge
  ip -n "$hosts_prefix-net" link set bridge1 up
  for ((host = 0; host < number_of_hosts; ++host)); do
    name=$(namespace_of "$host")
    ip -n "$hosts_prefix-net" link add "h$host-1" type veth peer name eth1 netns "$name"
    ip -n "$hosts_prefix-net" link set "h$host-1" master bridge1 up
    ip -n "$name" address add "10.78.0.$((host + 1))/24" dev eth1
    ip -n "$name" link set eth1 up
  done
}

# sent HOST INTERFACE: bytes that left the host there.
sent() { on "$1" awk -v name="$2:" '$1 == name {print $10}' /proc/net/dev; }

# shape_links RATE: both directions of every host's link. What a link has saved up while it was idle passes at once:
# little more than the 64 KiB that leave a host together, which would be cut up below that.
shape_links() {
  local host
  for ((host = 0; host < number_of_hosts; ++host)); do
    tc -n "$(namespace_of "$host")" qdisc add dev eth0 root tbf rate "$1" burst 80kb latency 50ms &&
      tc -n "$hosts_prefix-net" qdisc add dev "h$host" root tbf rate "$1" burst 80kb latency 50ms
  done 2> "$scratch/why" || skip "no shaped links here: $(cat "$scratch/why")"
}

# link up|down HOST: as a cable.
link() { ip -n "$hosts_prefix-net" link set "h$2" "$1"; }

# within SECONDS CONDITION...: whether it comes true in time.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

# soon CONDITION...: whether it comes true. No test takes so long, however much else the machine has to do: what does not
# come by then does not come.
soon() { within 240 "$@"; }

# hostfile SLOTS: of all hosts.
hostfile() {
  local host
  for ((host = 0; host < number_of_hosts; ++host)); do echo "10.77.0.$((host + 1)) slots=$1"; done > "$scratch/hosts"
  echo "$scratch/hosts"
}

# mpirun_here WORDS...: mpirun on this machine alone, which asks no agent for another.
mpirun_here() {
  OMPI_MCA_plm_rsh_agent=false PRTE_MCA_plm_ssh_agent=false timeout -k 5 300 "$root/launch/with-env.sh" mpirun "$@"
}

# What launch/cluster.sh needs to find these hosts: the agent in ssh's place, and TCP alone between them.
export MOELOOM_BUILD=${MOELOOM_BUILD:-$root/build}
export MOELOOM_NET=10.77.0.0/24
export MOELOOM_TEST_HOSTS=$hosts_prefix
export MOELOOM_TEST_NAMES=$scratch/names
export OMPI_MCA_plm_rsh_agent=$root/tests/cluster/agent.sh PRTE_MCA_plm_ssh_agent=$root/tests/cluster/agent.sh
export OMPI_MCA_pml=ob1
export OMPI_MCA_btl=self,vader,tcp
# Killed ranks leave files here, and under Slurm those of another test's first job would have the same names.
export OMPI_MCA_orte_tmpdir_base=$scratch PRTE_MCA_prte_tmpdir_base=$scratch
export OMPI_MCA_btl_vader_backing_directory=$scratch
export OMP_NUM_THREADS=1
export MOELOOM_GMM_PATCH=force # nothing that is measured decides
export XDG_CACHE_HOME=$scratch/cache

seq 1 4000 | sed 's/.*/And the weaver drew thread & through the loom./' > "$scratch/corpus.txt"
# shellcheck disable=SC2034  # of those who source this
small_run=(--layers 2 --hidden 32 --inter 32 --heads 2 --kv-heads 1 --head-dim 16 --experts 8 --top-k 2 --seq-len 32
  --global-batch 16 --eval-every 0 --eval-sequences 16 --sample-chars 0 --data "$scratch/corpus.txt")

# losses RUN: a line a step, as its metrics print them.
losses() { sed -n 's/^{"step":[0-9]*,"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
