from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.data import read_dataset
from ragcache.errors import ConfigError


def test_questions_that_bring_their_passages(given_file: Path) -> None:
    data = read_dataset(given_file)
    assert len(data.questions) == 4
    first = data.questions[0]
    assert (first.text, first.answers) == ("Where do Apples grow?", ("In the orchard", "Nowhere"))
    assert len(first.contexts) == 3
    assert len({question.name for question in data.questions}) == 4
    assert read_dataset(given_file.parent) == data, "the folder of the file says the same"


def test_questions_about_corpora(corpora_folder: Path) -> None:
    data = read_dataset(corpora_folder)
    assert [question.corpus for question in data.questions] == ["south", "north"] * 2
    assert set(data.corpora) == {"north", "south"}
    assert data.corpora["north"] == (corpora_folder / "north.md").read_text()
    assert read_dataset(corpora_folder / "questions.jsonl") == data


def test_the_digest_changes_with_any_file(corpora_folder: Path) -> None:
    before = read_dataset(corpora_folder).digest
    (corpora_folder / "north.md").write_text("Other words.")
    assert read_dataset(corpora_folder).digest != before


def test_a_corpus_keeps_its_line_ends(corpora_folder: Path) -> None:
    (corpora_folder / "north.md").write_bytes(b"one\r\ntwo")
    assert read_dataset(corpora_folder).corpora["north"] == "one\r\ntwo"


def test_a_sample_is_drawn_by_its_seed(given_file: Path) -> None:
    data = read_dataset(given_file)
    drawn = {seed: [question.name for question in data.sample(2, seed).questions] for seed in range(10)}
    assert all(len(names) == 2 and names == sorted(names) for names in drawn.values())
    assert len({tuple(names) for names in drawn.values()}) > 1
    assert data.sample(2, 3) == data.sample(2, 3)
    assert data.sample(None, 0) == data.sample(9, 0) == data


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "holds no questions"),
        ("{", "line 1 is no JSON"),
        ("[1]", "line 1 is no JSON object"),
        ('{"question": "Who?"}', "line 1 has neither contexts nor a corpus"),
        ('{"question": "", "answers": [], "contexts": ["a"]}', "line 1: question is ''"),
        ('{"question": "Who?", "answers": [], "contexts": []}', "line 1 has no contexts"),
        ('{"question": "Who?", "answers": [1], "contexts": ["a"]}', "line 1: answers should be a list of texts"),
        ('{"question": "Who?", "corpus": "gone"}', "asks about gone.md, which"),
    ],
)
def test_anything_else_is_told_with_its_place(line: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(ConfigError, match=told):
        read_dataset(file)


def test_a_path_without_data_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no data in .*nowhere: give a file of JSON lines"):
        read_dataset(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"holds 0 \*\.jsonl files"):
        read_dataset(tmp_path)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read"):
        read_dataset(file)


def test_the_shared_data_is_read_in_both_forms(shared_data: Path) -> None:
    given = read_dataset(shared_data / "musique")
    assert len(given.questions) == 75
    assert all(len(question.contexts) == 10 and question.answers for question in given.questions)
    retrieved = read_dataset(shared_data / "chunking_eval")
    assert len(retrieved.questions) == 276
    assert set(retrieved.corpora) == {"chatlogs", "state_of_the_union", "wikitexts"}
    lines = (shared_data / "chunking_eval" / "questions.jsonl").read_text().splitlines()
    for line in lines:
        record = json.loads(line)
        for reference in record["references"]:
            text = retrieved.corpora[record["corpus"]][reference["start"] : reference["end"]]
            assert text == reference["text"], "the offsets of the questions hold in the text that was read"
