from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from app.cachecare import prune
from app.errors import CatalogError, MaintenanceError
from app.library import Library, indexes
from app.library.catalog.locks import lock_file
from app.library.folder_claim import MARKER
from app.library.originals import Originals
from app.library.removal import Removal, remove_collection, remove_documents
from app.models import Models
from app.settings import Settings
from ragcache.errors import StoreError
from ragcache.prefix import addresses
from ragcache.store.disk import DiskTier
from ragcache.types import System, Text, VariantKey
from retriever.keyword_index import KeywordIndex
from retriever.vector_index import VectorIndex
from tests.app.library.shelves import BOOKS, DIMENSION, files, fill, put


def test_a_document_goes_with_its_kv_but_not_with_that_of_others(library: Library, models: Models) -> None:
    collection = fill(library, models, kv=True)
    shared = BOOKS["/books/rye.txt"][:1]
    other = fill(library, models, "other", {"/elsewhere/copy.txt": shared}, kv=True)
    rye = library.catalog.documents.find(collection, "/books/rye.txt")
    assert rye is not None
    before = files(library)
    removal = remove_documents(library, models, collection, [rye.id, 10**6])
    assert removal == Removal(documents=1, chunks=2, kv_variants=1)
    assert library.catalog.documents.find(collection, "/books/rye.txt") is None
    spec, system = models.language.engine.spec, models.template.system()
    kept = VariantKey(spec.fingerprint, system.hash, (), models.template.chunk(shared[0]).hash)
    assert kept.digest in files(library)
    assert len(before - files(library)) == 1
    assert remove_collection(library, models, other).kv_variants == 1
    assert kept.digest not in files(library)


@pytest.mark.parametrize("whole", [False, True])
def test_nothing_goes_where_nobody_can_tell_whose_its_file_is(
    library: Library, models: Models, tmp_path: Path, whole: bool
) -> None:
    """And all of it does when that is mended."""
    books = {"upload:/a.pdf": ("The secret of the mill.", "Nobody may read it.")}
    collection = fill(library, models, books=books, kv=True)
    file, content = tmp_path / "a.pdf", hashlib.sha256("\n".join(books["upload:/a.pdf"]).encode()).hexdigest()
    file.write_bytes(b"%PDF")
    originals = Originals(library)
    originals.keep(file, content)
    marker = library.settings.data_dir / MARKER
    marker.write_bytes(b"\0" * 16)
    document, before = library.catalog.documents.find(collection, "upload:/a.pdf"), files(library)
    assert document is not None and before

    def remove() -> Removal:
        if whole:
            return remove_collection(library, models, collection)
        return remove_documents(library, models, collection, [document.id])

    with pytest.raises(CatalogError, match="is damaged: delete it"):
        remove()
    assert library.catalog.documents.find(collection, "upload:/a.pdf") is not None
    assert files(library) == before and originals.path(content).exists()
    marker.unlink()
    assert remove().documents == 1
    assert len(files(library)) == 1 and not originals.path(content).exists(), "the System segment's alone stays"


def test_the_index_files_forget_it(library: Library, models: Models) -> None:
    collection = fill(library, models)
    indexes.rebuild(library, collection)
    folder, source = library.index_folder(collection), library.catalog.source(collection)
    lamps = library.catalog.documents.find(collection, "/books/lamps.txt")
    assert lamps is not None
    remove_documents(library, models, collection, [lamps.id])
    vectors = VectorIndex(DIMENSION, collection.embedder_fingerprint, folder)
    words = KeywordIndex(folder)
    for index in (vectors, words):
        index.catch_up(source)
        assert index.live == 2
    assert not len(words.search("lamp", 3)[0])
    manifests = [path.read_text() for path in folder.glob("*.json")]
    assert len(manifests) == 2
    assert all('"live": 2' in text for text in manifests), "the files themselves, not what a query made of them"


def test_a_small_deletion_rewrites_no_large_index(library: Library, models: Models) -> None:
    """The sweep does; nothing finds it meanwhile."""
    many = [f"Sentence number {place} stands here." for place in range(300)]
    collection = fill(library, models, books={"/a.txt": many, "/b.txt": ["The lamp was lit."]})
    indexes.rebuild(library, collection)
    folder, source = library.index_folder(collection), library.catalog.source(collection)
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    lamp = library.catalog.documents.find(collection, "/b.txt")
    assert lamp is not None
    remove_documents(library, models, collection, [lamp.id])
    assert {path.name: path.stat().st_ino for path in folder.iterdir()} == before
    words = KeywordIndex(folder)
    words.catch_up(source)
    assert not len(words.search("lamp", 3)[0])
    prune(library, models)
    manifests = [path.read_text() for path in folder.glob("*.json")]
    assert len(manifests) == 2 and all('"live": 300' in text for text in manifests)
    after = {path.name: path.stat().st_ino for path in folder.iterdir()}
    indexes.forget_all(library)
    assert {path.name: path.stat().st_ino for path in folder.iterdir()} == after


def test_a_collection_goes_with_everything(library: Library, models: Models) -> None:
    collection = fill(library, models, kv=True)
    indexes.rebuild(library, collection)
    removal = remove_collection(library, models, collection)
    assert removal == Removal(documents=2, chunks=5, kv_variants=5)
    assert not library.index_folder(collection).exists()
    assert not lock_file(library.catalog.database, collection.id).exists()
    assert len(files(library)) == 1, "the System segment's"
    with pytest.raises(CatalogError, match="no collection 'default'"):
        library.catalog.collections.get("default")


def converse(models: Models, *texts: int) -> list[str]:
    """Addresses of what is kept of a conversation of two questions with these many tokens."""
    front, name = models.template.system(), models.language.engine.spec.fingerprint
    for count in texts:
        prompt = [front, Text(tuple(token % 90 + 5 for token in range(count)))]
        list(models.cache.generate(prompt, max_tokens=1))
    models.language.keeper.settle()
    return [block.key.digest for block in addresses(prompt, name)]


def test_a_collection_takes_what_is_kept_of_conversations(library: Library, models: Models) -> None:
    collection = fill(library, models, kv=True)
    kept = set(converse(models, 200, 280))
    assert len(kept & files(library)) >= 2
    documents = [one.id for one in library.catalog.documents.all(collection, "ready")]
    remove_documents(library, models, collection, documents[:1])
    assert len(kept & files(library)) >= 2, "none of it saw the document"
    assert remove_collection(library, models, collection).kv_variants
    assert not kept & files(library)


@pytest.mark.parametrize("named", [True, False])
def test_conversations_with_models_of_before_go_too(
    library: Library, models: Models, settings: Settings, named: bool
) -> None:
    """Of an engine that nothing tells of any more."""
    collection = fill(library, models, books={"/a.txt": ["The bell rang at noon."]})
    with Models(settings.model_copy(update={"dtype": "bfloat16"})) as before:
        kept = set(converse(before, 200, 280))
    assert len(kept & files(library)) >= 2
    now = models if named else Models(settings.model_copy(update={"model": str(settings.cache_dir / "none")}))
    remove_collection(library, now, collection)
    assert not kept & files(library)


def test_what_is_still_to_be_kept_of_conversations_is_not(library: Library, models: Models, settings: Settings) -> None:
    """Of a program that answers, while another one deletes the collection."""
    collection = fill(library, models, kv=True)
    list(models.cache.generate([models.template.system()], max_tokens=1))
    with models.language.keeper.answering(), Models(settings) as other:
        front, ids = models.template.system(), tuple(range(5, 85)) * 4
        for count in (200, 280):
            list(models.cache.generate([front, Text(ids[:count])], max_tokens=1))
        there = files(library)
        assert remove_collection(library, other, collection).kv_variants
    models.language.keeper.settle()
    assert files(library) < there


def test_kv_of_answers_goes_though_no_ingest_made_any(library: Library, models: Models) -> None:
    """A collection ingested without KV gets some from each answer."""
    collection = fill(library, models, books={"/a.txt": ["The bell rang at noon."]})
    system, chunk = models.template.system(), models.template.chunk("The bell rang at noon.")
    assert len(list(models.cache.ingest(system, [chunk]))) == 1
    assert len(files(library)) == 2
    assert remove_collection(library, models, collection).kv_variants == 1


def test_kv_behind_system_prompts_of_before_goes_too(library: Library, models: Models) -> None:
    """Also of one that no ingest and no setting tells of any more."""
    text = "The bell rang at noon."
    collection = fill(library, models, books={"/a.txt": [text]}, kv=True)
    for then in (System((7, 8, 9)), System((9, 8))):
        answer = models.cache.generate([then, models.template.chunk(text), Text((5, 6))], max_tokens=1)
        list(answer)
        assert [chunk.system for chunk in answer.report.chunks] == ["other"]
        models.settle()
    assert len(files(library)) == 6, "three System segments, and the chunk behind each"
    assert remove_collection(library, models, collection).kv_variants == 3
    assert len(files(library)) == 3


@pytest.mark.parametrize("named", [True, False])
def test_kv_of_models_of_before_goes_too(library: Library, models: Models, settings: Settings, named: bool) -> None:
    """Of answers under other settings, which no ingest tells of; also where the model of the settings is not there."""
    text = "The bell rang at noon."
    collection = fill(library, models, books={"/a.txt": [text]})
    with Models(settings.model_copy(update={"dtype": "bfloat16"})) as before:
        for one in (models, before):
            assert len(list(one.cache.ingest(one.template.system(), [one.template.chunk(text)]))) == 1
    assert len(files(library)) == 4, "two System segments, and the chunk behind each"
    now = models if named else Models(settings.model_copy(update={"model": str(settings.cache_dir / "none")}))
    assert remove_collection(library, now, collection).kv_variants == 2
    assert len(files(library)) == 2


def test_nothing_goes_while_an_ingest_runs(library: Library, models: Models) -> None:
    collection = fill(library, models)
    with library.catalog.alone(collection):
        with pytest.raises(CatalogError, match="another process is working on collection 'default'"):
            remove_collection(library, models, collection)
        with pytest.raises(CatalogError, match="try again"):
            remove_documents(library, models, collection, [1])
    assert library.catalog.collections.totals(collection).documents == 2


@pytest.mark.parametrize("nothing", [False, True])
def test_a_removal_does_what_a_killed_one_left(library: Library, models: Models, nothing: bool) -> None:
    """Also one whose documents are gone already; what another collection has still stays."""
    collection = fill(library, models, kv=True)
    shared = BOOKS["/books/lamps.txt"][0]
    fill(library, models, "other", {"/copy.txt": [shared]}, kv=True)
    rye, lamps = (library.catalog.documents.find(collection, one) for one in BOOKS)
    assert rye is not None and lamps is not None
    library.catalog.documents.delete(collection, [lamps.id])
    there = files(library)
    assert remove_documents(library, models, collection, [lamps.id if nothing else rye.id]).kv_variants == (
        2 if nothing else 4
    )
    assert len(there - files(library)) == (2 if nothing else 4)
    assert library.catalog.orphans.of(collection) == (set(), set())


@pytest.mark.parametrize("whole", [False, True])
def test_a_file_that_cannot_be_deleted_keeps_no_other(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """And of the next removal no more than its own texts: each began anew with all that had failed together."""
    texts = [f"Sentence number {place} is here." for place in range(9)]
    collection = fill(library, models, books={"/a.txt": texts[:4], "/b.txt": texts[4:]}, kv=True)
    hashes, store = [models.template.chunk(text).hash for text in texts], models.store
    (stuck,) = (key for key in store.seeing({hashes[4]}) if key.chunk == hashes[6])
    ids, delete = [one.id for one in library.catalog.documents.all(collection)], DiskTier.delete

    def fail(tier: DiskTier, key: VariantKey) -> bool:
        if key == stuck:
            raise StoreError("this file may not be deleted")
        return delete(tier, key)

    with monkeypatch.context() as patch:
        patch.setattr(DiskTier, "delete", fail)
        with pytest.raises(MaintenanceError, match="this file may not be deleted"):
            remove_collection(library, models, collection) if whole else remove_documents(
                library, models, collection, ids
            )
        assert len(files(library)) == 2, "and the System segment's"
        assert library.catalog.orphans.of(collection)[0] == set(hashes[4:7])
        dropped, drop = list[str](), store.drop_chunk

        def count(fingerprint: str, system: str, chunk: str, *told: str, **more: Any) -> int:
            dropped.append(chunk)
            return drop(fingerprint, system, chunk, *told, **more)

        if not whole:
            patch.setattr(store, "drop_chunk", count)
            remove_documents(library, models, collection, [put(library, models, collection, "/c.txt", ["Small."])])
            assert set(dropped) == {models.template.chunk("Small.").hash, *hashes[4:7]}
    if whole:
        prune(library, models)
    else:
        remove_documents(library, models, collection, [])
    assert len(files(library)) == 1
    assert library.catalog.orphans.of(collection) == (set(), set())


def test_a_cache_that_fails_is_told_with_what_is_done_already(library: Library, models: Models) -> None:
    collection = fill(library, models)
    library.settings.cache_dir.mkdir()
    (library.settings.cache_dir / "kv" / "engine").mkdir(parents=True)
    (library.settings.cache_dir / "kv" / "index.mark").mkdir()  # where a file should be
    document = put(library, models, collection, "/new.txt", ["New."])
    with pytest.raises(MaintenanceError, match=r"the documents are deleted, but not all of their KV: cannot open"):
        remove_documents(library, models, collection, [document])
    assert library.catalog.documents.find(collection, "/new.txt") is None
