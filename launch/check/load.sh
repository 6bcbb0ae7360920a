# The whole suite on processors that have three times as much to do: no test may depend on the clock.

rooms_of_load() { echo suite; }

spin_beside() { # process, with which it ends
  local i
  while kill -0 "$1"; do for ((i = 0; i < 100000; i++)); do :; done; done 2> /dev/null
}

check_load() {
  local build=${MOELOOM_BUILD:-$source/build} log=$builds/load-tests.log
  local commit failed=0 items room item result count spinning=() i
  [[ -e $build/CTestTestfile.cmake ]] || { echo "load: build the tests first (launch/test.sh)" && return 1; }
  cmake --build "$build" --parallel "$(nproc)" > "$log" 2>&1 || { tail -20 "$log" && return 1; }
  items=$(for ((i = 1; i <= 5; i++)); do echo "suite suite@$i/5"; done)
  begin_at_commit "$items"
  # Three tests at a time, as launch/test.sh has them, are the rest.
  for ((i = 3; i < 3 * $(nproc); i++)); do
    spin_beside "$BASHPID" &
    spinning+=($!)
  done
  # shellcheck disable=SC2064
  trap "kill ${spinning[*]} 2> /dev/null" EXIT
  while read -r room item; do
    result=passed
    "${by[@]}" ctest --test-dir "$build" --output-on-failure -j 3 < /dev/null > "$log" 2>&1 || result=failed failed=1
    count=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$log")
    keep load "$room" "$item" "$result" "${count:-0}"
    if [[ $result = failed ]]; then
      sed -n '/The following tests FAILED/,$p' "$log"
      cat "$log" >> "$builds/load-failed.log"
    fi
    write_rows load tests "$items"
  done < <(still_to_do load <<< "$items")
  write_rows load tests "$items"
  return $failed
}
