from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from app.errors import CatalogError, CollectionBusy, MaintenanceError, NotFound
from app.library import Library
from app.library.fusion import COLLECTION, DEFAULT, QUESTIONS, FusionInUse, LearntFusion, learnt
from app.library.labels import FEWEST, placed, read_questions
from app.library.tuning import SHARES, Scores, best, candidates, held_out, tune
from app.models import Models
from tests.app.library.shelves import put_sentences
from tests.withholding import SYNONYMS, by_meaning, by_words

pytestmark = pytest.mark.usefixtures("one_embedder")
PRESENT = FusionInUse(0.5, "linear", DEFAULT)


def write(folder: Path, records: Sequence[Mapping[str, object]]) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def by_text(count: int = FEWEST) -> list[dict[str, object]]:
    """Each thing of `by_meaning` by its first name: where that sentence is left out, words help nobody."""
    return [{"question": f"Is a {names[0]} worth it?", "text": f"concerning\nsome {names[1]}"}
            for names in SYNONYMS[:count]]  # fmt: skip


# -- the choice -----------------------------------------------------------------------------------------------------


def halves(count: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    return np.array_split(np.arange(count), 2)


def scores(*trials: Sequence[float]) -> Scores:
    return np.stack([np.stack([np.array(trial) >= 1, np.array(trial)], axis=1) for trial in trials]).astype(float)


TRIED = [(0.5, "linear"), (0.4, "linear"), (0.2, "linear")]


def test_what_is_better_on_both_halves_is_better() -> None:
    found = held_out(scores([0.5] * 6, [1.0] * 6, [0.2] * 6), halves(6), TRIED)
    assert found.better
    assert (found.chosen.vector_share, found.chosen.mrr, found.present.mrr) == (0.4, 1.0, 0.5)
    assert (found.chosen.recall, found.present.recall) == (1.0, 0.0)


def test_what_one_half_chooses_and_the_other_does_not_bear_out_is_not() -> None:
    """On all questions each of the others is better than the one in use."""
    lucky = scores([0.6] * 6, [1.0, 1.0, 1.0, 0.3, 0.3, 0.3], [0.3, 0.3, 0.3, 1.0, 1.0, 1.0])
    assert best(lucky, np.arange(6)) != 0
    found = held_out(lucky, halves(6), TRIED)
    assert not found.better
    assert found.chosen.mrr < found.present.mrr


def test_what_gains_in_one_figure_and_loses_in_the_other_is_not() -> None:
    """Recall of one question more, for a worse place of all others."""
    traded = scores([1.0, 1.0, 0.3] * 2, [0.7] * 6, [0.0] * 6)
    traded[1, :, 0] = 1
    assert best(traded, np.arange(6)) == 1
    found = held_out(traded, halves(6), TRIED)
    assert found.chosen.recall > found.present.recall
    assert found.chosen.mrr < found.present.mrr
    assert not found.better


def test_what_is_as_good_is_left() -> None:
    same = scores([0.5] * 6, [0.5] * 6, [0.5] * 6)
    assert best(same, np.arange(6)) == 0
    assert not held_out(same, halves(6), TRIED).better


def test_candidates_begin_with_the_one_in_use_and_go_on_from_it() -> None:
    found = candidates(PRESENT, 0.33)
    assert found[:4] == [(0.5, "linear"), (0.4, "linear"), (0.6, "linear"), (0.33, "linear")]
    assert len(found) == len(set(found)) == 2 * len(SHARES) + 1
    odd = candidates(FusionInUse(0.45, "rank", COLLECTION), 0.5)
    assert (odd[0], len(odd)) == ((0.45, "rank"), 2 * len(SHARES) + 1)


# -- with a collection ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_questions_it_keeps_what_the_texts_say(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/units.txt", by_words())
    told = tune(library, models, "default", keep=False)
    assert (told.before, told.kept, told.chunks) == (PRESENT, False, 24)
    assert library.collection().retrieval is None
    kept = tune(library, models, "default")
    assert kept.kept
    assert learnt(library.collection()) == kept.found == told.found
    assert tune(library, models, "default").before == FusionInUse(kept.found.vector_share, "linear", COLLECTION)


@pytest.mark.slow
def test_questions_that_words_hinder_raise_the_share_of_meaning(
    library: Library, models: Models, tmp_path: Path
) -> None:
    put_sentences(library, models, "/books/things.txt", [one[1:] for one in by_meaning()])
    path = write(tmp_path, by_text(24))
    worst = LearntFusion(0.0, "linear", COLLECTION, 24)
    library.catalog.collections.set_retrieval(library.collection(), worst.as_json())
    told = tune(library, models, "default", path, keep=False)
    assert learnt(library.collection()) == worst
    tuned = tune(library, models, "default", path)
    assert tuned.held_out is not None
    assert tuned.held_out.better
    assert tuned.held_out.chosen.mrr > tuned.held_out.present.mrr
    assert (tuned.kept, told.kept, tuned.found) == (True, False, told.found)
    found = learnt(library.collection())
    assert found is not None
    assert (found.by, found.figures["questions"]) == (QUESTIONS, 24)
    assert found.vector_share > 0
    assert len(tuned.trials) == 2 * len(SHARES) + 1
    again = tune(library, models, "default", path)
    assert again.before.by == QUESTIONS
    assert not again.kept, "nothing is better than the best"


# -- questions that cannot be used ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 3 is no JSON"),
        ("[" * 100_000, "line 3 is no JSON"),
        ("3", "line 3 has no question"),
        ('{"text": "a"}', "line 3 has no question"),
        ('{"question": " ", "text": "a"}', "line 3 has no question"),
        ('{"question": "a"}', "line 3 names no document and no text, or both"),
        ('{"question": "a", "text": ""}', "line 3 names no document and no text, or both"),
        ('{"question": "a", "text": "b", "document": "c"}', "line 3 names no document and no text, or both"),
        ('{"question": "a", "text": 7}', "line 3 names no document and no text, or both"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = write(tmp_path, by_text())
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "", line, *lines[1:]]))
    with pytest.raises(MaintenanceError, match=told):
        read_questions(path)


@pytest.mark.parametrize("count", [0, FEWEST - 1, 1001])
def test_too_few_and_too_many_are_refused(tmp_path: Path, count: int) -> None:
    path = write(tmp_path, [by_text(1)[0]] * count)
    with pytest.raises(MaintenanceError, match=rf"holds {count} questions: give 10 to 1,000"):
        read_questions(path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(MaintenanceError, match=r"cannot read .*nope"):
        read_questions(tmp_path / "nope")
    with pytest.raises(MaintenanceError, match="cannot read"):
        read_questions(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MaintenanceError, match="cannot read"):
        read_questions(tmp_path / "binary")


def test_right_chunks_are_found_by_excerpt_name_and_title(library: Library, models: Models, tmp_path: Path) -> None:
    ids = put_sentences(library, models, "/books/things.txt", by_meaning())
    other = put_sentences(library, models, "/books/units.txt", by_words(2))
    records = [
        *by_text(),
        {"question": "a", "document": "/books/units.txt"},
        {"question": "b", "document": "units.txt"},
        {"question": "c", "text": "the regulator of unit"},
    ]
    found = placed(library, library.collection(), read_questions(write(tmp_path, records)))
    assert [one.chunks for one in found[:FEWEST]] == [{one} for one in ids[:FEWEST]]
    assert [one.chunks for one in found[FEWEST:]] == [set(other)] * 3


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"text": "no such excerpt"}, "line 11: no chunk of collection 'default' contains 'no such excerpt'"),
        ({"document": "nope.txt"}, "line 11: no document 'nope.txt' in collection 'default'"),
        ({"document": "things.txt"}, "line 11: 2 documents are called 'things.txt'"),
    ],
)
def test_what_is_not_there_is_told_with_its_line(
    library: Library, models: Models, tmp_path: Path, named: dict[str, str], told: str
) -> None:
    for folder in ("books", "papers"):
        put_sentences(library, models, f"/{folder}/things.txt", by_meaning())
    path = write(tmp_path, [*by_text(), {"question": "a", **named}])
    with pytest.raises(MaintenanceError, match=told):
        tune(library, models, "default", path)
    assert library.collection().retrieval is None


def test_collections_that_cannot_be_tuned(library: Library, models: Models) -> None:
    with pytest.raises(NotFound, match="no collection 'nope'"):
        tune(library, models, "nope")
    collection = library.collection_or_new()
    with pytest.raises(CatalogError, match="is empty: `ragcache ingest PATH -c default`"):
        tune(library, models, "default")
    with library.catalog.alone(collection), pytest.raises(CollectionBusy):
        tune(library, models, "default")
    with library.catalog.alone(collection), pytest.raises(CatalogError, match="is empty"):
        tune(library, models, "default", keep=False)


def test_a_field_that_holds_no_text_names_nothing(tmp_path: Path) -> None:
    records = [{"question": "what?", "document": "a.txt", "text": other} for other in ("", "  ", 5, False, [], None)]
    for one in read_questions(write(tmp_path, records * 2)):
        assert (one.document, one.text) == ("a.txt", None)


def test_a_file_is_read_no_further_than_questions_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.library.labels.LARGEST", 1000)
    path = tmp_path / "large.jsonl"
    path.write_text("x" * 1001)
    with pytest.raises(MaintenanceError, match="is larger than"):
        read_questions(path)
    with pytest.raises(MaintenanceError, match="is larger than"):
        read_questions(Path("/dev/zero"))
    path.write_text("{\n" * 400)
    monkeypatch.setattr("app.library.labels.MOST", 300)
    with pytest.raises(MaintenanceError, match="holds 400 questions"):
        read_questions(path)


def test_questions_about_one_document_share_its_chunks(library: Library, models: Models, tmp_path: Path) -> None:
    put_sentences(library, models, "/a.txt", by_words(3))
    records = [{"question": f"what {number}?", "document": "a.txt"} for number in range(FEWEST)]
    found = placed(library, library.collection(), read_questions(write(tmp_path, records)))
    assert len({id(one.chunks) for one in found}) == 1


def test_what_would_be_kept_is_no_worse_on_all_questions() -> None:
    """Each half chooses another trial, and both together a third, which is worse in MRR than what is in use."""
    rng, kept = np.random.default_rng(0), 0
    for _ in range(3000):
        drawn = np.round(rng.choice([0.0, 0.2, 0.5, 1.0], (3, 10)), 2)
        held = held_out(scores(*drawn), halves(10), TRIED)
        if held.better:
            kept += 1
            final = TRIED.index((held.chosen.vector_share, held.chosen.fusion))
            made = scores(*drawn).mean(axis=1)
            assert (made[final] >= made[0] - 1e-9).all()
    assert kept > 50
