#!/usr/bin/env bash
# launch/slurm.sbatch under a Slurm of three hosts: a signal stops the job with a checkpoint, the job puts itself into the
# queue again, and its next start goes on with the losses of a run that was not stopped.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

for program in munged slurmctld slurmd srun sbatch; do
  command -v "$program" > /dev/null || skip "$program is not installed (apt-get install slurmctld slurmd slurm-client)"
done

run=$scratch/run

# write_configuration HOST: a folder of its own, because the PMIx of two hosts would share files in one.
write_configuration() {
  mkdir -p "$scratch/h$1/pmix" "$scratch/h$1/spool"
  echo "PMIxCliTmpDirBase=$scratch/h$1/pmix" > "$scratch/h$1/mpi.conf"
  cat > "$scratch/h$1/slurm.conf" << END
ClusterName=moeloom
SlurmctldHost=h0(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$scratch/munge/socket,cred_expire=5
StateSaveLocation=$scratch/state
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd-%n.pid
SlurmdSpoolDir=$scratch/%n/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=h[0-2] NodeAddr=10.77.0.[1-3] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
END
}

start_slurm() {
  mkdir -m 700 "$scratch/munge" "$scratch/state"
  head -c 1024 /dev/urandom > "$scratch/munge/key"
  chmod 600 "$scratch/munge/key"
  chmod 755 "$scratch" "$scratch/munge"
  on 0 munged --foreground --force --key-file "$scratch/munge/key" --socket "$scratch/munge/socket" \
    --pid-file "$scratch/munge/pid" --seed-file "$scratch/munge/seed" > "$scratch/slurm-munged.log" 2>&1 &
  local host
  for ((host = 0; host < number_of_hosts; ++host)); do write_configuration "$host"; done
  on 0 slurmctld -D -f "$scratch/h0/slurm.conf" > "$scratch/slurmctld.log" 2>&1 &
  for ((host = 0; host < number_of_hosts; ++host)); do
    on "$host" slurmd -D -N "h$host" -f "$scratch/h$host/slurm.conf" > "$scratch/slurmd-$host.log" 2>&1 &
  done
  export SLURM_CONF=$scratch/h0/slurm.conf
  soon all_idle || skip "Slurm's hosts do not come up here: $(tail -n 5 "$scratch"/slurm*.log)"
}

slurm() { on 0 "$@"; }
all_idle() { [[ $(slurm sinfo -h -o '%T %D' 2> /dev/null) == "idle $number_of_hosts" ]]; }
job_is() { [[ $(slurm scontrol show job "$job") == *"$1"* ]]; }
steps_of() { losses "$1" 2> /dev/null | wc -l; }
has_begun() { [[ $(steps_of "$run") -ge 3 ]]; }
says() { grep -q "$1" "$scratch/job.log"; }
expect() { soon "$@" || fail "it does not come true: $*: $(cat "$scratch/job.log" "$scratch"/slurm*.log)"; }

make_hosts 3
start_slurm
cd "$root"
job=$(slurm sbatch --parsable -N 3 --ntasks-per-node 2 --output "$scratch/job.log" launch/slurm.sbatch "$run" \
  "${small_run[@]}" --global-batch 12 --ep 2 --steps 1000000 --schedule-steps 1000 --save-every 0)
expect has_begun
slurm scancel --signal=USR1 "$job"
expect says "^requeue: $run/checkpoint-"
steps=$(steps_of "$run")
[[ -d $run/checkpoint-$steps ]] || fail "no checkpoint of step $steps: $(ls "$run")"
sed -i "s/^steps = .*/steps = $((steps + 3))/" "$run/train.conf"
expect job_is JobState=COMPLETED
job_is Restarts=1 || fail "the job was not started again by Slurm: $(slurm scontrol show job "$job")"
says "resumed=$run/checkpoint-$steps step=$steps" || fail "it did not go on: $(cat "$scratch/job.log")"
says 'on 3 node(s)' || fail "the ranks are not on three hosts: $(cat "$scratch/job.log")"

"$root/launch/with-env.sh" mpirun -n 6 "$MOELOOM_BUILD/moeloom" train "${small_run[@]}" --global-batch 12 --ep 2 \
  --steps $((steps + 3)) --schedule-steps 1000 --run "$scratch/whole" > "$scratch/log" 2>&1 ||
  fail "the whole run: $(cat "$scratch/log")"
diff <(losses "$scratch/whole") <(losses "$run") || fail "the run that was stopped took another course"
grep -E 'mesh=|stopped=|requeue:|resumed=|val_loss=' "$scratch/job.log"
