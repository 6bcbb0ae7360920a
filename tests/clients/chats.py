"""A byte-level tokenizer of our own, and conversations, for the tests of templates and data."""

import json

import tokenizers
import transformers

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
          "{% generation %}{{ m.content + '<|im_end|>\\n' }}{% endgeneration %}{% else %}"
          "{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a place.",
    "parameters": {"type": "object", "required": ["place"],
                   "properties": {"place": {"type": "string", "description": "a town"},
                                  "days": {"type": "integer", "enum": [1, 7]}}}}}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"place": "Ulm", "days": 1}}}


def say(*turns):
    return [dict(role=role, content=content) for role, content in turns]


# name: a row of a data set, as HF's and our readers take it.
CHATS = {
    "one-turn": dict(messages=say(("user", "Who?"), ("assistant", "Ruth."))),
    "system": dict(messages=say(("system", "Be brief."), ("user", "Who?"), ("assistant", "Ruth."))),
    "turns": dict(messages=say(("user", "a"), ("assistant", "b"), ("user", "c\n\nd"), ("assistant", " e "),
                               ("user", "f"), ("assistant", "g\n"))),
    "unicode": dict(messages=say(("user", "naïve 東京 🙂 <b>&amp;</b>"), ("assistant", "{\"k\": 'v'} \\n"))),
    "thinking": dict(messages=say(("user", "2+2"), ("assistant", "<think>\nfour\n</think>\n\n4"))),
    "tools": dict(messages=say(("user", "Rain?"), ("assistant", "No.")), tools=[WEATHER]),
    "call": dict(messages=[*say(("user", "Rain in Ulm?")), dict(role="assistant", content="", tool_calls=[CALL]),
                           dict(role="tool", name="weather", content="dry"), *say(("assistant", "No rain."))],
                 tools=[WEATHER]),
    "kwargs": dict(messages=say(("user", "2+2"), ("assistant", "4")),
                   chat_template_kwargs=dict(enable_thinking=False, thinking=True, reasoning_effort="low")),
}


def make_tokenizer(folder, template=CHATML):
    """tokenizer.json and tokenizer_config.json of 256 bytes and a few special tokens; the template beside them."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(SPECIALS)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|endoftext|>", eos_token="<|im_end|>", pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def make_folder(folder, template=CHATML):
    """A folder that `inspect --data` takes for a model, without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(folder, template)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=8192, tie_word_embeddings=True,
        architectures=["LlamaForCausalLM"], bos_token_id=None, eos_token_id=len(tokenizer) - 1, pad_token_id=None)
    config.save_pretrained(folder)
    return tokenizer


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def rendered(tokenizer, row, **options):
    """HF's text of a row's conversation."""
    return tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), tokenize=False,
                                         **row.get("chat_template_kwargs", {}), **options)


def marked(tokenizer, row):
    """HF's text with « and » around what its assistant mask has; of a template with generation marks."""
    out = tokenizer.apply_chat_template(
        row["messages"], tools=row.get("tools"), tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
        **row.get("chat_template_kwargs", {}))
    text, inside = b"", False
    letters = {letter: byte for byte, letter in tokenizers_alphabet().items()}
    for i, learned in zip(out["input_ids"], out["assistant_masks"]):
        if bool(learned) != inside:
            text += ("«" if learned else "»").encode()
            inside = bool(learned)
        token = tokenizer.convert_ids_to_tokens(i)
        text += bytes([letters[token]]) if token in letters else token.encode()
    return (text + ("»".encode() if inside else b"")).decode()


def tokenizers_alphabet():
    """{byte: the letter that stands for it in a byte-level vocabulary}"""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}
