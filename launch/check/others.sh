# Programs of a room under the thread sanitizer and under memcheck, cut by Google Test's shards.

run_program() { # check, room, item, command; one that runs no test has not passed
  local check=$1 room=$2 item=$3 part log=$builds/$1-tests.log status count
  shift 3
  part=${item#*@}
  export GTEST_TOTAL_SHARDS=${part#*/} GTEST_SHARD_INDEX=$((${part%/*} - 1)) GTEST_COLOR=no
  "${by[@]}" "$@" < /dev/null > "$log" 2>&1  # mpirun would read on
  status=$?
  unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX
  count=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | head -1 | grep . || echo 0)
  ((status || count)) || status=1
  keep "$check" "$room" "$item" "$( ((status)) && echo failed || echo passed)" "$count"
  ((status == 0)) || { echo "$check: $item FAILED" && tail -n 200 "$log" | tee -a "$builds/$check-failed.log"; }
  return $status
}

items_of() { # "room room@part/parts" of lines "room parts"
  awk -v only="$only_room" 'only == "" || only == $1 {
    for (part = 1; part <= $2; part++) print $1, $1 "@" part "/" $2 }'
}
programs_of() { # lines "room room@part/parts"
  cut -d' ' -f1 <<< "$1" | sort -u | sed 's/^/tests_/' | xargs
}
# Those with threads, OpenMP's or their own; of the rooms that talk to each other, on two ranks.
parts_of_tsan() {
  printf '%s\n' "base 1" "io 1" "text 2" "comm 1" "kernels 12" "moe 8" "model 8" "train 16" "run 4" "c 1" "c_ranks 2"
}
rooms_of_tsan() { parts_of_tsan | cut -d' ' -f1; }
rooms_of_valgrind() { printf '%s\n' base job io tensor report text fuzz; }

check_tsan() {
  local told
  told=$(told_of tsan)
  # Threads here are OpenMP's. What GCC's library orders is not seen; clang's tells by way of archer.
  local compiler archer commit failed=0 room item ranks items
  compiler=$(clang_of libarcher.so) || return $skipped
  archer=$(library_of "$compiler" libarcher.so)
  items=$(parts_of_tsan | items_of)
  [[ -n $items ]] || return $nothing
  build tsan "$(programs_of "$items")" -DMOELOOM_SANITIZE=thread -DCMAKE_BUILD_TYPE=Check \
    -DCMAKE_CXX_FLAGS_CHECK=-O1 -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_C_COMPILER="${compiler/++/}" || return 1
  seen_copies
  export TSAN_OPTIONS=suppressions=$source/launch/check/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1
  export OMP_TOOL_LIBRARIES=$archer OMP_NUM_THREADS=2
  begin_at_commit "$items"
  while read -r room item; do
    ranks=()
    [[ ! $room =~ ^(comm|moe|model|train|c_ranks)$ ]] || ranks=(launch/with-env.sh mpirun -n 2 --oversubscribe)
    run_program tsan "$room" "$item" "${ranks[@]}" "$builds/tsan/tests_$room" --gtest_brief=1 || failed=1
  done < <(still_to_do tsan <<< "$items")
  ended tsan tests "$items" $failed
}

check_valgrind() {
  local commit failed=0 room item items
  command -v valgrind > /dev/null || return $skipped
  items=$(printf '%s\n' "base 4" "job 1" "io 6" "tensor 6" "report 1" "text 12" "fuzz 22" | items_of)
  [[ -n $items ]] || return $nothing
  # Its CPU has no AVX-512.
  build valgrind "$(programs_of "$items")" -DMOELOOM_NATIVE=OFF || return 1
  export MOELOOM_FUZZ_RUNS=20 OMP_NUM_THREADS=1
  begin_at_commit "$items"
  while read -r room item; do
    run_program valgrind "$room" "$item" valgrind --quiet --error-exitcode=9 --leak-check=full \
      --show-leak-kinds=definite --errors-for-leak-kinds=definite "$builds/valgrind/tests_$room" --gtest_brief=1 \
      --gtest_filter="-*GrowsWith*:*Seconds*" || failed=1
  done < <(still_to_do valgrind <<< "$items")
  ended valgrind tests "$items" $failed
}
