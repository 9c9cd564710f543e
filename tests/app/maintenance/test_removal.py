from __future__ import annotations

import pytest

from app.catalog import CatalogError
from app.catalog.locks import lock_file
from app.errors import MaintenanceError
from app.maintenance import indexes
from app.maintenance.removal import Removal, remove_collection, remove_documents
from app.workspace import Workspace
from ragcache.types import VariantKey
from retriever.keyword_index import KeywordIndex
from retriever.vector_index import VectorIndex
from tests.app.maintenance.shelves import BOOKS, DIMENSION, files, fill, put


def test_a_document_goes_with_its_kv_but_not_with_that_of_others(workspace: Workspace) -> None:
    collection = fill(workspace, kv=True)
    shared = BOOKS["/books/rye.txt"][:1]
    other = fill(workspace, "other", {"/elsewhere/copy.txt": shared}, kv=True)
    rye = workspace.catalog.documents.find(collection, "/books/rye.txt")
    assert rye is not None
    before = files(workspace)
    removal = remove_documents(workspace, collection, [rye.id, 10**6])
    assert removal == Removal(documents=1, chunks=2, kv_variants=1)
    assert workspace.catalog.documents.find(collection, "/books/rye.txt") is None
    spec, system = workspace.parts.engine.spec, workspace.template.system()
    kept = VariantKey(spec.fingerprint, system.hash, (), workspace.template.chunk(shared[0]).hash)
    assert kept.digest in files(workspace)
    assert len(before - files(workspace)) == 1
    assert remove_collection(workspace, other).kv_variants == 1
    assert kept.digest not in files(workspace)


def test_the_index_files_forget_it(workspace: Workspace) -> None:
    collection = fill(workspace)
    indexes.rebuild(workspace, collection)
    folder, source = workspace.index_folder(collection), workspace.catalog.source(collection)
    lamps = workspace.catalog.documents.find(collection, "/books/lamps.txt")
    assert lamps is not None
    remove_documents(workspace, collection, [lamps.id])
    vectors = VectorIndex(DIMENSION, collection.embedder_fingerprint, folder)
    words = KeywordIndex(folder)
    for index in (vectors, words):
        index.catch_up(source)
        assert index.live == 2
    assert not len(words.search("lamp", 3)[0])
    manifests = [path.read_text() for path in folder.glob("*.json")]
    assert len(manifests) == 2
    assert all('"live": 2' in text for text in manifests), "the files themselves, not what a query made of them"


def test_a_collection_goes_with_everything(workspace: Workspace) -> None:
    collection = fill(workspace, kv=True)
    indexes.rebuild(workspace, collection)
    removal = remove_collection(workspace, collection)
    assert removal == Removal(documents=2, chunks=5, kv_variants=5)
    assert not workspace.index_folder(collection).exists()
    assert not lock_file(workspace.catalog.database, collection.id).exists()
    assert len(files(workspace)) == 1, "the System segment's"
    with pytest.raises(CatalogError, match="no collection 'default'"):
        workspace.catalog.collections.get("default")


def test_kv_of_answers_goes_though_no_ingest_made_any(workspace: Workspace) -> None:
    """A collection ingested without KV gets some from each answer."""
    collection = fill(workspace, books={"/a.txt": ["The bell rang at noon."]})
    system, chunk = workspace.template.system(), workspace.template.chunk("The bell rang at noon.")
    assert len(list(workspace.cache.ingest(system, [chunk]))) == 1
    assert len(files(workspace)) == 2
    assert remove_collection(workspace, collection).kv_variants == 1


def test_nothing_goes_while_an_ingest_runs(workspace: Workspace) -> None:
    collection = fill(workspace)
    with workspace.catalog.alone(collection):
        with pytest.raises(CatalogError, match="another process is working on collection 'default'"):
            remove_collection(workspace, collection)
        with pytest.raises(CatalogError, match="try again"):
            remove_documents(workspace, collection, [1])
    assert workspace.catalog.collections.totals(collection).documents == 2


def test_a_cache_that_fails_is_told_with_what_is_done_already(workspace: Workspace) -> None:
    collection = fill(workspace)
    workspace.settings.cache_dir.mkdir()
    (workspace.settings.cache_dir / "kv" / "engine").mkdir(parents=True)
    (workspace.settings.cache_dir / "kv" / "index.mark").mkdir()  # where a file should be
    document = put(workspace, collection, "/new.txt", ["New."])
    with pytest.raises(MaintenanceError, match=r"the documents are deleted, but not all of their KV: cannot open"):
        remove_documents(workspace, collection, [document])
    assert workspace.catalog.documents.find(collection, "/new.txt") is None
