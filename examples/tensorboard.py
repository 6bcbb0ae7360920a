"""python3 tensorboard.py RUN [LOGDIR]: metrics.jsonl of a run for TensorBoard (needs torch and tensorboard)."""
import json
import sys

from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter(sys.argv[2] if len(sys.argv) > 2 else sys.argv[1])
for line in open(sys.argv[1] + "/metrics.jsonl"):
    metrics = json.loads(line)
    for name, value in metrics.items():
        if isinstance(value, (int, float)) and name != "step":  # null is not finite; lists are layers
            writer.add_scalar(name, value, metrics["step"])
writer.close()
