#!/usr/bin/env bash
# Open MPI's other ways of moving messages, as far as they are installed: UCX, and libfabric's TCP. Over both, on one host
# and on two, training has the losses of one host by Open MPI's own way.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

make_hosts 2
train=("${small_run[@]}" --steps 4 --ep 4)
mpirun_here -n 4 "$MOELOOM_BUILD/moeloom" train \
  "${train[@]}" --run "$scratch/one" > "$scratch/log" 2>&1 || fail "one host: $(cat "$scratch/log")"

unset OMPI_MCA_btl
there() { ompi_info --parsable 2> /dev/null | grep -q "^mca:$1:$2:version"; }
# same WHAT RUN
same() {
  diff <(losses "$scratch/one") <(losses "$2") || fail "$1: other losses than those of Open MPI's own way"
  echo "$1: the losses of Open MPI's own way"
}
tried=
# try NAME: what is set in the environment.
try() {
  local way
  mpirun_here -n 4 "$MOELOOM_BUILD/moeloom" train \
    "${train[@]}" --dispatcher alltoall --run "$scratch/$1" --overwrite > "$scratch/log" 2>&1 ||
    fail "$1 on one host: $(cat "$scratch/log")"
  same "$1 on one host" "$scratch/$1"
  for way in "alltoall --overlap 2" "hierarchical --overlap 2 --overlap-grad-reduce on --overlap-param-gather on"; do
    # shellcheck disable=SC2086  # words
    on 0 timeout -k 5 300 "$root/launch/cluster.sh" "$(hostfile 2)" train "${train[@]}" --dispatcher $way \
      --run "$scratch/$1" --overwrite > "$scratch/log" 2>&1 || fail "$1 on two hosts, $way: $(cat "$scratch/log")"
    grep -q 'on 2 node(s)' "$scratch/log" || fail "$1: the ranks are not on two hosts: $(cat "$scratch/log")"
    same "$1 on two hosts, $way" "$scratch/$1"
  done
  tried+="$1 "
}

if there pml ucx; then
  # Without these Open MPI takes UCX only where it finds InfiniBand.
  export OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any
  export UCX_TLS=self,sm,tcp
  try ucx
  unset UCX_TLS
fi
if there mtl ofi; then
  export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_mtl_ofi_provider_include=tcp
  try libfabric
fi
[[ -n $tried ]] || skip "Open MPI has neither UCX nor libfabric here"
