"""A conversation is the text that apply_chat_template gives, and learned are the spans that its marks give."""

import json

import chats
import program
import pytest

NAMES = ("deepseek-v3-training", "deepseek-v3.1", "gemma-3", "glm-4.5", "gpt-oss", "granite-3.3", "kimi-k2", "lfm2",
         "llama-3.1", "minimax-m2", "mistral-nemo", "olmo2-tulu", "phi-3.5", "qwen2.5", "qwen3", "qwen3-training",
         "smollm3")
MARKED = ("deepseek-v3-training", "qwen3-training", "smollm3")


@pytest.fixture(scope="module")
def folder(texts, tmp_path_factory):
    """folder(name of a template) -> (folder, tokenizer)"""
    made = {}

    def folder_and_tokenizer(name):
        if name not in made:
            path = tmp_path_factory.mktemp(name)
            source = texts / "templates" / name
            # Bytes as they are: a template may have \r\n.
            template = ((source / "template.jinja").read_bytes().decode() if (source / "template.jinja").exists() else
                        json.loads((source / "tokenizer_config.json").read_text())["chat_template"])
            made[name] = path, chats.make_folder(path, template)
        return made[name]

    return folder_and_tokenizer


def ours(folder, tmp_path, row, *options):
    data = chats.write_jsonl(tmp_path / "chats.jsonl", [row])
    try:
        found, unusable = program.examples(folder, data, *options)
    except program.Refused as error:
        return None, str(error)
    return found.get(1), unusable.get(1, "")


@pytest.mark.parametrize("chat", chats.CHATS)
@pytest.mark.parametrize("name", NAMES)
def test_text(folder, tmp_path, name, chat):
    path, tokenizer = folder(name)
    row = chats.CHATS[chat]
    text, why = ours(path, tmp_path, row, "--learn", "all")
    try:
        wanted = chats.rendered(tokenizer, row)
    except Exception as error:  # whatever the template raises
        assert text is None and str(error).split("\n")[0] in why, (text, why, error)
        return
    assert text is not None, why
    assert text.replace("«", "").replace("»", "") == wanted


@pytest.mark.parametrize("chat", chats.CHATS)
@pytest.mark.parametrize("name", MARKED)
def test_learned_spans(folder, tmp_path, name, chat):
    path, tokenizer = folder(name)
    text, why = ours(path, tmp_path, chats.CHATS[chat])
    assert text is not None, why
    assert text == chats.marked(tokenizer, chats.CHATS[chat])
