# Faults of the disk, sourced by run.sh: one that is full and one that turns read-only, each a small file system of a
# mount namespace of its own.
# shellcheck shell=bash disable=SC2034,SC2154

own_mounts=$root/tests/support/own_mounts.sh
can_mount() { "$own_mounts" mount -t tmpfs none /mnt 2> /dev/null; }
checkpoints() { find "$1" -maxdepth 1 -name 'checkpoint-*' | sort -V | sed 's|.*/checkpoint-||' | tr '\n' ' '; }

# in_small_disk SIZE SCRIPT: the script beside $run on a file system of SIZE KiB; what is there then is copied to the
# disk. In it `again` starts the run to its end.
in_small_disk() {
  local again
  printf -v again '%q ' "$root/launch/go-on.sh" --pause 0 --restarts 0 "$run" \
    mpirun -n "$ranks" "$MOELOOM_BUILD/moeloom" -- "${options[@]}" "${mesh[@]}"
  mkdir "$run" "$run.copy"
  timeout -k 5 "$patience" "$own_mounts" bash -c "
    mount -t tmpfs -o size=$1k none '$run'
    again() { $again; }
    $2
    cp -r '$run/.' '$run.copy'" >> "$log" 2>&1
  rmdir "$run" && mv "$run.copy" "$run"
}

# So small that the first, second or third checkpoint is the last one that fits. Then there is room.
fault_full_disk() {
  can_mount || { skip_fault "no mount namespaces here"; return; }
  local fit=$((1 + RANDOM % 3)) of_one from
  of_one=$(du -s --apparent-size "$undisturbed/checkpoint-3" | cut -f1)
  said="full-disk after checkpoint-$((3 * fit))"
  from=$(now)
  in_small_disk $((of_one * fit + of_one / 2 + 100)) "
    again; echo \"first code=\$?\"
    echo \"there: \$(ls -d '$run'/checkpoint-* | sed 's|.*/checkpoint-||' | sort -n | tr '\\n' ' ')\"
    mount -o remount,size=100m '$run'
    again; echo \"second code=\$?\""
  seconds=$((($(now) - from) / 1000000000)) code=$(sed -n 's/^second code=//p' "$log")
  check named "the refused save is not said" in_log 'save=failed step=.*No space left on device" last=checkpoint-'
  check finished "exit code of the full disk is not 74" in_log '^first code=74$'
  expect_whole_run
}

# A rank stops at a drawn place, the disk turns read-only, and the rank goes on.
fault_read_only() {
  can_mount || { skip_fault "no mount namespaces here"; return; }
  draw_place
  step=$((4 + RANDOM % 5))
  draw where "${phases[@]}"
  said="read-only at $step:$where"
  local from
  from=$(now)
  in_small_disk 20000 "
    MOELOOM_FAULT=stop:$rank:$step:$where again --stall-timeout 0 & job=\$!
    until [[ -s '$run/faults.log' ]]; do sleep 0.05; kill -0 \$job 2> /dev/null || break; done
    mkdir '$run.ro'; mount --bind '$run' '$run.ro'; mount -o remount,ro,bind '$run.ro'; mount --bind '$run.ro' '$run'
    sleep 0.3
    for each in \$(pgrep -f '^$MOELOOM_BUILD/moeloom train .*$run'); do kill -CONT \$each; done
    wait \$job; echo \"first code=\$?\"
    umount '$run'; umount '$run.ro'; rmdir '$run.ro'
    again; echo \"second code=\$?\""
  seconds=$((($(now) - from) / 1000000000)) code=$(sed -n 's/^second code=//p' "$log")
  check named "the refused save is not said" in_log 'save=failed step=.*Read-only file system" last='
  check finished "exit code of the read-only disk is not 74" in_log '^first code=74$'
  expect_whole_run
}
