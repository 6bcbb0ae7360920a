#!/usr/bin/env bash
# What a container may lack is known at the start, and said: processors by a quota, room in /dev/shm, process_vm_readv.
# Each by what makes a container: a control group, a small tmpfs, a filter of system calls. Skipped, each, where the
# machine does not allow it; 77 where none is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [[ $(id -u) == 0 && -z ${MOELOOM_TEST_ROOT:-} ]] && ! unshare --mount true 2> /dev/null; then
  export MOELOOM_TEST_ROOT=mounted
  exec "$here/../support/mounted_root.sh" bash "$(realpath "$0")" "$@"
fi
root=$(cd "$here/../.." && pwd)
# shellcheck source=launch/env.sh
. "$root/launch/env.sh"
program=${MOELOOM_BUILD:-$root/build}/moeloom
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeloom-container-XXXXXX")
group=
trap 'rm -rf "$scratch"; [[ -z $group ]] || rmdir "$group"' EXIT
export MOELOOM_GMM_PATCH=force
export XDG_CACHE_HOME=$scratch/cache
seq 1 4000 | sed 's/.*/And the weaver drew thread & through the loom./' > "$scratch/corpus.txt"
train=("$program" train --layers 2 --hidden 32 --inter 32 --heads 2 --kv-heads 1 --head-dim 16 --experts 8 --top-k 2
  --seq-len 32 --global-batch 16 --eval-every 0 --eval-sequences 16 --sample-chars 0 --data "$scratch/corpus.txt"
  --steps 3 --overwrite)

fail() {
  echo "failed: $*" >&2
  exit 1
}
tried=0 # of 3 parts
skip_part() { echo "skipped: $*"; }
# said WORDS: in the log of the last run.
said() { grep -qF -e "$1" "$scratch/log" || fail "no word of \"$1\": $(cat "$scratch/log")"; }
losses() { sed -n 's/^{"step":[0-9]*,"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
# same_losses RUN: a line a step, and those of a run without anything missing.
same_losses() {
  [[ $(losses "$1" | wc -l) == 3 ]] || fail "3 steps have 3 losses, $1: $(cat "$scratch/log")"
  diff <(losses "$scratch/plain") <(losses "$1") || fail "other losses: $1"
}

OMP_NUM_THREADS=1 timeout 300 mpirun -n 4 "${train[@]}" --ep 4 --run "$scratch/plain" > "$scratch/log" 2>&1 ||
  fail "as it is: $(cat "$scratch/log")"
same_losses "$scratch/plain"

# quota GROUP: that of one processor.
quota_v1() { echo 20000 > "$1/cpu.cfs_period_us" && echo 20000 > "$1/cpu.cfs_quota_us"; }
quota_v2() { echo "20000 20000" > "$1/cpu.max"; }
for way in v1:/sys/fs/cgroup/cpu v2:/sys/fs/cgroup; do
  [[ -z $group ]] && mkdir "${way#*:}/moeloom-$$" 2> /dev/null || continue
  group=${way#*:}/moeloom-$$
  "quota_${way%%:*}" "$group" 2> /dev/null || { rmdir "$group"; group=; }
done
processors=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
# in_group COMMAND...
in_group() {
  # shellcheck disable=SC2016  # the inner shell's
  timeout 300 bash -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$@" > "$scratch/log" 2>&1 ||
    fail "in a group: $(cat "$scratch/log")"
}
if [[ -z $group ]]; then
  skip_part "no control groups of cpu here"
elif [[ $processors == 1 ]]; then
  skip_part "a quota of one processor takes nothing from one"
else
  ((++tried))
  in_group env -u OMP_NUM_THREADS mpirun -n 1 "${train[@]}" --run "$scratch/quota"
  said '1 thread(s) a rank'
  said "a control group allows 1 of $processors processors; threads follow it"
  in_group env OMP_NUM_THREADS=2 mpirun -n 1 "${train[@]}" --run "$scratch/quota"
  said "a control group allows 1 of $processors processors; 1 rank(s) run 2 threads"
  echo "a quota: threads follow it, and more of them are said"
fi

export OMP_NUM_THREADS=1
# with_shm SIZE COMMAND...
with_shm() {
  # shellcheck disable=SC2016  # the inner shell's
  unshare --mount bash -c 'mount -t tmpfs -o "size=$0" none /dev/shm && exec timeout 300 "$@"' "$@" > "$scratch/log" 2>&1
}
# MiB of the file by which an Open MPI's rank talks to others on its host.
version=$(mpirun --version)
segment=16
[[ $version != *"(Open MPI) 4."* ]] || segment=4
too_small=$((segment - segment * 3 / 8)) # on Open MPI 5 more than 4's
small=$((3 * segment + 3))
if [[ $version != *"(Open MPI)"* ]] || ! with_shm "${too_small}m" true; then
  skip_part "no mounts here, or no Open MPI"
else
  ((++tried))
  ! with_shm "${too_small}m" mpirun -n 4 "${train[@]}" --ep 4 --run "$scratch/shm" ||
    fail "4 ranks in $too_small MiB of /dev/shm"
  said "/dev/shm has $too_small MiB free of $too_small MiB, a rank needs $segment MiB of it"
  with_shm "${small}m" mpirun -n 4 "${train[@]}" --ep 4 --run "$scratch/shm" ||
    fail "$small MiB of /dev/shm: $(cat "$scratch/log")"
  said "/dev/shm holds $small MiB, 4 ranks may use $((4 * segment)) MiB of it"
  same_losses "$scratch/shm"
  echo "a small /dev/shm: refused, or said"
fi

if ! python3 "$here/refuse_copies.py" true 2> "$scratch/log"; then
  skip_part "no filter of system calls here: $(tail -n 1 "$scratch/log")"
else
  ((++tried))
  # As a user has it: under sanitizers Open MPI is told to copy through shared memory.
  env -u OMPI_MCA_btl_vader_single_copy_mechanism -u OMPI_MCA_smsc timeout 300 \
    python3 "$here/refuse_copies.py" mpirun -n 4 "${train[@]}" --ep 4 --dispatcher alltoall \
    --run "$scratch/refused" > "$scratch/log" 2>&1 || fail "without process_vm_readv: $(cat "$scratch/log")"
  said 'refuses process_vm_readv'
  ! grep -F 'Read -1, expected' "$scratch/log" || fail "Open MPI tried it all the same"
  same_losses "$scratch/refused"
  echo "process_vm_readv refused: said, and gone without"
fi
echo "tried $tried of 3 parts"
[[ $tried != 0 ]] || exit 77
