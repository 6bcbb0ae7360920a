# libFuzzer's programs, in pieces of a minute, until each has had its executions.

targets_of() { sed -n "s/^set(fuzz_$1 \(.*\))/\1/p" tests/fuzz/CMakeLists.txt | tr ' ' '\n'; }

rooms_of_fuzz() { targets_of '[a-z]*'; }

# "list room": of tests/fuzz/CMakeLists.txt, and whose parser it is.
place_of_target() { # target
  local place
  for place in io:io data:io tokenizer:text chat:text model:train weights:model run:run app:app host:app c:c; do
    if targets_of "${place%:*}" | grep -qx "$1"; then echo "${place/:/ }"; fi
  done
}

# Of the binary formats and of those that do 10,000 a second without a sanitizer 10 million, of the others one.
least_runs_of() { # target
  case $1 in
    safetensors | megatron_index | routing_file | example_file | token_file | \
      regex | trainer_state | manifest | conversation) echo 10000000 ;;
    *) echo 1000000 ;;
  esac
}
runs_of() { echo "${runs:-$(least_runs_of "$1")}"; }  # target: what is asked for now

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
  TMPDIR=/dev/shm UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "${by[@]}" nice -n 19 "$programs/fuzz_$target" \
    -dict="$folder/seeds/$target.dict" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=256 \
    -artifact_prefix="$folder/found/$target/" -entropic=0 -print_funcs=0 -print_final_stats=1 "$@" \
    "$folder"/{corpus,seeds,found}"/$target" < /dev/null > "$folder/$target.log" 2>&1
}

# Of the last piece; those that read the corpus again do not count.
executions_of() { # target
  awk '$2 == "INITED" { read = substr($1, 2) + 0 } /^stat::number_of_executed_units/ { all = $2 + 0 }
    END { print (all > read ? all - read : 0) }' "$builds/fuzz/$1.log"
}

files_of() { find "$@" -type f 2> /dev/null | wc -l; }
findings_of() { find "$builds/fuzz/found/$1" -name '[clot]*-*' 2> /dev/null | wc -l; }  # crash, leak, oom, timeout

# Leaves of a corpus that has grown what reaches something: most of it was found again in fewer bytes, and each piece
# reads all of it. Where that fails the corpus stays as it is.
fuzz_merge() { # target
  local target=$1 corpus=$builds/fuzz/corpus/$1 merged=$builds/fuzz/merged/$1
  (($(files_of "$corpus") > 2000)) || return 0
  rm -rf "$merged" && mkdir -p "$merged" || return 0
  if TMPDIR=/dev/shm "${by[@]}" nice -n 19 "$builds/fuzz-fast/fuzz_$target" -merge=1 -max_len=4096 -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=256 "$merged" "$corpus" < /dev/null > "$builds/fuzz/$target.log" 2>&1; then
    rm -rf "$corpus" && mv "$merged" "$corpus"
  fi
}

# A minute beyond the reading of the corpus, which takes as long as it takes. Sets status and ran.
fuzz_piece() { # folder of the programs, target, then options of libFuzzer
  local seconds
  for ((seconds = 60; seconds <= 3840; seconds *= 2)); do
    fuzz_one "$1" "$2" "-max_total_time=$seconds" "${@:3}"
    status=$? ran=$(executions_of "$2")
    ((status == 0 && ran == 0)) || return 0
  done
}

executed_of() { # target: so far, of the room as it is
  local was room total=0
  local -A kept=() passed=() begun=()
  read_kept fuzz
  read_table fuzz
  for was in "${kept[$1]:-}" "x x x unfinished ${passed[$1]:-0 none}" "x x x unfinished ${begun[$1]:-0 none}"; do
    read -ra was <<< "$was"
    [[ ${was[3]:-} =~ ^(unfinished|passed)$ ]] && is_fresh "fuzz/$1" "${was[5]:-none}" || continue
    ((was[4] <= total)) || total=${was[4]}
  done
  echo "$total"
}

# Goes on from what was kept of this room as it is, here or, as the table says, elsewhere. 1 where something was found, 2 where it was stopped.
fuzz_target() { # target
  local target=$1 folder=$builds/fuzz was total=0 status=0 ran=1 before result=unfinished wanted
  wanted=$(runs_of "$1")
  total=$(executed_of "$target")
  before=$(findings_of "$target")
  fuzz_merge "$target"
  while ((total < wanted && status == 0 && ran > 0)); do
    # An input without a byte is executed before the corpus.
    fuzz_piece "$builds/fuzz-fast" "$target" \
      "-runs=$((wanted - total + 1 + $(files_of "$folder"/{corpus,seeds,found}"/$target")))"
    total=$((total + ran))
    keep fuzz "fuzz/$target" "$target" unfinished "$total"
  done
  # Under the sanitizers, what reached new code; then as long a search as one piece.
  if ((status == 0 && ran > 0)); then
    fuzz_merge "$target"
    fuzz_piece "$folder" "$target"
    total=$((total + ran))
  fi
  case $status in
    0) ((ran == 0)) || result=passed ;;
    1 | 70 | 71 | 77 | 134 | 136 | 139) result=failed ;;  # also by a signal of its own; others are of who was stopped
  esac
  keep fuzz "fuzz/$target" "$target" "$result" "$total"
  echo "fuzz: $target $result, executions=$total findings=$(($(findings_of "$target") - before))"
  [[ $result != passed ]] || return 0
  tail -n 60 "$folder/$target.log"
  [[ $result = failed ]] && return 1
  echo "fuzz: $target was stopped (code $status, $ran executions in the last piece)"
  return 2
}

check_fuzz() {
  local compiler commit failed=0 item items room
  compiler=$(clang_of libomp.so) || return $skipped
  fuzz_build fuzz "$compiler" -DMOELOOM_SANITIZE=address,undefined || return 1
  fuzz_build fuzz-fast "$compiler" || return 1
  "$builds/fuzz/write_seeds" "$builds/fuzz/seeds" > "$builds/fuzz.targets" || return 1
  items=$(sed 's:.*:fuzz/& &:' "$builds/fuzz.targets")
  begin_at_commit "$items"
  while read -r room item; do
    fuzz_target "$item" || failed=$?
    write_rows fuzz executions "$items"
    ((failed < 2)) || break
  done < <(still_to_do fuzz <<< "$items")
  ended fuzz executions "$items" $((failed > 0))
}
