# libFuzzer's programs, in pieces of a minute, until each has had its executions.

targets_of() { sed -n "s/^set(fuzz_$1 \(.*\))/\1/p" tests/fuzz/CMakeLists.txt | tr ' ' '\n'; }

rooms_of_fuzz() { targets_of '[a-z]*'; }

room_of_target() {
  local list
  for list in io:io data:io tokenizer:text chat:text model:train weights:model run:run app:app host:app c:c; do
    if targets_of "${list%:*}" | grep -qx "$1"; then echo "${list#*:}"; fi
  done
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
  TMPDIR=/dev/shm UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "${by[@]}" nice -n 19 "$programs/fuzz_$target" \
    -dict="$folder/seeds/$target.dict" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=256 \
    -artifact_prefix="$folder/found/$target/" -entropic=0 -print_funcs=0 -print_final_stats=1 "$@" \
    "$folder/corpus/$target" "$folder/seeds/$target" < /dev/null > "$folder/$target.log" 2>&1
}

# Of the last piece; those that read the corpus again do not count.
executions_of() { # target
  awk '$2 == "INITED" { read = substr($1, 2) + 0 } /^stat::number_of_executed_units/ { all = $2 + 0 }
    END { print (all > read ? all - read : 0) }' "$builds/fuzz/$1.log"
}

files_of() { find "$@" -type f 2> /dev/null | wc -l; }

# Goes on from what was kept of this room as it is; 1 where something was found.
fuzz_target() { # target
  local target=$1 folder=$builds/fuzz was total=0 left ran ok=1
  local -A kept=()
  read_kept fuzz
  read -ra was <<< "${kept[$target]:-}"
  if [[ ${was[3]:-} =~ ^(unfinished|passed)$ ]] && is_fresh "fuzz/$target" "${was[5]:-none}"; then total=${was[4]}; fi
  while ((total < runs && ok)); do
    left=$((runs - total + $(files_of "$folder/corpus/$target" "$folder/seeds/$target")))
    fuzz_one "$builds/fuzz-fast" "$target" "-runs=$left" -max_total_time=60 || ok=0
    ran=$(executions_of "$target") total=$((total + ran))
    ((ran > 0)) || ok=0
    keep fuzz "fuzz/$target" "$target" unfinished "$total"
  done
  # Under the sanitizers, what reached new code; then as long a search as one piece.
  ((ok == 0)) || fuzz_one "$folder" "$target" -max_total_time=60 || ok=0
  ((ok == 0)) || total=$((total + $(executions_of "$target")))
  keep fuzz "fuzz/$target" "$target" "$( ((ok)) && echo passed || echo failed)" "$total"
  echo "fuzz: $target executions=$total findings=$(files_of "$folder/found/$target")"
  ((ok)) || { tail -n 60 "$folder/$target.log"; return 1; }
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
    fuzz_target "$item" || failed=1
    write_rows fuzz executions "$items"
  done < <(still_to_do fuzz <<< "$items")
  write_rows fuzz executions "$items"
  return $failed
}
