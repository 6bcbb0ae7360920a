#!/usr/bin/env bash
# Installs what is missing and what tests need besides, builds everything and runs every test. Arguments go to ctest (-R moe).
set -euo pipefail
cd "$(dirname "$0")/.."

launch/install-deps.sh packages-test.txt || echo "Tests that need these packages will be skipped." >&2
# $MOELOOM_CMAKE_OPTIONS is a list of words.
# shellcheck disable=SC2086
launch/build.sh -DMOELOOM_TESTS=ON ${MOELOOM_CMAKE_OPTIONS:-} -- all
# shellcheck source=launch/env.sh
. launch/env.sh
build=${MOELOOM_BUILD:-build}
# Open MPI 4 removes the folder of all jobs with the last of them, perhaps just when another one makes it. What is in use
# stays.
in_use=${TMPDIR:-/tmp}/ompi.$(uname -n | cut -d. -f1).$(id -u)/tests.$$
mkdir -p "$in_use"
trap 'rmdir -p "$in_use" 2> /dev/null || true' EXIT
# Three at a time, on two processors: of many tests most seconds are the launcher's, which waits one before it ends a
# job that failed. A program on several ranks has as many places.
ctest --test-dir "$build" --output-on-failure -j "${CTEST_PARALLEL_LEVEL:-3}" "$@"
# Why tests were skipped, if any were: as scripts say it, and as GoogleTest does of a program whose every test was.
awk '/^skipped: / { print } /: Skipped$/ { getline why } /^\[  PASSED  \] 0 tests/ { print "skipped: " why }' \
  "$build/Testing/Temporary/LastTest.log" | sort | uniq -c
