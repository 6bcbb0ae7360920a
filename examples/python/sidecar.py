"""Trains a small model in processes of its own, as in a notebook. python3 examples/python/sidecar.py TEXT"""

import sys

import moeloom

run = moeloom.train(None, sys.argv[1], ranks=2, ep=2, layers=2, hidden=64, inter=64, seq_len=64, steps=60)
for step in run:  # Ctrl-C: it stops with a checkpoint, and train(None, None, resume=run.folder) goes on
    if "loss" in step and step["step"] % 20 == 0:
        print(step["step"], round(step["loss"], 3), f"{step['tokens_per_s']:.0f} tokens/s")
print(moeloom.generate(run.folder, "The ", tokens=20, temperature=0))
print("checkpoint:", run.checkpoint())  # run.to_transformers() opens it
