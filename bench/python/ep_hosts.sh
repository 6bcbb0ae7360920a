#!/usr/bin/env bash
# A mixture-of-experts layer from Python on hosts that a shaped link joins, in turns with eager PyTorch over gloo.
#
#   bench/python/ep_hosts.sh TORCH_EP_MOE.py [ROUNDS [RATE [what ep_layer.py and the rival take, as --tokens 1024]]]
#
# One rank of one thread a host, two hosts. The rival is a program with run(rank, arguments, port, queue) of one rank, as
# torch_ep_moe.py has it; it is started on each host, and told where the other is. PYTHON has torch. MOELOOM_BUILD is the
# build to measure; root, because it makes the hosts.
set -euo pipefail
rival=$(realpath "$1")
rounds=${2:-5}
rate=${3:-1gbit}
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../../tests/cluster/hosts.sh"
python=${PYTHON:-/usr/bin/python3}
arguments=("${@:4}")
[[ ${#arguments[@]} -gt 0 ]] || arguments=(--tokens 1024 --steps 5)

make_hosts 2
shape_links "$rate"
export MOELOOM_HOSTS=2 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0
export MOELOOM_LIBRARY=$MOELOOM_BUILD/libmoeloom_c.so.1 PYTHONPATH=$root/src/python
export OMPI_MCA_mpi_yield_when_idle=0 # a processor for each
cat > "$scratch/rival.py" << 'PROGRAM'
"""One rank of the rival: its own run(), with the meeting place on the first host. RIVAL RANK, then --name value."""
import importlib.util, json, queue, sys
from types import SimpleNamespace
import torch.distributed as dist

spec = importlib.util.spec_from_file_location("rival", sys.argv[1])
rival = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rival)
begin, answers = dist.init_process_group, queue.SimpleQueue()
dist.init_process_group = lambda backend, rank, world_size: begin(
    backend, init_method="tcp://10.77.0.1:29571", rank=rank, world_size=world_size)
shape = dict(ranks=2, tokens=1024, hidden=1024, inter=768, experts=32, top_k=4, warmup=3, steps=10)
shape.update({name[2:].replace("-", "_"): int(value) for name, value in zip(sys.argv[3::2], sys.argv[4::2])})
rank = int(sys.argv[2])
rival.run(rank, SimpleNamespace(**shape, dtype="fp32", pin=False), 29571, answers)
if rank == 0:
    print(json.dumps(answers.get()))
PROGRAM

ours() {
  on 0 timeout -k 5 300 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile 1)" -n 2 "$python" \
    "$root/bench/python/ep_layer.py" "${arguments[@]}"
}
theirs() {
  on 1 timeout -k 5 300 "$python" "$scratch/rival.py" "$rival" 1 "${arguments[@]}" &
  on 0 timeout -k 5 300 "$python" "$scratch/rival.py" "$rival" 0 "${arguments[@]}"
  wait
}
milliseconds() { sed -n 's/.*"total_ms": \([0-9.]*\).*/\1/p'; }

echo "2 hosts, $rate each way, a rank of one thread each: ${arguments[*]}"
for ((round = 1; round <= rounds; ++round)); do
  mine=$(ours | milliseconds) && other=$(theirs | milliseconds)
  echo "round $round: ours $mine ms, torch over gloo $other ms, $(awk "BEGIN {printf \"%.2f\", $other / $mine}") times"
done | tee "$scratch/rounds"
awk '{print $(NF - 1)}' "$scratch/rounds" | sort -n | awk '{r[NR] = $1} END {print "median " r[int((NR + 1) / 2)]}'
