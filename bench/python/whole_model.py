#!/usr/bin/env python3
"""A whole training step of a Hugging Face model: `moeloom train` beside transformers in eager PyTorch.

    bench/python/whole_model.py --make FOLDER --shape bench/model/shapes/granite_3_1_1b_a400m.json
    bench/beside.py --rounds 3 --ours "bench/python/whole_model.py --way ours --folder FOLDER --dtype bf16" \\
        --rival "PYTHON bench/python/whole_model.py --way hf --folder FOLDER --dtype bf16"

Both train the same seeded weights on random tokens, with AdamW and the gradient clipped to 1; ours on --ranks ranks of
one thread, PyTorch in one process of as many threads, which is the faster of its ways on one node. --dtype bf16:
transformers' weights, gradients and moments are bf16, and ours too. --lora R: adapters of attention and experts, by
PEFT there. Prints one JSON line: total_ms, the median step after the first; tokens_per_core, a second; the first loss.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

MOELOOM = os.environ.get("MOELOOM", "build/moeloom")


def make(folder, shape, layers, seed):
    """FOLDER: the shape's config.json, of `layers` layers where that is not 0, and seeded bf16 weights."""
    config = json.loads(pathlib.Path(shape).read_text(encoding="utf-8"))
    config["num_hidden_layers"] = layers or config["num_hidden_layers"]
    with tempfile.TemporaryDirectory() as empty:
        pathlib.Path(empty, "config.json").write_text(json.dumps(config), encoding="utf-8")
        subprocess.run([MOELOOM, "convert", empty, folder, "--export-dtype", "bf16", "--seed", str(seed)], check=True)


def ours(said):
    """Reads the steps from metrics.jsonl and kills the run after the last, which would only write a checkpoint."""
    work = pathlib.Path(tempfile.mkdtemp())
    vocabulary = json.loads(pathlib.Path(said.folder, "config.json").read_text(encoding="utf-8"))["vocab_size"]
    draw = random.Random(1)
    tokens = [draw.randrange(vocabulary) for _ in range(20 * said.sequences * (said.seq_len + 1))]
    (work / "tokens.u32").write_bytes(struct.pack(f"<{len(tokens)}I", *tokens))
    words = ["mpirun", "--allow-run-as-root", "-n", str(said.ranks), MOELOOM, "train", "--model", said.folder,
             "--data", str(work / "tokens.u32"), "--run", str(work / "run"), "--ep", str(said.ranks), "--threads", "1",
             "--seq-len", str(said.seq_len), "--global-batch", str(said.sequences), "--steps", "100000",
             "--save-every", "0", "--eval-every", "0", "--dtype", said.dtype, *said.more]
    if said.lora:
        words += ["--lora", f"r={said.lora},alpha={2 * said.lora},targets=attention,experts"]
    elif said.dtype == "bf16":
        words += ["--masters", "bf16", "--moments", "bf16", "--gradients", "bf16"]
    said_by_it = work / "output"
    with open(said_by_it, "w", encoding="utf-8") as output:
        run = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    metrics = work / "run" / "metrics.jsonl"
    try:
        while run.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") > said.steps):
            time.sleep(0.05)
        if run.poll() is not None:
            sys.exit(said_by_it.read_text(encoding="utf-8"))
        steps = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        shutil.rmtree(work)
    return [1e3 * step["seconds"] for step in steps], steps[0]["loss"]


def adapted(model, rank):
    from peft import LoraConfig, get_peft_model
    return get_peft_model(model, LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]))


def hugging_face(said):
    import torch
    import transformers
    torch.set_num_threads(said.ranks)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        said.folder, dtype=torch.bfloat16 if said.dtype == "bf16" else torch.float32,
        experts_implementation=said.experts)
    model.config.use_cache = False
    if said.lora:
        model = adapted(model, said.lora)
    model.train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    times, first = [], None
    for _ in range(said.steps + 1):
        tokens = torch.randint(model.config.vocab_size, (said.sequences, said.seq_len))
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(1e3 * (time.perf_counter() - begin))
        first = first or loss.item()
    return times, first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", help="write the folder of --shape and end")
    parser.add_argument("--shape", help="a file of bench/model/shapes")
    parser.add_argument("--layers", type=int, default=0, help="of --make; 0: the shape's")
    parser.add_argument("--way", choices=["ours", "hf"])
    parser.add_argument("--folder")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--lora", type=int, default=0, help="the adapters' rank; 0: all weights are trained")
    parser.add_argument("--experts", default="grouped_mm", help="hf: experts_implementation")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="timed, after a first")
    parser.add_argument("more", nargs="*", help="after --: options of moeloom train")
    said = parser.parse_args()
    if said.make:
        make(said.make, said.shape, said.layers, 1)
        return
    times, loss = (ours if said.way == "ours" else hugging_face)(said)
    total = statistics.median(times[1:])
    print(json.dumps({"total_ms": total, "first_loss": loss, "steps_ms": [round(t, 1) for t in times[1:]],
                      "tokens_per_core": 1e3 * said.sequences * said.seq_len / total / said.ranks}))


if __name__ == "__main__":
    main()
