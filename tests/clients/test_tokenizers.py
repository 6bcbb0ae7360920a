"""The ids of a line and the text of ids are those of AutoTokenizer, whatever tokenizer_config.json switches."""

import json
import shutil

import program
import pytest
import transformers

NAMES = ("deepseek-v3", "olmo2-dolma2", "phi-2", "phi-3-mini", "qwen2.5", "qwen3", "t5-small", "tiny-bytelevel-o200k",
         "tiny-bytelevel-qwen2", "tiny-spm-llama2", "tiny-unigram")
SWITCHED = ("tiny-bytelevel-qwen2", "tiny-spm-llama2", "tiny-unigram", "tiny-bytelevel-o200k")
# What folders of the Hub say in tokenizer_config.json.
SWITCHES = {
    "bos": dict(add_bos_token=True),
    "no-bos": dict(add_bos_token=False),
    "eos": dict(add_eos_token=True),
    "both": dict(add_bos_token=True, add_eos_token=True),
    "prefix-space": dict(add_prefix_space=True),
    "no-prefix-space": dict(add_prefix_space=False),
    "legacy-off": dict(legacy=False),
    "split-special": dict(split_special_tokens=True),
    "clean-up": dict(clean_up_tokenization_spaces=True),
    "class-fast": dict(tokenizer_class="PreTrainedTokenizerFast"),
    "class-llama": dict(tokenizer_class="LlamaTokenizer"),
    "class-gpt2": dict(tokenizer_class="GPT2Tokenizer"),
    "class-qwen2": dict(tokenizer_class="Qwen2Tokenizer"),
    "lower-case": dict(do_lower_case=True),
    "sides": dict(padding_side="left", truncation_side="left", model_max_length=8),
    "additional": dict(additional_special_tokens=["<|new|>", "<|im_end|>"]),
    "bos-object": dict(bos_token={"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": False,
                                  "rstrip": False, "single_word": False}),
    "added-decoder": dict(added_tokens_decoder={"5000": dict(content="<|late|>", lstrip=False, normalized=False,
                                                             rstrip=False, single_word=False, special=True)}),
}
LINES = ["In the beginning", " two  spaces and\ttab ", "Hello, it's 12345 o'clock!", "naïve café — 東京 🙂", "", "x",
         "<s>a</s> <|im_start|>user<|im_end|> <|new|><|late|>", "def f(x): return x**2 # ok", "ALL Caps Don't . ,"]


def lines_of(folder):
    """Lines of the reference cases, short ones of every group."""
    found, groups = [], {}
    for line in (folder / "cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        text = case["text"]
        # As the program reads lines: others than \n are part of the text, but a \r before it is not.
        if len(text) < 300 and "\n" not in text and "\r" not in text and "\0" not in text:
            groups[case["group"]] = groups.get(case["group"], 0) + 1
            if groups[case["group"]] <= 3:
                found.append(text)
    return LINES + found


def check_ids(folder, lines):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for special in (False, True):
        wanted = [tokenizer.encode(line, add_special_tokens=special) for line in lines]
        got = program.token_ids(folder, lines, *(("--special", "true") if special else ()))
        different = [(line, g, w) for line, g, w in zip(lines, got, wanted) if g != w]
        assert len(got) == len(lines) and not different, \
            f"special {special}: {len(different)} of {len(lines)} differ, (line, ours, wanted): {different[:3]}"
    return tokenizer, wanted


@pytest.mark.parametrize("name", NAMES)
def test_ids(texts, name):
    folder = texts / "tokenizers" / name
    check_ids(folder, lines_of(folder))


@pytest.mark.parametrize("name", NAMES)
def test_text_of_ids(texts, name):
    folder = texts / "tokenizers" / name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [row for row in (tokenizer.encode(line, add_special_tokens=False) for line in LINES) if row]
    wanted = [tokenizer.decode(row, skip_special_tokens=False, clean_up_tokenization_spaces=False) for row in rows]
    assert program.decoded(folder, rows) == wanted


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("name", SWITCHED)
def test_switch(texts, tmp_path, name, switch):
    source = texts / "tokenizers" / name
    shutil.copy(source / "tokenizer.json", tmp_path)
    config = json.loads((source / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **SWITCHES[switch]}))
    check_ids(tmp_path, LINES)


@pytest.mark.parametrize("name", SWITCHED)
def test_saved_again_by_transformers(texts, tmp_path, name):
    transformers.AutoTokenizer.from_pretrained(texts / "tokenizers" / name).save_pretrained(tmp_path)
    check_ids(tmp_path, LINES)
