#!/usr/bin/env bash
# tests/check/rows.sh: what launch/check.sh writes of a room, from what it kept of the room's tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
unset MOELOOM_CHECK_ONLY MOELOOM_CHECK_BUILD MOELOOM_CHECK_BY
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
builds=$folder runs=
for part in fuzz record load; do
  # shellcheck disable=SC1090
  . "launch/check/$part.sh"
done
cd "$folder"
mkdir state tests
failed=0

# Each line kept is "test result count"; all of one room, from the sources that are the present ones.
says() { # check, room, tests there are, lines kept, what the row says
  local items item result count key=$2 got
  [[ $1 != fuzz ]] || key=fuzz/$2
  items=$(for item in $3; do echo "$key $item"; done)
  sources=([$key]=1234)
  while read -r item result count; do echo "$item $key abcd 2026-01-01 $result $count 1234"; done <<< "$4" > "state/$1"
  rm -f tests/checked.md
  write_rows "$1" tests "$items"
  got=$(sed -n "s/^| $1 | $2 | abcd | 1234 | 2026-01-01 | \(.*\) |$/\1/p" tests/checked.md)
  [[ $got = "$5" ]] || { echo "of $1 $2, $4: \"$got\" and not \"$5\"" && failed=1; }
}

says asan base "a b" $'a passed 1\nb passed 1' "passed | 2 tests | 0"
says asan base "a b" $'a passed 1\nb skipped 1' "passed | 2 tests, 1 skipped | 0"
says asan base "a b" $'a skipped 1\nb skipped 1' "skipped | 2 tests, 2 skipped | 0"
says asan base "a b" $'a passed 1\nb failed 1' "FAILED | 2 tests | b"
says asan base "a b c" $'a passed 1\nb passed 1' "2 of 3 | 2 tests | 0"
says tsan base "base@1/1" "base@1/1 passed 0" "short of 1 | 0 tests | 0"
says tsan base "base@1/1" "base@1/1 passed 81" "passed | 81 tests | 0"
says fuzz points "points" "points passed 999999" "short of 1000000 | 999999 tests | 0"
says fuzz points "points" "points passed 1000000" "passed | 1000000 tests | 0"
says fuzz regex "regex" "regex passed 1000000" "short of 10000000 | 1000000 tests | 0"

# Runs under load go on where another machine was, of which there is the table alone; not those of another tree.
load_goes_on() { # sources now, lines kept here, runs to do
  local got items=$'suite suite@1/5\nsuite suite@2/5\nsuite suite@3/5\nsuite suite@4/5\nsuite suite@5/5'
  printf '%s' "$2" > state/load
  sources=([suite]=$1)
  keep_runs_of_table
  got=$(shard=1/1 still_to_do load <<< "$items" | wc -l)
  [[ $got = "$3" ]] || { echo "of load in a tree of sources $1, where there was \"$2\": $got and not $3 to do" && failed=1; }
}
suites="suite@1/5 suite@2/5 suite@3/5 suite@4/5 suite@5/5"
old=$'suite@1/5 suite old 2025-01-01 passed 7 5678\nsuite@2/5 suite old 2025-01-01 passed 7 5678\n'
says load suite "$suites" $'suite@1/5 passed 7\nsuite@2/5 passed 7' "2 of 5 | 14 tests | 0"
load_goes_on 1234 "" 3
[[ $(wc -l < state/load) = 2 && $(cut -d' ' -f6 state/load) = $'7\n7' ]] || { echo "kept: $(cat state/load)" && failed=1; }
load_goes_on 1234 "$old" 3
load_goes_on 1234 $'suite@1/5 suite abcd 2026-01-01 unfinished 0 1234\n' 3
load_goes_on 1234 $'suite@4/5 suite abcd 2026-01-01 passed 7 1234\n' 2
load_goes_on 5678 "" 5
load_goes_on 5678 "$old" 3
says load suite "$suites" $'suite@1/5 passed 7\nsuite@2/5 failed 7' "FAILED | 14 tests | suite@2/5"
load_goes_on 1234 "" 5
# A whole row of another tree does not stay where runs of this one have begun.
sed -i 's/ 1234 / 5678 /;s/FAILED/passed/' tests/checked.md
echo "suite@1/5 suite abcd 2026-01-01 passed 7 1234" > state/load
sources=([suite]=1234)
write_rows load tests "$(printf 'suite %s\n' $suites)"
grep -q "^| load | suite | abcd | 1234 | 2026-01-01 | 1 of 5 | 7 tests | 0 |" tests/checked.md ||
  { cat tests/checked.md && failed=1; }

# A tree of which each change is committed: what the suite runs makes its row stale, what it does not run leaves it.
if command -v git > /dev/null; then
  mkdir tree && cd tree
  git init -q
  for path in CMakeLists.txt src/a.cpp include/a.hpp launch/{go-on,check,test-clients}.sh launch/check/load.sh \
    examples/a.cpp bench/a.cpp bench/results/a.txt tests/{CMakeLists.txt,checked.md} tests/{cluster,check,clients}/a; do
    mkdir -p "$(dirname "$path")" && echo "$path" > "$path"
  done
  digits() {
    git add -A
    git -c user.name=test -c user.email=test@localhost commit -q --allow-empty -m change
    sources=()
    sources_of suite
    echo "${sources[suite]}"
  }
  stale_by() { # command
    local was
    was=$(digits)
    "$@"
    [[ $(digits) != "$was" ]] || { echo "a row of the suite outlives: $*" && failed=1; }
  }
  was=$(digits)
  for path in launch/{check,test-clients}.sh launch/check/load.sh bench/results/a.txt tests/checked.md \
    tests/{check,clients}/a; do
    echo changed > "$path"
  done
  [[ $(digits) = "$was" ]] || { echo "a row of the suite is stale by what it does not run" && failed=1; }
  stale_by chmod +x launch/go-on.sh
  stale_by mv src/a.cpp src/b.cpp
  stale_by touch launch/.hidden
  for path in CMakeLists.txt include/a.hpp launch/go-on.sh examples/a.cpp bench/a.cpp tests/CMakeLists.txt \
    tests/cluster/a; do
    stale_by cp launch/check.sh "$path"
  done
  echo > src/b.cpp
  sources=()
  sources_of suite
  [[ ${sources[suite]} = changed ]] || { echo "a change that is not committed: ${sources[suite]}" && failed=1; }
  cd ..
fi

# A target of fuzz goes on from the most executions that are known of this tree.
fuzz_goes_on() { # lines kept here, executions so far
  local got
  printf '%s' "$1" > state/fuzz
  sources=([fuzz/regex]=1234)
  got=$(executed_of regex)
  [[ $got = "$2" ]] || { echo "of fuzz, where there was \"$1\": $got and not $2 executions" && failed=1; }
}
says fuzz regex "regex" "regex unfinished 345" "0 of 1 | 345 tests | 0"
fuzz_goes_on "" 345
fuzz_goes_on $'regex fuzz/regex abcd 2026-01-01 unfinished 400 1234\n' 400
fuzz_goes_on $'regex fuzz/regex old 2025-01-01 unfinished 900 5678\n' 345
says fuzz regex "regex" "regex passed 1000000" "short of 10000000 | 1000000 tests | 0"
fuzz_goes_on "" 1000000
sed -i 's/ 1234 / 5678 /' tests/checked.md
fuzz_goes_on "" 0
says fuzz regex "regex" "regex failed 777" "FAILED | 777 tests | regex"
fuzz_goes_on "" 0

# What is asked for, or what a row has to have.
[[ $(runs_of points) = 1000000 ]] || { echo "runs of points: $(runs_of points)" && failed=1; }
runs=777
[[ $(runs_of points) = 777 ]] || { echo "runs of points, of 777: $(runs_of points)" && failed=1; }
exit $failed
