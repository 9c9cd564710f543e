"""Long documents open with the end of a near text, and what saw that goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cachecare.warming import warm
from app.library import Library
from app.library.arrangement import chunks_before
from app.library.order import FOR_EACH, OPENING, SHORT, Standing
from app.library.removal import remove_documents
from app.models import Models
from app.settings import Settings
from ragcache.types import VariantKey
from tests.app.ingestion.conftest import Run
from tests.app.ingestion.test_order import contexts, standings

LENGTHS = (6, 7, 12, 8, 9, 13)  # entries, of which each is a chunk


def story(number: int, entries: int) -> str:
    words = f"lamp {number % 3} burns, ship {number % 2} waits, "
    return "\n\n".join(f"Entry {number}.{one}. " + words * 20 for one in range(entries))


@pytest.fixture
def stories(docs: Path) -> Path:
    for number, entries in enumerate(LENGTHS):
        (docs / f"{number}.txt").write_text(story(number, entries))
    return docs


def hashes(library: Library, document: int) -> list[str]:
    return [chunk.token_hash for chunk in library.catalog.chunks.of_document(document)]


def before(library: Library, models: Models, document: int, standing: Standing | None) -> tuple[str, ...]:
    count = len(hashes(library, document))
    return tuple(chunk.hash for chunk in chunks_before(library, models.template, standing, count))


def seeing(library: Library, models: Models, document: int) -> list[VariantKey]:
    """KV of other documents that this one had a part in."""
    own = set(hashes(library, document))
    return [key for key in models.store.seeing(own) if key.chunk not in own]


def missing(library: Library, models: Models) -> int:
    *_, done = warm(library, models, library.catalog.collections.get("default"))
    return done.computed


def test_its_first_chunk_is_computed_behind_the_end_of_a_near_text(
    ingest: Run, library: Library, models: Models, settings: Settings, stories: Path
) -> None:
    result = ingest(kv="eager")
    stood, found = standings(library), contexts(settings)
    assert len({one.place for one in stood.values()}) == len(LENGTHS)
    assert sum(not standing.behind for standing in stood.values()) == 1, "the very first one"
    order = list(stood)
    for document, standing in stood.items():
        own, opening = hashes(library, document), before(library, models, document, standing)
        assert len(own) > SHORT
        assert found[own[0]].count(opening) == 1
        assert (*opening, own[0])[-3:] in found[own[1]]
        if opening:
            (near,) = standing.behind
            assert list(opening) == hashes(library, near)[-min(OPENING, len(own) // FOR_EACH) :]
            assert () in found[opening[0]], "computed anew, behind nothing"
            assert order.index(near) < order.index(document)
    assert result.chunks < result.kv_variants <= 1.25 * result.chunks
    assert ingest(kv="eager").kv_variants == missing(library, models) == 0


def test_it_stands_behind_the_nearest_text_and_what_was_there_stays(
    ingest: Run, library: Library, settings: Settings, stories: Path
) -> None:
    (stories / "bread.txt").write_text(
        "\n\n".join(f"Loaf {one}. " + "Rye and salt rise slowly. " * 30 for one in range(7))
    )
    ingest(kv="eager")
    stood, found = standings(library), contexts(settings)
    (stories / "rye.txt").write_text("\n\n".join(f"Loaf {one}. " + "Rye and salt rise soon. " * 30 for one in range(8)))
    (stories / "note.txt").write_text("A note on rye and salt.")
    ingest(kv="eager")
    now = standings(library)
    assert {one: now[one] for one in stood} == stood
    by_name = {Path(library.catalog.documents.get(one).source).stem: one for one in now}
    assert now[by_name["rye"]].behind == (by_name["bread"],)
    order = list(now)
    assert order.index(by_name["rye"]) == order.index(by_name["bread"]) + 1
    assert now[by_name["note"]].behind == (), "a short one stands behind short ones alone"
    assert all(set(found[chunk]) <= set(contexts(settings)[chunk]) for chunk in found)


def test_a_document_that_goes_leaves_no_trace(
    ingest: Run, library: Library, models: Models, settings: Settings, stories: Path
) -> None:
    ingest(kv="eager")
    stood, collection = standings(library), library.catalog.collections.get("default")
    gone = next(one for one in stood if any(one in other.behind for other in stood.values()))
    own, seen = set(hashes(library, gone)), seeing(library, models, gone)
    assert seen
    behind = {one for one, standing in stood.items() if gone in standing.behind}
    assert {key.chunk for key in seen} <= {chunk for one in behind for chunk in hashes(library, one)}
    remove_documents(library, models, collection, [gone])
    assert not models.store.seeing(own)
    assert own.isdisjoint({chunk for all_of in contexts(settings).values() for context in all_of for chunk in context})
    assert 0 < missing(library, models) <= len(seen)
    assert missing(library, models) == 0
    assert set(contexts(settings)) == library.catalog.chunks.hashes()


@pytest.mark.parametrize("notes", [0, 20])
def test_one_in_a_hundred_that_goes_costs_few_others_their_kv(
    ingest: Run, library: Library, models: Models, stories: Path, notes: int
) -> None:
    """In the mean over all: what each had a part in, of all that there is."""
    for number in range(notes):
        (stories / f"note{number}.txt").write_text(f"Note {number}: lamp {number % 3} burns, ship {number % 2} waits.")
    result = ingest(kv="eager")
    assert result.kv_variants <= 1.25 * result.chunks
    stood, entries = standings(library), models.store.kept.entries - 1  # the System segment's
    lost = sum(len(hashes(library, one)) + len(seeing(library, models, one)) for one in stood)
    assert lost / entries <= 8


def test_no_more_goes_than_its_reach(
    ingest: Run, library: Library, models: Models, stories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragcache.kvgen.AFRESH", 4)
    monkeypatch.setattr("app.cachecare.warming.AFRESH", 4)
    ingest(kv="eager")
    for document, standing in standings(library).items():
        for near in standing.behind:
            seen, own = {key.chunk for key in seeing(library, models, near)}, hashes(library, document)
            assert set(own[:4]) <= seen
            assert seen.isdisjoint(own[4:])
    assert missing(library, models) == 0


def test_a_prompt_that_it_leads_finds_its_first_chunk_behind_system_alone(
    ingest: Run, library: Library, models: Models, settings: Settings, stories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragcache.kvgen.LEAD_TOKENS", 600)
    monkeypatch.setattr("app.cachecare.warming.LEAD_TOKENS", 600)
    result = ingest(kv="eager")
    for document in standings(library):
        assert all(() in contexts(settings)[chunk] for chunk in hashes(library, document))
    twice = sum(
        one >= OPENING * FOR_EACH for one in LENGTHS
    )  # open with two chunks, of which one stands behind the other
    assert result.kv_variants <= 2 * result.chunks + twice, "the last chunk of each has its KV already"
    assert missing(library, models) == 0


def test_what_changes_takes_others_kv_and_they_have_it_anew(
    ingest: Run, library: Library, models: Models, settings: Settings, stories: Path
) -> None:
    ingest(kv="eager")
    stood = standings(library)
    changed = next(one for one in stood if any(one in other.behind for other in stood.values()))
    old, path = set(hashes(library, changed)), Path(library.catalog.documents.get(changed).source)
    path.write_text(path.read_text().replace("lamp", "lantern"))
    ingest(kv="eager")
    assert not models.store.seeing(old)
    assert set(contexts(settings)) == library.catalog.chunks.hashes()
    assert missing(library, models) == 0
    assert all(one not in standing.behind for one, standing in standings(library).items())


def test_warming_gives_places_to_what_came_without_kv(
    ingest: Run, library: Library, models: Models, stories: Path
) -> None:
    """Its own chunks, which the indexes hold by then, are no neighbours."""
    chunks = ingest().chunks
    assert chunks < missing(library, models) <= 1.25 * chunks
    stood = standings(library)
    assert [standing.behind for standing in stood.values()].count(()) == 1
    assert all(one not in standing.behind for one, standing in stood.items())
    assert missing(library, models) == 0


def test_what_stood_behind_nothing_stays_as_it_is(ingest: Run, library: Library, models: Models, stories: Path) -> None:
    """As documents of before do."""
    ingest(kv="eager")
    collection, kept = library.catalog.collections.get("default"), standings(library)
    for document, standing in kept.items():
        library.catalog.order.set(collection, document, Standing(standing.place))
    models.store.check_integrity()
    lost = [key for one in kept for key in seeing(library, models, one)]
    for key in lost:
        models.store.delete(key)
    assert 0 < missing(library, models) <= len(lost)
    assert not any(seeing(library, models, one) for one in kept)
    assert all(standing.behind == () for standing in standings(library).values())
    assert missing(library, models) == 0
