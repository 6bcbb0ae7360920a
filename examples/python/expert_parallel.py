"""Trains a mixture of experts of transformers whose experts the ranks share, each with sequences of its own.

mpirun -n 2 python3 examples/python/expert_parallel.py [FOLDER]
"""
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import moeloom
import moeloom.torch as mt

mesh = moeloom.mesh(ep=moeloom.mesh().size)
torch.manual_seed(0)  # the same model on every rank
small = dict(vocab_size=256, hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=8, num_experts_per_tok=2)
model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_moe", **small)).float().train()
mt.apply_default_kernels(model, mesh=mesh)  # this rank keeps its share of the experts
if mesh.rank == 0:
    print(*mt.reports(model), sep="\n")
optimizer = mt.AdamW(model.parameters(), lr=3e-3)
batches = [(torch.arange(32) * 7 + torch.randint(0, 9, (4, 1))) % 251 for _ in range(20 * mesh.size)]
for step, ids in enumerate(mt.shard_batches(batches, mesh)):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    norm = mt.finish_gradients(model, mesh, max_norm=1.0)
    optimizer.step(), optimizer.zero_grad()
    if mesh.rank == 0:
        print(f"step={step} loss={loss.item():.3f} norm={norm:.3f}", flush=True)
if sys.argv[1:]:
    mt.save_pretrained(model, sys.argv[1], mesh)  # the whole model, each rank its part
