#!/usr/bin/env bash
# launch/go-on.sh RUN LAUNCHER... -- OPTIONS...: starts a run, or goes on with it: the same line each time.
#
#   launch/go-on.sh /shared/run launch/cluster.sh hosts -- --ep 16 --data /shared/corpus.txt --steps 100000
#
# becomes `launch/cluster.sh hosts train --run /shared/run ...`, and once RUN holds a checkpoint
# `launch/cluster.sh hosts train --resume /shared/run`, with the options of its train.conf. What a run left that
# came to no checkpoint is replaced.
set -euo pipefail

run=${1:?usage: launch/go-on.sh RUN LAUNCHER... -- OPTIONS...}
shift
launcher=()
while [[ $# -gt 0 && $1 != -- ]]; do
  launcher+=("$1")
  shift
done
[[ $# -gt 0 ]] || { echo "launch/go-on.sh: -- is missing between the launcher and the options of train" >&2; exit 1; }
shift
if compgen -G "$run/checkpoint-*/trainer_state.json" > /dev/null; then
  exec "${launcher[@]}" train --resume "$run"
fi
exec "${launcher[@]}" train --run "$run" --overwrite true "$@"
