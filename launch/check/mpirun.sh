#!/usr/bin/env bash
# mpirun, for programs before which a sanitizer's library is loaded: before its own code it is not. Open MPI reads freed
# memory where a rank is killed, and the launcher would end by that, instead of by what a test asks of it.
exec env -u LD_PRELOAD mpirun ${LD_PRELOAD:+-x LD_PRELOAD="$LD_PRELOAD"} "$@"
