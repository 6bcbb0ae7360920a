#!/usr/bin/env python3
"""What share of a step is the data? Of a run on conversations, from its metrics.jsonl.

  data_share.py make CHATS N      writes N short conversations, the same each time
  data_share.py RUN               the data phase over the step's time: mean, and the worst step; with --epoch-steps X
                                  (steps of an epoch) also the steps in which an epoch begins
"""
import argparse
import json
import pathlib
import random


def make(path, count):
    draw = random.Random(5)
    names = "Ruth Boaz Naomi David Saul Samuel Moses Aaron Miriam Joshua".split()
    places = "Bethlehem Moab Hebron Shiloh Gilgal Bethel Jericho".split()
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            answer = " and ".join(draw.choice(places) for _ in range(draw.randint(1, 2)))
            messages = [{"role": "user", "content": f"{draw.choice(names)}?"},
                        {"role": "assistant", "content": f"{answer}."}]
            file.write(json.dumps({"messages": messages}) + "\n")


def show(run, epoch_steps):
    lines = (pathlib.Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    data = [step["phases"]["data"] for step in steps]
    seconds = [step["seconds"] for step in steps]
    shares = [d / s for d, s in zip(data, seconds)]
    worst = max(range(len(shares)), key=shares.__getitem__)
    print(f"steps {len(steps)}  step {1e3 * sum(seconds) / len(seconds):.1f} ms  "
          f"data {1e3 * sum(data) / len(data):.3f} ms  share {100 * sum(data) / sum(seconds):.3f} %  "
          f"worst step {100 * shares[worst]:.3f} % ({1e3 * data[worst]:.3f} ms, step {steps[worst]['step']})")
    if epoch_steps:
        begins = [int(e * epoch_steps) for e in range(1, int(len(steps) / epoch_steps) + 1)]
        text = ", ".join(f"step {b}: {1e3 * data[b]:.3f} ms {100 * shares[b]:.3f} %" for b in begins if b < len(data))
        print(f"steps in which an epoch begins: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what")
    parser.add_argument("path", nargs="?")
    parser.add_argument("count", nargs="?", type=int, default=20000)
    parser.add_argument("--epoch-steps", type=float, default=0)
    said = parser.parse_args()
    if said.what == "make":
        make(said.path, said.count)
    else:
        show(said.what, said.epoch_steps)


if __name__ == "__main__":
    main()
