# What passed, and at which commit: one line a test in build-check/state/CHECK, one row a room in tests/checked.md.

table=tests/checked.md
row='^| \(asan\|tsan\|valgrind\|fuzz\|load\) | '

# The rooms that a room links, itself first, as CMakeLists.txt has them.
rooms_below() {
  local below
  echo "$1"
  [[ $1 != c ]] || { rooms_below plan && return; }
  below=$(sed -n "s/^moeloom_room($1 ROOMS \([a-z ]*[a-z]\).*/\1/p" CMakeLists.txt)
  for below in $below; do rooms_below "$below"; done
}

# What a result stands on: the sources of a room and of those that it links, its tests with what they read, and what a
# sanitizer is told not to say (`told`). How it is built is left out: else each new test would make every row stale.
paths_of() { # room, or a target of fuzz as fuzz/TARGET
  local rooms list room=$1
  if [[ $room = suite ]]; then  # not these scripts and their table, nor tests/clients, which it does not run
    printf '%s\n' CMakeLists.txt src include launch examples bench tests :!bench/results ':(glob,exclude)tests/*.md' \
      :!launch/check{,.sh} :!launch/test-clients.sh :!tests/check :!tests/clients
    return
  fi
  printf '%s\n' tests/support ${told:-}
  [[ ! $room =~ ^(base|text|model|moe|train|run|app|python|pairs)$ ]] || echo tests/data
  case $room in
    app) rooms=app && printf '%s\n' launch/{bench-ep,env,write-options}.sh launch/options.md tests/{install,report} ;;
    guest) rooms=run ;;
    c_ranks) rooms=c && echo tests/c ;;
    fuzz/*)
      read -r list rooms < <(place_of_target "${room#fuzz/}")
      printf '%s\n' tests/fuzz/{"$list"_*targets.cpp,"$list"_*.hpp,json_words.hpp,lines.hpp,memory_file.hpp,target.hpp}
      printf '%s\n' tests/fuzz/libfuzzer_main.cpp
      [[ $list =~ ^(app|c)$ ]] || printf '%s\n' tests/fuzz/{libfuzzer_json,json_mutations}.cpp
      ;;
    python) rooms="c app" && printf '%s\n' src/python examples/python ;;
    example) rooms="c app" && echo examples ;;
    fuzz) rooms="c app" ;;
    cluster | faults | pairs) rooms=app && printf '%s\n' launch/{go-on,elastic,env,with-env,cluster}.sh tests/cluster ;;
    *) rooms=$room ;;
  esac
  [[ ! -d tests/$room ]] || echo "tests/$room"
  for room in $rooms; do rooms_below "$room"; done | sort -u | sed 's:.*:src/&\ninclude/moeloom/&:'
}

# What those paths hold, as eight digits that no rebase changes; nothing equals a tree with changes that are not
# committed.
declare -A sources=()
sources_of() { # room -> sources[room]
  [[ -z ${sources[$1]:-} ]] || return 0
  local path paths
  mapfile -t paths < <(paths_of "$1")
  if [[ -n $(git status --porcelain -- "${paths[@]}") ]]; then
    sources[$1]=changed
  else
    sources[$1]=$(if [[ $1 = suite ]]; then
      git ls-files -s -- "${paths[@]}"
    else
      for path in "${paths[@]}"; do git rev-parse -q --verify "HEAD:$path" || true; done
    fi | git hash-object --stdin | cut -c1-8)
  fi
}
is_fresh() { # room, digits
  sources_of "$1"
  [[ ${sources[$1]} = "$2" && $2 != changed ]]
}

# What is run from now on is this commit, whatever the tree becomes meanwhile.
begin_at_commit() { # lines "room item"
  local room
  commit=$(git rev-parse --short=8 HEAD)
  sources=()
  for room in $(cut -d' ' -f1 <<< "$1" | sort -u); do sources_of "$room"; done
}

# Scripts read the tree while they run, and the suite is built anew each time: where it has become another one, what
# they found is of neither.
keep() { # check, room, item, result, count
  local result=$4 count=$5 was=${sources[$2]}
  if [[ $2 =~ ^(python|cluster|faults|pairs|example|suite)$ ]]; then
    unset "sources[$2]"
    sources_of "$2"
    [[ ${sources[$2]} = "$was" ]] ||
      { echo "$1: $3 is not kept, as its sources have changed meanwhile" && result=unfinished count=0; }
    sources[$2]=$was
  fi
  echo "$3 $2 $commit $(date -u +%F) $result $count ${sources[$2]}" >> "$builds/state/$1"
}

declare -A kept=()
read_kept() { # check
  local item rest
  kept=()
  while read -r item rest; do kept[$item]=$rest; done < <(cat "$builds/state/$1" 2> /dev/null)
}

# Of lines "room item": those that are asked for, by the shard and by name.
asked() {
  awk -v k="${shard%/*}" -v n="${shard#*/}" 'BEGIN { for (i = 0; i < 256; i++) code[sprintf("%c", i)] = i }
    { hash = 7; for (i = 1; i <= length($2); i++) hash = (hash * 31 + code[substr($2, i, 1)]) % 1000003 }
    hash % n == k - 1' | { grep -E "${MOELOOM_CHECK_ONLY:-.}" || true; }
}

# And of these, those that have not passed since their room changed, here or, as the table says of the whole room,
# anywhere; targets of fuzz also where they had fewer executions than are asked for now.
still_to_do() { # check
  local check=$1 room item was
  local -A kept=() passed=() begun=()
  read_kept "$check"
  read_table "$check"
  asked |
    while read -r room item; do
      read -ra was <<< "${kept[$item]:-none none none none 0 none}"
      if is_done "$check" "$room" || { [[ ${was[3]} = failed ]] && is_fresh "$room" "${was[5]}"; }; then :; else
        read -ra was <<< "none none none passed ${passed[${room#fuzz/}]:-0 none}"
      fi
      is_done "$check" "$room" || echo "$room $item"
    done
}

is_done() { # check, room; of `was`: room, commit, date, result, count, digits
  [[ ${was[3]} =~ ^(passed|skipped)$ && ($1 != fuzz || ${was[4]} -ge $(runs_of "${2#fuzz/}")) ]] &&
    is_fresh "$2" "${was[5]:-none}"
}

# Sets passed[room] to what was counted, and the digits of the sources; begun[room] where not all was done, or found.
read_table() { # check
  local room digits result count
  while IFS='|' read -r _ _ room _ digits _ result count _; do
    read -r room digits count result <<< "$room $digits ${count%%[a-z]*} $result"
    case $result in
      passed) passed[$room]="$count $digits" ;;
      FAILED) ;;
      *) begun[$room]="$count $digits" ;;
    esac
  done < <(sed -n "/^| $1 | /p" "$table" 2> /dev/null)
}

# Rows of a check from what was kept of all its "room item" lines; where tests of a room passed at several commits, of
# sources that are not the present ones, else of the oldest. A room that has passed or failed keeps its row until it has
# passed whole, or a test of it fails; where it has passed elsewhere as it is now, it keeps that; but runs of load and
# executions go on from their row. Where every test was skipped, nothing has passed; a target of fuzz has not before it
# has had what is asked of it.
write_rows() { # check, unit of what is counted, lines "room item"
  local check=$1 unit=$2 room rows now
  : >> "$builds/state/$check"
  [[ -e $table ]] || printf '%s\n' "# What was checked, and when" "" \
    "Written by \`launch/check.sh\`, one row a check and room. \`launch/check.sh status\` says which rows are stale:" \
    "whose sources, which are those of the room, of rooms below it and of its tests, are others now." "" \
    "| check | room | commit | sources | date | result | done | findings |" "|---|---|---|---|---|---|---|---|" \
    > "$table"
  now=$(for room in "${!sources[@]}"; do echo "$room ${sources[$room]}"; done)
  rows=$(awk -v check="$check" -v unit="$unit" -v now="$now" -v asked="$(least_of "$check" <<< "$3")" '
    BEGIN {
      n = split(now, word); for (i = 1; i < n; i += 2) present[word[i]] = word[i + 1]
      n = split(asked, word); for (i = 1; i < n; i += 2) least[word[i]] = word[i + 1]
    }
    NR == FNR { key[$1] = $2; commit[$1] = $3; date[$1] = $4; result[$1] = $5; count[$1] = $6; of[$1] = $7; next }
    { sub(".*/", "", $1); total[$1]++ }
    !($2 in result) { next }
    result[$2] == "failed" { findings[$1] = findings[$1] " " $2 }
    result[$2] == "skipped" { left_out[$1]++ }
    result[$2] != "unfinished" { ended[$1]++ }
    { done[$1] += count[$2]; stale = of[$2] != present[key[$2]] }
    !($1 in oldest) || stale > was_stale[$1] || (stale == was_stale[$1] && date[$2] < oldest[$1]) {
      oldest[$1] = date[$2]; at[$1] = commit[$2] " | " of[$2]; was_stale[$1] = stale }
    END {
      for (room in done) {
        if (room in findings) said = "FAILED"
        else if (ended[room] != total[room]) said = ended[room] + 0 " of " total[room]
        else if (room in left_out && left_out[room] == total[room]) said = "skipped"
        else said = done[room] < least[room] ? "short of " least[room] : "passed"
        printf "| %s | %s | %s | %s | %s | %d %s%s | %s |\n", check, room, at[room], oldest[room], said,
          done[room], unit, room in left_out ? ", " left_out[room] " skipped" : "",
          room in findings ? substr(findings[room], 2) : "0"
      }
    }' "$builds/state/$check" <(echo "$3"))
  { sed "/$row/d" "$table"
    printf '%s\n' "$rows" | cat - <(sed -n "/$row/p" "$table") | awk -F' \\| ' -v check="$check" -v now="$now" '
      BEGIN { n = split(now, word, /[ \n]/); for (i = 1; i < n; i += 2) present[word[i]] = word[i + 1] }
      NF < 8 { next }
      { key = $1 " " $2 }
      !(key in rows) { rows[key] = $0; result[key] = $6; of[key] = $4; next }
      $6 ~ /^(passed|FAILED)$/ && result[key] ~ / of / && check !~ /^(fuzz|load)$/ { rows[key] = $0 }
      $6 == "passed" && result[key] == "passed" && $1 == "| " check {
        fresh = present[(check == "fuzz" ? "fuzz/" : "") $2]
        if ($4 == fresh && of[key] != fresh) rows[key] = $0
      }
      END { for (key in rows) print rows[key] }' | sort
  } > "$builds/table" && cp "$builds/table" "$table"
}

# "room executions" of lines "room item": of fuzz, what is asked of each; of others, one test.
least_of() { # check
  local room
  while read -r room _; do
    room=${room#fuzz/}
    if [[ $1 = fuzz ]]; then echo "$room $(least_runs_of "$room")"; else echo "$room 1"; fi
  done
}

ended() { # check, unit, lines "room item", whether anything failed
  write_rows "$1" "$2" "$3"
  [[ -n $(asked <<< "$3") ]] || return "$nothing"
  return "$4"
}

told_of() { # check: a file
  case $1 in
    asan) echo launch/check/lsan.supp ;;
    tsan) echo launch/check/tsan.supp ;;
  esac
}

check_status() {
  local check room commit digits result name told="" was=""
  while IFS='|' read -r _ check room commit digits _ result _; do
    read -r check room commit digits <<< "$check $room $commit $digits"
    [[ $check = "$was" ]] || { was=$check told=$(told_of "$check") && sources=(); }
    name=$room
    [[ $check != fuzz ]] || name=fuzz/$room
    if is_fresh "$name" "$digits"; then echo "fresh $check $room:${result% }"; else echo "stale $check $room: $commit"; fi
  done < <(sed -n "/$row/p" "$table" 2> /dev/null)
  for check in asan tsan valgrind fuzz load; do
    "rooms_of_$check" | sort -u |
      comm -23 - <(sed -n "s/^| $check | \([^ ]*\) .*/\1/p" "$table" 2> /dev/null | sort -u) | sed "s/^/never $check /"
  done
}
