"""What a killed process has left undone of KV that is to go, or is to come again: the next ingest does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from app.cachecare import prune
from app.cachecare.warming import warm
from app.ingestion.capture import KvCapture, KvRemoval
from app.library import Library, indexes
from app.library.catalog import sentences
from app.library.catalog.sentences import Sentences
from app.library.catalog.tables import SENTENCES
from app.library.removal import remove_documents
from app.models import Models
from app.settings import Settings
from ragcache.errors import StoreError
from tests.app.ingestion.conftest import Run
from tests.app.ingestion.test_order import chunk_of, contexts, notes, standings

__all__ = ["notes"]


class Killed(BaseException):
    """No code catches it, as none runs any more in a process that is killed."""


def four_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks get their sentences, and no ingest takes longer for it."""
    monkeypatch.setattr(indexes, "_FEW", 4)
    monkeypatch.setattr(indexes, "MOST_LEFT_S", 0.0)


@pytest.mark.parametrize(
    ("place", "name", "between"),
    [
        (KvRemoval, "drop", "nothing"),
        (KvRemoval, "finish", "nothing"),
        (KvCapture, "renew", "nothing"),
        (KvRemoval, "settle", "nothing"),
        (KvRemoval, "drop", "prune"),
        (KvRemoval, "finish", "rm"),
        (KvCapture, "renew", "off"),
    ],
)
def test_the_next_ingest_does_what_a_killed_one_left(
    ingest: Run,
    library: Library,
    models: Models,
    settings: Settings,
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: type,
    name: str,
    between: str,
) -> None:
    """Of a changed document: its old KV, what was computed over that, and the KV of those that have lost theirs."""

    def killed(*_: object) -> None:
        raise Killed

    ingest(kv="eager")
    collection, stood = library.catalog.collections.get("default"), standings(library)
    changed = max(stood, key=lambda one: sum(one in other.behind for other in stood.values()))
    old = chunk_of(library, changed)
    Path(library.catalog.documents.get(changed).source).write_text("Something else entirely, about bread.")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(place, name, killed)
        ingest(kv="eager")
    assert chunk_of(library, changed) != old
    assert library.catalog.orphans.of(collection)[0] == {old}
    if between == "prune":
        prune(library, models)
    elif between == "rm":
        other = next(one for one in stood if one != changed)
        Path(library.catalog.documents.get(other).source).unlink()
        remove_documents(library, models, collection, [other])
        list(warm(library, models, collection))  # what that took is computed on use
    elif between == "off":
        ingest(kv="off")
    ingest(kv="eager")
    assert old not in contexts(settings) and not models.store.seeing({old})
    assert library.catalog.orphans.of(collection) == (set(), set())
    *_, done = warm(library, models, collection)
    assert done.computed == 0


def test_what_cannot_be_deleted_keeps_no_other_and_is_tried_again(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(kv="eager")
    collection, stood = library.catalog.collections.get("default"), list(standings(library))
    hashes = {one: chunk_of(library, one) for one in stood[:3]}
    stuck, *others = hashes.values()

    def drop(fingerprint: str, system: str, chunk: str, *where: str, **how: Any) -> int:
        if chunk == stuck:
            raise StoreError("the file is held")
        return dropped(fingerprint, system, chunk, *where, **how)

    dropped = models.store.drop_chunk
    for one in stood[:2]:
        Path(library.catalog.documents.get(one).source).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(models.store, "drop_chunk", drop)
        told = ingest(kv="eager", prune="all")
        assert [note for note in told.notes if "the next ingest tries it again" in note]
        assert stuck in contexts(settings) and others[0] not in contexts(settings)
        assert stuck in library.catalog.orphans.of(collection)[0]
        Path(library.catalog.documents.get(stood[2]).source).unlink()
        remove_documents(library, models, collection, [stood[2]])
        assert others[1] not in contexts(settings)
    ingest(kv="eager")
    assert stuck not in contexts(settings)
    assert library.catalog.orphans.of(collection)[0] == set()


def test_the_next_ingest_does_what_a_killed_removal_left(
    ingest: Run, library: Library, models: Models, settings: Settings, notes: Path
) -> None:
    ingest(kv="eager")
    collection, stood = library.catalog.collections.get("default"), standings(library)
    gone = next(one for one in stood if sum(one in other.behind for other in stood.values()) > 2)
    chunk, source = chunk_of(library, gone), library.catalog.documents.get(gone).source
    library.catalog.documents.delete(collection, [gone])
    Path(source).unlink()
    assert chunk in contexts(settings)
    ingest(kv="eager")
    assert chunk not in contexts(settings) and not models.store.seeing({chunk})


def test_sentences_that_a_killed_one_did_not_write_are_made_by_the_next(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "long.txt").write_text("\n\n".join(f"In the year {year} the harbour froze." * 20 for year in range(90)))

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(sentences, "AT_ONCE", 1000)
        patch.setattr(Sentences, "add", killed)
        ingest()
    collection, kept = library.catalog.collections.get("default"), library.catalog.sentences
    assert len(kept.lacking(collection, 0, 999)) > 3
    assert ingest().unchanged == 1
    assert kept.lacking(collection, 0, 999) == []


@pytest.mark.parametrize("whole", [True, False])
def test_sentences_of_an_embedding_anew_that_was_killed_are_made_by_the_next(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """So many of them each time; until then the ingest says so, and nothing is learnt without them."""
    for number in range(6):
        (docs / f"{number}.txt").write_text(f"In the year {number} the harbour froze. Ships lay still.")
    ingest()
    made, kept = library.catalog.collections, library.catalog.sentences
    old = made.get("default")
    vectors = [(ids, them) for ids, _, them in library.catalog.source(old).added(0)]
    new = made.reembed(old, old.embedder, old.embedder_fingerprint, old.dimension, vectors)
    assert len(kept.lacking(new, 0, 999)) == 6
    (docs / "new.txt").write_text("Nobody knew the captain. He sailed alone.")
    if not whole:
        four_at_a_time(monkeypatch)
        (told,) = [note for note in ingest().notes if "sentences" in note]
        assert "`ragcache reindex -c default`" in told
        assert len(kept.lacking(new, 0, 999)) == 2 and made.get("default").retrieval is None
    assert not [note for note in ingest().notes if "sentences" in note]
    assert kept.lacking(new, 0, 999) == [] and made.get("default").retrieval is not None


def test_sentences_of_chunks_of_before_are_made_where_the_first_lacks_them(
    ingest: Run, library: Library, docs: Path
) -> None:
    (docs / "a.txt").write_text("The harbour froze. Ships lay still.")
    ingest()
    collection, kept = library.catalog.collections.get("default"), library.catalog.sentences
    assert collection.retrieval is not None and kept.begun(collection)
    with library.catalog.database.writing() as connection:
        connection.execute(delete(SENTENCES))
    assert not kept.begun(collection)
    ingest()
    assert kept.lacking(collection, 0, 999) == []


def test_sentences_of_many_chunks_of_before_are_made_by_several(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chunk comes last: it stands for all of them."""
    for number in range(7):
        (docs / f"{number}.txt").write_text(f"In the year {number} the harbour froze. Ships lay still.")
    ingest()
    collection, kept = library.catalog.collections.get("default"), library.catalog.sentences
    assert collection.retrieval is not None
    with library.catalog.database.writing() as connection:
        connection.execute(delete(SENTENCES))
    four_at_a_time(monkeypatch)
    assert [note for note in ingest().notes if "sentences" in note]
    lacking = kept.lacking(collection, 0, 999)
    assert len(lacking) == 3 and not kept.begun(collection)
    assert not [note for note in ingest().notes if "sentences" in note]
    assert kept.lacking(collection, 0, 999) == []


def test_an_ingest_ends_where_old_sentences_cannot_be_embedded(
    ingest: Run, library: Library, docs: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "a.txt").write_text("The harbour froze. Ships lay still.")
    ingest()
    collection = library.catalog.collections.get("default")
    with library.catalog.database.writing() as connection:
        connection.execute(delete(SENTENCES))
    (docs / "b.txt").write_text("Nobody knew the captain. He sailed alone.")

    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(indexes, "_add_sentences", broken)
    told = ingest()
    assert told.added == 1 and [note for note in told.notes if "have no sentences yet" in note]
    monkeypatch.undo()
    ingest()
    assert library.catalog.sentences.lacking(collection, 0, 999) == []
