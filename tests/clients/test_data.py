"""Data sets as `datasets` writes them and as TRL's trainers take them: the same rows, the same learned spans."""

import chats
import datasets
import program
import pytest

SAID = [chats.CHATS[name] for name in ("one-turn", "system", "turns", "unicode")]
PAIRS = [dict(prompt="Who was Ruth?", completion=" A Moabite."), dict(prompt="1\n2\n", completion="3"),
         dict(prompt="naïve ", completion="東京\n")]
PAIRS_OF_MESSAGES = [dict(prompt=chats.say(("user", "Who?")), completion=chats.say(("assistant", "Ruth."))),
                     dict(prompt=chats.say(("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c")),
                          completion=chats.say(("assistant", "d")))]
TEXTS = [dict(text="In the beginning"), dict(text="two\nlines"), dict(text="東京 🙂")]
END = "<|im_end|>"


def spans(row, tokenizer):
    """The text with « and » around what TRL's SFTTrainer learns (its docs: dataset formats, completion_only_loss)."""
    if "text" in row:
        return f"«{row['text']}{END}»"
    if "messages" in row:  # assistant_only_loss
        return chats.marked(tokenizer, row)
    if isinstance(row["prompt"], str):
        return f"{row['prompt']}«{row['completion']}{END}»"
    prompt = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(row["prompt"] + row["completion"], tokenize=False)
    assert whole.startswith(prompt)
    return f"{prompt}«{whole[len(prompt):]}»"


FORMS = {"messages": SAID, "prompt-completion": PAIRS, "prompt-completion-messages": PAIRS_OF_MESSAGES, "text": TEXTS,
         "tools": [chats.CHATS["tools"], chats.CHATS["one-turn"]],
         "extra-columns": [dict(row, id=i, source="x", score=0.5) for i, row in enumerate(SAID)]}


def write(rows, path, kind):
    table = datasets.Dataset.from_list(rows)
    {"jsonl": table.to_json, "parquet": table.to_parquet, "csv": table.to_csv,
     "json": lambda to: table.to_json(to, lines=False)}[kind](str(path))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("chatml")
    return path, chats.make_folder(path)


def check_rows(folder, data, rows):
    path, tokenizer = folder
    found, unusable = program.examples(path, data)
    wanted = [spans(row, tokenizer) for row in rows]
    # By order and not by line: a file of one array has its rows on one.
    assert not unusable, unusable
    assert list(found.values()) == wanted


@pytest.mark.parametrize("kind", ("jsonl", "json"))
@pytest.mark.parametrize("form", FORMS)
def test_rows_and_learned_spans(folder, tmp_path, form, kind):
    check_rows(folder, write(FORMS[form], tmp_path / f"data.{kind}", kind), FORMS[form])


@pytest.mark.parametrize("kind", ("parquet", "csv"))
def test_other_files_are_refused_or_read(folder, tmp_path, kind):
    """Never taken for text: a refusal names a way out, .jsonl."""
    rows = TEXTS * 20
    data = write(rows, tmp_path / f"data.{kind}", kind)
    try:
        out = program.run("train", "--model", folder[0], "--data", data, "--steps", 1, "--seq-len", 16,
                          "--global-batch", 2, "--eval-every", 0, "--run", tmp_path / "run")
    except program.Refused as error:
        assert "jsonl" in str(error)
        return
    raise AssertionError(f"{kind} was trained on as something else: {out[-400:]}")


def test_nulls_that_datasets_fills_in(folder, tmp_path):
    """A column that one row has is null in the others, in messages as well."""
    rows = [dict(messages=[dict(role="user", content="a", name="Bo"), dict(role="assistant", content="b")]),
            dict(messages=chats.say(("user", "c"), ("assistant", "d")), tools=None)]
    check_rows(folder, write(rows, tmp_path / "data.jsonl", "jsonl"), rows)
