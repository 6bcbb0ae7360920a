#!/usr/bin/env bash
# Installs what is missing and what tests need besides, builds everything and runs every test. Arguments go to ctest (-R moe).
set -euo pipefail
cd "$(dirname "$0")/.."

launch/install-deps.sh launch/packages-test.txt
# $MOELOOM_CMAKE_OPTIONS is a list of words.
# shellcheck disable=SC2086
launch/build.sh -DMOELOOM_TESTS=ON ${MOELOOM_CMAKE_OPTIONS:-} -- all
# shellcheck source=launch/env.sh
. launch/env.sh
ctest --test-dir "${MOELOOM_BUILD:-build}" --output-on-failure "$@"
