#!/usr/bin/env bash
# Installs what is missing, builds, and trains a small mixture of experts on the King James text with two
# ranks and ep = 2. Arguments go to `moeloom train` and win over launch/quickstart.conf.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${MOELOOM_BUILD:-build}
run=runs/quickstart
launch/build.sh -- moeloom
launch/corpus.sh corpus.txt
# shellcheck source=launch/env.sh
. launch/env.sh
mpirun -n 2 "$build/moeloom" train --config launch/quickstart.conf --data corpus.txt --run "$run" --overwrite true "$@"
echo "The report, with loss curve, expert load and time by phase: $PWD/$run/report.html"
