from __future__ import annotations

import difflib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import QueuePool

from app.errors import CatalogError
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.records import Collection
from app.library.catalog.source import MOST, MOST_NAMED
from app.settings import Settings
from retriever.sentences import pack
from retriever.source import Position
from tests.app.library.catalog.samples import DIMENSION, document, make_collection, vector


def test_the_source_tells_the_chunks_in_order(catalog: Catalog, collection: Collection) -> None:
    source = catalog.source(collection)
    assert (source.position(), list(source.added(0)), source.retired(0)) == (Position(), [], [])
    words = [f"word{number}" for number in range(10)]
    ids: list[int] = []
    for number in (0, 5):
        new = document(words[number : number + 5], f"/docs/{number}")
        ids += catalog.documents.replace(collection, *new).chunk_ids
        catalog.documents.replace(make_collection(catalog, f"other{number}"), *new)
    batches = list(source.added(ids[1], batch=3))
    assert [len(batch[0]) for batch in batches] == [3, 3, 2]
    assert np.concatenate([batch[0] for batch in batches]).tolist() == ids[2:]
    assert [text for _, texts, _ in batches for text in texts] == [
        f"/docs/{5 * (place // 5)}\n{word}" for place, word in enumerate(words) if place > 1
    ]
    vectors = np.concatenate([batch[2] for batch in batches])
    assert (vectors.dtype, vectors.shape[1]) == (np.float32, source.dimension)
    np.testing.assert_array_equal(vectors, np.stack([vector(word) for word in words[2:]]))
    assert source.position() == Position(high=ids[-1], retired=0, live=10)


def test_what_others_write_is_seen(catalog: Catalog, collection: Collection, settings: Settings) -> None:
    assert catalog.source(collection).position().live == 0
    with open_catalog(settings) as other:
        other.documents.replace(collection, *document(["one", "two"]))
    assert catalog.source(collection).position().live == 2


def test_following_from_any_position_ends_at_the_same_chunks(catalog: Catalog, collection: Collection) -> None:
    """What an index does: take what is new, drop what is retired."""
    source, rng = catalog.source(collection), np.random.default_rng(0)
    followers: list[tuple[Position, set[int]]] = [(Position(), set())]
    for step in range(20):
        name = f"/docs/{rng.integers(4)}"
        if rng.random() < 0.3 and (found := catalog.documents.find(collection, name)) is not None:
            catalog.documents.delete(collection, [found.id])
        else:
            words = [f"{step} {number}" for number in range(rng.integers(1, 4))]
            catalog.documents.replace(collection, *document(words, name))
        live = source.live_ids({}).tolist()
        for number, (known, held) in enumerate(followers):
            now = source.position()
            held |= {int(one) for ids, _, _ in source.added(known.high) for one in ids}
            held -= {one for _, one in source.retired(known.retired)}
            assert (sorted(held), len(held)) == (live, now.live)
            followers[number] = (now, held)
        followers.append((source.position(), set(live)))


def test_a_follower_misses_nothing_while_others_write(catalog: Catalog, collection: Collection) -> None:
    """Ids and numbers must become visible in their order, or what comes late stays unseen."""

    def write(worker: int) -> None:
        for number in range(15):
            catalog.documents.replace(collection, *document([f"{worker} {number}", "x"], f"/{worker}/{number % 2}"))

    source, known, held = catalog.source(collection), Position(), set[int]()
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, worker) for worker in range(4)]
        while True:
            done, now = all(writer.done() for writer in writers), source.position()
            new = [int(one) for ids, _, _ in source.added(known.high) for one in ids if one <= now.high]
            held = (held | set(new)) - {one for number, one in source.retired(known.retired) if number <= now.retired}
            known = now
            if done:
                break
    for writer in writers:
        writer.result()
    assert sorted(held) == source.live_ids({}).tolist()


def test_filters_have_as_many_values_as_a_database_takes(catalog: Catalog, collection: Collection) -> None:
    made = catalog.documents.replace(collection, *document(["a", "b"], "/a"))
    source = catalog.source(collection)
    most = [made.document_id, *["/a"] * (MOST - 1)]
    assert source.live_ids({"document": most}).tolist() == list(made.chunk_ids)
    with pytest.raises(CatalogError, match=r"filters of 30,001 values: a question can have 30,000\. Put the documents"):
        source.live_ids({"document": most[1:], "source": ["/a"] * 2})


def test_each_batch_is_of_one_moment_and_nothing_is_open_between_two(catalog: Catalog, collection: Collection) -> None:
    catalog.documents.replace(collection, *document(["a", "b", "c"]))
    source, pool = catalog.source(collection), catalog.chunks._database._engine.pool
    assert isinstance(pool, QueuePool)
    batches = source.added(0, batch=2)
    assert [text[-1] for text in next(batches)[1]] == ["a", "b"]
    texts = catalog.chunks.texts(collection)
    assert next(texts)[1] == "a"
    assert pool.checkedout() == 0, "a log cannot be shortened while somebody reads"
    catalog.documents.replace(collection, *document(["d", "e", "f"]))
    assert [text[-1] for _, batch, _ in batches for text in batch] == ["d", "e", "f"], "what is behind it as it is now"
    log = source.retired(0)
    assert [number for _, number in log] == [1, 2, 3]
    assert source.retired(0, 2) == log[:2] and source.retired(log[1][0], 2) == log[2:]
    assert "".join(text for _, text in texts) == "bcdef"


def test_filters(catalog: Catalog, collection: Collection) -> None:
    a = catalog.documents.replace(collection, *document(["a1", "a2"], "/a"))
    b = catalog.documents.replace(collection, *document(["b"], "/b", kind="code"))
    catalog.documents.replace(make_collection(catalog, "other"), *document(["a"], "/a"))
    source = catalog.source(collection)
    both = [*a.chunk_ids, *b.chunk_ids]
    for where, expected in (
        ({}, both),
        ({"document": ["/a"]}, list(a.chunk_ids)),
        ({"document": [b.document_id, "/a"]}, both),
        ({"kind": ["code"]}, list(b.chunk_ids)),
        ({"kind": ["code"], "document": ["/a"]}, []),
    ):
        found = source.live_ids(where)
        assert (found.dtype, found.tolist()) == (np.int64, expected), where


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ({"author": ["x"]}, "no filter 'author': choose from document, kind, source"),
        ({"document": ["typo.pdf"]}, "no document 'typo.pdf' in collection 'default': `ragcache ls"),
        ({"source": ["/docs/a.txt", "a.txt"]}, "no document 'a.txt' in collection 'default'; there is: /docs/a.txt"),
        ({"source": ["/docs/a.tx"]}, "no document '/docs/a.tx' in collection 'default'; there is: /docs/a.txt"),
        ({"document": [2**70]}, "no document 1180591620717411303424 in collection 'default'"),
        ({"document": [-(2**70)]}, "no document -1180591620717411303424 in collection 'default'"),
        ({"document": [99999]}, "no document 99999 in collection 'default'"),
        ({"source": [1]}, "no document 1 in collection 'default'"),
        ({"document": [None]}, "no document None in"),
        ({"document": ["/only/there"]}, "no document '/only/there'"),
        ({"document": ["\udcff\0"]}, r"no document '\\udcff\\x00'"),
        ({"kind": ["code", "prosa"]}, "no document of the kind 'prosa'; there are: code, prose"),
        ({"kind": []}, r"the filter 'kind' is \[\]: give a list of one value or more, or leave it out"),
        ({"kind": "code"}, "the filter 'kind' is 'code': give a list"),
    ],
)
def test_filters_that_can_match_nothing_are_refused(
    catalog: Catalog, collection: Collection, where: dict[str, Any], told: str
) -> None:
    catalog.documents.replace(collection, *document(["a1", "a2"]))
    catalog.documents.replace(collection, *document(["b"], "/b", kind="code"))
    catalog.documents.replace(make_collection(catalog, "other"), *document(["a"], "/only/there", kind="prosa"))
    with pytest.raises(CatalogError, match=told):
        catalog.source(collection).live_ids(where)


def test_what_is_alike_is_looked_for_among_a_bounded_number_of_names(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    real = difflib.SequenceMatcher.set_seq1
    monkeypatch.setattr(
        difflib.SequenceMatcher, "set_seq1", lambda matcher, name: (compared.append(name), real(matcher, name))[1]
    )
    for number in range(600):
        catalog.documents.fail(collection, document(["a"], f"/{'folder/' * 20}report {number}.pdf")[0], "torn")
    with pytest.raises(CatalogError, match=r"there is: /folder/.*report 41\.pdf"):
        catalog.source(collection).live_ids({"source": ["/elsewhere/report 41.pdf"]})
    assert 0 < len(compared) <= 501 and max(map(len, compared)) < 20


def test_chunks_come_in_the_order_asked_for(catalog: Catalog, collection: Collection) -> None:
    a = catalog.documents.replace(collection, *document(["a1", "a2"], "/a"))
    b = catalog.documents.replace(collection, *document(["b"], "/b"))
    ids = [b.chunk_ids[0], a.chunk_ids[1], 99999, a.chunk_ids[0]]
    found = catalog.chunks.found(np.array(ids))
    assert [(one.chunk.text, one.document.source) for one in found] == [("b", "/b"), ("a2", "/a"), ("a1", "/a")]
    assert catalog.chunks.found([]) == []
    assert found[0].document == catalog.documents.get(b.document_id)


def test_a_source_of_old_vectors_is_refused(catalog: Catalog, collection: Collection) -> None:
    source = catalog.source(collection)
    catalog.collections.reembed(collection, "new", "n", DIMENSION + 1, [])
    with pytest.raises(CatalogError, match="embedded again: open it anew"):
        source.position()


def test_a_title_as_long_as_a_book_names_no_chunk_whole(catalog: Catalog, collection: Collection) -> None:
    catalog.documents.replace(collection, *document(["one", "two"], title="Title " * 50_000))
    ((_, texts, _),) = catalog.source(collection).added(0)
    assert [len(text) for text in texts] == [MOST_NAMED + len("\none")] * 2


def test_sentences_of_another_model_are_not_read(catalog: Catalog, collection: Collection) -> None:
    text, chunks = document(["one"])
    sentences = pack(vector("one")[np.newaxis])
    ids = catalog.documents.replace(collection, text, [replace(chunks[0], sentences=sentences)]).chunk_ids
    source, asked = catalog.source(collection), np.array(ids)
    assert source.sentences(asked) == [sentences]
    new = catalog.collections.reembed(collection, "new", "n", DIMENSION, [(ids, chunks[0].embedding[np.newaxis])])
    catalog.sentences.add(new, [(ids[0], sentences)])
    assert catalog.source(new).sentences(asked) == [sentences]
    assert source.sentences(asked) == [None]
