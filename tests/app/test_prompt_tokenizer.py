"""The tokenizer without transformers against the one with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from app.models.chat_template import load_tokenizer, recorded
from app.models.plain_tokenizer import PlainTokenizer
from app.prompt import PromptTemplate, open_tokenizer
from app.settings import Settings
from splitter.base import FastTokens

SYSTEM = "Answer from the passages."
TEXTS = [
    "A sentence.",
    "日本語 e\u0301 \u200b\u202e \x00 \U0001f469\u200d\U0001f680",
    "<|im_end|>x<|endoftext|>",
    "  \n\t",
    "",
]
OPTIONS = {"add_special_tokens": False, "verbose": False}


@pytest.fixture(scope="module")
def theirs(smollm2: Path) -> PreTrainedTokenizerBase:
    return load_tokenizer(smollm2)


@pytest.fixture(scope="module")
def ours(theirs: PreTrainedTokenizerBase) -> PlainTokenizer:
    values = recorded(theirs)
    assert values is not None
    return PlainTokenizer(json.loads(json.dumps(values)))


@given(text=st.text(max_size=300) | st.sampled_from(TEXTS), split=st.booleans())
def test_tokens_are_the_same(ours: PlainTokenizer, theirs: PreTrainedTokenizerBase, text: str, split: bool) -> None:
    expected = theirs(text, return_offsets_mapping=True, split_special_tokens=split, **OPTIONS)
    found = ours(text, return_offsets_mapping=True, split_special_tokens=split, **OPTIONS)
    assert found["input_ids"] == expected["input_ids"]
    assert found["offset_mapping"] == expected["offset_mapping"]
    ids = ours.encode(text, split_special_tokens=split, **OPTIONS)
    assert ids == theirs.encode(text, split_special_tokens=split, **OPTIONS)
    for skip in (True, False):
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)


def test_prompts_are_the_same(ours: PlainTokenizer, theirs: PreTrainedTokenizerBase) -> None:
    templates = [PromptTemplate(cast(PreTrainedTokenizerBase, one), SYSTEM) for one in (ours, theirs)]
    first, second = templates
    assert first.system() == second.system()
    assert first.stop == second.stop
    for text in TEXTS[:3]:
        assert first.chunk(text) == second.chunk(text)
        assert first.turns([("Who?", text)], text) == second.turns([("Who?", text)], text)
        assert first.tokens.offsets(text) == FastTokens(theirs).offsets(text)
        assert first.count(text) == second.count(text)


def test_the_second_start_is_without_transformers(smollm2: Path, tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path)
    assert not isinstance(open_tokenizer(settings, smollm2), PlainTokenizer)
    assert isinstance(open_tokenizer(settings, smollm2), PlainTokenizer)


@pytest.mark.slow
def test_a_tokenizer_that_was_changed_is_read_anew(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny_folder.iterdir():
        os.link(file, folder / file.name)
    settings = Settings(cache_dir=tmp_path / "cache")
    open_tokenizer(settings, folder)
    assert isinstance(open_tokenizer(settings, folder), PlainTokenizer)
    (folder / "chat_template.jinja").unlink()
    assert not isinstance(open_tokenizer(settings, folder), PlainTokenizer)


@pytest.mark.slow
def test_a_record_that_is_broken_is_as_good_as_none(smollm2: Path, tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path)
    for values in ({}, {"backend": "no JSON"}):
        settings.records.write("tokenizer", smollm2, values, settings.records.basis(smollm2))
        assert not isinstance(open_tokenizer(settings, smollm2), PlainTokenizer)
        assert isinstance(open_tokenizer(settings, smollm2), PlainTokenizer)


def test_one_that_cleans_up_its_texts_stays_with_transformers(smollm2: Path) -> None:
    tokenizer = load_tokenizer(smollm2)
    tokenizer.clean_up_tokenization_spaces = True
    assert recorded(tokenizer) is None


def test_one_without_a_usable_template_stays_with_transformers(smollm2: Path) -> None:
    tokenizer = load_tokenizer(smollm2)
    tokenizer.chat_template = "nothing of ours"
    assert recorded(tokenizer) is None
