"""Short documents are computed behind near ones, and what saw a document goes with it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.cachecare import prune
from app.cachecare.warming import warm
from app.library import Library
from app.library.arrangement import chunks_before
from app.library.order import RUN, Standing
from app.library.removal import remove_documents
from app.models import Models
from app.settings import Settings
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
    result = ingest(kv=True)
    stood, found = standings(library), contexts(settings)
    assert len(stood) == NOTES
    assert len({one.place for one in stood.values()}) == NOTES
    for document, standing in stood.items():
        assert len(standing.behind) - standing.opening < RUN
        behind = [chunk.hash for chunk in chunks_before(library, models.template, standing)]
        assert tuple(behind[-3:]) in found[chunk_of(library, document)]
    assert sum(not standing.behind for standing in stood.values()) == 1, "the very first one"
    # What opens a run is computed anew: two chunks for ten.
    assert NOTES < result.kv_variants <= 1.25 * NOTES
    assert ingest(kv=True).kv_variants == 0


def test_what_comes_later_changes_nothing_that_is_there(
    ingest: Run, library: Library, settings: Settings, notes: Path
) -> None:
    ingest(kv=True)
    before, known = standings(library), contexts(settings)
    for number in range(5):
        (notes / f"late{number}.txt").write_text(f"Late note {number}: lamp {number} burns again.")
    result = ingest(kv=True)
    assert list(filter(before.__contains__, standings(library))) == list(before)
    assert {one: standings(library)[one] for one in before} == before
    assert result.kv_variants <= 3 * 5
    now = contexts(settings)
    assert all(set(known[chunk]) <= set(now[chunk]) for chunk in known)


def test_a_document_that_goes_leaves_no_trace(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    ingest(kv=True)
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
    ingest(kv=True)
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
    ingest(kv=True)
    stood = standings(library)
    changed = max(stood, key=lambda one: sum(one in other.behind for other in stood.values()))
    old, source = chunk_of(library, changed), Path(library.catalog.documents.get(changed).source)
    source.write_text("Something else entirely, about bread.")
    ingest(kv=True)
    assert not models.store.seeing({old})
    *_, done = warm(library, models, library.catalog.collections.get("default"))
    assert done.computed == 0


def test_one_in_a_hundred_that_goes_costs_few_others_their_kv(
    ingest: Run, library: Library, models: Models, notes: Path
) -> None:
    """In the mean over all: what each had a part in, of all that there is."""
    ingest(kv=True)
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
    ingest(kv=True)
    assert [one.behind == () for one in standings(library).values()].count(True) == 1
