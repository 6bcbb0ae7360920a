# Damaged files, sourced by run.sh: a flipped bit, an end that is cut off, or a file that is gone, in a checkpoint and
# in a model folder of Hugging Face's layout.
# shellcheck shell=bash disable=SC2034,SC2154

draw_number() { # below BOUND, into $number
  number=$(((RANDOM * 32768 * 32768 + RANDOM * 32768 + RANDOM) % $1))
}
# damage_file_of FOLDER FILES...: one of them, into $damaged and $how.
damage_file_of() {
  local folder=$1 bytes old
  shift
  draw damaged "$@"
  bytes=$(stat -c %s "$folder/$damaged")
  draw how flip flip flip cut gone
  case $how in
    flip)
      draw_number $((8 * bytes))
      how="bit $number of $damaged flipped"
      old=$(dd if="$folder/$damaged" bs=1 skip=$((number / 8)) count=1 status=none | od -An -tu1)
      printf '%b' "\\x$(printf '%02x' $((old ^ (1 << number % 8))))" |
        dd of="$folder/$damaged" bs=1 seek=$((number / 8)) conv=notrunc status=none
      ;;
    cut)
      draw_number "$bytes"
      how="$damaged cut to $number bytes"
      truncate -s "$number" "$folder/$damaged"
      ;;
    gone)
      how="$damaged gone"
      rm "$folder/$damaged"
      ;;
  esac
}

# The newest one of three is named, with the file, and the one before it is gone on from.
fault_checkpoint() {
  cp -r "$undisturbed" "$run"
  rm -rf "$run/checkpoint-$steps" "$run/report.html"
  # shellcheck disable=SC2046  # names without spaces
  damage_file_of "$run/checkpoint-9" $(ls "$run/checkpoint-9")
  said="checkpoint: $how"
  launch
  check named "$damaged of checkpoint-9 is not named" \
    in_log "checkpoint-9.*(${damaged//./\\.}|has lost its|has no)"
  check named "it did not go on from checkpoint-6" in_log 'resumed=.*/checkpoint-6'
  expect_whole_run
}

# With a manifest every damage is refused, with a line that names the file. Without one it may train, because a weight
# of another value is a weight; what cannot be read is refused, with a line that names the file or its folder.
fault_model() {
  local model=$run.model listed from
  cp -r "$undisturbed.model" "$model"
  draw listed true false
  $listed || rm "$model/manifest.json"
  # shellcheck disable=SC2046  # names without spaces
  damage_file_of "$model" $(ls "$model")
  said="model, manifest $listed: $how"
  from=$(now)
  code=0
  timeout -k 5 "$patience" mpirun -n "$ranks" "$MOELOOM_BUILD/moeloom" train --model "$model" --run "$run" --ep "$ep" --steps 2 \
    --seq-len 32 --global-batch 12 --eval-sequences 12 --sample-chars 0 --progress off \
    --data "$work/text" >> "$log" 2>&1 || code=$?
  seconds=$((($(now) - from) / 1000000000))
  # A bad request, or damaged data, of launch/README.md's table.
  check finished "exit code $code" in_words "$code" 0 1 65
  if $listed && [[ $how != "manifest.json gone" ]]; then
    check named "not refused with $damaged in a line" \
      in_log "\\[error\\].*$(basename "$model").*${damaged//./\\.}"
  elif [[ $code != 0 ]]; then
    check named "no line names $damaged or its folder" \
      in_log "\\[error\\].*($(basename "$model")|is not finite)"
  fi
  left_behind=
  check clean "left behind" nothing_left
}
