from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli.output import LATER
from app.library import Library
from app.library.fusion import LearntFusion
from app.models import Models
from tests.app.cli.inside import Run, make_run
from tests.app.library.shelves import put_sentences
from tests.withholding import SYNONYMS, by_meaning, by_words


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return make_run(capsys, monkeypatch, "--data-dir", str(tmp_path / "data"))


def write(folder: Path, count: int) -> str:
    lines = [{"question": f"Who saw the {names[0]}?", "text": names[1]} for names in SYNONYMS[:count]]
    (folder / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "q.jsonl"


@pytest.mark.slow
def test_it_shows_today_and_what_was_learnt(run: Run, library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/units.txt", by_words())
    ran = run("tune", "--dry-run")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "default: 24 chunks, 24 of them sampled"
    assert lines[2].split() == ["vector", "share", "fusion", "d", "of", "meaning", "d", "of", "words", "ratio"]
    assert lines[3].split()[:4] == ["today", "0.50", "linear", "(default)"]
    assert lines[-1].startswith("would keep: vector share 0.2")
    assert library.collection().retrieval is None
    told = run("tune", "-c", "default", "--json").json
    kept = library.collection().retrieval
    assert told["kept"] is True
    assert told["learnt"] == kept
    assert told["before"] == {"vector_share": 0.5, "fusion": "linear", "by": "default"}
    assert told["texts"]["chunks"] == 24
    assert run("tune").out.splitlines()[3].split()[3] == "(collection)"


@pytest.mark.slow
def test_it_says_where_it_could_learn_nothing_and_what_wins(
    run: Run, library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_sentences(library, models, "/books/units.txt", by_words(3))
    monkeypatch.setenv("RAGCACHE_VECTOR_SHARE", "0.9")
    ran = run("tune")
    assert ran.out.splitlines()[3].split()[:4] == ["today", "0.90", "linear", "(setting)"]
    assert "3 chunks with sentences enough, and it takes 20" in ran.out
    assert ran.out.endswith("RAGCACHE_VECTOR_SHARE is set and wins: unset it to search by what was learnt\n")


@pytest.mark.slow
def test_questions_are_tried_on_those_that_chose_nothing(
    run: Run, library: Library, models: Models, tmp_path: Path
) -> None:
    put_sentences(library, models, "/books/things.txt", [one[1:] for one in by_meaning()])
    worst = LearntFusion(0.0, "linear", "questions", 24)
    library.catalog.collections.set_retrieval(library.collection(), worst.as_json())
    ran = run("tune", "--questions", write(tmp_path, 24))
    assert ran.code == 0, ran.err
    assert "recall@5" in ran.out
    assert "on questions that had no part in the choice: recall@5 " in ran.out
    assert "kept: vector share" in ran.out
    again = run("tune", "--questions", "q.jsonl")
    assert again.out.endswith("nothing was changed: no other share is better on questions that had no part in "
                              "choosing it\n")  # fmt: skip
    held = run("tune", "--questions", "q.jsonl", "--dry-run", "--json").json
    assert held["held_out"]["better"] is False
    assert (held["kept"], len(held["trials"])) == (False, 14)


def test_errors(run: Run, library: Library, models: Models, tmp_path: Path) -> None:
    collection = library.collection_or_new()
    assert run("tune", "-c", "nope").err == "error: no collection 'nope'; there are: default\n"
    empty = run("tune")
    assert (empty.code, empty.out) == (1, "")
    assert "is empty: `ragcache ingest PATH -c default`" in empty.err
    put_sentences(library, models, "/books/things.txt", by_meaning())
    for questions, told in (("nope", "cannot read nope"), (write(tmp_path, 9), "holds 9 questions: give 10 to 1,000")):
        ran = run("tune", "--questions", questions)
        assert (ran.code, ran.out) == (1, "")
        assert told in ran.err
        assert len(ran.err.splitlines()) == 1
    with library.catalog.alone(collection):
        busy = run("tune")
    assert (busy.code, busy.out) == (LATER, "")
    assert library.collection().retrieval is None
    assert run("tune", "--nope").code == 2


def test_a_dry_run_makes_no_catalog(run: Run, tmp_path: Path) -> None:
    ran = run("tune", "--dry-run")
    assert ran.err == "error: no collection 'default'; there are: none yet\n"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("target", ["kl", "kl=", "kl=0", "kl=-1", "kl=nan", "kl=inf", "f1=1.5", "bleu=0.5", "0.02"])
def test_a_target_that_is_none_is_refused(run: Run, target: str) -> None:
    ran = run("tune", "--target", target)
    assert ran.code == 2 and "give kl=NATS" in " ".join(ran.err.replace("│", " ").split())
