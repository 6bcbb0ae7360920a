#!/usr/bin/env python3
"""Trains a small mixture of experts of transformers with our kernels under it: patch_and_train.py [FOLDER]"""
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import moeloom.torch as mt

small = dict(vocab_size=256, hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=8, num_experts_per_tok=2)
model = (AutoModelForCausalLM.from_pretrained(sys.argv[1]) if sys.argv[1:] else
         AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_moe", **small))).float().train()
print(*mt.reports(mt.apply_default_kernels(model)), sep="\n")
optimizer = mt.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    ids = (torch.arange(32) * 7 + torch.randint(0, 9, (4, 1))) % 251
    (loss := model(input_ids=ids, labels=ids).loss).backward()
    optimizer.step(), optimizer.zero_grad()
    print(f"step={step} loss={loss.item():.3f}")
