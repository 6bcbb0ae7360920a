#!/usr/bin/env bash
# launch/build.sh [cmake options] -- [targets]: packages, then a Release build in $MOELOOM_BUILD (build/).
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  options+=("$1")
  shift
done
shift || true
build=${MOELOOM_BUILD:-build}

launch/install-deps.sh
# A folder configured before keeps its generator.
[[ -f $build/CMakeCache.txt ]] || options+=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
cmake -S . -B "$build" "${options[@]}"
cmake --build "$build" --parallel "$(nproc)" --target "${@:-all}"
