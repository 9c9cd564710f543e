"""Short documents are computed behind near ones, and what saw a document goes with it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.cachecare import prune
from app.cachecare.warming import warm
from app.library import Library
from app.library.arrangement import chunks_before
from app.library.order import OPENING, RUN, SHORT, Standing
from app.library.removal import remove_documents
from app.models import Models
from app.settings import Settings
from ragcache.types import VariantKey
from tests.app.ingestion.conftest import Run
from tests.app.library.shelves import reopened

NOTES = 30


@pytest.fixture
def notes(docs: Path) -> Path:
    for number in range(NOTES):
        (docs / f"{number:02}.txt").write_text(f"Note {number}: lamp {number % 7} burns, ship {number % 5} waits.")
    return docs


def contexts(settings: Settings) -> dict[str, list[tuple[str, ...]]]:
    """Of the entries in the cache folder, by chunk."""
    with closing(sqlite3.connect(settings.cache_dir / "kv" / "index.sqlite")) as index:
        rows = index.execute("SELECT chunk, context FROM entries WHERE system != '' AND file > 0").fetchall()
    found: dict[str, list[tuple[str, ...]]] = {}
    for chunk, context in rows:
        found.setdefault(chunk, []).append(tuple(json.loads(context)))
    return found


def standings(library: Library) -> dict[int, Standing]:
    """In their order."""
    collection = library.catalog.collections.get("default")
    found = {one.id: library.catalog.order.standing(one.id) for one in library.catalog.documents.all(collection)}
    there = {one: standing for one, standing in found.items() if standing is not None}
    return dict(sorted(there.items(), key=lambda item: item[1].place))


def chunk_of(library: Library, document: int) -> str:
    (chunk,) = library.catalog.chunks.of_document(document)
    return chunk.token_hash


def test_each_is_computed_behind_those_before_it(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    result = ingest(kv="eager")
    stood, found = standings(library), contexts(settings)
    assert len(stood) == NOTES
    assert len({one.place for one in stood.values()}) == NOTES
    for document, standing in stood.items():
        assert len(standing.behind) - standing.opening < RUN
        behind = [chunk.hash for chunk in chunks_before(library, models.template, standing, 1)]
        assert tuple(behind[-3:]) in found[chunk_of(library, document)]
    assert sum(not standing.behind for standing in stood.values()) == 1, "the very first one"
    # What opens a run is computed anew: two chunks for ten.
    assert NOTES < result.kv_variants <= 1.25 * NOTES
    assert ingest(kv="eager").kv_variants == 0


def test_what_comes_later_changes_nothing_that_is_there(
    ingest: Run, library: Library, settings: Settings, notes: Path
) -> None:
    ingest(kv="eager")
    before, known = standings(library), contexts(settings)
    for number in range(5):
        (notes / f"late{number}.txt").write_text(f"Late note {number}: lamp {number} burns again.")
    result = ingest(kv="eager")
    assert list(filter(before.__contains__, standings(library))) == list(before)
    assert {one: standings(library)[one] for one in before} == before
    assert result.kv_variants <= 3 * 5
    now = contexts(settings)
    assert all(set(known[chunk]) <= set(now[chunk]) for chunk in known)


def test_a_document_that_goes_leaves_no_trace(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    ingest(kv="eager")
    stood = standings(library)
    gone = next(one for one in stood if sum(one in other.behind for other in stood.values()) > 2)
    chunk, collection = chunk_of(library, gone), library.catalog.collections.get("default")
    removal = remove_documents(library, models, collection, [gone])
    seeing = sum(gone in other.behind for other in stood.values())
    assert removal.kv_variants >= 1 + seeing
    assert not models.store.seeing({chunk})
    assert all(chunk not in context for all_of in contexts(settings).values() for context in all_of)
    *_, done = warm(library, models, collection)
    assert 0 < done.computed <= 2 * removal.kv_variants
    *_, again = warm(library, models, collection)
    assert again.computed == 0


def test_what_a_killed_removal_left_is_pruned(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    ingest(kv="eager")
    stood = standings(library)
    gone = next(one for one in stood if sum(one in other.behind for other in stood.values()) > 2)
    chunk = chunk_of(library, gone)
    library.catalog.documents.delete(library.catalog.collections.get("default"), [gone])
    assert (left := len(models.store.seeing({chunk})))
    own = len(contexts(settings)[chunk])
    assert prune(library, models, dry=True).unreferenced.entries == left + own
    prune(library, models)
    _, fresh = reopened(library, models)
    assert not fresh.store.seeing({chunk})
    assert prune(library, models).unreferenced.entries == 0


def test_what_lost_its_kv_to_a_change_has_it_anew_when_the_ingest_ends(
    ingest: Run, library: Library, models: Models, notes: Path
) -> None:
    ingest(kv="eager")
    stood = standings(library)
    changed = max(stood, key=lambda one: sum(one in other.behind for other in stood.values()))
    old, source = chunk_of(library, changed), Path(library.catalog.documents.get(changed).source)
    source.write_text("Something else entirely, about bread.")
    ingest(kv="eager")
    assert not models.store.seeing({old})
    *_, done = warm(library, models, library.catalog.collections.get("default"))
    assert done.computed == 0


def test_one_in_a_hundred_that_goes_costs_few_others_their_kv(
    ingest: Run, library: Library, models: Models, notes: Path
) -> None:
    """In the mean over all: what each had a part in, of all that there is."""
    ingest(kv="eager")
    entries = models.store.kept.entries - 1  # the System segment's
    lost = [1 + len(models.store.seeing({chunk_of(library, one)})) for one in standings(library)]
    assert sum(lost) / len(lost) / entries * NOTES <= 8


def test_warming_gives_places_to_what_came_without_kv(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    ingest()
    assert standings(library) == {}
    collection = library.catalog.collections.get("default")
    *_, done = warm(library, models, collection)
    stood = standings(library)
    assert len(stood) == NOTES
    assert NOTES < done.computed <= 1.25 * NOTES
    library.catalog.documents.delete(collection, list(stood))
    for one in notes.iterdir():
        one.touch()
    ingest(kv="eager")
    assert [one.behind == () for one in standings(library).values()].count(True) == 1


def test_texts_that_move_to_other_files_keep_their_kv(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    ingest(kv="eager")
    texts = [one.read_text() for one in sorted(notes.iterdir())]
    for one, text in zip(sorted(notes.iterdir()), [*texts[1:], texts[0]], strict=True):
        one.write_text(text)
    result = ingest(kv="eager")
    assert result.kv_variants <= 2.5 * NOTES
    assert set(contexts(settings)) == library.catalog.chunks.hashes()
    *_, done = warm(library, models, library.catalog.collections.get("default"))
    assert done.computed == 0


def test_none_is_computed_behind_its_own_older_version(ingest: Run, library: Library, notes: Path) -> None:
    for turn in range(3):
        for one in notes.iterdir():
            one.write_text(f"{one.read_text()} Turn {turn}.")
        ingest(kv="eager")
    for document, standing in standings(library).items():
        assert document not in standing.behind
        assert len(set(standing.behind)) == len(standing.behind)


def test_a_prune_alone_leaves_no_chunk_without_kv(
    ingest: Run, library: Library, settings: Settings, notes: Path
) -> None:
    ingest(kv="eager")
    (notes / "07.txt").unlink()
    ingest(kv="eager", prune=True)
    assert set(contexts(settings)) == library.catalog.chunks.hashes()
    (notes / "08.txt").unlink()
    told = ingest(prune=True).notes
    assert any("lost their KV" in note for note in told)


def test_what_goes_day_by_day_is_not_remembered(ingest: Run, library: Library, docs: Path) -> None:
    for day in range(40):
        (docs / f"{day}.txt").write_text(f"Day {day}: the lamp burns, ship {day % 5} waits.")
        if day > 2:
            (docs / f"{day - 3}.txt").unlink()
        ingest(kv="eager", prune=True)
    assert max(len(standing.behind) for standing in standings(library).values()) <= 2 * RUN


def test_a_chunk_that_does_not_fit_behind_others_is_computed_behind_fewer(
    ingest: Run, library: Library, models: Models, settings: Settings, docs: Path
) -> None:
    room = models.language.engine.spec.max_tokens
    size = (room - len(models.template.system())) // 2 - 40
    for number in range(3):
        words = " ".join(f"w{number}" for _ in range(size))
        text = words
        while len(models.template.chunk(text)) > size:
            text = text.rpartition(" ")[0]
        (docs / f"{number}.txt").write_text(text)
    result = ingest(kv="eager")
    assert not any("no KV" in note for note in result.notes)
    assert set(contexts(settings)) == library.catalog.chunks.hashes()


def test_copies_are_computed_once(ingest: Run, settings: Settings, docs: Path) -> None:
    for number in range(12):
        (docs / f"{number}.txt").write_text("The same note about a lamp.")
    (docs / "near.txt").write_text("The same note about a lamp, and a ship.")
    ingest(kv="eager")
    assert max(len(found) for found in contexts(settings).values()) <= 2


def test_a_note_that_becomes_long_is_a_run_of_its_own(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    ingest(kv="eager")
    stood = standings(library)
    first = next(one for one in stood if any(one in other.behind for other in stood.values()))
    text = "\n\n".join(f"Entry {line}. " + "The fog came in again. " * 40 for line in range(12))
    Path(library.catalog.documents.get(first).source).write_text(text)
    ingest(kv="eager")
    assert len(library.catalog.chunks.of_document(first)) > SHORT
    for standing in standings(library).values():
        assert len(chunks_before(library, models.template, standing, 1)) <= RUN + OPENING
    assert set(contexts(settings)) == library.catalog.chunks.hashes()


def test_a_long_document_that_lost_kv_has_it_anew(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    """As of before lineages told all: what does not tell all goes with any text that goes."""
    text = "\n\n".join(f"Entry {line}. " + "The fog came in again. " * 40 for line in range(8))
    (notes / "long.txt").write_text(text)
    ingest(kv="eager")
    (chunk, *_), store = library.catalog.chunks.of_document(_of(library, notes / "long.txt"))[2:], models.store
    collection = library.catalog.collections.get("default")
    assert collection.engine_fingerprint and collection.system_hash
    key = VariantKey(collection.engine_fingerprint, collection.system_hash, (), chunk.token_hash)
    for info in store.variants(key.family):
        found = store.get(info.key)
        assert found is not None
        lineage = replace(found.variant.lineage, complete=False)
        store.delete(info.key)
        store.put(replace(found.variant, lineage=lineage))
    (notes / "03.txt").write_text("Something else, about bread.")
    ingest(kv="eager")
    assert chunk.token_hash in contexts(settings)


def _of(library: Library, path: Path) -> int:
    found = library.catalog.documents.find(library.catalog.collections.get("default"), str(path))
    assert found is not None
    return found.id
