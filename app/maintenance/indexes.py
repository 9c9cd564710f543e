"""The indexes of a collection, without the models that searching them takes."""

from __future__ import annotations

import shutil

from app.catalog import Collection
from app.errors import MaintenanceError
from app.workspace import Workspace


def catch_up(workspace: Workspace, collection: Collection) -> None:
    """Let the index files forget what was deleted. Where there are none, there is nothing to forget."""
    if workspace.index_folder(collection).is_dir():
        _each(workspace, collection, rebuild=False)


def rebuild(workspace: Workspace, collection: Collection) -> None:
    """Both indexes anew, from the embeddings and texts in SQL."""
    _each(workspace, collection, rebuild=True)


def discard(workspace: Workspace, collection: Collection) -> None:
    """Remove the index files of a collection that is gone, or was embedded again."""
    folder = workspace.index_folder(collection)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise MaintenanceError(f"cannot remove the old indexes in {folder}: {error}. Delete the folder") from error


def _each(workspace: Workspace, collection: Collection, *, rebuild: bool) -> None:
    from retriever.keyword_index import KeywordIndex
    from retriever.vector_index import VectorIndex

    folder, source = workspace.index_folder(collection), workspace.catalog.source(collection)
    vectors = VectorIndex(collection.dimension, collection.embedder_fingerprint, folder)
    for index in (vectors, KeywordIndex(folder)):
        if rebuild:
            index.rebuild(source)
        else:
            index.catch_up(source)
        index.save()
