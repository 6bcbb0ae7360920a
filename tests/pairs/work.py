"""What the runs of the table are made of, and what they leave."""
import json
import re
import struct

SHAPE = ("--layers 2 --hidden 32 --inter 16 --dense-inter 48 --experts 8 --top-k 2 --heads 2 --kv-heads 1 "
         "--head-dim 16 --vocab 257").split()
SHAPE_OF_RUNS = ("--seq-len 32 --global-batch 16 --schedule-steps 4 --warmup 1 --lr 0.01 --seed 3 --eval-every 0 "
                 "--sample-chars 0 --eval-sequences 4").split()
TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<|end|>{% endfor %}"
CORRECTED = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 32, "intermediate_size": 48,
    "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 0, "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "vocab_size": 257, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": False,
}


def write_tokenizer(folder):
    """Bytes, a mark for an end, and a chat template."""
    folder.mkdir()
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    end = {"id": 256, "content": "<|end|>", "special": True, "normalized": False, "single_word": False, "lstrip": False,
           "rstrip": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))


def prepare(folder, start):
    """Texts, token ids, conversations, two models and a recorded routing. start(ranks, words) trains."""
    text = "".join(f"In the beginning was line {i * i % 977}, and it was good.\n" for i in range(400))
    (folder / "text.txt").write_text(text)
    (folder / "words.u16").write_bytes(struct.pack("<6000H", *(i * i % 251 for i in range(6000))))
    with open(folder / "talks.jsonl", "w") as talks:
        for i in range(120):
            turns = [{"role": "user", "content": f"So {i}?"}, {"role": "assistant", "content": f"No, {i * i % 97}."}]
            talks.write(json.dumps({"messages": turns * (1 + i % 2)}) + "\n")
    write_tokenizer(folder / "tokenizer")
    (folder / "disk").mkdir()
    bf16 = ["--export-dtype", "bf16"]  # which --offload needs
    words = ["--tokenizer", str(folder / "tokenizer"), "--data", str(folder / "text.txt")]
    shape = folder / "shape"
    shape.mkdir()
    (shape / "config.json").write_text(json.dumps(CORRECTED))
    start(1, [*SHAPE, *SHAPE_OF_RUNS, "--steps", "2", *words, "--run", str(folder / "first"),
              "--export", str(folder / "whole"), *bf16, "--record-routing", str(folder / "recorded")])
    start(1, ["--model", str(shape), *SHAPE_OF_RUNS, "--steps", "1", *words, "--run", str(folder / "second"),
              "--export", str(folder / "corrected"), *bf16])


def tensors_of(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        data = file.read()
    return {name: (entry["dtype"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def bits_of(run):
    """By name: each step's loss and gradient norm, and what the last checkpoint holds of weights and moments."""
    bits = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        step = json.loads(line)
        for key in ("loss", "grad_norm"):
            bits[f"{key} of step {step['step']}"] = step[key]
    for path in sorted((run / "checkpoint-2").rglob("*.safetensors")):
        kind = re.sub(r"-\d+-of-\d+", "", path.stem)  # a shard
        bits.update({f"{kind}: {name}": tensor for name, tensor in tensors_of(path).items()})
    kinds = {name.split(":")[0] for name in bits if ":" in name}
    assert len(bits) > 4 and len(kinds) > 1, f"only {sorted(bits)[:5]}, of {kinds}"
    return bits


def differences(one, other):
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
