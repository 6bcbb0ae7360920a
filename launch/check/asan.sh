# Every test of ctest under the address and undefined-behaviour sanitizers.

# Of how others build against an installation, and of what is in an object file: nothing there runs under a sanitizer.
# For other_processor qemu would hold page tables of the sanitizer's 16 TiB of shadow, which take all of a machine's
# memory.
built_elsewhere='^(install|find_package|pkg_config|examples_against|add_subdirectory|cluster_mpich|c_header|bf16_)'
built_elsewhere+='|^(study_|check_rows|other_processor)'

# Programs on several ranks are cut into parts of a minute or two, by Google Test's shards, and so are Python's tests.
parts_of() { # test
  case $1 in
    train_on_*_ranks | model_on_*_ranks) echo $((4 * ${1//[^0-9]/})) ;;
    example_*) echo 1 ;;
    *_on_*_ranks) echo "${1//[^0-9]/}" ;;
    python) echo 12 ;;
    *) echo 1 ;;
  esac
}

room_of_test() { # sets room: no process for each of 1100 tests
  case $1 in
    *.*) room=${1%%.*} ;;
    c_ranks_*) room=c_ranks ;;
    report_page_in_browser) room=app ;;  # which runs the whole program
    example_* | cluster_* | *_on_*_ranks | c_* | report_*) room=${1%%_*} ;;
    option_pairs_*) room=pairs ;;
    *) room=$1 ;;
  esac
}

items_of_asan() { # "room test" or "room test@part/parts"
  local name room parts part
  while read -r name; do
    room_of_test "$name"
    parts=$(parts_of "$name")
    if ((parts == 1)); then echo "$room $name"; else
      for ((part = 1; part <= parts; part++)); do echo "$room $name@$part/$parts"; done
    fi
  done < <(ctest --test-dir "$builds/asan" -N | sed -n 's/^ *Test *#[0-9]*: //p' |
    grep -vE "$built_elsewhere|_NOT_BUILT$") | awk -v only="$only_room" 'only == "" || only == $1'
}

targets_for() { # room, or nothing
  case $1 in
    cluster | faults | pairs) echo moeloom ;;
    c) echo tests_c c_mpi_start c_mpi_end c_mpi_close c_layer_steps ;;
    python) echo moeloom moeloom_c ;;
    "" | example) echo all ;;
    *) echo "tests_$1" ;;
  esac
}

rooms_of_asan() {
  sed -n 's/^moeloom_tests(\([a-z_]*\).*/\1/p' tests/CMakeLists.txt
  printf '%s\n' cluster example faults fuzz pairs python
}

# Runs tests by name, of one room, and keeps what ctest says of each. 1 where one failed.
run_by_ctest() { # room, tests
  local room=$1 log=$builds/asan-tests.log part="" any="" names failed=0 name said count=0
  shift
  names=$(printf '|%s' "$@" | sed 's/[]$*+?(){}^.[]/\\&/g')
  if [[ $1 = *@* ]]; then
    part=${1#*@} names="|${1%@*}"
    export GTEST_TOTAL_SHARDS=${part#*/} GTEST_SHARD_INDEX=$((${part%/*} - 1))
  fi
  reported > /dev/null
  "${by[@]}" ctest --test-dir "$builds/asan" --output-on-failure --timeout 1800 -R "^(${names#|})$" \
    < /dev/null > "$log" 2>&1
  unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX
  # Of which test it is, where several have run, only the report says.
  reported >> "$log" && failed=1 && any=failed
  while read -r name said; do
    said=${any:-$said}
    case $said in
      *Passed*) said=passed ;;
      *Skipped*) said=skipped ;;
      *) said=failed failed=1 ;;
    esac
    keep asan "$room" "$name${part:+@$part}" "$said" 1
    count=$((count + 1))
    [[ $said != failed ]] || echo "asan: $name${part:+@$part} FAILED"
  done < <(sed -n 's:^ *[0-9]*/[0-9]* Test *#[0-9]*\: \([^ ]*\) \.*\(.*\):\1 \2:p' "$log")
  ((count == $#)) || { echo "asan: $count of $# tests have run: $*" && failed=1; }
  ((failed == 0)) || { cat "$log" && cat "$log" >> "$builds/asan-failed.log"; }
  return $failed
}

check_asan() {
  local told
  told=$(told_of asan)
  local commit failed=0 items room test batch=() batch_room=""
  build asan "$(targets_for "$only_room")" "${sanitized[@]}" || return 1
  items=$(items_of_asan)
  begin_at_commit "$items"
  seen_copies
  asan_options || return 1
  # Parts alone, other tests of a room by eights.
  while read -r room test; do
    if ((${#batch[@]})) && [[ $room != "$batch_room" || $test = *@* || ${batch[0]} = *@* || ${#batch[@]} = 8 ]]; then
      run_by_ctest "$batch_room" "${batch[@]}" || failed=1
      batch=()
    fi
    batch+=("$test") batch_room=$room
  done < <(still_to_do asan <<< "$items")
  ((${#batch[@]} == 0)) || run_by_ctest "$batch_room" "${batch[@]}" || failed=1
  ended asan tests "$items" $failed
}
