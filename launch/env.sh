# What mpirun has to know here, in one place: `. launch/env.sh`. Whatever is set already stays as it is.
#
# Open MPI 4 reads all of it in OMPI_MCA_...; the launcher of Open MPI 5, which is PRRTE, reads PRTE_MCA_..., and calls much
# otherwise. Both names are set, as each ignores the other's. What the ranks read (pml, btl, mpi) has the old names in both.
# MPICH's launcher, hydra, reads none of it: it lets root and more ranks than cores run, and binds nothing.
#
#   MOELOOM_HOSTS  machines of the job (Slurm's number, else 1)
#   MOELOOM_NET    what connects them, where a machine has several networks: 10.0.0.0/24, fd00:77::/64, or interfaces
#                  (eth1); with commas between several, of which none is IPv6's
# shellcheck shell=bash

: "${MOELOOM_HOSTS:=${SLURM_JOB_NUM_NODES:-1}}"

# moeloom_launcher NAME_IN_4 NAME_IN_5 VALUE: either name, where it is set already, gives the other its value.
moeloom_launcher() {
  eval "moeloom_value=\${OMPI_MCA_$1:-\${PRTE_MCA_$2:-\$3}}"
  eval "export OMPI_MCA_$1=\"\$moeloom_value\" PRTE_MCA_$2=\"\${PRTE_MCA_$2:-\$moeloom_value}\""
  unset moeloom_value
}

# Open MPI refuses to run as root unless it is told twice; in a container root is the usual user.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT="${OMPI_ALLOW_RUN_AS_ROOT:-1}"
  export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:-1}"
fi

# More ranks than cores are allowed, and a rank that waits gives its core away. Yielding is asked for by name:
# with slots declared by hand above the cores (hostfiles, Slurm) Open MPI would spin, and a barrier of 4 ranks
# on 2 cores takes 8 ms instead of 4 us.
export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe:-1}"
export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"

# A hostfile in the environment, as from the MPI Operator, is one of several machines.
moeloom_several=${OMPI_MCA_orte_default_hostfile:-${PRTE_MCA_prte_default_hostfile:-}}
[ -z "$moeloom_several" ] || moeloom_launcher orte_default_hostfile prte_default_hostfile "$moeloom_several"
[ "$MOELOOM_HOSTS" = 1 ] || moeloom_several=yes

# On one machine only shared memory is of use; not probing for networks starts mpirun in a third of the time. Open MPI 5
# calls vader sm, and still knows the old name.
if [ -z "$moeloom_several" ]; then
  # Not for several: PRRTE would then start all ranks on the first. Slots in a hostfile may be more than cores.
  export PRTE_MCA_rmaps_default_mapping_policy="${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}"
  export OMPI_MCA_pml="${OMPI_MCA_pml:-ob1}"
  export OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"
fi

# Nor from a shell that had this for one machine.
if [ -n "$moeloom_several" ] && [ "${PRTE_MCA_rmaps_default_mapping_policy:-}" = :oversubscribe ]; then
  unset PRTE_MCA_rmaps_default_mapping_policy
fi

# Several machines: a link that is down or a machine without power says nothing, so that by default the others wait
# for ever. With these mpirun and its daemons miss each other after 2 + 3 x 1 seconds of silence and end the job.
if [ -n "$moeloom_several" ]; then
  moeloom_launcher oob_tcp_keepalive_time oob_tcp_keepalive_time 2
  moeloom_launcher oob_tcp_keepalive_intvl oob_tcp_keepalive_intvl 1
  moeloom_launcher oob_tcp_keepalive_probes oob_tcp_keepalive_probes 3
  if [ -n "${MOELOOM_NET:-}" ]; then
    moeloom_net=$MOELOOM_NET
    case $MOELOOM_NET in
      *:*)
        # Open MPI reads networks of IPv4 alone, and connects two of IPv6 crosswise, so that hosts wait for ever.
        moeloom_net=$(ip -6 -oneline address show up to "$MOELOOM_NET" scope global 2> /dev/null | awk '!seen[$2]++ {print $2}')
        case $moeloom_net in
          "" | *[[:space:]]*)
            echo "MOELOOM_NET=$MOELOOM_NET: expected one network of IPv6, in which this host ($(uname -n)) has one interface; found ${moeloom_net:-none}. Of several networks, name those of IPv4." >&2
            # shellcheck disable=SC2317  # sourced, or not
            return 1 2> /dev/null || exit 1
            ;;
        esac
        export OMPI_MCA_btl_tcp_disable_family="${OMPI_MCA_btl_tcp_disable_family:-4}"
        moeloom_launcher oob_tcp_disable_ipv4_family oob_tcp_disable_ipv4_family 1
        ;;
      *,*) export OMPI_MCA_btl_tcp_disable_family="${OMPI_MCA_btl_tcp_disable_family:-6}" ;; # for the same reason
    esac
    moeloom_launcher oob_tcp_if_include prte_if_include "$moeloom_net"
    export OMPI_MCA_btl_tcp_if_include="${OMPI_MCA_btl_tcp_if_include:-$moeloom_net}"
    unset moeloom_net
  fi
fi

# Unbound: mpirun would bind each of one or two ranks to a single core, whatever else is free, and the ranks of two
# jobs to the same ones. The program divides a node's processors among its ranks by itself.
moeloom_launcher hwloc_base_binding_policy hwloc_default_binding_policy none

unset moeloom_several
unset -f moeloom_launcher
