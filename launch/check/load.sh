# The whole suite on processors that have three times as much to do: no test may depend on the clock.

rooms_of_load() { echo suite; }

# As long as there is less to do than that: other checks that run meanwhile are as good.
spin_beside() { # process, with which it ends
  local i running most=$((3 * $(nproc)))
  while kill -0 "$1"; do
    read -r _ _ _ running _ < /proc/loadavg
    if ((${running%/*} > most)); then sleep 1; else for ((i = 0; i < 100000; i++)); do :; done; fi
  done 2> /dev/null
}

# Runs of the suite are alike: those that the table has of this tree, as another machine made them, are kept here too,
# where there are more of them than here.
keep_runs_of_table() {
  local row at digits date ended count run own
  row=$(sed -n 's/^| load | suite \(| .* of 5 \)/\1/p' "$table" 2> /dev/null)
  IFS='| ' read -r _ at digits date ended _ _ count _ <<< "$row"
  is_fresh suite "${digits:-none}" || return 0
  own=$(awk -v digits="$digits" '$5 == "passed" && $7 == digits { own[$1] } END { print length(own) }' \
    "$builds/state/load" 2> /dev/null)
  ((ended > ${own:-0})) || return 0
  for ((run = 1; run <= ended; run++)); do
    echo "suite@$run/5 suite $at $date passed $((count / ended)) $digits" >> "$builds/state/load"
  done
}

check_load() {
  local log=$builds/load-tests.log
  local commit failed=0 items room item result count begin spinning=() i own=$BASHPID
  while_nothing_changes launch/test.sh -N > "$log" 2>&1 || { tail -20 "$log" && return 1; }
  items=$(for ((i = 1; i <= 5; i++)); do echo "suite suite@$i/5"; done)
  begin_at_commit "$items"
  keep_runs_of_table
  # Three tests at a time, as launch/test.sh has them, are the rest.
  for ((i = 3; i < 3 * $(nproc); i++)); do
    spin_beside "$own" &
    spinning+=($!)
  done
  # shellcheck disable=SC2064
  trap "kill ${spinning[*]} 2> /dev/null" EXIT
  while read -r room item; do
    result=passed begin=$SECONDS
    "${by[@]}" launch/test.sh --no-tests=error < /dev/null > "$log" 2>&1 || result=failed failed=1
    count=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$log")
    keep load "$room" "$item" "$result" "${count:-0}"
    echo "load: $item $result, ${count:-0} tests, $((SECONDS - begin)) s, load average $(cut -d' ' -f3 /proc/loadavg)"
    if [[ $result = failed ]]; then
      sed -n '/The following tests FAILED/,$p' "$log"
      cat "$log" >> "$builds/load-failed.log"
    fi
    write_rows load tests "$items"
  done < <(still_to_do load <<< "$items")
  ended load tests "$items" $failed
}
