# Builds for checks, each in its own folder of build-check/.

# Sanitizers keep most of what -O3 does from being done; -O1 is built in two thirds of the time.
sanitized=(-DMOELOOM_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=Check -DCMAKE_CXX_FLAGS_CHECK=-O1)

# What is built, but for the table.
tree_now() { git rev-parse HEAD && git status --porcelain -- ":!$table" && git diff HEAD -- ":!$table"; }

# Again where the tree became another one under it: what is kept afterwards is said of one commit.
while_nothing_changes() { # command of a build
  local before
  while :; do
    before=$(tree_now)
    "$@" || return
    [[ $(tree_now) != "$before" ]] || return 0
  done
}

build() { # name, targets, then options of cmake
  local folder=$builds/$1 targets=()
  read -ra targets <<< "$2"
  shift 2
  if cmake -S . -B "$folder" -G Ninja -DMOELOOM_BENCH=OFF "$@" > "$folder.log" 2>&1 &&
    while_nothing_changes nice cmake --build "$folder" -j "$(nproc)" --target "${targets[@]}" \
      >> "$folder.log" 2>&1; then
    return 0
  fi
  tail -20 "$folder.log"
  return 1
}

library_of() { # compiler, name: Debian has what belongs to one of several compilers where none of them looks
  local path
  for path in "$("$1" -print-file-name="$2")" "$("$1" -print-resource-dir)/../../$2"; do
    if [[ -e $path ]]; then realpath "$path" && return; fi
  done
  return 1
}

clang_of() { # a library that it has to have
  local name
  for name in clang++ clang++-{22,21,20,19,18,17,16}; do
    command -v "$name" > /dev/null && (($("$name" -dumpversion | cut -d. -f1) >= 16)) &&
      library_of "$name" "$1" > /dev/null && echo "$name" && return
  done
  return 1
}

# Copies between processes by the kernel are not seen by sanitizers, copies through shared memory are. (For Open MPI 4,
# and 5.)
seen_copies() { export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma,knem,xpmem; }

# What MPI never frees is not ours; what is wrong ends the test. Stacks of memory are walked by frame pointers, in a
# seventh of the time; MPI's libraries lack them, so there a stack is only the caller. To know of which library it is,
# LeakSanitizer needs Open MPI's plugins to stay where they are. It also guesses where a plugin's thread-local variables
# lie, from glibc's blocks of memory, and may read at 0x1820 and end: so it is told not to.
#
# What is found also leaves a file, and its exit code is no other's: a test may expect that a rank ends with 1, a
# launcher may start again what crashed, and neither sees what the rank said.
asan_options() {
  local found=log_exe_name=1:log_path=$builds/reports/address:exitcode=99
  "${CC:-cc}" -shared -fPIC launch/check/preloaded.c -o "$builds/preloaded.so" || return 1
  mkdir -p "$builds/reports"
  export LD_PRELOAD=$builds/preloaded.so MOELOOM_CHECK_REPORTS=$builds/reports
  export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:verify_asan_link_order=0:intercept_tls_get_addr=0:$found
  export LSAN_OPTIONS=suppressions=$source/launch/check/lsan.supp:print_suppressions=0
  export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=99
}

# Whether any process left a report since the last call, which are printed and removed.
reported() {
  [[ -n $(find "$builds/reports" -type f 2> /dev/null) ]] || return 1
  find "$builds/reports" -type f -print -exec cat {} \; -delete
}
