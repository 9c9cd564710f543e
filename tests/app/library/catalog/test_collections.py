from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sqlalchemy import Engine, event

from app.errors import CatalogError
from app.library.catalog import Catalog
from app.library.catalog.records import Collection, CollectionTotals, NewMessage, Removed
from tests.app.library.catalog.samples import DIMENSION, digest, document, make_collection


def test_collections_by_name(catalog: Catalog) -> None:
    assert catalog.collections.find("b") is None
    assert catalog.collections.all() == []
    made = make_collection(catalog, "b", splitter_settings={"chunk_tokens": 200})
    first = make_collection(catalog, "a")
    assert catalog.collections.get("b") == catalog.collections.find("b") == made
    assert catalog.collections.all() == [first, made]
    assert made.splitter_settings == {"chunk_tokens": 200}
    assert made.uid != first.uid
    with pytest.raises(CatalogError, match="no collection 'c'; there are: a, b"):
        catalog.collections.get("c")
    with pytest.raises(CatalogError, match="'a' already: choose another name"):
        make_collection(catalog, "a")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\0", "x" * 201], ids=ascii)
def test_what_names_no_collection(catalog: Catalog, name: str) -> None:
    with pytest.raises(CatalogError, match="cannot name a collection"):
        make_collection(catalog, name)


def test_a_collection_can_change(catalog: Catalog, collection: Collection) -> None:
    make_collection(catalog, "taken")
    catalog.collections.set_engine(collection, "engine", "system")
    bound = dataclasses.replace(collection, splitter="fixed", splitter_settings={"overlap": 3})
    catalog.documents.replace(bound, *document(["a"]), bind=True)
    catalog.collections.rename(collection, "Bücher & Hefte")
    changed = catalog.collections.get("Bücher & Hefte")
    assert (changed.id, changed.uid) == (collection.id, collection.uid)
    assert catalog.collections.with_id(collection.id) == changed
    assert (changed.engine_fingerprint, changed.system_hash) == ("engine", "system")
    assert (changed.splitter, changed.splitter_settings) == ("fixed", {"overlap": 3})
    with pytest.raises(CatalogError, match="'taken' already"):
        catalog.collections.rename(changed, "taken")


def test_one_that_is_deleted_has_no_id(catalog: Catalog, collection: Collection) -> None:
    catalog.collections.delete(collection)
    assert catalog.collections.with_id(collection.id) is None


def test_a_splitter_may_have_any_length(catalog: Catalog, collection: Collection) -> None:
    """Also one that is longer than its column, of which a server holds the length."""
    for spec in ("x" * 64, "x" * 65, "llama_index.core.node_parser." + "ü" * 900, "auto"):
        bound = dataclasses.replace(collection, splitter=spec, splitter_settings={"max_tokens": 200})
        catalog.documents.replace(bound, *document(["a"]), bind=True)
        (found,) = catalog.collections.all()
        assert (found.splitter, found.splitter_settings) == (spec, {"max_tokens": 200})
        made = make_collection(catalog, "new", splitter=spec, splitter_settings={"min_tokens": 3})
        assert (made.splitter, made.splitter_settings) == (spec, {"min_tokens": 3})
        catalog.collections.delete(made)


def test_another_embedder_is_refused_with_the_command(catalog: Catalog) -> None:
    collection = make_collection(catalog, "my books")
    catalog.collections.check_embedder(collection, "anything", collection.embedder_fingerprint)
    with pytest.raises(CatalogError, match=r"embedded by bundled:minilm .* `ragcache reindex -c 'my books'`"):
        catalog.collections.check_embedder(collection, "other/model", "0" * 64)


def test_embedding_again_gives_every_chunk_its_vector(catalog: Catalog, collection: Collection) -> None:
    ids = catalog.documents.replace(collection, *document(["a", "b", "c"])).chunk_ids
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    new = catalog.collections.reembed(
        collection, "new", "n" * 64, 2, [(ids[:2], vectors[:2]), (np.array(ids[2:]), vectors[2:])]
    )
    assert (new.id, new.embedder, new.embedder_fingerprint, new.dimension) == (collection.id, "new", "n" * 64, 2)
    assert new.uid != collection.uid
    ((found, _, stored),) = catalog.source(new).added(0)
    assert found.tolist() == list(ids)
    np.testing.assert_array_equal(stored, vectors)


def test_embedding_again_must_know_every_chunk(catalog: Catalog, collection: Collection) -> None:
    ids = catalog.documents.replace(collection, *document(["a", "b"])).chunk_ids
    before = [vectors.tolist() for _, _, vectors in catalog.source(collection).added(0)]
    with pytest.raises(CatalogError, match="changed while it was embedded again"):
        catalog.collections.reembed(collection, "new", "n", 4, [(ids[:1], np.ones((1, DIMENSION), np.float32))])
    assert catalog.collections.get(collection.name) == collection
    assert [vectors.tolist() for _, _, vectors in catalog.source(collection).added(0)] == before


def test_totals_of_many_take_as_many_queries_as_those_of_one(catalog: Catalog) -> None:
    shelves = [make_collection(catalog, name) for name in ("empty", "one", "two")]
    for number, shelf in enumerate(shelves):
        for place in range(number):
            catalog.documents.replace(shelf, *document(["a", "bc"], f"/{place}.txt"))
    asked = list[str]()

    def count(connection: object, cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", count)
    try:
        found = catalog.collections.totals_of(shelves)
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert len(asked) == 2
    assert found == {one.id: catalog.collections.totals(one) for one in shelves}
    assert [found[one.id].chunks for one in shelves] == [0, 2, 4]


def test_totals_count_one_collection(catalog: Catalog, collection: Collection) -> None:
    assert catalog.collections.totals(collection) == CollectionTotals(0, 0, 0, 0, 0)
    catalog.documents.replace(collection, *document(["one", "three"], "/a", size=100))
    catalog.documents.fail(collection, document(["x"], "/b", size=5)[0], "empty")
    catalog.documents.replace(make_collection(catalog, "other"), *document(["x"]))
    assert catalog.collections.totals(collection) == CollectionTotals(
        documents=2, failed=1, nbytes=105, chunks=2, tokens=8
    )


def test_deleting_a_collection_takes_all_of_it(catalog: Catalog, collection: Collection) -> None:
    other = make_collection(catalog, "other")
    written = catalog.documents.replace(collection, *document(["mine", "shared"]))
    catalog.documents.replace(other, *document(["shared"]))
    conversation = catalog.conversations.create(collection)
    catalog.conversations.add(conversation.id, [NewMessage("user", "why?")])
    catalog.runs.start(collection)
    assert catalog.collections.delete(collection) == Removed(1, 2, (digest("mine"),))
    assert catalog.collections.all() == [other]
    assert catalog.chunks.found(written.chunk_ids) == []
    with pytest.raises(CatalogError, match="no conversation"):
        catalog.conversations.messages(conversation.id)
    with pytest.raises(CatalogError, match="gone"):
        catalog.collections.delete(collection)
    with pytest.raises(CatalogError, match="deleted it meanwhile"):
        catalog.conversations.create(collection)
    assert make_collection(catalog, "default").id > other.id, "the id is not given again"


def test_what_was_begun_before_another_server_embedded_it_anew_is_not_written(
    catalog: Catalog, collection: Collection
) -> None:
    """Its vectors are of the old embedder, and its numbers of chunks may be of another history."""
    stored = catalog.documents.replace(collection, *document(["a", "b"]))
    batches = [(batch[0], np.ones((2, DIMENSION), np.float32)) for batch in catalog.source(collection).added(0)]
    new = catalog.collections.reembed(collection, "another", "e" * 64, DIMENSION, batches)
    before = catalog.documents.states(new), catalog.source(new).position()
    record, chunks = document(["c"])
    for act in (
        lambda: catalog.documents.replace(collection, record, chunks),
        lambda: catalog.documents.fail(collection, record, "bad"),
        lambda: catalog.documents.delete(collection, [stored.document_id]),
        lambda: catalog.collections.reembed(collection, "third", "d" * 64, DIMENSION, batches),
        lambda: catalog.collections.delete(collection),
        lambda: catalog.collections.rename(collection, "other"),
        lambda: catalog.chunks.retokenize(collection, [(stored.chunk_ids[0], 9, "hash")]),
    ):
        with pytest.raises(CatalogError, match=r"was embedded again or restored meanwhile by another process.*run the"):
            act()
    assert (catalog.documents.states(new), catalog.source(new).position()) == before
    assert catalog.collections.all() == [new]
    other = dataclasses.replace(new, embedder_fingerprint="f" * 64)
    with pytest.raises(CatalogError, match="nothing of this change was written"):
        catalog.documents.replace(other, record, chunks)
    assert catalog.documents.replace(new, record, chunks).removed.chunks == 2
