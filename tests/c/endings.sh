#!/usr/bin/env bash
# tests/c/endings.sh PROGRAM MPIRUN...: a rank of a program in C is killed and terminated in its steps, and stopped
# between them. The job ends soon, and says why; nothing of it runs on or is left in a folder for files that pass.
set -uo pipefail
program=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

ends() { # signal, seconds that a rank waits, what is said
  local signal=$1 wait=$2 said=$3 begin=$SECONDS code i passing=$folder/$1
  mkdir "$passing"
  TMPDIR=$passing timeout 300 "${launcher[@]}" -n 2 "$program" "$signal" "$wait" < /dev/null > "$folder/said" 2>&1
  code=$?
  for ((i = 0; i < 1000; i++)); do  # a launcher may be over before the last of its ranks
    pgrep -fx ".*/${program##*/} $signal $wait" > /dev/null || break
    sleep 0.1
  done
  if ((code == 0 || code == 124 || SECONDS - begin > 200)) || ! grep -q begins "$folder/said" ||
    ! grep -q "$said" "$folder/said" || ((i == 1000)); then
    echo "signal $signal: code $code after $((SECONDS - begin)) s, without \"$said\" or with a rank that runs on:"
    cat "$folder/said"
    failed=1
  fi
  if [[ -n $(find "$passing" -type f -print -quit) ]]; then
    echo "signal $signal: left $(find "$passing" -type f | head -3)" && failed=1
  fi
}
launcher=("$@")
ends 9 240 "signal 9"
ends 15 240 "signal 15"
ends 19 5 "did not come"
exit $failed
