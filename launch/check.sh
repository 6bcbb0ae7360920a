#!/usr/bin/env bash
# launch/check.sh [asan] [tsan] [valgrind] [fuzz] [--runs N]: the tests under tools that see what tests do not; all four
# without an argument. Builds lie in build-check/ (MOELOOM_CHECK_BUILD). A part that a missing tool stops is skipped.
#
#   asan      every test under the address and undefined-behaviour sanitizers, also those on several ranks
#   tsan      the threaded tests under the thread sanitizer (clang 16 or later, and libomp's archer)
#   valgrind  small tests under memcheck
#   fuzz      libFuzzer's programs (clang 16 or later) under both of asan's sanitizers, for a minute in all; --runs N:
#             first N executions each without a sanitizer, ten times as fast, then what they found new under them
#
# The last lines say what passed. MOELOOM_CHECK_TESTS: arguments for ctest in the part asan (-R moe).
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=launch/env.sh
. launch/env.sh
source=$PWD
builds=${MOELOOM_CHECK_BUILD:-$source/build-check}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
mkdir -p "$builds"

parts=()
runs=
while (($# > 0)); do
  case $1 in
    asan | tsan | valgrind | fuzz) parts+=("$1") ;;
    --runs) runs=${2:?--runs needs a number} && shift ;;
    *) sed -n '2,/^set /p' "$0" | sed '$d;s/^# \{0,1\}//' >&2 && exit 2 ;;
  esac
  shift
done
((${#parts[@]})) || parts=(asan tsan valgrind fuzz)

skipped=77
build() { # name, targets, then options of cmake
  local folder=$builds/$1 targets=()
  read -ra targets <<< "$2"
  shift 2
  if cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMOELOOM_BENCH=OFF "$@" \
    > "$folder.log" 2>&1 && nice cmake --build "$folder" --target "${targets[@]}" >> "$folder.log" 2>&1; then
    return 0
  fi
  tail -20 "$folder.log"
  return 1
}

# Copies between processes by the kernel are not seen by sanitizers, copies through shared memory are. (Open MPI 4, and 5.)
seen_copies() { export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma,knem,xpmem; }

asan() {
  build asan all -DMOELOOM_SANITIZE=address,undefined || return 1
  seen_copies
  # What MPI never frees is not ours; what is wrong ends the test.
  export ASAN_OPTIONS=detect_leaks=1:fast_unwind_on_malloc=0:detect_stack_use_after_return=1
  export LSAN_OPTIONS=suppressions=$source/launch/check/lsan.supp:print_suppressions=0
  export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  # shellcheck disable=SC2086
  ctest --test-dir "$builds/asan" --output-on-failure --timeout 1800 ${MOELOOM_CHECK_TESTS:-}
}

clang_of() {
  local name
  for name in clang++ clang++-{22,21,20,19,18,17,16}; do
    command -v "$name" > /dev/null && (($("$name" -dumpversion | cut -d. -f1) >= 16)) && echo "$name" && return
  done
  return 1
}

tsan() {
  # Threads here are OpenMP's. What GCC's library orders is not seen; clang's tells by way of archer.
  local compiler archer
  compiler=$(clang_of) && archer=$("$compiler" -print-file-name=libarcher.so) && [[ -e $archer ]] || return $skipped
  build tsan "tests_base tests_io tests_kernels tests_moe tests_train" -DMOELOOM_SANITIZE=thread \
    -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_C_COMPILER="${compiler/++/}" || return 1
  seen_copies
  export TSAN_OPTIONS=suppressions=$source/launch/check/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1
  export OMP_TOOL_LIBRARIES=$archer OMP_NUM_THREADS=2
  local failed=0 room
  for room in base io kernels; do "$builds/tsan/tests_$room" --gtest_brief=1 || failed=1; done
  for room in moe train; do
    launch/with-env.sh mpirun -n 2 --oversubscribe "$builds/tsan/tests_$room" --gtest_brief=1 || failed=1
  done
  return $failed
}

valgrind_part() {
  command -v valgrind > /dev/null || return $skipped
  # Its CPU has no AVX-512.
  build valgrind "tests_base tests_io tests_tensor tests_report tests_fuzz" -DMOELOOM_NATIVE=OFF || return 1
  local failed=0 room
  for room in base io tensor report fuzz; do
    echo "valgrind: tests_$room"
    MOELOOM_FUZZ_RUNS=20 OMP_NUM_THREADS=1 valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
      --errors-for-leak-kinds=definite "$builds/valgrind/tests_$room" --gtest_brief=1 \
      --gtest_filter="-*GrowsWith*:*Seconds*" || failed=1
  done
  return $failed
}

fuzz_build() { # name, compiler, then options of cmake
  local name=$1 compiler=$2
  shift 2
  build "$name" fuzz -DMOELOOM_FUZZ=ON -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_C_COMPILER="${compiler/++/}" \
    -DMOELOOM_NATIVE=OFF "$@"
}

# Files of a test lie in memory. LeakSanitizer at the end of a run is enough. Counts of rare features and names of new
# functions take longer than the parsers do.
fuzz_one() { # folder of the programs, target, then options of libFuzzer
  local programs=$1 target=$2 folder=$builds/fuzz
  shift 2
  mkdir -p "$folder/corpus/$target" "$folder/found/$target"
  TMPDIR=/dev/shm UBSAN_OPTIONS=halt_on_error=1 nice -n 19 "$programs/fuzz_$target" -dict="$folder/seeds/$target.dict" \
    -max_len=4096 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=256 -artifact_prefix="$folder/found/$target/" \
    -entropic=0 -print_funcs=0 -print_final_stats=1 "$@" "$folder/corpus/$target" "$folder/seeds/$target" \
    > "$folder/$target.log" 2>&1
}

fuzz_said() { # target
  echo "$(sed -n 's/^stat::number_of_executed_units: */executions=/p' "$builds/fuzz/$1.log")" \
    "$(grep -o 'cov: [0-9]*' "$builds/fuzz/$1.log" | tail -1)"
}

fuzz() {
  local compiler target found failed=0 said
  compiler=$(clang_of) || return $skipped
  fuzz_build fuzz "$compiler" -DMOELOOM_SANITIZE=address,undefined || return 1
  [[ -z $runs ]] || fuzz_build fuzz-fast "$compiler" || return 1
  local folder=$builds/fuzz
  local targets
  mapfile -t targets < <("$folder/write_seeds" "$folder/seeds")
  ((${#targets[@]})) || return 1
  for target in "${targets[@]}"; do
    if [[ -z $runs ]]; then
      fuzz_one "$folder" "$target" "-max_total_time=$((60 / ${#targets[@]}))" || failed=1
      said=$(fuzz_said "$target")
    elif fuzz_one "$builds/fuzz-fast" "$target" "-runs=$runs"; then
      said=$(fuzz_said "$target")
      fuzz_one "$folder" "$target" -runs=0 || failed=1
      said+=", sanitized: $(fuzz_said "$target")"
    else
      said=$(fuzz_said "$target") && failed=1
    fi
    found=$(find "$folder/found/$target" -type f | wc -l)
    echo "fuzz: $target $said findings=$found"
    ((found == 0)) || failed=1
  done
  return $failed
}

summary=()
failed=0
for part in "${parts[@]}"; do
  begin=$SECONDS
  case $part in
    valgrind) (valgrind_part) ;;
    *) ("$part") ;;
  esac
  result=$?
  case $result in
    0) said=passed ;;
    "$skipped") said="skipped: the tool is not there" ;;
    *) said=FAILED && failed=1 ;;
  esac
  summary+=("check: $part $said, $((SECONDS - begin)) s")
done
printf '%s\n' "${summary[@]}"
exit $failed
