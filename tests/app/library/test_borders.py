"""KV within the borders around collections: it goes with what it served, whatever uid the collection had then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.cachecare import prune, take_census
from app.chat.contexts import ContextRequest, Contexts
from app.library import Library, kv_removal
from app.library.catalog.records import Collection
from app.library.kv import border_around
from app.library.removal import remove_collection, remove_documents
from app.models import Models
from ragcache.store.folder import CacheFolder
from ragcache.types import System
from tests.app.library.shelves import DIMENSION, files, fill

TEXT, OTHER = "The bell rang at noon.", "Nobody heard it."
BOOK = {"/a.txt": [TEXT]}


def captured(models: Models, border: str, *texts: str, system: str = "") -> list[str]:
    """Addresses of the KV of texts within a border, which an answer has left, without the System segment's."""
    template = models.template.within(border)
    front = System((7, 8, 9), border) if system else template.system()
    return [one.key.digest for one in models.cache.ingest(front, [template.chunk(text) for text in texts])]


def embedded_again(library: Library, collection: Collection) -> Collection:
    ids = library.catalog.source(collection).live_ids({})
    vectors = np.ones((len(ids), DIMENSION), np.float32)
    return library.catalog.collections.reembed(collection, "new", "e" * 32, DIMENSION, [(ids, vectors)])


def remove(library: Library, models: Models, collection: Collection, whole: bool) -> int:
    if whole:
        return remove_collection(library, models, collection).kv_variants
    ids = [one.id for one in library.catalog.documents.all(collection)]
    return remove_documents(library, models, collection, ids).kv_variants


@pytest.mark.parametrize("whole", [False, True])
def test_a_text_takes_its_kv_within_a_border_of_before_with_it(library: Library, models: Models, whole: bool) -> None:
    """Around the collection as it was before it was embedded again, behind whatever System segment."""
    collection = fill(library, models, books=BOOK)
    before = border_around(collection)
    gone = [*captured(models, before, TEXT), *captured(models, before, TEXT, system="another")]
    now = embedded_again(library, collection)
    gone += [*captured(models, border_around(now), TEXT), *captured(models, "", TEXT)]
    stays = captured(models, "key-ann", TEXT)
    assert remove(library, models, now, whole) == len(gone) == 4
    assert not files(library).intersection(gone)
    assert files(library).issuperset(stays), "it is a context cache's"


def test_a_text_takes_its_kv_within_borders_of_all_that_had_it_with_it(library: Library, models: Models) -> None:
    """Of two collections, the one that lost it first too; what another still has keeps its own."""
    first, second = (fill(library, models, name, BOOK) for name in ("first", "second"))
    apart, own = captured(models, border_around(first), TEXT), captured(models, border_around(second), TEXT)
    for_all = captured(models, "", TEXT)
    remove(library, models, first, whole=False)
    assert files(library).issuperset([*own, *for_all])
    remove(library, models, second, whole=False)
    assert not files(library).intersection([*apart, *own, *for_all])


def test_pruning_takes_what_serves_nobody_within_a_border(library: Library, models: Models) -> None:
    """Around a collection that is gone or had another uid, or of a text that it does not have; and what saw such one,
    there alone.
    """
    collection = fill(library, models, books={"/a.txt": [TEXT, OTHER]}, kv=True)
    second, gone = (fill(library, models, name, {f"/{name}.txt": [OTHER]}) for name in ("second", "gone"))
    before, everybodys = border_around(collection), files(library)
    for border in (before, border_around(gone)):
        captured(models, border, TEXT, OTHER)
    collection = embedded_again(library, collection)
    remove_collection(library, models, gone)
    there = files(library)
    captured(models, border_around(collection), TEXT, OTHER)
    captured(models, border_around(second), OTHER)
    captured(models, "key-ann", TEXT, OTHER)
    live = everybodys | (files(library) - there)
    captured(models, border_around(second), TEXT, OTHER)
    dead = files(library) - live
    assert len(dead) == 2 * 3 + 2, "System segment and both texts, and of the second a text and what saw it"
    assert len(take_census(library, models).dead) == len(dead) - 1
    assert prune(library, models, dry=True).unreferenced.entries == len(dead)
    assert prune(library, models).unreferenced.entries == len(dead)
    assert files(library) == live


@pytest.mark.parametrize("whole", [False, True])
def test_a_text_that_a_cache_of_everybodys_shares_goes_from_the_borders_around_collections(
    library: Library, models: Models, whole: bool
) -> None:
    """With what was computed over it there; what is everybody's goes with the cache, and all of it from the borders."""
    collection, caches = fill(library, models, books=BOOK), Contexts(library, models)
    captured(models, "", OTHER)
    made, border = caches.create(ContextRequest([TEXT])), border_around(collection)
    stays, gone = captured(models, "", TEXT, OTHER), captured(models, border, TEXT, OTHER)
    assert remove(library, models, collection, whole) == len(gone) == 2
    assert files(library).issuperset(stays) and not files(library).intersection(gone)
    assert library.catalog.orphans.of(collection) == (set(), set())
    late = captured(models, border, TEXT, OTHER)
    caches.expire(made.id)
    assert not files(library).intersection([*stays, *late])


@pytest.mark.parametrize("whole", [False, True])
def test_a_text_that_goes_takes_nothing_of_what_a_key_has_brought(
    library: Library, models: Models, whole: bool
) -> None:
    """Pinned as it is: its next prompt would tell it that somebody had that text."""
    collection, caches = fill(library, models, books=BOOK, kv=True), Contexts(library, models)
    over = captured(models, "", TEXT, OTHER)[1]
    made = caches.create(ContextRequest([TEXT, OTHER], pinned=True), "ann", "key-ann")
    folder = CacheFolder(library.settings.kv_folder)
    pinned = {item.path.stem for item in folder.items() if item.pinned}
    assert len(pinned) == 3 and over not in pinned
    remove(library, models, collection, whole)
    assert over not in files(library)
    assert {item.path.stem for item in folder.items() if item.pinned} == pinned <= files(library)
    caches.expire(made.id, "ann")
    assert not any(item.pinned for item in folder.items())


def pinned(library: Library) -> set[str]:
    return {item.path.stem for item in CacheFolder(library.settings.kv_folder).items() if item.pinned}


def test_a_cache_that_is_made_while_texts_go_keeps_what_had_not_gone(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned as it is. It takes minutes where they are many."""
    texts = {models.template.chunk(text).hash: text for text in (TEXT, OTHER, "It was cast in 1855.")}
    books = {f"/{text}.txt": [text] for text in texts.values()}
    collection, caches = fill(library, models, books=books, kv=True), Contexts(library, models)
    drop, there = models.store.drop_chunk, set[str]()

    def late(fingerprint: str, system: str, chunk: str, *told: str, **more: Any) -> int:
        if not there:
            left = [text for one, text in texts.items() if one != chunk]
            caches.create(ContextRequest(left, pinned=True))
            there.update(pinned(library))
        return drop(fingerprint, system, chunk, *told, **more)

    monkeypatch.setattr(kv_removal, "ASKED", 1)
    monkeypatch.setattr(models.store, "drop_chunk", late)
    remove(library, models, collection, whole=False)
    assert pinned(library) == there and len(there) == 3
